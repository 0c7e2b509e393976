"""Convex programs as data, each with its certificate. Knows no algorithm."""
