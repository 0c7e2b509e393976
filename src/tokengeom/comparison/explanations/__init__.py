"""Rival explanations of a model's geometry, one file each: a file that is added here is found by its name.

An explanation is a rule from next-token statistics to tokens and contexts. Its file defines one final subclass of
`AbstractRival` (``base.py``).
"""
