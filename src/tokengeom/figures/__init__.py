"""Figures as plain data, builders that make them from results, and renderers that draw them."""
