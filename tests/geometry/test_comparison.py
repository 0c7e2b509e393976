"""`Comparison` as a result: saved and loaded, described, and refused where it is damaged."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tokengeom.errors import InputError
from tokengeom.geometry.compare import compare
from tokengeom.geometry.comparison import Comparison
from tokengeom.results import load, verify
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.predict import predict


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    rng = np.random.default_rng(0)
    stats = NextTokenStatistics.from_counts(rng.integers(0, 3, (6, 9)) + np.eye(6, 9, dtype=int) + np.eye(6, 9, 6, int))
    run = rng.normal(size=(6, 4)), rng.normal(size=(4, 9))
    return compare(predict(stats), run, resamples=20, permutations=0)


def test_every_number_is_loaded_as_it_was_saved_nan_included(comparison: Comparison, tmp_path: Path) -> None:
    assert comparison.save(tmp_path / "c") == tmp_path / "c"
    again = load(tmp_path / "c")
    assert isinstance(again, Comparison)
    # NaN differs from itself; its text does not.
    assert str(again.to_dict()) == str(comparison.to_dict())
    assert again.summary() == comparison.summary()
    assert np.isnan(again.context_similarity.null)
    assert again.compared is None
    json.loads((tmp_path / "c/comparison.json").read_text(), parse_constant=pytest.fail)
    assert verify(tmp_path / "c")


def test_a_damaged_folder_or_one_of_another_kind_is_refused(comparison: Comparison, tmp_path: Path) -> None:
    comparison.save(tmp_path / "c")
    (tmp_path / "c/comparison.json").write_text('{"agreements": {"x": 1}}')
    with pytest.raises(InputError, match=r"is damaged: comparison\.json"):
        Comparison.load(tmp_path / "c")
    assert not verify(tmp_path / "c")
    NextTokenStatistics.from_counts([[1]]).save(tmp_path / "s")
    with pytest.raises(InputError, match="not 'tokengeom-comparison'"):
        Comparison.load(tmp_path / "s")


def test_repr_is_short_and_names_the_main_numbers(comparison: Comparison) -> None:
    assert repr(comparison).startswith("Comparison(prediction=features, context_similarity=")
    assert len(repr(comparison)) < 200


def test_the_notebook_table_has_one_row_per_number(comparison: Comparison) -> None:
    html = comparison._repr_html_()
    assert html.count("<tr>") == len(comparison) + 1
    assert "Comparison" in html
    assert "token_similarity" in html
