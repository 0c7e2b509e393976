"""The command line: thin, one file a command."""

from tokengeom.cli.app import main

__all__ = ["main"]
