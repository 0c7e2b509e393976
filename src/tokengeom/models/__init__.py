"""Models of the next token: linear, unconstrained features, networks, and checkpoints of language models."""
