"""The predicted limit: invariances, the papers' angles, and long gradient descent on data of every kind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from linear_cases import CERTIFIED, linear_data, random_data
from linear_instances import BLOCKED_ANGLES, SEPARABLE_ANGLES, one_hot_orthonormal, overparameterised, plane
from tokengeom.core.numerics import Float
from tokengeom.problems.linear_data import LinearData
from tokengeom.theory.linear import LinearPrediction, predict_linear


def predict(data: LinearData) -> LinearPrediction:
    return predict_linear(data, data.H)


def cross_entropy(data: LinearData, W: Float) -> float:
    L = W @ data.H
    top = L.max(axis=0)
    return float(data.pi @ (np.log(np.exp(L - top).sum(axis=0)) + top - (data.P * L).sum(axis=0)))


def gradient_descent(data: LinearData, steps: int) -> Float:
    """Full-batch gradient descent from zero with the largest step that theory allows, in plain numpy."""
    W = np.zeros((data.V, data.d))
    smoothness = 0.5 * np.linalg.norm((data.H * data.pi) @ data.H.T, 2)
    step = 1.0 / smoothness
    weighted = data.pi * data.P
    for _ in range(steps):
        E = np.exp(W @ data.H)
        W -= step * ((E * (data.pi / E.sum(axis=0)) - weighted) @ data.H.T)
    return W


@pytest.mark.parametrize("angles", SEPARABLE_ANGLES)
def test_the_separable_angles_are_separable(angles: tuple[float, float, float]) -> None:
    prediction = predict(plane(angles))
    assert prediction.separable
    assert prediction.margin == pytest.approx(1 / np.linalg.norm(prediction.W_mm))
    assert "separable with margin" in prediction.summary()


@pytest.mark.parametrize("angles", BLOCKED_ANGLES)
def test_the_blocked_angles_are_not_separable_and_pairs_are_named(angles: tuple[float, float, float]) -> None:
    prediction = predict(plane(angles))
    assert not prediction.separable
    assert prediction.margin == 0.0
    assert prediction.separable.pairs
    j, v = prediction.separable.pairs[0]
    assert f"token {v} after context {j}" in prediction.summary()
    assert prediction.loss_floor > prediction.entropy


@given(data=linear_data())
@settings(max_examples=40, deadline=None)
def test_every_prediction_is_certified_and_its_two_parts_are_orthogonal(data: LinearData) -> None:
    prediction = predict(data)
    assert prediction.certificate.holds(CERTIFIED)
    assert prediction.finite_certificate.holds(CERTIFIED)
    assert prediction.support_certificate.value == prediction.support_certificate.bound
    sizes = np.linalg.norm(prediction.W_star) * np.linalg.norm(prediction.W_mm)
    assert abs(np.vdot(prediction.W_star, prediction.W_mm)) <= 1e-8 * max(1.0, float(sizes))
    assert prediction.loss_floor >= prediction.entropy - 1e-10
    assert np.all(prediction.effective_support >= data.S)
    assert prediction.reaches_entropy == (prediction.loss_floor <= prediction.entropy + 1e-9)


@given(data=linear_data())
@settings(max_examples=20, deadline=None)
def test_probabilities_inside_supports_do_not_change_the_direction(data: LinearData) -> None:
    rng = np.random.default_rng(data.m)
    P = np.where(data.S, rng.uniform(0.5, 1.5, data.S.shape), 0.0)
    other = replace(data, P=P / P.sum(axis=0))
    assert np.allclose(predict(data).W_mm, predict(other).W_mm, atol=1e-9)


@given(data=linear_data())
@settings(max_examples=20, deadline=None)
def test_relabelling_tokens_and_permuting_contexts_permutes_every_part(data: LinearData) -> None:
    rng = np.random.default_rng(data.V)
    tokens, contexts = rng.permutation(data.V), rng.permutation(data.m)
    before = predict(data)
    after = predict(
        LinearData(data.S[tokens][:, contexts], data.P[tokens][:, contexts], data.pi[contexts], data.H[:, contexts])
    )
    scale = 1.0 + np.linalg.norm(before.W_star) + np.linalg.norm(before.W_mm)
    assert np.array_equal(after.effective_support, before.effective_support[tokens][:, contexts])
    assert np.allclose(after.W_mm, before.W_mm[tokens], atol=1e-7 * scale)
    assert np.allclose(after.W_star, before.W_star[tokens], atol=1e-6 * scale)
    assert after.loss_floor == pytest.approx(before.loss_floor, abs=1e-9)


def test_the_entropy_is_approached_along_the_predicted_line() -> None:
    data = overparameterised(0, V=6, d=12, m=10, size=3, n=200)
    prediction = predict(data)
    gaps = [cross_entropy(data, prediction.W_star + R * prediction.W_mm) - data.entropy for R in (5.0, 10.0, 15.0)]
    slopes = -np.diff(np.log(gaps)) / 5.0
    assert np.allclose(slopes, 1.0, atol=0.05)


def test_one_hot_and_full_supports_are_predicted() -> None:
    one_hot = predict(one_hot_orthonormal(4))
    assert one_hot.entropy == 0.0
    assert np.allclose(one_hot.W_mm, np.eye(4) - 0.25)
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(4), size=3).T
    full = predict(LinearData(P > 0, P, np.full(3, 1 / 3), rng.standard_normal((5, 3))))
    assert full.reaches_entropy
    assert full.margin == np.inf
    assert not full.W_mm.any()
    assert cross_entropy(full.data, full.W_star) == pytest.approx(full.entropy, abs=1e-12)
    assert "Nothing diverges" in full.summary()


def mixed_case(kind: tuple[bool, bool, bool]) -> LinearData:
    """The first well-scaled random data with these answers to (compatible, separable, something diverges)."""
    for seed in range(2000):
        rng = np.random.default_rng(seed)
        data = random_data(rng, V=4, m=int(rng.integers(3, 7)), d=int(rng.integers(2, 5)))
        prediction = predict(data)
        found = (bool(prediction.compatible), bool(prediction.separable), bool(prediction.W_mm.any()))
        moderate = np.linalg.norm(prediction.W_mm) < 4 and np.linalg.norm(prediction.W_star) < 6
        if found == kind and moderate:
            return data
    raise AssertionError(f"no random data of the kind {kind}")


@pytest.mark.parametrize(
    "kind",
    [
        (True, True, True),
        (True, False, True),
        (False, True, True),
        (False, False, True),
        (False, False, False),
        (True, False, False),
    ],
)
def test_long_gradient_descent_converges_as_predicted(kind: tuple[bool, bool, bool]) -> None:
    data = mixed_case(kind)
    prediction = predict(data)
    W = gradient_descent(data, 60_000)
    gap = cross_entropy(data, W) - prediction.loss_floor
    assert -1e-10 <= gap < 2e-3
    finite = prediction.finite_part(W)
    assert np.linalg.norm(finite - prediction.W_star) <= 0.05 * (1.0 + np.linalg.norm(prediction.W_star))
    if kind[2]:
        rest = W - finite
        cosine = np.vdot(rest, prediction.W_mm) / np.linalg.norm(rest) / np.linalg.norm(prediction.W_mm)
        assert cosine > 0.97
        assert gap < 0.3 * (cross_entropy(data, gradient_descent(data, 6_000)) - prediction.loss_floor)


def test_incompatible_contexts_are_named_by_their_tokens() -> None:
    S = np.array([[True, True], [True, True], [False, False]])
    P = np.array([[0.5, 0.25], [0.5, 0.75], [0.0, 0.0]])
    data = LinearData(S, P, np.full(2, 0.5), np.array([[1.0, 2.0]]))
    answer = predict(data).compatible
    assert not answer
    assert sorted(answer.contexts) == [0, 1]
    assert "context 0" in str(answer)


def test_large_data_of_low_rank_are_predicted() -> None:
    data = overparameterised(0, V=50, d=80, m=300, size=10, n=20_000)
    prediction = predict(data)
    assert not prediction.separable
    assert prediction.finite_certificate.holds(CERTIFIED)
    assert cross_entropy(data, prediction.W_star) == pytest.approx(prediction.loss_floor, rel=1e-9)
