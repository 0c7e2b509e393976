"""Algorithms, one a file. Knows nothing of text."""
