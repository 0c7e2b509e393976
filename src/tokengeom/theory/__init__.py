"""What training converges to, predicted with proofs."""
