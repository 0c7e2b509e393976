"""Directions grouped by support, compared with plain loops over pairs."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from tokengeom.extending import Float
from tokengeom_studies.common.support_directions import Directions, GroupedText

RECIPE = {
    "text": "stories", "seed": 0, "stories": 300, "context": 2, "contexts": 80, "vocabulary": 40, "supports": 4,
    "each": 2, "tokens": [], "device": "cpu",
}  # fmt: skip


@pytest.fixture(scope="module")
def text() -> GroupedText:
    return GroupedText(RECIPE)


@pytest.fixture(scope="module")
def factors(text: GroupedText) -> tuple[Float, Float]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((text.stats.V, 5)), rng.standard_normal((5, text.stats.m))


def cosine(x: Float, y: Float) -> float:
    return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))


def test_the_contexts_of_the_picture_are_the_most_frequent_of_the_largest_supports(text: GroupedText) -> None:
    groups = [text.groups[j] for j in text.pictured]
    assert len(set(groups)) <= 4
    for group in set(groups):
        members = [j for j in range(text.stats.m) if text.groups[j] == group]
        kept = [j for j in text.pictured if text.groups[j] == group]
        assert len(kept) == 2
        assert min(text.stats.pi[kept]) >= max([text.stats.pi[j] for j in members if j not in kept], default=0.0)
    assert all(text.stats.support_sizes[j] > 1 for j in text.pictured)


def test_cosines_within_and_between_supports_are_means_over_pairs(
    text: GroupedText, factors: tuple[Float, Float]
) -> None:
    W, H = factors
    blocks = Directions.of(text, W, H).blocks(text)
    pairs = list(combinations(text.pictured, 2))
    inside = [cosine(H[:, i], H[:, j]) for i, j in pairs if text.groups[i] == text.groups[j]]
    across = [cosine(H[:, i], H[:, j]) for i, j in pairs if text.groups[i] != text.groups[j]]
    assert blocks["within"] == pytest.approx(np.mean(inside))
    assert blocks["between"] == pytest.approx(np.mean(across))


def test_agreement_is_a_correlation_over_pairs_of_different_supports(
    text: GroupedText, factors: tuple[Float, Float]
) -> None:
    W, H = factors
    run, limit = Directions.of(text, W, H), text.limit
    pairs = [(i, j) for i, j in combinations(text.sets["all"], 2) if text.groups[i] != text.groups[j]]
    x = [cosine(text.device.limit.H[:, i], text.device.limit.H[:, j]) for i, j in pairs]
    y = [cosine(H[:, i], H[:, j]) for i, j in pairs]
    assert limit.agreement(run, text)["all"] == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-9)
    assert run.agreement(run, text) == pytest.approx({"several": 1.0, "all": 1.0, "tokens": 1.0})


def test_angles_with_tokens_are_those_of_a_loop(text: GroupedText, factors: tuple[Float, Float]) -> None:
    W, H = factors
    angles = Directions.of(text, W, H).angles(text)
    centred = W - W.mean(axis=0)
    S = text.stats.S.toarray() > 0
    inside, ordered = [], []
    for j in text.sets["several"]:
        c = np.array([cosine(w, H[:, j]) for w in centred])
        inside += list(c[S[:, j]])
        ordered.append(c[S[:, j]].min() > c[~S[:, j]].max())
    assert angles["in support"] == pytest.approx(np.mean(inside))
    assert angles["ordered"] == pytest.approx(np.mean(ordered))


def test_in_the_limit_contexts_of_one_support_share_a_direction_near_their_tokens(text: GroupedText) -> None:
    assert text.limit.blocks(text)["within"] == pytest.approx(1.0, abs=1e-9)
    angles = text.limit.angles(text)
    assert angles["in support"] > angles["off support"]
    assert angles["ordered"] == pytest.approx(1.0)
