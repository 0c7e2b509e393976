"""Algorithms, one a file; each ends with a certificate."""
