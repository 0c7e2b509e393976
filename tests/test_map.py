"""The map of the house shows the house as it is."""

from __future__ import annotations

import importlib.util
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_the_map_lists_every_file_with_its_first_line() -> None:
    spec = importlib.util.spec_from_file_location("house_map", DOCS / "house_map.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (DOCS / "map.md").read_text(encoding="utf-8") == module.house_map(), "run `make map`"
