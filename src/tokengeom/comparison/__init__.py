"""Prediction compared with observation: similarity with intervals and null, collapse, probes, rival explanations."""
