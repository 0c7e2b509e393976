"""What theory predicts. Knows nothing of training."""
