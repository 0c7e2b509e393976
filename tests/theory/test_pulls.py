"""Optimality conditions as sums of vectors: they hold as far as the certificate proves, in the limit and at a loss."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from feature_cases import random_counts
from geometry_cases import grouped_counts
from tokengeom.ask.explain import pulled_towards
from tokengeom.ask.item_search import Item
from tokengeom.ask.neighbours import EmbeddedItems
from tokengeom.core.numerics import Float, cosines
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.predict import predict
from tokengeom.theory.pulls import Pulls, pulls_at_loss, pulls_in_limit

ROUNDING = 1e-12


def merged_counts() -> NextTokenStatistics:
    """Contexts with equal supports, some with equal counts too; tokens in the same supports; tokens without any."""
    counts = grouped_counts(10, 6, 3, 3, seed=1)
    counts[:, 1] = counts[:, 0]
    twin = counts[[4]]
    return NextTokenStatistics.from_counts(np.vstack([counts, twin, np.zeros((3, 18), np.int64)]))


CASES = {"random": NextTokenStatistics.from_counts(random_counts(9, 14, 3, 0)), "merged": merged_counts()}


@pytest.fixture(scope="module", params=list(CASES))
def limit(request: pytest.FixtureRequest) -> FeaturePrediction:
    return predict(CASES[request.param])


@pytest.fixture(scope="module", params=["limit", "nuclear", "gamma2"])
def case(request: pytest.FixtureRequest, limit: FeaturePrediction) -> tuple[str, FeaturePrediction, Pulls]:
    """A prediction and its pulls."""
    if request.param == "limit":
        return "limit", limit, pulls_in_limit(limit)
    at = limit.at(0.02, norm=request.param, tolerance=1e-5 if request.param == "nuclear" else 1e-4)
    return request.param, at, pulls_at_loss(at)  # type: ignore[return-value]


def matrices(pulls: Pulls) -> tuple[Float, Float]:
    """A and B, V x m, item by item."""
    V, m = pulls.row_of.size, pulls.column_of.size
    A = np.column_stack([pulls.on(Item("contexts", j, "")) for j in range(m)])
    B = np.vstack([pulls.on(Item("tokens", z, "")) for z in range(V)])
    return A, B


def test_every_vector_is_the_sum_that_the_conditions_say(case: tuple[str, FeaturePrediction, Pulls]) -> None:
    _, at, pulls = case
    A, B = matrices(pulls)
    contexts, tokens = at.H - at.W.T @ A, at.W - B @ at.H.T
    assert pulls.delta > 0
    token_weight, context_weight = pulls.weights or (np.ones(len(at.W)), np.ones(at.H.shape[1]))
    assert context_weight @ (contexts**2).sum(axis=0) <= 2 * pulls.delta + ROUNDING
    assert token_weight @ (tokens**2).sum(axis=1) <= 2 * pulls.delta + ROUNDING
    assert np.linalg.norm(contexts) <= 1e-3 * np.linalg.norm(at.H), "far less than is proven"
    assert np.linalg.norm(tokens) <= 1e-3 * np.linalg.norm(at.W)
    for item in (Item("contexts", 2, ""), Item("tokens", 3, "")):
        error = contexts[:, 2] if item.items == "contexts" else tokens[3]
        size = at.H[:, 2] if item.items == "contexts" else at.W[3]
        assert pulls.residual(item) == pytest.approx(np.linalg.norm(error) / np.linalg.norm(size), rel=1e-3, abs=1e-9)
        assert pulls.note(item) == ""


def test_pulls_have_the_signs_and_sums_of_a_dual(case: tuple[str, FeaturePrediction, Pulls]) -> None:
    norm, _, pulls = case
    A, B = matrices(pulls)
    S = CASES["random" if A.shape == (9, 14) else "merged"].counts.toarray() > 0
    assert np.abs(A.sum(axis=0)).max() <= 1e-9 * np.abs(A).max()
    assert A[~S].max() <= 1e-12, "a context is never pulled towards a token that may not follow it"
    assert (A[S].reshape(-1) > 0).any()
    if norm != "gamma2":
        np.testing.assert_allclose(A, B, rtol=1e-9, atol=1e-12)
        assert np.linalg.norm(A, 2) <= 1 + 1e-9


def test_contributions_add_up_to_every_cosine(case: tuple[str, FeaturePrediction, Pulls]) -> None:
    _, at, pulls = case
    stats = CASES["random" if at.H.shape[1] == 14 else "merged"]
    geometry = EmbeddedItems((at.W, at.H), stats)
    seen = np.flatnonzero(stats.counts.toarray().any(axis=1))
    matrix = {"contexts": cosines(at.H), "tokens": cosines((at.W - at.W[seen].mean(axis=0)).T)}
    for item in (Item("contexts", 5, ""), Item("contexts", 0, ""), Item("tokens", 4, ""), Item("tokens", 0, "")):
        weight = 1.0 if pulls.weights is None else pulls.weights[item.items == "contexts"][item.index]
        for other in range(6):
            found = pulled_towards(geometry, pulls, item, other)
            assert found.own == (other == item.index)
            assert found.cosine == pytest.approx(matrix[item.items][item.index, other], abs=1e-12)
            total = sum(pull.contribution for pull in found.pulls) + found.others + found.mean + found.residual
            assert total == pytest.approx(found.cosine, abs=1e-12)
            assert abs(found.residual) <= np.sqrt(2 * pulls.delta / weight) / geometry.norms(item.items)[item.index]
            assert abs(found.residual) <= 1e-3


def test_one_token_per_context_has_a_closed_form() -> None:
    V = 5
    stats = NextTokenStatistics.from_counts(np.eye(V, dtype=np.int64), [f"c{j}" for j in range(V)])
    found = predict(stats)
    pulls = pulls_in_limit(found)
    np.testing.assert_allclose(matrices(pulls)[0], np.eye(V) - 1 / V, atol=1e-5)
    own = pulled_towards(EmbeddedItems(found, stats), pulls, Item("contexts", 2, "c2"), 2)
    assert own.pulls[0].name == "token 2"
    assert own.pulls[0].contribution == pytest.approx(1 - 1 / V, abs=1e-5)
    assert [pull.contribution for pull in own.pulls[1:]] == pytest.approx([1 / V / (V - 1)] * (V - 1), abs=1e-5)
    assert [pull.positive for pull in own.pulls] == [True] + [False] * (V - 1)


def test_items_with_the_same_support_contribute_together() -> None:
    stats = CASES["merged"]
    prediction = predict(stats)
    geometry, pulls = EmbeddedItems(prediction, stats), pulls_in_limit(prediction)
    found = pulled_towards(geometry, pulls, Item("tokens", 4, ""), 4)
    A, _ = matrices(pulls)
    per_context = A[4] * (prediction.H.T @ geometry.vectors("tokens")[4]) / geometry.norms("tokens")[4] ** 2
    assert all(pull.members == 3 for pull in found.pulls)
    for pull in found.pulls:
        group = prediction.context_groups == prediction.context_groups[int(pull.name.removeprefix("context "))]
        assert pull.contribution == pytest.approx(per_context[group].sum(), abs=1e-12)


def test_an_item_that_the_conditions_do_not_fix_is_named() -> None:
    at = predict(CASES["random"]).at(0.1, norm="gamma2", tolerance=1e-3)
    pulls = pulls_at_loss(at)
    loose = replace(pulls, on_contexts=0.5 * pulls.on_contexts)
    assert "gives this context the weight" in loose.note(Item("contexts", 1, ""))
    assert "50% of the vector" in replace(loose, weights=None).note(Item("contexts", 1, ""))
    assert loose.note(Item("tokens", 1, "")) == ""


def test_the_order_of_tokens_and_contexts_does_not_matter() -> None:
    stats = CASES["merged"]
    rows, columns = np.random.default_rng(0).permutation(stats.V), np.random.default_rng(1).permutation(stats.m)
    moved = NextTokenStatistics.from_counts(
        stats.counts.toarray()[rows][:, columns],
        [stats.context_text(int(j)) for j in columns],
        [stats.vocabulary[z] for z in rows],
    )
    for text in ("context 7", "token 2"):
        before, after = (predict(one).at(0.02, tolerance=1e-6).explain(text) for one in (stats, moved))
        for one, other in zip(before.pulled, after.pulled, strict=True):
            assert one.cosine == pytest.approx(other.cosine, abs=1e-3)
            sizes = [sorted(pull.contribution for pull in found.pulls) for found in (one, other)]
            assert sizes[0] == pytest.approx(sizes[1], abs=2e-3)


def test_a_full_support_has_neither_pulls_nor_a_direction() -> None:
    counts = np.array([[1, 2, 3, 0], [2, 0, 1, 1], [1, 0, 0, 4]])
    prediction = predict(NextTokenStatistics.from_counts(counts, ["full", "a", "b", "c"]))
    assert not pulls_in_limit(prediction).on(Item("contexts", 0, "")).any()
    found = prediction.explain("full")
    assert found.pulled == ()
    assert "every token may follow it" in found.summary()
    assert prediction.explain("a").pulled[0].cosine == pytest.approx(1.0)
