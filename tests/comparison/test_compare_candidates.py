"""The free parameters of an explanation are those at which its contexts agree best with the run."""

from __future__ import annotations

import numpy as np
import pytest

from geometry_cases import explained_counts
from tokengeom.comparison.compare import best_candidate, context_agreements
from tokengeom.comparison.explanations.base import FitInputs
from tokengeom.comparison.explanations.log_counts import LogCounts
from tokengeom.comparison.explanations.maximum_margin import MaximumMargin
from tokengeom.comparison.explanations.pmi import ShiftedPMI
from tokengeom.comparison.inputs import support_labels
from tokengeom.comparison.similarity_numbers import SimilarityNumbers
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import Float, cosines
from tokengeom.statistics.next_token import NextTokenStatistics


@pytest.fixture(scope="module")
def numbers() -> SimilarityNumbers:
    rng = np.random.default_rng(0)
    run = rng.normal(size=(6, 40))
    near = run + 0.4 * rng.normal(size=run.shape)
    targets = {"near": near, "mine": near + 0.02 * rng.normal(size=run.shape), "far": rng.normal(size=run.shape)}
    return SimilarityNumbers.of("contexts", run, targets, np.arange(40) // 2)


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
    found = best_candidate(type(made), stats, FitInputs(), run_of(stats, made).H, everything, support_labels(stats))
    assert found is not None
    info, fit = found
    number = len(type(made).candidates(FitInputs()))
    assert info.parameters == f"{made.chosen}, the best of {number} for this run's contexts"
    np.testing.assert_allclose(cosines(fit.contexts(everything)), cosines(run_of(stats, made).H), atol=1e-8)


def test_an_explanation_that_cannot_be_made_is_none(stats: NextTokenStatistics) -> None:
    shares = NextTokenStatistics.from_probabilities(stats.P, stats.pi)
    run = Factors(np.ones((stats.V, 1)), np.ones((1, stats.m)))
    everything = np.arange(stats.m)
    assert best_candidate(LogCounts, shares, FitInputs(), run.H, everything, support_labels(stats)) is None
    assert (
        best_candidate(MaximumMargin, stats, FitInputs(proxy_only=True), run.H, everything, support_labels(stats))
        is None
    )


def test_parameters_are_chosen_on_a_sample_of_many_contexts(
    stats: NextTokenStatistics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tokengeom.comparison.compare.MOST_CHOOSING", 10)
    sizes: list[int] = []

    def recorded(run: Float, targets: list[Float], groups: Float) -> Float:
        sizes.append(run.shape[1])
        return np.zeros(len(targets))

    monkeypatch.setattr("tokengeom.comparison.compare.context_agreements", recorded)
    run = Factors(np.ones((stats.V, 1)), np.ones((1, stats.m)))
    best_candidate(ShiftedPMI, stats, FitInputs(), run.H, np.arange(stats.m), support_labels(stats))
    assert sizes == [10]


def test_candidates_are_judged_by_the_agreement_of_the_table(numbers: SimilarityNumbers) -> None:
    found = context_agreements(numbers.run, list(numbers.targets.values()), numbers.units)
    values = numbers.values()
    np.testing.assert_allclose(found, [values[key, "context_agreement"] for key in numbers.targets])
    assert np.isnan(context_agreements(numbers.run, [np.ones((1, 40))], numbers.units)).all()
    assert np.isnan(context_agreements(numbers.run, [numbers.run], np.zeros(40, np.int64))).all(), "one support"
