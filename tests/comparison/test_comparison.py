"""`Comparison` as a result: saved and loaded, described, and refused where it is damaged."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from forging import Entry, forge_entry, forge_json
from tokengeom.comparison.compare import compare
from tokengeom.comparison.comparison import Comparison
from tokengeom.comparison.target import TARGETS, meaning
from tokengeom.core.errors import InputError, ProblemError
from tokengeom.results.registry import load
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.predict import predict
from tokengeom.verification.verify import verify


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    rng = np.random.default_rng(0)
    stats = NextTokenStatistics.from_counts(rng.integers(0, 3, (6, 9)) + np.eye(6, 9, dtype=int) + np.eye(6, 9, 6, int))
    run = rng.normal(size=(6, 4)), rng.normal(size=(4, 9))
    return compare(predict(stats), run, permutations=0)


def test_every_number_is_loaded_as_it_was_saved_nan_included(comparison: Comparison, tmp_path: Path) -> None:
    assert comparison.save(tmp_path / "c") == tmp_path / "c"
    again = load(tmp_path / "c")
    assert isinstance(again, Comparison)
    # NaN differs from itself; its text does not.
    assert str(again.to_dict()) == str(comparison.to_dict())
    assert again.summary() == comparison.summary()
    assert np.isnan(again.context_similarity.null)
    assert again._repr_html_() == comparison._repr_html_()
    assert [row.rival for row in again.rows] == [row.rival for row in comparison.rows]
    assert len(again.rows) > 4
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


@pytest.mark.parametrize(
    ("entry", "value", "message"),
    [
        (("agreements", "limit_token_similarity", "value"), "high", "value must be a finite number"),
        (("agreements", "limit_token_similarity", "value"), float("inf"), "value must be a finite number"),
        (("agreements", "limit_token_similarity", "better"), "larger", "better must be one of higher, lower"),
        (("agreements", "limit_token_similarity", "extra"), 1, "'extra' is not an entry"),
        (("agreements", "limit_pearson"), {}, "value is missing"),
        (("agreements",), [], "agreements must be an object"),
        (("agreements",), {}, "context_agreement is missing"),
        (("verdict",), "splendid", "verdict must be one of"),
        (("norm",), "spectral", "norm must be one of nuclear"),
        (("reasons",), [], "the reason of the verdict is missing"),
        (("reasons",), [3], "reasons 0 must be a text"),
        (("rows", 0, "ours"), "yes", "ours must be true or false"),
        (("rows", 0), None, "rows 0 must be an object"),
        (("runs",), True, "runs must be a whole number"),
        (("seed",), -1, "seed must be at least 0"),
        (("disagreement",), {"norm": "nuclear"}, "is missing"),
        (("circumstances", "V"), 2.5, "V must be a whole number"),
        (("made_from",), 3, "made_from must be an object"),
        (("prediction_kind",), "linear", "cosine_without_finite is missing"),
    ],
)
def test_forged_entries_are_refused(
    comparison: Comparison, tmp_path: Path, entry: Entry, value: object, message: str
) -> None:
    folder = comparison.save(tmp_path / "c")

    def change(inside: dict[str, object]) -> dict[str, object]:
        return {**inside, str(entry[-1]): value}

    if len(entry) > 1 and isinstance(entry[-1], str):
        forge_json(folder, "comparison.json", entry[:-1], change)
    else:
        forge_json(folder, "comparison.json", entry, lambda before: value)
    with pytest.raises(InputError, match="c is damaged") as found:
        Comparison.load(folder)
    assert message in str(found.value)
    assert "can be read" in verify(folder).failed[0]


def test_a_number_with_an_unknown_name_is_refused(comparison: Comparison, tmp_path: Path) -> None:
    def rename(numbers: dict[str, object]) -> dict[str, object]:
        return {**numbers, "limit_pearson": numbers["limit_token_similarity"]}

    folder = forge_json(comparison.save(tmp_path / "c"), "comparison.json", "agreements", rename)
    with pytest.raises(InputError, match="'limit_pearson', which does not exist"):
        Comparison.load(folder)


def test_a_manifest_that_says_something_else_is_refused(comparison: Comparison, tmp_path: Path) -> None:
    folder = forge_entry(comparison.save(tmp_path / "c"), "verdict", lambda before: "agrees")
    with pytest.raises(InputError, match=r"verdict is not the same in comparison\.json and in the manifest"):
        Comparison.load(folder)


def test_a_comparison_alone_is_checked_as_far_as_it_goes(comparison: Comparison, tmp_path: Path) -> None:
    folder = comparison.save(tmp_path / "c")
    found = verify(folder)
    assert "the verdict and its reasons follow from the numbers" in found.checked
    assert found.not_checked[0].endswith("the prediction was not a saved result")
    name = "limit_token_agreement"
    forge_json(folder, "comparison.json", ("agreements", name), lambda one: {**one, "low": 2.0, "high": 3.0})
    assert "every interval contains its value" in verify(folder).failed


def test_repr_is_short_and_names_the_main_numbers(comparison: Comparison) -> None:
    assert repr(comparison).startswith("Comparison(verdict=cannot be determined, limit_support_agreement=")
    assert len(repr(comparison)) < 300


def test_the_notebook_table_has_one_row_per_number(comparison: Comparison) -> None:
    html = comparison._repr_html_()
    assert html.count("<tr>") == len(comparison) + 1
    assert "Comparison" in html
    assert "limit_token_similarity" in html
    assert comparison.reasons[0].split("(")[0].strip() in html


def test_every_number_has_a_meaning_and_says_what_it_is_compared_with(comparison: Comparison) -> None:
    for name in comparison:
        assert meaning(name) in comparison.summary()


def test_tables_at_the_loss_and_in_the_limit_have_plain_names(comparison: Comparison) -> None:
    assert comparison.at_loss == {}
    assert comparison.in_limit["token_agreement"] is comparison["limit_token_agreement"]
    with pytest.raises(ProblemError, match="has no number 'pearson'"):
        comparison["pearson"]


def test_the_data_frame_has_one_row_per_number(comparison: Comparison) -> None:
    frame = comparison.to_frame()
    assert list(frame.index) == list(comparison)
    expected = ("value", "low", "high", "null", "gaussian", "untrained", "floor", "meaning")
    assert {*expected, "reproducible", "attainable", "corrected", "explained", "explained_low"} <= {*frame.columns}


def test_a_table_per_target_has_the_numbers_of_the_comparison(comparison: Comparison) -> None:
    assert list(comparison.targets) == ["limit", "counts", ""]
    assert list(comparison.targets["counts"]) == ["support_agreement", "context_agreement", "token_agreement"]
    assert comparison.target is TARGETS["limit"]
    assert comparison.judged_numbers is comparison.in_limit is comparison.targets["limit"]
    assert comparison.targets[""]["finite_distance"] is comparison["finite_distance"]
