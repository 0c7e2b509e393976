"""`Rivals` as a result: saved and loaded, described, recomputed, and refused where it is damaged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from geometry_cases import grouped_counts
from tokengeom.errors import InputError
from tokengeom.geometry.rival_table import Rivals
from tokengeom.geometry.rivals import rivals
from tokengeom.results import load, verify
from tokengeom.statistics.next_token import NextTokenStatistics


@pytest.fixture(scope="module")
def table() -> Rivals:
    rng = np.random.default_rng(0)
    stats = NextTokenStatistics.from_counts(grouped_counts(8, 5, 2, 3, seed=0))
    run = (rng.normal(size=(stats.V, 4)), rng.normal(size=(4, stats.m)))
    return rivals(stats, run, held_out=0.0, resamples=0, permutations=20)


def test_every_row_is_loaded_as_it_was_saved(table: Rivals, tmp_path: Path) -> None:
    table.save(tmp_path / "r")
    again = load(tmp_path / "r")
    assert isinstance(again, Rivals)
    # NaN differs from itself; its text does not.
    assert str(again.to_dict()) == str(table.to_dict())
    assert str(again.rows) == str(table.rows)
    assert again.summary() == table.summary()
    assert verify(tmp_path / "r")


def test_a_damaged_table_is_refused(table: Rivals, tmp_path: Path) -> None:
    table.save(tmp_path / "r")
    (tmp_path / "r/rivals.json").write_text('{"rows": [{}]}')
    with pytest.raises(InputError, match=r"is damaged: rivals\.json"):
        Rivals.load(tmp_path / "r")


def test_verify_recomputes_order_and_differences(table: Rivals, tmp_path: Path) -> None:
    assert all(table.checks().values())
    shuffled = replace(table, rows=table.rows[::-1])
    shuffled.save(tmp_path / "r")
    assert verify(tmp_path / "r").failed == (
        "explanations are in the order of their similarity",
        "differences to the best explanation are those of the similarities",
    )


def test_a_table_without_permutations_does_not_claim_to_beat_chance(table: Rivals) -> None:
    untested = [replace(row, similarity=replace(row.similarity, null=float("nan"))) for row in table.rows]
    assert replace(table, rows=tuple(untested)).to_dict()["beats_chance"] == {"contexts": None, "tokens": None}


def test_repr_is_short_and_the_notebook_table_has_one_row_per_explanation_and_items(table: Rivals) -> None:
    best = table.best["contexts"]
    assert repr(table).startswith(f"Rivals(contexts={best.rival}, SIM {best.similarity.value:.4g}")
    html = table._repr_html_()
    assert html.count("<tr>") == len(table.rows) + 1
    assert "Rival explanations" in html
    assert "behind the best" in html
