"""The study of the verdict's calibration on few draws."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tokengeom import NextTokenStatistics
from tokengeom.extending import (
    FitInputs,
    SilentProgress,
    SoftLabels,
    directional_agreement,
    explanation_classes,
    unit_columns,
)
from tokengeom_studies.common.measured import Rows
from tokengeom_studies.verdict_calibration import (
    AGREEING,
    DISAGREEING,
    EXPLANATION,
    KINDS,
    NOISY,
    TEXTS,
    VerdictCalibration,
    draw_text,
    explained,
    judged,
    share_right,
)


def rows_of(kinds: Sequence[str], **changes: object) -> list[dict[str, object]]:
    row: dict[str, object] = {"kind": "verdict", "outcome": "agrees", "right": True} | changes
    return [{"embeddings": kind, **row} for kind in kinds]


def test_one_kind_with_too_few_right_verdicts_refutes_the_hypothesis() -> None:
    study = VerdictCalibration()
    right, wrong = rows_of(KINDS) * 19, rows_of(KINDS[:1], right=False) * 2
    for rows, answer in ((right, "yes"), ([*right, *wrong[:1]], "yes"), ([*right, *wrong], "no")):
        findings = study.judge(study.recipe(), rows)
        assert findings.tables["hypotheses"]["answer"][0] == answer
        assert findings.passed
    assert share_right([*right, *wrong], KINDS[0]) == 19 / 21
    assert share_right(right, KINDS[1]) == 1.0
    assert not study.judge(study.recipe(), rows_of(KINDS[1:])).passed, "a kind without a draw"


@pytest.mark.parametrize("kind", [*DISAGREEING, *AGREEING, *NOISY])
def test_verdicts_on_embeddings_of_known_origin_are_right(kind: str) -> None:
    draws = 2 if kind == "untrained" else 3  # the third draw of untrained ones is a transformer
    for draw in range(draws):
        row = judged(kind, draw, np.random.default_rng([7, draw]), most_contexts=60)
        assert row["right"], row


def test_a_run_with_the_geometry_of_an_explanation_names_it() -> None:
    rows = [judged(EXPLANATION, d, np.random.default_rng([8, d]), most_contexts=60) for d in range(0, 36, 6)]
    # One in 25 is not named at this size; which one depends on the last digits.
    assert sum(row["right"] for row in rows) >= len(rows) - 1, rows
    for row in rows:
        assert (row["outcome"], bool(row["better"])) != ("another explanation fits better", False)


def test_noise_and_structure_have_the_strength_that_is_asked_for() -> None:
    row = judged("structure", 0, np.random.default_rng(3), most_contexts=100)
    rho, share = (float(part.split()[1]) for part in row["detail"].split(", "))
    for items in ("contexts", "tokens"):
        assert row[f"{items}_reproducible"] == pytest.approx(rho, abs=0.15)
        assert row[f"{items}_corrected"] ** 2 == pytest.approx(share, abs=0.2)


@pytest.mark.slow
def test_verdicts_are_right_at_least_95_times_in_100() -> None:
    rows = Rows()
    study = VerdictCalibration()
    study.measure(study.recipe() | {"seed": 1, "draws": 100, "most_contexts": 120}, rows, SilentProgress())
    for kind in KINDS:
        assert share_right(rows.rows, kind) >= 0.95, [row for row in rows.where(embeddings=kind) if not row["right"]]


@pytest.mark.parametrize("name", TEXTS)
def test_texts_have_the_sizes_asked_for(name: str) -> None:
    stats = draw_text(name, np.random.default_rng(0), shape=(20, 40))
    assert isinstance(stats, NextTokenStatistics)
    assert stats.m <= 40
    assert stats.V == 20 or name == "stories"
    assert np.unique(np.diff(stats.P.tocsc().indptr)).size > 1, "supports differ in size"


@pytest.mark.parametrize(
    "kind",
    [one for one in explanation_classes() if one.quick and one.candidates(FitInputs())],
    ids=lambda one: one.name,
)
def test_embeddings_made_from_an_explanation_have_its_cosines_and_a_loss_below_a_uniform_guess(kind: type) -> None:
    stats = draw_text("random", np.random.default_rng(1), shape=(18, 30))
    made = explained(kind, stats, np.random.default_rng(2))
    fits = [one.fit(stats) for one in kind.candidates(FitInputs())]  # type: ignore[attr-defined]
    targets = [unit_columns(fit.contexts(np.arange(stats.m))) for fit in fits]
    agreements = [directional_agreement(target, unit_columns(made.H)) for target in targets]
    assert max(agreements) == pytest.approx(1.0, abs=1e-6)
    assert SoftLabels.from_statistics(stats).loss_gap(made.logits) < np.log(stats.V) - stats.entropy
