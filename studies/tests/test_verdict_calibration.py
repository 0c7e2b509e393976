"""The study of the verdict's calibration on few draws."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from study_cases import run_study, value
from tokengeom import NextTokenStatistics
from tokengeom.extending import FitInputs, SoftLabels, directional_agreement, explanation_classes, unit_columns
from tokengeom_studies.verdict_calibration import (
    AGREEING,
    DISAGREEING,
    EXPLANATION,
    KINDS,
    TEXTS,
    Judged,
    calibrate,
    draw_text,
    explained,
    judged,
    share_right,
)


def test_every_kind_of_embeddings_has_a_share_of_right_verdicts() -> None:
    findings = run_study("verdict-calibration", draws=2, most_contexts=40)
    for kind in KINDS:
        assert 0.0 <= value(findings, f"share of right verdicts, {kind}") <= 1.0
    assert len(findings.tables["verdicts"]["kind"]) == 2 * len(KINDS)
    assert findings.passed, findings.summary()


def test_shares_are_those_of_one_kind() -> None:
    right = Judged("gaussian", "", "zipf", 9, 9, 3, False, "does not agree", "", 0.0, 0.0, True)
    found = [right, replace(right, right=False), replace(right, kind="trained", right=False)]
    assert share_right(found, "gaussian") == 0.5
    assert share_right(found, "trained") == 0.0


@pytest.mark.parametrize("kind", [*DISAGREEING, *AGREEING])
def test_verdicts_on_embeddings_of_known_origin_are_right(kind: str) -> None:
    draws = 2 if kind == "untrained" else 4  # the third draw of untrained ones is a transformer
    for draw in range(draws):
        found = judged(kind, draw, np.random.default_rng([7, draw]), most_contexts=60)
        assert found.right, found


def test_a_run_with_the_geometry_of_an_explanation_names_it() -> None:
    for draw in range(0, 33, 4):
        found = judged(EXPLANATION, draw, np.random.default_rng([8, draw]), most_contexts=60)
        assert found.right, found
        assert (found.outcome, bool(found.better)) != ("another explanation fits better", False)


@pytest.mark.slow
def test_verdicts_are_right_at_least_95_times_in_100() -> None:
    found = calibrate(100, seed=1, most_contexts=120)
    for kind in KINDS:
        right = [one.right for one in found if one.kind == kind]
        assert np.mean(right) >= 0.95, [one for one in found if one.kind == kind and not one.right]


@pytest.mark.parametrize("name", TEXTS)
def test_texts_have_the_sizes_asked_for(name: str) -> None:
    stats = draw_text(name, np.random.default_rng(0), shape=(20, 40))
    assert isinstance(stats, NextTokenStatistics)
    assert stats.m <= 40
    assert stats.V == 20 or name == "stories"
    assert np.unique(np.diff(stats.P.tocsc().indptr)).size > 1, "supports differ in size"


@pytest.mark.parametrize("kind", [one for one in explanation_classes() if one.quick], ids=lambda one: one.name)
def test_embeddings_made_from_an_explanation_have_its_cosines_and_a_loss_below_a_uniform_guess(kind: type) -> None:
    stats = draw_text("random", np.random.default_rng(1), shape=(18, 30))
    made = explained(kind, stats, np.random.default_rng(2))
    fits = [one.fit(stats) for one in kind.candidates(FitInputs())]  # type: ignore[attr-defined]
    targets = [unit_columns(fit.contexts(np.arange(stats.m))) for fit in fits]
    agreements = [directional_agreement(target, unit_columns(made.H)) for target in targets]
    assert max(agreements) == pytest.approx(1.0, abs=1e-6)
    assert SoftLabels.from_statistics(stats).loss_gap(made.logits) < np.log(stats.V) - stats.entropy
