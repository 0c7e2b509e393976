"""`tokengeom.extending`: every name exists, is imported when it is used, and is known to type checkers."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tokengeom
from tokengeom import extending

NAMES = extending.__all__


@pytest.mark.parametrize("name", NAMES)
def test_a_name_can_be_imported(name: str) -> None:
    assert getattr(extending, name) is not None


def test_no_name_is_public_twice() -> None:
    assert not set(NAMES) & set(tokengeom.__all__)
    assert dir(extending) == NAMES == sorted(set(NAMES))


def test_type_checkers_see_every_name_under_its_own_name() -> None:
    tree = ast.parse(Path(str(extending.__file__)).read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    names = [alias for node in imports for alias in node.names]
    assert all(alias.asname == alias.name for alias in names), "an import is exported only under a name that it states"
    assert sorted(alias.name for alias in names) == NAMES


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        getattr(extending, "nonsense")  # noqa: B009


def test_nothing_heavy_is_imported_before_a_name_is_used() -> None:
    code = "import sys, tokengeom.extending; print([m for m in ('torch', 'numpy', 'typer') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
