"""Algorithms, one per file. Knows nothing of text."""
