"""Convex programs as data, each with its dual and certificate; instances with known answers. Knows no algorithm."""
