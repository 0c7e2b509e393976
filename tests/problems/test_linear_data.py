"""Bad input is refused with a message that names the thing and its value."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tokengeom.errors import ProblemError
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.linear import predict_linear

P = np.array([[0.5, 1.0, 0.0], [0.5, 0.0, 0.25], [0.0, 0.0, 0.75]])
H = np.arange(1.0, 13.0).reshape(4, 3)


def stats(P: np.ndarray = P, **extra: object) -> SimpleNamespace:
    return SimpleNamespace(P=P, pi=None, **extra)


def changed(row: int, column: int, value: float) -> np.ndarray:
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
def test_embeddings_that_cannot_be_used_are_named(embeddings: np.ndarray, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        predict_linear(stats(), embeddings)


def test_transposed_embeddings_are_recognised() -> None:
    with pytest.raises(ProblemError, match=r"transposed: pass H\.T"):
        predict_linear(stats(), np.ones((3, 4)))


def test_a_zero_embedding_is_named_by_its_column() -> None:
    bad = H.copy()
    bad[:, 1] = 0.0
    with pytest.raises(ProblemError, match=r"column 1 of H has norm 0\.0"):
        predict_linear(stats(), bad)


def test_a_context_with_no_next_token_is_named() -> None:
    empty = P.copy()
    empty[:, 2] = 0.0
    with pytest.raises(ProblemError, match="context 2 has an empty support"):
        predict_linear(stats(empty), H)


def test_one_token_is_not_a_vocabulary() -> None:
    with pytest.raises(ProblemError, match="V=1"):
        predict_linear(stats(np.ones((1, 3))), H)


def test_no_context_is_refused() -> None:
    with pytest.raises(ProblemError, match="m=0"):
        predict_linear(stats(np.zeros((3, 0))), np.zeros((4, 0)))


def test_columns_that_do_not_sum_to_one_are_named() -> None:
    with pytest.raises(ProblemError, match="column 0 sums to"):
        predict_linear(stats(P * [2.0, 1.0, 1.0]), H)


def test_a_weight_that_is_not_positive_is_named() -> None:
    with pytest.raises(ProblemError, match=r"pi\[1\]=0\.0"):
        predict_linear(SimpleNamespace(P=P, pi=np.array([0.5, 0.0, 0.5])), H)


def test_one_context_with_two_embeddings_is_refused() -> None:
    contexts = np.array([[4, 7], [1, 2], [4, 7]], dtype=np.int32)
    with pytest.raises(ProblemError, match=r"contexts 0 and 2 are both \[4, 7\]"):
        predict_linear(stats(contexts=contexts), H)


def test_one_context_with_one_embedding_twice_is_fine() -> None:
    contexts = np.array([[4, 7], [1, 2], [4, 7]], dtype=np.int32)
    same = H.copy()
    same[:, 2] = same[:, 0]
    assert predict_linear(stats(contexts=contexts), same).W_mm.shape == (3, 4)


def test_real_statistics_are_taken_and_their_names_are_used() -> None:
    counts = np.array([[1, 3], [1, 1], [0, 0]])
    statistics = NextTokenStatistics.from_counts(counts, contexts=["the", "a"], vocabulary=["cat", "dog", "end"])
    prediction = predict_linear(statistics, np.array([[1.0, 2.0]]))
    assert not prediction.compatible
    assert "'the'" in prediction.compatible.sentence
    assert prediction.entropy == pytest.approx(statistics.entropy, rel=1e-12)
