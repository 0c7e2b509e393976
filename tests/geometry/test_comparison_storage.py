"""A comparison comes back from disk as it was."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tokengeom import NextTokenStatistics, compare, predict
from tokengeom.errors import InputError
from tokengeom.geometry.comparison import Comparison, load_comparison, save_comparison


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    rng = np.random.default_rng(0)
    stats = NextTokenStatistics.from_counts(rng.integers(0, 3, (6, 9)) + np.eye(6, 9, dtype=int) + np.eye(6, 9, 6, int))
    return compare(predict(stats), (rng.normal(size=(6, 4)), rng.normal(size=(4, 9))), resamples=20, permutations=0)


def test_every_number_comes_back_undefined_ones_too(comparison: Comparison, tmp_path: Path) -> None:
    save_comparison(comparison, tmp_path / "c")
    again = load_comparison(tmp_path / "c")
    # NaN differs from itself; its text does not.
    assert str(again.to_dict()) == str(comparison.to_dict())
    assert np.isnan(again.context_similarity.null)
    json.loads((tmp_path / "c/comparison.json").read_text(), parse_constant=pytest.fail)


def test_a_damaged_or_foreign_folder_is_refused(comparison: Comparison, tmp_path: Path) -> None:
    save_comparison(comparison, tmp_path / "c")
    (tmp_path / "c/comparison.json").write_text('{"agreements": {"x": 1}}')
    with pytest.raises(InputError, match="Compare again"):
        load_comparison(tmp_path / "c")
    NextTokenStatistics.from_counts([[1]]).save(tmp_path / "s")
    with pytest.raises(InputError, match="not 'tokengeom-comparison'"):
        load_comparison(tmp_path / "s")
