"""``python -m tokengeom``: the command line, for launchers that start a module."""

from __future__ import annotations

from tokengeom.cli import main

if __name__ == "__main__":
    main()
