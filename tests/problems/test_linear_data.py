"""Data of the linear model: bad input is refused with a message that names the entry and its value."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tokengeom.core.errors import ProblemError, StatisticsError
from tokengeom.core.numerics import Float
from tokengeom.problems.linear_data import LinearData
from tokengeom.statistics.next_token import NextTokenStatistics

P = np.array([[0.5, 1.0, 0.0], [0.5, 0.0, 0.25], [0.0, 0.0, 0.75]])
H = np.arange(1.0, 13.0).reshape(4, 3)


@dataclass
class Labels:
    """Probabilities that no check has seen."""

    P: Float
    pi: Float | None = None


def data_of(probabilities: Float = P, embeddings: Float = H, pi: Float | None = None) -> LinearData:
    return LinearData.of(Labels(probabilities, pi), embeddings)


def changed(row: int, column: int, value: float) -> Float:
    bad = H.copy()
    bad[row, column] = value
    return bad


@pytest.mark.parametrize(
    ("embeddings", "message"),
    [
        (H.T, r"shape \(d, m\).*\(d, 3\).*got shape \(3, 4\)"),
        (np.ones((4, 2)), r"got shape \(4, 2\)"),
        (np.ones(3), r"got shape \(3,\)"),
        (np.zeros((0, 3)), r"got shape \(0, 3\)"),
        (changed(2, 1, np.nan), r"H\[2, 1\]=nan \(context 1"),
        (changed(0, 2, -np.inf), r"H\[0, 2\]=-inf"),
        (np.array([["a", "b", "c"]]), "array of numbers"),
    ],
)
def test_embeddings_that_cannot_be_used_are_named(embeddings: Float, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        data_of(embeddings=embeddings)


def test_transposed_embeddings_are_recognised() -> None:
    with pytest.raises(ProblemError, match=r"transposed: pass H\.T"):
        data_of(embeddings=np.ones((3, 4)))


def test_a_zero_embedding_is_named_by_its_column() -> None:
    bad = H.copy()
    bad[:, 1] = 0.0
    with pytest.raises(ProblemError, match="column 1 of H is 0"):
        data_of(embeddings=bad)


def test_a_context_without_next_tokens_is_named() -> None:
    empty = P.copy()
    empty[:, 2] = 0.0
    with pytest.raises(StatisticsError, match=r"Every context needs at least one next token.*column 2"):
        data_of(empty)


def test_a_vocabulary_of_one_token_is_refused() -> None:
    with pytest.raises(ProblemError, match="V=1"):
        data_of(np.ones((1, 3)))


def test_data_without_contexts_are_refused() -> None:
    with pytest.raises(StatisticsError, match="m=0"):
        data_of(np.zeros((3, 0)), np.zeros((4, 0)))


def test_probabilities_that_are_no_matrix_or_negative_are_refused() -> None:
    with pytest.raises(StatisticsError, match="1 dimensions"):
        data_of(np.ones(3))
    with pytest.raises(StatisticsError, match="finite and not negative"):
        data_of(np.array([[1.5, 1.0, 1.0], [-0.5, 0.0, 0.0]]))


def test_columns_that_do_not_sum_to_one_are_named() -> None:
    with pytest.raises(StatisticsError, match="column 0 sums to 2"):
        data_of(P * [2.0, 1.0, 1.0])


def test_weights_that_are_not_positive_or_too_few_are_named() -> None:
    with pytest.raises(StatisticsError, match=r"smallest entry is 0\."):
        data_of(pi=np.array([0.5, 0.0, 0.5]))
    with pytest.raises(StatisticsError, match=r"pi must have 3 entries.*shape is \(2,\)"):
        data_of(pi=np.array([0.5, 0.5]))


def test_one_context_with_two_embeddings_is_refused() -> None:
    stats = NextTokenStatistics.from_probabilities(P, contexts=np.array([[4, 7], [1, 2], [4, 7]], dtype=np.int32))
    with pytest.raises(ProblemError, match=r"contexts 0 and 2 are both \[4, 7\]"):
        LinearData.of(stats, H)
    same = H.copy()
    same[:, 2] = same[:, 0]
    assert LinearData.of(stats, same).m == 3


def test_names_come_from_the_statistics() -> None:
    stats = NextTokenStatistics.from_counts(
        np.array([[1, 3], [1, 1], [0, 0]]), contexts=["the", "a"], vocabulary=["cat", "dog", "end"]
    )
    data = LinearData.of(stats, np.array([[1.0, 2.0]]))
    assert data.context_name(0) == "context 0 'the'"
    assert data.list_pairs([(1, 2)]) == "token 2 'end' after context 1 'a'"
    assert data.entropy == pytest.approx(stats.entropy, rel=1e-12)


def test_a_long_list_of_names_is_cut() -> None:
    assert data_of().list_contexts([0, 1]) == "context 0, context 1"
    assert data_of().list_contexts([0] * 9).endswith("context 0 and 3 more")
