"""Neighbours are those of the full matrix of cosines, do not depend on the order of items, and say what they are."""

from __future__ import annotations

import json

import numpy as np
import pytest

from feature_cases import random_counts
from html_reader import read
from tokengeom.ask.explain import PlainFactors
from tokengeom.ask.item_search import Item
from tokengeom.ask.named_vectors import Items
from tokengeom.ask.neighbours import EmbeddedItems, overlaps
from tokengeom.core import numerics
from tokengeom.core.errors import InputError
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import Float, cosines
from tokengeom.statistics.next_token import NextTokenStatistics

V, M, D = 14, 30, 5


def statistics(seed: int = 0) -> NextTokenStatistics:
    """Random counts with two tokens that follow no context."""
    counts = random_counts(V, M, 4, seed)
    counts[[3, 9]] = 0
    counts[0, counts.sum(axis=0) == 0] = 1
    return NextTokenStatistics.from_counts(
        counts, [f"context {j:02d}" for j in range(M)], [f"t{z:02d}" for z in range(V)]
    )


def factors(seed: int = 1) -> Factors:
    rng = np.random.default_rng(seed)
    return Factors(rng.normal(size=(V, D)) + 1.0, rng.normal(size=(D, M)) + 0.5)


def all_cosines(stats: NextTokenStatistics, given: Factors, items: Items) -> tuple[Float, list[int]]:
    """Cosines of all pairs, and the items that can be neighbours, as `compare` has them."""
    if items == "contexts":
        return cosines(given.H), list(range(M))
    seen = np.flatnonzero(stats.counts.toarray().any(axis=1))
    return cosines((given.W - given.W[seen].mean(axis=0)).T), list(map(int, seen))


@pytest.mark.parametrize("items", ["tokens", "contexts"])
def test_neighbours_are_those_of_the_full_matrix(items: Items) -> None:
    stats, given = statistics(), factors()
    matrix, listed = all_cosines(stats, given, items)
    S = stats.counts.toarray() > 0
    supports = S if items == "tokens" else S.T
    embedded = EmbeddedItems(given, stats)
    for index in range(len(matrix)):
        found = embedded.nearest(Item(items, index, ""), 6)
        others = [i for i in listed if i != index]
        expected = sorted(others, key=lambda i, row=matrix[index]: -row[i])[:6]  # type: ignore[misc]
        assert [row.index for row in found.rows] == expected
        assert [row.cosine for row in found.rows] == pytest.approx([matrix[index, i] for i in expected], abs=1e-12)
        assert [row.shared for row in found.rows] == [int((supports[index] & supports[i]).sum()) for i in expected]
        assert [row.size for row in found.rows] == [int(supports[i].sum()) for i in expected]
        assert found.total == len(others)
        assert found.size == supports[index].sum()


@pytest.mark.parametrize("items", ["tokens", "contexts"])
def test_the_order_of_tokens_and_contexts_does_not_matter(items: Items) -> None:
    stats, given = statistics(), factors()
    rows, columns = np.random.default_rng(2).permutation(V), np.random.default_rng(3).permutation(M)
    moved = NextTokenStatistics.from_counts(
        stats.counts.toarray()[rows][:, columns],
        [stats.context_text(int(j)) for j in columns],
        [stats.vocabulary[z] for z in rows],
    )
    name = "t05" if items == "tokens" else "context 07"
    before = PlainFactors(given).neighbours(name, stats=stats)
    after = PlainFactors((given.W[rows], given.H[:, columns])).neighbours(name, stats=moved)
    assert [row.name for row in after.rows] == [row.name for row in before.rows]
    assert [row.cosine for row in after.rows] == pytest.approx([row.cosine for row in before.rows], abs=1e-12)
    assert [(row.shared, row.size) for row in after.rows] == [(row.shared, row.size) for row in before.rows]


def test_a_rotation_and_a_shift_of_the_tokens_change_nothing() -> None:
    stats, given = statistics(), factors()
    R = np.linalg.qr(np.random.default_rng(0).normal(size=(D, D)))[0]
    turned = ((given.W + np.arange(D)) @ R, R.T @ given.H)
    for name in ("t05", "context 07"):
        found = [PlainFactors(one).neighbours(name, stats=stats) for one in (given, turned)]
        assert [row.index for row in found[0].rows] == [row.index for row in found[1].rows]


def test_of_equal_cosines_the_more_frequent_comes_first() -> None:
    counts = np.array([[5, 1, 9, 3, 0], [0, 0, 0, 0, 4]])
    stats = NextTokenStatistics.from_counts(counts, list("abcde"))
    H = np.array([[1.0, 2.0, 3.0, 4.0, 0.0], [0.0, 0.0, 0.0, 1e-13, 1.0]])
    found = PlainFactors((np.eye(2), H)).neighbours("b", 2, stats=stats)
    assert [row.name for row in found.rows] == ["c", "a"]
    others = PlainFactors((np.eye(2), H)).neighbours("b", stats=stats, other_supports=True)
    assert [row.name for row in others.rows] == ["e"], "all others have the support of b"
    assert others.total == 4


def test_an_item_without_a_direction_has_no_neighbours_and_is_none() -> None:
    counts = np.array([[5, 1, 9], [1, 0, 0], [2, 3, 0]])
    stats = NextTokenStatistics.from_counts(counts, ["full", "b", "c"])
    H = np.array([[0.0, 1.0, 1.0], [0.0, 0.0, 1.0]])
    found = PlainFactors((np.eye(3, 2), H)).neighbours("full", stats=stats)
    assert found.rows == ()
    assert "has no direction, because every token may follow it" in found.summary()
    assert [row.name for row in PlainFactors((np.eye(3, 2), H)).neighbours("b", stats=stats).rows] == ["c"]


