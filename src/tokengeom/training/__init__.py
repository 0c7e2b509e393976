"""What training finds: the exact soft-label objective, optimizers, one loop, and runs with their trajectories."""
