"""Saved results: the contract that each keeps, folders and manifests, JSON, and the registry of kinds."""
