"""The loss gap is the Kullback-Leibler divergence, accurate where a difference of losses would be noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokengeom.core.errors import ProblemError, StatisticsError
from tokengeom.core.numerics import Float
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.training.objective import SoftLabels
from training_problems import random_statistics


def plain_cross_entropy(P: Float, pi: Float, L: Float) -> float:
    q = np.exp(L - L.max(axis=0))
    q /= q.sum(axis=0)
    return float(-np.sum(pi * np.sum(np.where(P > 0, P * np.log(q), 0.0), axis=0)))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), k=st.integers(1, 6), scale=st.floats(0.0, 5.0))
def test_gap_is_cross_entropy_minus_entropy(seed: int, k: int, scale: float) -> None:
    stats = random_statistics(seed, V=6, m=5, k=k)
    labels = SoftLabels.from_statistics(stats)
    L = scale * np.random.default_rng(seed).standard_normal((6, 5))
    expected = plain_cross_entropy(stats.P.toarray(), stats.pi, L) - stats.entropy
    assert labels.entropy == pytest.approx(stats.entropy, abs=1e-12)
    assert labels.loss_gap(L) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("distance", [1.0, 30.0, 300.0, 690.0])
def test_gap_is_accurate_down_to_1e_300(distance: float) -> None:
    labels = SoftLabels.from_dense(np.array([[0.25], [0.75], [0.0]]))
    L = np.array([[math.log(0.25)], [math.log(0.75)], [-distance]])
    assert labels.loss_gap(L) == pytest.approx(math.log1p(math.exp(-distance)), rel=1e-12)


def test_gap_does_not_overflow_when_the_model_is_confidently_wrong() -> None:
    labels = SoftLabels.from_dense(np.array([[1.0], [0.0]]))
    assert labels.loss_gap(np.array([[-1000.0], [0.0]])) == pytest.approx(1000.0)


def test_loss_on_distinct_contexts_equals_loss_on_raw_windows() -> None:
    rng = np.random.default_rng(3)
    counts = rng.integers(0, 4, (5, 6)) + np.eye(5, 6, dtype=int) + np.ones((5, 6), int) * (np.arange(6) == 5)
    stats = NextTokenStatistics.from_counts(counts)
    L = rng.standard_normal((5, 6))
    log_q = L - np.log(np.exp(L).sum(axis=0))
    windows = [-log_q[z, j] for z in range(5) for j in range(6) for _ in range(counts[z, j])]
    labels = SoftLabels.from_statistics(stats)
    assert labels.windows == counts.sum() == len(windows)
    assert labels.loss_gap(L) + labels.entropy == pytest.approx(np.mean(windows), abs=1e-12)


def test_gradient_equals_finite_differences() -> None:
    labels = SoftLabels.from_statistics(random_statistics(1))
    rng = np.random.default_rng(4)
    L, direction = rng.standard_normal((2, 7, 9))
    step = 1e-6
    slope = (labels.loss_gap(L + step * direction) - labels.loss_gap(L - step * direction)) / (2 * step)
    assert np.sum(labels.gradient(L) * direction) == pytest.approx(slope, rel=1e-7)


def test_gap_and_margins_do_not_depend_on_shifts_of_columns_or_on_order() -> None:
    stats = random_statistics(2)
    labels = SoftLabels.from_statistics(stats)
    rng = np.random.default_rng(5)
    L = rng.standard_normal((7, 9))
    shifted = L + rng.standard_normal(9)
    tokens, contexts = rng.permutation(7), rng.permutation(9)
    other = SoftLabels.from_dense(stats.P.toarray()[tokens][:, contexts], stats.pi[contexts])
    assert labels.loss_gap(shifted) == pytest.approx(labels.loss_gap(L), rel=1e-12)
    assert other.loss_gap(L[tokens][:, contexts]) == pytest.approx(labels.loss_gap(L), rel=1e-12)
    np.testing.assert_allclose(labels.margins(shifted), labels.margins(L), atol=1e-12)


def test_margin_is_smallest_inside_minus_largest_outside() -> None:
    labels = SoftLabels.from_dense(np.array([[0.5, 1 / 3], [0.5, 1 / 3], [0.0, 1 / 3]]))
    margins = labels.margins(np.array([[3.0, 0.0], [2.0, 0.0], [1.5, 0.0]]))
    assert margins[0] == 0.5
    assert margins[1] == math.inf


@pytest.mark.parametrize(
    ("P", "pi", "says"),
    [
        (np.zeros((3, 0)), None, "m=0"),
        (np.ones((1, 2)), None, "V=1"),
        (np.array([[1.0, 0.0], [0.0, 0.0]]), None, "context 1 has none"),
        (np.array([[0.7, 0.5], [0.7, 0.5]]), None, "context 0 sums to 1.4"),
        (np.array([[0.5], [0.5]]), np.array([0.5]), "sum 0.5"),
        (np.array([[1.5], [-0.5]]), None, "smallest is -0.5"),
    ],
)
def test_labels_that_cannot_be_trained_on_are_refused(P: Float, pi: Float | None, says: str) -> None:
    with pytest.raises(StatisticsError, match=says):
        SoftLabels.from_dense(P, pi)


def test_logits_of_another_shape_are_refused() -> None:
    labels = SoftLabels.from_dense(np.array([[0.5], [0.5]]))
    with pytest.raises(ProblemError, match="2 x 1"):
        labels.loss_gap(np.zeros((1, 2)))


def test_labels_have_the_hash_of_their_statistics_or_of_their_arrays() -> None:
    stats = random_statistics(0)
    labels = SoftLabels.from_statistics(stats)
    assert labels.hash == labels.statistics_hash == stats.hash
    given, same, other = (SoftLabels.from_dense(stats.P.toarray(), pi) for pi in (stats.pi, stats.pi, None))
    assert given.statistics_hash is None
    assert given.hash == same.hash != other.hash


def test_the_repr_of_labels_shows_sizes() -> None:
    assert repr(SoftLabels.from_statistics(random_statistics(0))) == "SoftLabels(V=7, m=9, windows=9)"