def test_a_token_that_follows_no_context_says_so() -> None:
    found = PlainFactors(factors()).neighbours("t03", stats=statistics())
    assert len(found.rows) == 10
    assert "follows no context" in found.summary()
    assert found.size == 0


@pytest.mark.parametrize("items", ["tokens", "contexts"])
def test_overlaps_are_those_of_the_supports(items: Items) -> None:
    stats = statistics(4)
    S = stats.counts.toarray() > 0
    supports = (S if items == "tokens" else S.T).astype(int)
    for index in range(len(supports)):
        shared, sizes = overlaps(stats, Item(items, index, ""))
        assert shared.tolist() == (supports @ supports[index]).tolist()
        assert sizes.tolist() == supports.sum(axis=1).tolist()


def test_as_data_as_a_frame_and_in_a_notebook() -> None:
    counts = np.array([[3, 1, 0], [2, 0, 4], [0, 5, 1]])
    evil = "<script>alert(1)</script>"
    stats = NextTokenStatistics.from_counts(counts, ["x", "y", "z"], ["a", evil, "c"])
    given = (np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]), np.ones((2, 3)))
    found = PlainFactors(given).neighbours("a", 2, stats=stats)
    data = json.loads(json.dumps(found.to_dict()))
    assert (data["item"], data["items"], data["total"], data["support_size"]) == ("a", "tokens", 2, 2)
    assert [set(row) for row in data["neighbours"]] == [{"name", "index", "cosine", "shared", "size"}] * 2
    assert found.to_frame().loc["c", "shared"] == 1
    page = read(found._repr_html_())
    assert "script" not in page.tags
    assert evil in page.texts
    assert repr(found).startswith("Neighbours(token a: <script>")
    assert len(repr(found)) < 100


def test_wrong_questions_are_refused() -> None:
    stats, given = statistics(), factors()
    with pytest.raises(InputError, match="k must be at least 1; got 0"):
        PlainFactors(given).neighbours("t05", 0, stats=stats)
    with pytest.raises(InputError, match="k must be a whole number"):
        PlainFactors(given).neighbours("t05", 2.5, stats=stats)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"pass the statistics that it is for with stats=\.\.\., .* --stats FOLDER"):
        PlainFactors(given).neighbours("t05")
    with pytest.raises(InputError, match="W and H have 13 tokens"):
        PlainFactors((given.W[1:], given.H)).neighbours("t05", stats=stats)


@pytest.mark.parametrize("items", ["tokens", "contexts"])
@pytest.mark.parametrize("at_once", [1, 100, 10**6])
def test_similar_pairs_are_those_of_the_full_matrix_with_different_supports(
    items: Items, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numerics, "COSINES_AT_ONCE", at_once)
    counts = statistics().counts.toarray()
    counts[:, 7], counts[5] = counts[:, 4], counts[1]
    names = [[f"{one}{i:02d}" for i in range(size)] for one, size in (("c", M), ("t", V))]
    stats, given = NextTokenStatistics.from_counts(counts, *names), factors()
    # Two contexts, and two tokens, with the same support in the same direction.
    given.H[:, 7], given.W[5] = given.H[:, 4], given.W[1]
    matrix, listed = all_cosines(stats, given, items)
    supports = counts > 0 if items == "tokens" else (counts > 0).T
    same = [(i, j) for i in listed for j in listed if i < j and (supports[i] == supports[j]).all()]
    pairs = [(i, j) for i in listed for j in listed if i < j and (i, j) not in same]
    expected = sorted(pairs, key=lambda pair: -matrix[pair])[:9]
    found = PlainFactors(given).pairs(9, items, stats)
    own = names[1 if items == "tokens" else 0]
    assert [(row.first, row.second) for row in found.rows] == [(own[i], own[j]) for i, j in expected]
    assert [row.cosine for row in found.rows] == pytest.approx([matrix[pair] for pair in expected], abs=1e-8)
    assert [row.shared for row in found.rows] == [int((supports[i] & supports[j]).sum()) for i, j in expected]
    assert [row.second_size for row in found.rows] == [int(supports[j].sum()) for _, j in expected]
    assert (found.total, found.same_support) == (len(pairs), len(same))
    assert same


def test_of_equally_similar_pairs_the_frequent_ones_come_first_and_all_are_given_where_k_is_large() -> None:
    stats = NextTokenStatistics.from_counts([[1, 50, 90, 2], [1, 0, 10, 0], [0, 8, 0, 1], [3, 1, 1, 0]])
    given = PlainFactors((np.eye(4, 2), np.ones((2, 4))))
    rows = given.pairs(100, "contexts", stats).rows
    assert (rows[0].first, rows[0].second) == ("context 1", "context 2")
    # Contexts 0 and 2 have the same support.
    assert len(rows) == 5
    assert PlainFactors((np.eye(4, 2), np.zeros((2, 4)))).pairs(5, "contexts", stats).rows == ()
    for wrong in ({"k": 0}, {"items": "words"}):
        with pytest.raises(InputError, match=r"pairs k must be at least 1|items must be tokens or contexts"):
            given.pairs(**{"stats": stats, **wrong})  # type: ignore[arg-type]
