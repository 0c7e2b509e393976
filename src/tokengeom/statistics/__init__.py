"""Exact next-token statistics: windows, counting engines, cuts, storage. Knows nothing of solving or training."""
