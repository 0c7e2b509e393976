"""Convex programs as data, each with its dual and certificate. Knows no algorithm."""
