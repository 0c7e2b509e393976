"""The command line, one module per command; options come from the settings of the Python functions."""

from tokengeom.cli.app import main

__all__ = ["main"]
