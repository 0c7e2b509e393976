"""Measured ratios against what a user would pick instead: both sides in one run, on the same data."""
