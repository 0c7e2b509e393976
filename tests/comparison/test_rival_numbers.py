"""Rows of explanations on the same pairs: order, paired differences, and the choice of free parameters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from geometry_cases import explained_counts
from tokengeom.comparison import rival_numbers
from tokengeom.comparison.agreement import assess, with_reference
from tokengeom.comparison.comparison import nan_to_none
from tokengeom.comparison.explanations.base import Known
from tokengeom.comparison.explanations.log_counts import LogCounts
from tokengeom.comparison.explanations.maximum_margin import MaximumMargin
from tokengeom.comparison.explanations.pmi import ShiftedPMI
from tokengeom.comparison.rival_numbers import (
    ExplanationInfo,
    Lead,
    RivalRow,
    best_candidate,
    best_rival,
    context_agreements,
    rival_rows,
)
from tokengeom.comparison.similarity_numbers import SimilarityNumbers
from tokengeom.core.checks import Entries
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import Float, Int, cosines
from tokengeom.statistics.next_token import NextTokenStatistics

INFOS = {
    "near: ": ExplanationInfo("near", "close to the run", "supports"),
    "mine: ": ExplanationInfo("mine", "the prediction", "the loss", ours=True),
    "far: ": ExplanationInfo("far", "noise", "counts", "k=3"),
}


@pytest.fixture(scope="module")
def numbers() -> SimilarityNumbers:
    rng = np.random.default_rng(0)
    run = rng.normal(size=(6, 40))
    near = run + 0.4 * rng.normal(size=run.shape)
    targets = {"near: ": near, "mine: ": near + 0.02 * rng.normal(size=run.shape), "far: ": rng.normal(size=run.shape)}
    return SimilarityNumbers.of("contexts", run, targets, np.arange(40) // 2)


def groups_of(stats: NextTokenStatistics) -> Int:
    return np.asarray(stats.groups.label, dtype=np.int64)


def test_rows_are_in_order_with_paired_differences(numbers: SimilarityNumbers) -> None:
    assessed = assess(numbers, permutations=20, seed=0)
    rows = rival_rows(assessed, INFOS, "mine: ")
    values = [row.agreement.value for row in rows]
    assert values == sorted(values, reverse=True)
    assert rows[-1].rival == "far"
    assert rows[0].behind == Lead(0.0, 0.0, 0.0)
    far = rows[-1]
    assert far.behind.value == pytest.approx(values[0] - values[-1])
    assert far.behind.is_clear
    assert (far.meaning, far.uses, far.parameters, far.ours) == ("noise", "counts", "k=3", False)
    mine = next(row for row in rows if row.rival == "mine")
    assert mine.ours
    assert mine.ahead == Lead(0.0, 0.0, 0.0)
    assert far.ahead.value == pytest.approx(far.agreement.value - mine.agreement.value)
    near = next(row for row in rows if row.rival == "near")
    width = near.agreement.high - near.agreement.low
    assert near.ahead.high - near.ahead.low < 0.3 * width, "differences are paired"


def test_rows_show_references_that_are_given_and_no_lead_without_a_prediction(numbers: SimilarityNumbers) -> None:
    assessed = assess(numbers, permutations=0, seed=0)
    ceiling = with_reference(assessed.agreements(), "ceiling", {"far: context_agreement": 0.9})
    rows = rival_rows(assessed, INFOS, None, ceiling)
    assert {row.rival: row.agreement.ceiling for row in rows if np.isfinite(row.agreement.ceiling)} == {"far": 0.9}
    assert all(np.isnan(row.ahead.value) for row in rows)


def test_rows_are_the_same_after_to_dict(numbers: SimilarityNumbers) -> None:
    for row in rival_rows(assess(numbers, permutations=20, seed=0), INFOS, "mine: "):
        assert str(RivalRow.read(Entries(nan_to_none(row.to_dict()), Path("folder")))) == str(row)


def test_the_best_rival_is_not_the_prediction(numbers: SimilarityNumbers) -> None:
    rows = rival_rows(assess(numbers, permutations=0, seed=0), INFOS, "mine: ")
    found = best_rival(rows, "contexts")
    assert found is not None
    assert found.rival == "near"
    assert best_rival(rows, "tokens") is None


@pytest.fixture(scope="module")
def stats() -> NextTokenStatistics:
    return NextTokenStatistics.from_counts(explained_counts())


def run_of(stats: NextTokenStatistics, rival: LogCounts | ShiftedPMI) -> Factors:
    fit = rival.fit(stats)
    contexts, tokens = fit.contexts(np.arange(stats.m)), fit.tokens(np.arange(stats.V))
    return Factors(
        np.zeros((stats.V, contexts.shape[0])) if tokens.shape[0] != contexts.shape[0] else tokens.T, contexts
    )


@pytest.mark.parametrize(
    "made", [ShiftedPMI(5.0, 0.5), ShiftedPMI(0.3, 1.0), LogCounts(0.01, 0.5), LogCounts(10.0, 1.0)]
)
def test_the_parameters_that_made_the_run_are_found(stats: NextTokenStatistics, made: LogCounts | ShiftedPMI) -> None:
    everything = np.arange(stats.m)
    found = best_candidate(type(made), stats, Known(), run_of(stats, made), everything, groups_of(stats))
    assert found is not None
    info, fit = found
    number = len(type(made).candidates(Known()))
    assert info.parameters == f"{made.chosen}, the best of {number} for this run's contexts"
    np.testing.assert_allclose(cosines(fit.contexts(everything)), cosines(run_of(stats, made).H), atol=1e-8)


def test_an_explanation_that_cannot_be_made_is_none(stats: NextTokenStatistics) -> None:
    shares = NextTokenStatistics.from_probabilities(stats.P, stats.pi)
    run = Factors(np.ones((stats.V, 1)), np.ones((1, stats.m)))
    everything = np.arange(stats.m)
    assert best_candidate(LogCounts, shares, Known(), run, everything, groups_of(stats)) is None
    assert best_candidate(MaximumMargin, stats, Known(proxy_only=True), run, everything, groups_of(stats)) is None


def test_parameters_are_chosen_on_a_sample_of_many_contexts(
    stats: NextTokenStatistics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rival_numbers, "MOST_CHOOSING", 10)
    sizes: list[int] = []

    def recorded(run: Float, targets: list[Float], groups: Float) -> Float:
        sizes.append(run.shape[1])
        return np.zeros(len(targets))

    monkeypatch.setattr(rival_numbers, "context_agreements", recorded)
    run = Factors(np.ones((stats.V, 1)), np.ones((1, stats.m)))
    best_candidate(ShiftedPMI, stats, Known(), run, np.arange(stats.m), groups_of(stats))
    assert sizes == [10]


def test_candidates_are_judged_by_the_agreement_of_the_table(numbers: SimilarityNumbers) -> None:
    found = context_agreements(numbers.run, list(numbers.targets.values()), numbers.units)
    values = numbers.values()
    np.testing.assert_allclose(found, [values[f"{prefix}context_agreement"] for prefix in numbers.targets])
    assert np.isnan(context_agreements(numbers.run, [np.ones((1, 40))], numbers.units)).all()
    assert np.isnan(context_agreements(numbers.run, [numbers.run], np.zeros(40, np.int64))).all(), "one support"
