"""Figures as data, and renderers that draw them. Knows nothing of pages."""
