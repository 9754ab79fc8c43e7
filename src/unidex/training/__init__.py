"""Training: the loop, the optimisers, checkpoints."""
