"""Convex programs as data, each with its dual and its certificate; instances with known answers."""
