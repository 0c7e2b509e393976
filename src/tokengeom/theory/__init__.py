"""What theory predicts from statistics. Knows nothing of training."""
