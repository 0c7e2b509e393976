"""Exact next-token statistics: windows, counting engines, counted pairs, cuts."""
