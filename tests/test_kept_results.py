"""Tables of the documentation are those that the kept results give."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy import stats

ROOT = Path(__file__).parents[1]


def script(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_of_optimizers_is_that_of_the_rows() -> None:
    made = script(ROOT / "results/optimizer_norms/table.py")
    page = (ROOT / "docs/results/optimizer_norms.md").read_text(encoding="utf-8")
    assert made.table() in page
    assert all(len(rows) == 5 for rows in made.runs().values())


def test_intervals_over_seeds_are_those_of_students_t() -> None:
    made = script(ROOT / "results/optimizer_norms/table.py")
    rows = made.runs()["adam"]
    values = np.array([row["agreement"]["gamma2"]["tokens"] - row["agreement"]["nuclear"]["tokens"] for row in rows])
    expected = stats.t.interval(0.95, len(values) - 1, values.mean(), stats.sem(values))
    assert made.difference(rows, "tokens")[1:] == pytest.approx(expected, rel=2e-3)
