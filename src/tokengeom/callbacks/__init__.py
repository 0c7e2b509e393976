"""Callbacks that log the geometry of a model while another library trains it, one module per library."""
