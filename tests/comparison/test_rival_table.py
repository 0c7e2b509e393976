"""`Rivals` as a result: saved and loaded, described, recomputed, and refused where it is damaged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forging import Entry, forge_json
from geometry_cases import grouped_counts
from tokengeom.comparison.explained import Lead
from tokengeom.comparison.rival_table import Rivals
from tokengeom.comparison.rivals import rivals
from tokengeom.core.errors import InputError
from tokengeom.results.registry import load
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.verification.verify import check_result, verify


@pytest.fixture(scope="module")
def table() -> Rivals:
    rng = np.random.default_rng(0)
    stats = NextTokenStatistics.from_counts(grouped_counts(8, 9, 2, 3, seed=0))
    run = (rng.normal(size=(stats.V, 4)), rng.normal(size=(4, stats.m)))
    chosen = ("proxy", "pmi", "simplex_frame", "maximum_margin")
    return rivals(stats, run, permutations=20, explanations=chosen)


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


@pytest.mark.parametrize(
    ("entry", "value", "message"),
    [
        (("rows", 1, "behind"), {"value": 1.0}, "low is missing"),
        (("rows", 1, "items"), "letters", "items must be one of"),
        (("rows", 1, "without_direction"), -1, "without_direction must be at least 0"),
        (("rows",), {}, "rows must be a list"),
        (("held_out",), 0.5, "held_out must be a whole number"),
        (("limitations",), "none", "limitations must be a list"),
        (("prediction",), 3, "prediction must be a text"),
    ],
)
def test_forged_entries_are_refused(table: Rivals, tmp_path: Path, entry: Entry, value: object, message: str) -> None:
    folder = forge_json(table.save(tmp_path / "r"), "rivals.json", entry, lambda before: value)
    with pytest.raises(InputError, match="r is damaged") as found:
        Rivals.load(folder)
    assert message in str(found.value)


def test_two_rows_of_one_explanation_are_refused_and_no_rows_are_not(table: Rivals, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="two rows for the same items"):
        Rivals.load(forge_json(table.save(tmp_path / "r"), "rivals.json", "rows", lambda rows: [*rows, rows[0]]))
    empty = Rivals.load(replace(table, rows=()).save(tmp_path / "empty"))
    assert "Brackets" in empty.summary()


def test_verify_recomputes_the_order_and_says_that_differences_need_the_run(table: Rivals, tmp_path: Path) -> None:
    assert False not in check_result(table).values()
    replace(table, rows=table.rows[::-1]).save(tmp_path / "r")
    assert verify(tmp_path / "r").failed == ("explanations are in the order of their agreement",)
    wrong = [replace(row, ahead=Lead(0.5, 0.4, 0.6)) for row in table.rows]
    replace(table, rows=tuple(wrong)).save(tmp_path / "ahead")
    said, _ = verify(tmp_path / "ahead").not_checked
    assert said.startswith("agreements, intervals, floors and differences were not computed again")
    outside = [replace(row, agreement=replace(row.agreement, low=2.0, high=3.0)) for row in table.rows]
    assert not check_result(replace(table, rows=tuple(outside)))["every interval contains its value"]


def test_plain_data_has_the_best_and_the_numbers_of_each_rival_by_name(table: Rivals) -> None:
    plain = table.to_dict()
    assert plain["best"] == {items: table.of(items)[0].rival for items in ("contexts", "supports", "tokens")}
    assert set(plain["rivals"]) == {"S~", "PMI", "ETF", "L_mm"}
    for row in table.rows:
        one = plain["rivals"][row.rival]
        assert (one["meaning"], one["uses"], one["parameters"], one["ours"]) == (
            row.meaning, row.uses, row.parameters, row.ours,
        )  # fmt: skip
        found = one[row.items]
        expected = (row.agreement.value, row.agreement.low, row.agreement.high, row.agreement.floor)
        np.testing.assert_equal([found[name] for name in ("value", "low", "high", "floor")], expected)
        np.testing.assert_equal(found["behind"]["value"], row.behind.value)
    assert plain["prediction"] == "L_mm"


def test_a_table_without_permutations_does_not_claim_to_be_above_the_floor(table: Rivals) -> None:
    nan = float("nan")
    untested = [
        replace(row, agreement=replace(row.agreement, null=nan, gaussian=nan, untrained=nan)) for row in table.rows
    ]
    assert replace(table, rows=tuple(untested)).to_dict()["above_floor"] == dict.fromkeys(table.items)


def with_values(table: Rivals, values: dict[str, float], lead: Lead, floor: float) -> Rivals:
    """One table of contexts in which these explanations have these values, against a floor."""
    rows = [next(row for row in table.of("contexts") if row.rival == name) for name in values]
    best, mine = max(values.values()), values["L_mm"]
    made = [
        replace(
            row,
            agreement=replace(
                row.agreement,
                value=x, low=x - 0.01, high=x + 0.01, null=floor, gaussian=floor, untrained=floor, reproducible=0.81,
                mean=x, corrected=x / 0.9,
            ),
            behind=replace(lead, value=best - x) if x < best else Lead(0.0, 0.0, 0.0),
            ahead=replace(lead, value=x - mine),
        )
        for row, x in zip(rows, values.values(), strict=True)
    ]  # fmt: skip
    return replace(table, rows=tuple(made))


def test_verdicts_name_the_best_and_where_the_prediction_is(table: Rivals) -> None:
    ahead = with_values(table, {"L_mm": 0.9, "S~": 0.8}, Lead(0.0, -0.12, -0.08), 0.1)
    assert ahead.verdicts == (
        "Contexts: L_mm (prediction in the limit of training) fits best, agreement 0.9 [0.89, 0.91], floor 0.1, "
        "attainable 0.9, explains 100%; S~ is 0.1 [-0.12, -0.08] behind, not clearly. The prediction (L_mm, 0.9) is "
        "clearly ahead of the best other explanation, S~ (0.8).",
    )
    behind = with_values(table, {"S~": 0.9, "L_mm": 0.8}, Lead(0.0, 0.05, 0.15), 0.1)
    assert "L_mm is 0.1 [0.05, 0.15] behind, clearly." in behind.verdicts[0]
    assert behind.verdicts[0].endswith("The prediction (L_mm, 0.8) is clearly behind S~.")
    chance = with_values(table, {"S~": 0.9, "L_mm": 0.8}, Lead(0.0, 0.05, 0.15), 0.95)
    assert "which chance gives as well; no other explanation does better than chance." in chance.verdicts[0]
    unknown = with_values(table, {"S~": float("nan"), "L_mm": float("nan")}, Lead(0.0, 0.0, 0.0), 0.1)
    assert unknown.verdicts == ("Contexts: too few or too similar to rank explanations.",)


def test_repr_is_short_and_the_notebook_table_has_one_row_per_explanation_and_items(table: Rivals) -> None:
    best = table.best["contexts"]
    assert repr(table).startswith(f"Rivals(contexts={best.rival}, agreement {best.agreement.value:.4g}")
    html = table._repr_html_()
    assert html.count("<tr>") == len(table.rows) + 1
    assert "Rival explanations" in html
    assert "behind the best" in html


def test_the_data_frame_has_one_row_per_explanation_and_items(table: Rivals) -> None:
    frame = table.to_frame()
    assert len(frame) == len(table.rows)
    row = next(row for row in table.of("tokens") if row.rival == "S~")
    assert frame.loc[("tokens", "S~"), "agreement"] == row.agreement.value
    assert frame.loc[("tokens", "S~"), "similarity_low"] == pytest.approx(row.similarity.low, nan_ok=True)
    assert frame.loc[("tokens", "S~"), "uses"] == "supports"
    assert {"reproducible", "attainable", "corrected", "explained", "reliability"} <= {*frame.columns}


def test_the_largest_agreement_is_said_to_be_without_noise_where_another_is_larger_as_it_stands(table: Rivals) -> None:
    first, second, *_ = table.of("tokens")
    chance: dict[str, Any] = {"low": -0.2, "high": 0.3, "null": 0.2, "gaussian": np.nan, "untrained": np.nan}
    noisy = replace(first.agreement, value=0.05, mean=np.nan, reliability=0.0625, **chance)
    plain = replace(second.agreement, value=0.1, mean=np.nan, reliability=1.0, **chance)

    def said(a: float, b: float) -> str:
        rows = (replace(first, agreement=replace(noisy, value=a)), replace(second, agreement=replace(plain, value=b)))
        return replace(table, rows=rows).verdicts[0]

    assert "has the largest agreement without its own noise (0.2), 0.05 [-0.2, 0.3]" in said(0.05, 0.1)
    assert "has the largest agreement, 0.05 [-0.2, 0.3]" in said(0.05, 0.04)
