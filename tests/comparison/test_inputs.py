"""What both verbs take is checked alike: the start of a run, a run that overflows, and the numbers of both."""

from __future__ import annotations

from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest

from geometry_cases import grouped_counts
from tokengeom.comparison.agreement import CONTEXTS_AND_TOKENS, Agreement
from tokengeom.comparison.compare import compare
from tokengeom.comparison.inputs import gather
from tokengeom.comparison.rivals import rivals
from tokengeom.comparison.similarity_numbers import SMALLEST_STRATUM, equal_strata
from tokengeom.core.errors import ProblemError
from tokengeom.core.factors import Factors
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.predict import predict
from tokengeom.theory.proxy import predict_proxy

VERBS = ["compare", "rivals"]


def ends_of(verb: str, stats: NextTokenStatistics, run: object) -> dict[str, Agreement]:
    """Agreement of contexts and of tokens with L_mm, by either verb."""
    if verb == "compare":
        numbers = compare(predict(stats), run, permutations=20, at_loss=False)  # type: ignore[arg-type]
        return {"contexts": numbers.context_agreement, "tokens": numbers.token_agreement}
    table = rivals(stats, run, permutations=20, at_loss=False)  # type: ignore[arg-type]
    return {
        items: next(row.agreement for row in table.of(items) if row.rival == "L_mm") for items in CONTEXTS_AND_TOKENS
    }


def observed(start: Factors | None) -> SimpleNamespace:
    rng = np.random.default_rng(0)
    return SimpleNamespace(W=rng.standard_normal((12, 5)), H=rng.standard_normal((5, 28)), start=start)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("V", "d", "m", "known"), [(12, 5, 28, True), (12, 3, 28, True), (12, 5, 9, False), (11, 5, 28, False)]
)
def test_a_start_counts_where_it_is_for_the_same_tokens_and_contexts(
    verb: str, V: int, d: int, m: int, known: bool
) -> None:
    stats, rng = NextTokenStatistics.from_counts(grouped_counts(12, 14, 2, 3, seed=0)), np.random.default_rng(1)
    start = Factors(rng.standard_normal((V, d)), rng.standard_normal((d, m)))
    numbers = ends_of(verb, stats, observed(start))
    assert [np.isfinite(number.untrained) for number in numbers.values()] == [known, known]


@pytest.mark.parametrize("verb", VERBS)
def test_a_run_whose_logits_overflow_is_refused(verb: str) -> None:
    stats, run = NextTokenStatistics.from_counts(grouped_counts(12, 14, 2, 3, seed=0)), observed(None)
    with pytest.raises(ProblemError, match="logits W H of a run must be finite"):
        ends_of(verb, stats, (1e200 * run.W, 1e200 * run.H))


def test_both_verbs_compute_the_same_numbers() -> None:
    stats, rng = NextTokenStatistics.from_counts(grouped_counts(12, 14, 2, 3, seed=0)), np.random.default_rng(1)
    start = Factors(rng.standard_normal((12, 5)), rng.standard_normal((5, 28)))
    mine, theirs = (ends_of(verb, stats, observed(start)) for verb in VERBS)
    for items, number in mine.items():
        # L_mm is solved for to another tolerance.
        assert asdict(number) == pytest.approx(asdict(theirs[items]), abs=1e-3, nan_ok=True)


def test_every_kind_of_prediction_becomes_its_targets() -> None:
    stats = NextTokenStatistics.from_counts(grouped_counts(12, 14, 2, 3, seed=0))
    limit, run = predict(stats), observed(None)
    at = [limit.at(loss_gap=0.5), predict(stats, loss_gap=0.5, norm="gamma2")]
    assert list(gather([run], limit, at, None).targets) == ["nuclear", "gamma2", "limit"]
    assert list(gather([run], limit, [], None).targets) == ["limit"]
    assert list(gather([run], at[1], [], None).targets) == ["gamma2"]
    assert list(gather([run], predict_proxy(stats, components=8), [], None).targets) == ["proxy"]
    assert gather([run], None, at, None, stats).targets.keys() == {"nuclear", "gamma2"}


@pytest.mark.parametrize(
    ("numbers", "strata"),
    [
        ([3, 3, 1, 1, 3, 1, 3, 1, 3, 1], [1, 1, 0, 0, 1, 0, 1, 0, 1, 0]),  # equal ones together
        ([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]),  # with the next larger ones
        ([1] * 7 + [5, 6], [0] * 9),  # too few are left for a stratum of their own
        ([1] * 7 + [2] * 2 + [9] * 3, [0] * 7 + [1] * 5),
        ([4, 4, 4], [0, 0, 0]),
        ([], []),
    ],
)
def test_tokens_with_about_equal_numbers_are_one_stratum(numbers: list[int], strata: list[int]) -> None:
    found = equal_strata(np.array(numbers, dtype=np.int64))
    assert found.tolist() == strata
    assert not numbers or len(numbers) < SMALLEST_STRATUM or np.bincount(found).min() >= SMALLEST_STRATUM


def test_strata_are_of_the_degrees_of_the_compared_tokens() -> None:
    counts = np.zeros((30, 40), dtype=np.int64)
    degree = np.repeat([0, 2, 5, 20], [3, 9, 9, 9])
    rng = np.random.default_rng(0)
    for z, often in enumerate(degree):
        counts[z, rng.choice(40, often, replace=False)] = rng.integers(1, 9, often)
    counts[29, counts.sum(axis=0) == 0] = 1
    stats = NextTokenStatistics.from_counts(counts)
    run = SimpleNamespace(W=rng.standard_normal((30, 5)), H=rng.standard_normal((5, 40)))
    inputs = gather([run], None, [], None, stats)
    assert inputs.seen.tolist() == list(range(3, 30))
    assert inputs.strata is not None
    assert inputs.strata.tolist() == np.repeat([0, 1, 2], 9).tolist()
    assert gather([run], predict(stats), [], 0.5).strata is not None
    at = predict(stats).at(loss_gap=0.5)
    assert gather([run], at, [], 0.5).strata is None, "a prediction at a loss does not know the supports"
