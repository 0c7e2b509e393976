"""Explanations at their best: grids that are widened, values for contexts and tokens, and what none explains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tokengeom.comparison.agreement import CONTEXTS_AND_TOKENS
from tokengeom.comparison.comparison import UnexplainedItem, unexplained_items
from tokengeom.comparison.explained import WIDENED, Chooser, best_for_contexts, try_candidates
from tokengeom.comparison.explanations.base import AbstractFit, AbstractRival, FitInputs, LogitFit
from tokengeom.comparison.explanations.log_counts import LogCounts
from tokengeom.comparison.explanations.maximum_margin import MaximumMargin
from tokengeom.comparison.explanations.pmi import ShiftedPMI
from tokengeom.comparison.explanations.proxy import Proxy
from tokengeom.comparison.inputs import Inputs, gather
from tokengeom.comparison.similarity_numbers import Geometry, full_cosines
from tokengeom.core.numerics import Float
from tokengeom.statistics.next_token import NextTokenStatistics

V, M = 60, 48
Grid = LogCounts | ShiftedPMI


@pytest.fixture(scope="module")
def stats() -> NextTokenStatistics:
    """Counts of every size, from 1 to 100,000."""
    rng = np.random.default_rng(0)
    counts = np.zeros((V, M), dtype=np.int64)
    for j in range(M):
        support = np.append(rng.choice(V, 3, replace=False), j)
        counts[support, j] = 10 ** rng.uniform(0, 5, 4)
    counts[M:, :] += (rng.random((V - M, M)) < 0.05).astype(np.int64)
    return NextTokenStatistics.from_counts(counts)


def inputs_of(stats: NextTokenStatistics, *made: tuple[AbstractFit, AbstractFit]) -> Inputs:
    """Runs with the contexts of the first and the tokens of the second fit of each pair."""
    runs = []
    for contexts, tokens in made:
        H, W = contexts.contexts(np.arange(stats.m)), tokens.tokens(np.arange(stats.V)).T
        size = max(len(H), W.shape[1])
        runs.append((np.pad(W, ((0, 0), (0, size - W.shape[1]))), np.pad(H, ((0, size - len(H)), (0, 0)))))
    return gather(list(runs), None, [], None, stats)


def test_statistics_are_split_into_folds(stats: NextTokenStatistics) -> None:
    fit = LogCounts().fit(stats)
    for cross in Chooser.of(inputs_of(stats, (fit, fit))).folds.values():
        assert np.unique(cross.fold).size == 3


@pytest.mark.parametrize(
    "made",
    [LogCounts(3200.0), LogCounts(3200.0, 1.0), ShiftedPMI(32.0), ShiftedPMI(0.01)],
    ids=lambda made: made.chosen,
)
def test_a_value_far_outside_of_the_first_grid_is_found(stats: NextTokenStatistics, made: Grid) -> None:
    fit, kind = made.fit(stats), type(made)
    chooser = Chooser.of(inputs_of(stats, (fit, fit) if made.power == 0.5 else (fit, kind().fit(stats))))
    found = chooser.explain(kind, stats, FitInputs())
    assert found is not None
    info, best = found[0].info, found[1]
    grid = kind.grid
    assert not min(grid) <= getattr(made, made.parameter) <= max(grid)
    expected = full_cosines(fit.contexts(np.arange(M)))
    agreement = chooser.folds["contexts"].agreements
    assert agreement(expected, [found[0].contexts.cosines])[0] > 0.999
    assert agreement(expected, [full_cosines(best.contexts(np.arange(M)))])[0] > 0.999
    inside = max(
        agreement(expected, [full_cosines(kind(x, made.power).fit(stats).contexts(np.arange(M))) for x in grid])
    )
    assert inside < 0.998, "no value of the first grid would do"
    if made.parameter == "alpha":
        assert info.parameters.startswith(made.chosen)
    assert ", the best of " in info.parameters
    assert info.parameters.endswith("chosen on other items than those that are judged")


def test_contexts_and_tokens_have_values_of_their_own(stats: NextTokenStatistics) -> None:
    much, little = LogCounts(320.0), LogCounts(0.01)
    chooser = Chooser.of(inputs_of(stats, (much.fit(stats), little.fit(stats))))
    found = chooser.explain(LogCounts, stats, FitInputs())
    assert found is not None
    assert found[0].info.parameters.startswith(
        f"{much.chosen} for contexts and {little.chosen} for tokens, the best of"
    )
    np.testing.assert_allclose(
        found[0].contexts.cosines, full_cosines(much.fit(stats).contexts(np.arange(M))), atol=1e-9
    )
    tokens = little.fit(stats).tokens(chooser.inputs.seen)
    np.testing.assert_allclose(found[0].tokens.cosines, full_cosines(tokens), atol=1e-9)


def test_a_grid_is_widened_only_while_that_pays_and_not_for_ever(stats: NextTokenStatistics) -> None:
    def number_of(score: Sequence[float]) -> int:
        """Candidates that are tried, where larger values of alpha score ``score`` more per step."""
        order: list[float] = []

        def scored(fit: AbstractFit) -> list[float]:
            order.append(len(order))
            return [score[0] * len(order), score[1] * len(order)]

        return len(try_candidates(LogCounts, stats, FitInputs(), scored))

    first = 2 * len(LogCounts.grid)
    assert number_of((0.0, 0.0)) == first, "the first of equal ones counts, and its gain is none"
    assert number_of((1e-5, 1e-5)) == first, "too small a gain"
    assert number_of((1.0, 1.0)) == first + 2 * (WIDENED - 1)
    assert number_of((0.0, 1.0)) == first + 2 * (WIDENED - 1), "tokens have values of their own"


def test_the_next_values_are_beyond_both_ends() -> None:
    tried: list[AbstractRival] = [LogCounts(alpha) for alpha in (0.1, 1.0, 10.0)]
    assert tried[1].beyond(tried) == []
    assert tried[0].beyond(tried) == [LogCounts(0.032, 0.5), LogCounts(0.032, 1.0)]
    assert tried[2].beyond(tried) == [LogCounts(32.0, 0.5), LogCounts(32.0, 1.0)]
    assert [one.alpha for one in LogCounts(3.0).beyond([LogCounts(3.0)])] == pytest.approx([0.95, 0.95, 9.5, 9.5])  # type: ignore[attr-defined]
    assert Proxy().beyond([Proxy()]) == []


def test_an_explanation_without_parameters_is_fitted_once_and_one_that_is_left_out_is_none(
    stats: NextTokenStatistics,
) -> None:
    fit = LogCounts().fit(stats)
    chooser = Chooser.of(inputs_of(stats, (fit, fit)))
    found = chooser.explain(Proxy, stats, FitInputs())
    assert found is not None
    assert found[0].info.parameters == "none"
    np.testing.assert_allclose(found[0].contexts.cosines, full_cosines(found[1].contexts(np.arange(M))))
    assert isinstance(found[1], LogitFit)
    shares = NextTokenStatistics.from_probabilities(stats.P, stats.pi)
    assert chooser.explain(LogCounts, shares, FitInputs()) is None, "there are no counts"
    assert chooser.explain(MaximumMargin, stats, FitInputs(proxy_only=True)) is None
    assert best_for_contexts([]) is None


def test_parameters_are_chosen_for_the_mean_of_the_runs(stats: NextTokenStatistics) -> None:
    fits = [LogCounts(alpha).fit(stats) for alpha in (0.1, 1000.0)]
    inputs = inputs_of(stats, *((fit, fit) for fit in fits))
    for items in CONTEXTS_AND_TOKENS:
        both = [full_cosines(inputs.vectors(run, items)) for run in inputs.runs]
        np.testing.assert_allclose(Chooser.of(inputs).observed(items), np.mean(both, axis=0), atol=1e-12)


def noisy(geometry: Geometry, item: int, rng: np.random.Generator) -> Float:
    """Cosines in which one item is elsewhere."""
    X, row = geometry.cosines.copy(), rng.uniform(-0.5, 0.5, len(geometry.cosines))
    X[item], X[:, item] = row, row
    X[item, item] = 1.0
    return X


def test_the_items_that_nothing_explains_are_listed_with_their_neighbours(stats: NextTokenStatistics) -> None:
    fit, rng = LogCounts().fit(stats), np.random.default_rng(0)
    inputs = inputs_of(stats, (fit, fit))
    chooser = Chooser.of(inputs)
    found = chooser.explain(LogCounts, stats, FitInputs())
    assert found is not None
    together = chooser.together([found[0]])
    for items in CONTEXTS_AND_TOKENS:
        assert chooser.folds[items].agreements(chooser.observed(items), [together.of(items).cosines])[0] > 0.999
    moved = {items: noisy(inputs.geometries[items][0], 7, rng) for items in CONTEXTS_AND_TOKENS}
    inputs.geometries.update(
        {items: (replace(inputs.geometries[items][0], cosines=moved[items]),) for items in CONTEXTS_AND_TOKENS}
    )
    listed = unexplained_items(inputs, together)
    for items in CONTEXTS_AND_TOKENS:
        worst = next(item for item in listed if item.items == items)
        name = stats.vocabulary[inputs.seen[7]] if items == "tokens" else worst.name
        assert worst.name == name
        X, others = moved[items], np.delete(np.arange(len(moved[items])), 7)
        if items == "contexts":
            others = np.flatnonzero(inputs.units("contexts") != inputs.units("contexts")[7])
        expected = np.corrcoef(X[7, others], together.of(items).cosines[7, others])[0, 1]
        assert worst.correlation == pytest.approx(expected)
        near = np.argsort(-np.delete(X[7], 7), kind="stable")[:3]
        assert [cosine for _, cosine in worst.neighbours] == pytest.approx(np.delete(X[7], 7)[near], abs=1e-6)
        assert f"'{worst.name}' (correlation {expected:.2f}; nearest in the model: " in str(worst)
    assert unexplained_items(replace(inputs, stats=None), together) == ()


def test_a_name_with_a_line_break_is_printed_on_one_line() -> None:
    item = UnexplainedItem("contexts", ".\nO", 0.18, ((".\nA", 0.61), ("he said", 0.5)))
    assert str(item) == r"'.\nO' (correlation 0.18; nearest in the model: '.\nA' 0.61, 'he said' 0.50)"
