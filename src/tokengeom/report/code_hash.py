"""Which code made a result: its hash goes into the keys, so that other code makes the result again."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from tokengeom.folders import file_hash

PACKAGE = Path(__file__).parents[1]
SHOWING = ("cli", "figures", "report/sections", "report/templates", "studies")
"""Parts of the package that show results, and do not make them."""


@cache
def code_hash(*, showing: bool = False) -> str:
    """Hash of the package's files; those that only show results count when asked for."""
    files = sorted(path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    names = [path.relative_to(PACKAGE).as_posix() for path in files]
    kept = [name for name in names if showing or not name.startswith(tuple(f"{part}/" for part in SHOWING))]
    content = "".join(f"{name} {file_hash(PACKAGE / name)}\n" for name in kept)
    return hashlib.sha256(content.encode()).hexdigest()
