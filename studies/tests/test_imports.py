"""Studies use the public names of `tokengeom`, and what `tokengeom.extending` offers, and nothing else of it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = [*(ROOT / "studies/src").rglob("*.py"), *(ROOT / "results").glob("*.py")]
ALLOWED = {"tokengeom", "tokengeom.extending"}


def imported(source: str) -> set[str]:
    """Modules of tokengeom that a source imports."""
    nodes = list(ast.walk(ast.parse(source)))
    modules = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return {module for module in modules if module.split(".")[0] == "tokengeom"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_study_imports_only_what_is_offered(path: Path) -> None:
    assert imported(path.read_text(encoding="utf-8")) <= ALLOWED


def test_a_deeper_import_is_seen() -> None:
    assert imported("def f():\n    from tokengeom.core.errors import InputError") == {"tokengeom.core.errors"}
