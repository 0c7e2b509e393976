"""Parts of a text compared with the whole: what is decided from rows, and that nothing is measured twice."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokengeom import count
from tokengeom.extending import InputError, SilentProgress
from tokengeom_studies.base import Findings
from tokengeom_studies.common.measured import Rows
from tokengeom_studies.common.part_findings import PartFindings
from tokengeom_studies.unknown_supports import DocumentWindows, UnknownSupports, _Compared, load_windows

STUDY = UnknownSupports()
TEXTS = ["a b c a b d .", "a b c a b c", "b c a b", "d"]
GROWTH = {
    "windows": 100,
    "contexts": 10,
    "pairs": 30,
    "missing_share": 0.1,
    "missing_error": 0.02,
    "missing_in_twin": 0.11,
    "missing_in_rest": 0.1,
    "new_pairs": 10.0,
    "new_pairs_error": 3.0,
    "new_pairs_in_twin": 12,
    "zeros_seen_later": 0.2,
    "growing_share": 0.5,
    "grew_in_twin": 0.4,
}
AGREEMENT = {"L_mm": 0.8, "nuclear 0.05": 0.97, "centred probabilities": 0.99}


def rows(
    growth: dict[str, Any] | None = None,
    agreement: dict[str, float] | None = None,
    both: float = 0.05,
    part_only: float = 0.05,
    better: float = 0.1,
    gap: float = 1e-3,
) -> list[dict[str, Any]]:
    """Rows of two sizes and three draws, in which every hypothesis holds unless something is changed."""
    known, found = {**AGREEMENT, **(agreement or {})}, list[dict[str, Any]]()
    for share, draw in product((0.25, 0.5), range(3)):
        at = {"text": "made up", "draw": draw, "share": share}
        noise = 0.001 * draw
        found.append({"kind": "growth", **at, **GROWTH, **(growth or {})})
        for part, whole in product((1, 2), (1, 2)):
            extra = both if (part, whole) == (2, 2) else part_only if (part, whole) == (2, 1) else 0.0
            compared = [
                {
                    "whole_threshold": whole,
                    "prediction": name,
                    "contexts": value + noise * (1 + (name == "L_mm") * (part == 2)) + extra,
                    "tokens": value + noise,
                    "gap": gap,
                }
                for name, value in known.items()
            ]
            found.append({"kind": "change", **at, "part_threshold": part, "compared": compared, "seconds": 1.0})
        compared = [
            {"seed": seed, "prediction": norm, "from_part": 0.7, "from_whole": 0.7 + better + 0.001 * seed, "gap": gap}
            for seed in range(3)
            for norm in ("nuclear", "gamma2")
        ]
        found.append({"kind": "model", **at, "loss_gap": 0.05, "compared": compared})
    return found


def judged(**changes: Any) -> Findings:
    return STUDY.judge(STUDY.recipe("small"), rows(**changes))


def decision(found: Findings, name: str) -> str:
    return str(found.tables["hypotheses"]["answer"][list(STUDY.hypotheses).index(name)])


def test_rows_in_which_everything_holds_give_yes_everywhere() -> None:
    found = judged()
    assert set(found.tables["hypotheses"]["answer"]) == {"yes"}
    assert found.passed
    assert "10 hypotheses 10 hold" in found.sentence


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"growth": {"missing_in_twin": 0.2}}, "good-turing"),
        ({"growth": {"missing_in_twin": 0.15}}, "good-turing interval"),
        ({"growth": {"new_pairs_in_twin": 20}}, "good-toulmin interval"),
        ({"agreement": {"L_mm": 0.98}}, "stable at a loss"),
        ({"agreement": {"nuclear 0.05": 0.85}}, "a quarter suffices"),
        ({"agreement": {"L_mm": 0.95}}, "the limit needs more"),
        ({"agreement": {"centred probabilities": 0.9}}, "probabilities change least"),
        ({"both": -0.05}, "thresholds on both sides"),
        ({"part_only": -0.05}, "a threshold on the part"),
        ({"better": -0.1}, "the model notices"),
    ],
)
def test_each_hypothesis_is_refuted_by_its_own_numbers(changes: dict[str, Any], name: str) -> None:
    assert decision(judged(**changes), name) == "no"


def test_a_prediction_that_is_not_proven_fails_a_check() -> None:
    found = judged(gap=0.1)
    assert [check.name for check in found.numbers if not check.passed] == ["largest proven gap of a prediction"]


def test_parts_have_no_common_documents_and_grow_with_the_share() -> None:
    recipe = STUDY.recipe("small", stories=40, contexts=5, vocabulary=5)
    compared = _Compared(load_windows("stories", recipe), "stories", recipe, Rows())
    first, second = compared.parts(0, 0.25)
    larger, _ = compared.parts(0, 0.5)
    assert first.sum() == second.sum() == 10
    assert not (first & second).any()
    assert (first <= larger).all()
    assert (compared.parts(1, 0.25)[0] != first).any()


def test_a_measurement_is_not_repeated() -> None:
    recipe = STUDY.recipe("small", stories=30, contexts=6, vocabulary=8, shares=[0.5], draws=[0], thresholds=[1],
                          loss_gaps=[0.05], models=[])  # fmt: skip
    rows = Rows()
    STUDY.measure(recipe, rows, SilentProgress())
    assert [row["kind"] for row in rows.rows] == ["growth", "change"]
    STUDY.measure(recipe, rows, SilentProgress())
    assert len(rows.rows) == 2


def test_counts_of_all_documents_are_those_of_the_counting_engine() -> None:
    windows = DocumentWindows.of(TEXTS, 2, 100, 100)
    counted = count(TEXTS, context=2)
    assert sorted(windows.counts().data.tolist()) == sorted(counted.table.data.tolist())
    assert windows.documents == len(TEXTS)


def test_counts_of_two_parts_add_up_to_the_whole() -> None:
    windows = DocumentWindows.of(TEXTS, 2, 100, 100)
    part = np.array([True, False, True, False])
    together = windows.counts(part) + windows.counts(~part)
    assert (together != windows.counts()).nnz == 0
    assert windows.counts(part).sum() == 5 + 2


def test_the_most_frequent_contexts_and_tokens_are_kept() -> None:
    windows = DocumentWindows.of(TEXTS, 2, 1, 1)
    # "a b" is followed by c three times and by d once.
    assert windows.shape == (1, 1)
    assert windows.counts().toarray().tolist() == [[3]]


def test_saved_windows_are_the_same(tmp_path: Path) -> None:
    windows = DocumentWindows.of(TEXTS, 1, 3, 2)
    windows.save(tmp_path / "windows.npz")
    again = load_windows(str(tmp_path / "windows.npz"), {"context": 1, "contexts": 3, "vocabulary": 2})
    assert (again.counts() != windows.counts()).nnz == 0
    assert (again.shape, again.documents) == (windows.shape, windows.documents)


def test_documents_of_a_text_file_are_separated(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a b c<|endoftext|>\n<|endoftext|>a b d")
    windows = load_windows(str(tmp_path / "text.txt"), {"context": 2, "contexts": 9, "vocabulary": 9})
    assert windows.documents == 2
    assert windows.counts().sum() == 2


def test_a_text_that_is_not_there_or_too_short_is_refused() -> None:
    with pytest.raises(InputError, match=r"none\.npz"):
        load_windows("none.npz", {"context": 1, "contexts": 1, "vocabulary": 1})
    with pytest.raises(InputError, match="no windows"):
        DocumentWindows.of(["a"], 2, 1, 1)


def test_tables_have_a_column_for_each_size_and_no_thresholds_without_any() -> None:
    found = judged()
    assert found.tables["change"]["0.25"][0] == "0.801 +- 0.002"
    assert found.tables["change"]["agreement of"][0] == "contexts"
    assert found.tables["thresholds"]["part, at least"][:4] == [1, 1, 2, 2]
    assert found.tables["model"]["from the whole text"] == ["0.801 [0.799, 0.803]"] * 2
    alone = [row for row in rows() if row.get("part_threshold", 1) == 1]
    for row in alone:
        if row["kind"] == "change":
            row["compared"] = [one for one in row["compared"] if one["whole_threshold"] == 1]
    assert "thresholds" not in STUDY.judge(STUDY.recipe("small"), alone).tables


def test_what_a_model_notices_is_an_interval_over_seeds() -> None:
    found = PartFindings(rows(better=0.1)).noticed(0.25, "nuclear")
    assert found.mean == pytest.approx(0.101)
    assert found.count == 3
    assert found.half == pytest.approx(4.303 * 0.001 / 3**0.5, rel=1e-3)
