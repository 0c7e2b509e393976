"""docs/map.md lists every module as it is now."""

from __future__ import annotations

import importlib.util
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_the_map_lists_every_module_with_the_first_line_of_its_docstring() -> None:
    spec = importlib.util.spec_from_file_location("package_map", DOCS / "package_map.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (DOCS / "map.md").read_text(encoding="utf-8") == module.package_map(), "run `make map`"
