"""Largest margins in each norm, compared with each other and with the prediction."""

from __future__ import annotations

import numpy as np
import pytest

from linear_instances import clusters, one_hot_orthonormal, overparameterised
from synthetic_languages import random_soft_labels
from tokengeom import NextTokenStatistics
from tokengeom.core.errors import ProblemError
from tokengeom.core.numerics import Float
from tokengeom.problems.linear_data import LinearData
from tokengeom.problems.ntp_svm import NORMS
from tokengeom.theory.linear import predict_linear
from tokengeom.theory.linear_path import max_margin


def setting(d: int) -> tuple[NextTokenStatistics, Float]:
    truth = random_soft_labels(V=4, m=6, k=2, seed=3).truth
    return NextTokenStatistics.from_probabilities(truth.P, truth.pi), np.random.default_rng(1).normal(size=(d, 6))


def test_each_norm_has_the_largest_margin_in_its_own_norm() -> None:
    stats, H = setting(8)
    found = {name: max_margin(stats, H, name) for name in NORMS}
    for name, mine in found.items():
        assert mine.separable
        assert mine.certificate.relative_gap < 1e-5
        for other in found.values():
            rival = other.margin * NORMS[other.norm].value(other.W) / NORMS[name].value(other.W)
            assert mine.margin >= rival * (1 - 1e-5)


def test_the_frobenius_margin_is_the_predicted_one() -> None:
    stats, H = setting(8)
    prediction = predict_linear(stats, H)
    found = max_margin(stats, H)
    assert found.margin == pytest.approx(prediction.margin, rel=1e-8)
    np.testing.assert_allclose(found.W, prediction.W_mm, atol=1e-7)


def test_data_that_are_not_separable_have_no_margin_in_any_norm() -> None:
    stats, H = setting(1)
    for name in NORMS:
        found = max_margin(stats, H, name)
        assert not found.separable
        assert found.margin == 0


def test_an_unknown_norm_is_refused() -> None:
    with pytest.raises(ProblemError, match="norm must be one of"):
        max_margin(*setting(8), norm="taxi")


SINGULAR = ["spectral", "nuclear"]
AGREE = 3e-6
"""Relative difference of two margins that are each proven to 1e-6."""


def soft() -> LinearData:
    return overparameterised(2, V=7, d=9, m=12, size=3, n=200)


def margin(data: LinearData, norm: str, H: Float | None = None) -> float:
    found = max_margin(data, data.H if H is None else H, norm)
    assert found.separable
    assert found.certificate.holds(1e-6)
    return found.margin


@pytest.mark.parametrize("norm", SINGULAR)
@pytest.mark.parametrize("data", [soft(), clusters(6, 8, 10)], ids=["soft", "one-hot"])
def test_rotating_embeddings_leaves_the_margin(data: LinearData, norm: str) -> None:
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((data.d, data.d)))[0]
    assert margin(data, norm, Q @ data.H) == pytest.approx(margin(data, norm), rel=AGREE)


@pytest.mark.parametrize("norm", SINGULAR)
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_scaling_embeddings_scales_the_margin(norm: str, scale: float) -> None:
    data = soft()
    assert margin(data, norm, scale * data.H) == pytest.approx(scale * margin(data, norm), rel=AGREE)


@pytest.mark.parametrize("norm", SINGULAR)
def test_relabelling_tokens_and_permuting_and_repeating_contexts_leave_the_margin(norm: str) -> None:
    data, rng = soft(), np.random.default_rng(1)
    tokens, contexts = rng.permutation(data.V), np.append(rng.permutation(data.m), [0, 0, 3])
    P, pi = data.P[tokens][:, contexts], np.full(len(contexts), 1 / len(contexts))
    moved = LinearData(P > 0, P, pi, data.H[:, contexts])
    assert margin(moved, norm) == pytest.approx(margin(data, norm), rel=AGREE)


@pytest.mark.parametrize("data", [soft(), clusters(6, 8, 10)], ids=["soft", "one-hot"])
def test_margins_are_ordered_as_the_norms_are(data: LinearData) -> None:
    """``||W||_2 <= ||W||_F <= ||W||_*``, and each is at most sqrt(rank) times the one before."""
    spectral, frobenius, nuclear = (margin(data, norm) for norm in ("spectral", "frobenius", "nuclear"))
    rank = min(data.V - 1, data.d)
    assert spectral >= frobenius * (1 - AGREE)
    assert frobenius >= nuclear * (1 - AGREE)
    assert spectral <= frobenius * np.sqrt(rank) * (1 + AGREE)
    assert frobenius <= nuclear * np.sqrt(rank) * (1 + AGREE)


@pytest.mark.parametrize("V", [2, 5, 9])
def test_one_orthonormal_context_per_token_gives_the_simplex(V: int) -> None:
    data = one_hot_orthonormal(V)
    for norm, value in (("spectral", 1.0), ("nuclear", V - 1.0)):
        found = max_margin(data, data.H, norm)
        assert found.margin == pytest.approx(1 / value, rel=1e-6)
        np.testing.assert_allclose(found.W - found.W.mean(axis=0), np.eye(V) - 1 / V, atol=1e-3)


def one_hot(labels: list[int], V: int, H: Float) -> LinearData:
    S = np.arange(V)[:, None] == np.asarray(labels)
    return LinearData(S, S.astype(float), np.full(len(labels), 1 / len(labels)), H)


@pytest.mark.parametrize("norm", SINGULAR)
def test_one_class_and_one_dimension_have_the_frobenius_margin(norm: str) -> None:
    """One token against all others, or one dimension: the best decoder has rank 1, where all three norms are equal."""
    rng = np.random.default_rng(2)
    for data in (
        one_hot([0] * 20, 4, np.abs(rng.standard_normal((5, 20)))),
        one_hot([0, 1, 0], 2, np.array([[1.0, -2.0, 3.0]])),
    ):
        assert margin(data, norm) == pytest.approx(margin(data, "frobenius"), rel=AGREE)


@pytest.mark.parametrize("norm", SINGULAR)
def test_embeddings_in_a_subspace_have_the_margin_of_that_subspace(norm: str) -> None:
    data = clusters(5, 3, 6, 0.02, seed=3)
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((10, 3)))[0]
    assert margin(data, norm, Q @ data.H) == pytest.approx(margin(data, norm), rel=AGREE)


@pytest.mark.parametrize("norm", NORMS)
def test_full_supports_have_no_margin_to_maximise(norm: str) -> None:
    data = LinearData(np.ones((3, 2), dtype=bool), np.full((3, 2), 1 / 3), np.full(2, 0.5), np.eye(2))
    found = max_margin(data, data.H, norm)
    assert found.separable
    assert not found.W.any()


@pytest.mark.parametrize("norm", NORMS)
def test_one_embedding_with_two_supports_is_refuted_with_a_proof(norm: str) -> None:
    data = one_hot([0, 1, 2], 3, np.array([[1.0, 1.0, -1.0], [2.0, 2.0, 0.5]]))
    found = max_margin(data, data.H, norm)
    assert not found.separable
    assert found.certificate.holds(1e-10)


@pytest.mark.parametrize("norm", SINGULAR)
def test_nearly_equal_embeddings_with_two_supports_are_separated(norm: str) -> None:
    data = one_hot([0, 1], 3, np.array([[1.0, 1.0], [2.0, 2.0 + 1e-5]]))
    found = max_margin(data, data.H, norm)
    assert found.separable
    assert found.certificate.holds(1e-6)
