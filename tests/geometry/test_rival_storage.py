"""A table of rivals comes back from disk as it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from geometry_cases import grouped_counts
from tokengeom import NextTokenStatistics
from tokengeom.errors import InputError
from tokengeom.geometry.rival_table import load_rivals, save_rivals
from tokengeom.geometry.rivals import rivals


def test_every_row_comes_back_and_a_damaged_table_is_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    stats = NextTokenStatistics.from_counts(grouped_counts(8, 5, 2, 3, seed=0))
    run = (rng.normal(size=(stats.V, 4)), rng.normal(size=(4, stats.m)))
    table = rivals(stats, run, held_out=0.0, resamples=0, permutations=20)
    save_rivals(table, tmp_path / "r")
    again = load_rivals(tmp_path / "r")
    # NaN differs from itself; its text does not.
    assert str(again) == str(table)
    assert again.summary() == table.summary()
    (tmp_path / "r/rivals.json").write_text('{"rows": [{}]}')
    with pytest.raises(InputError, match="Make the table again"):
        load_rivals(tmp_path / "r")
