"""Two texts side by side: numbers against brute force, invariances, reasons, and the proxy where it is needed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from tokengeom.comparison import compare_texts as module
from tokengeom.comparison.compare_texts import compare_texts, moved_numbers
from tokengeom.comparison.text_comparison import NUMBERS, Movement, TextComparison
from tokengeom.core.errors import InputError, ProblemError, StatisticsError
from tokengeom.core.numerics import cosines
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.statistics.shared import shared_statistics
from tokengeom.theory.predict import predict

FEW: dict[str, Any] = {"permutations": 20, "tolerance": 1e-6}


def named_counts(counts: np.ndarray[Any, Any], first: int = 0) -> NextTokenStatistics:
    """Statistics whose tokens and contexts are named by number, the first of them ``first``."""
    V, m = counts.shape
    tokens = [f"t{z:02d}" for z in range(first, first + V)]
    return NextTokenStatistics.from_counts(counts, [f"c{j:02d}" for j in range(first, first + m)], tokens)


def random_counts(seed: int, V: int = 14, m: int = 22) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 9, size=(V, m)) * (rng.random((V, m)) < 0.3)
    counts[rng.integers(0, V, m), np.arange(m)] = 3
    counts[np.arange(V), np.arange(V)] += 1
    # Two contexts of one support.
    counts[:, 1] = counts[:, 0]
    counts[1, 2] += 1
    return counts


@pytest.fixture(scope="module")
def texts() -> tuple[NextTokenStatistics, NextTokenStatistics]:
    one = random_counts(0)
    # Contexts of one support in one text, and of two in the other.
    one[:, 9] = one[:, 3]
    other = one.copy()
    rng = np.random.default_rng(5)
    for z, j in zip(rng.integers(0, 14, 12), rng.integers(2, 22, 12), strict=True):
        other[z, j] = 0 if other[z, j] and np.count_nonzero(other[:, j]) > 1 else 2
    other[0] += 1
    other[:, 7] = other[:, 4]
    return named_counts(one), named_counts(other[:-1], first=0)


@pytest.fixture(scope="module")
def found(texts: tuple[NextTokenStatistics, NextTokenStatistics]) -> TextComparison:
    return compare_texts(*texts, **FEW)


def numbers_of(found: TextComparison) -> dict[str, Any]:
    """Every number that does not depend on which text is the first."""
    return {
        "agreements": repr(found.agreements),
        **{one.items: (one.names, one.moved.tolist()) for one in found.movements},
    }


def brute_force(first: Any, second: Any, units: Any) -> list[float]:
    """The definition, item by item."""
    x, y, result = cosines(first), cosines(second), []
    for i in range(len(units)):
        others = [j for j in range(len(units)) if units[j] != units[i]]
        result.append(1.0 - np.corrcoef(x[i, others], y[i, others])[0, 1])
    return result


@pytest.mark.parametrize("block", [1, 60, 10**6])
def test_moved_numbers_are_the_definition_in_blocks_of_any_size(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    first, second, units = rng.normal(size=(5, 40)), rng.normal(size=(7, 40)), rng.integers(0, 12, 40)
    monkeypatch.setattr(module, "BLOCK_ENTRIES", block)
    moved = moved_numbers(first, second, units)
    np.testing.assert_allclose(moved, brute_force(first, second, units), atol=1e-12)
    turned = np.linalg.qr(rng.normal(size=(7, 7)))[0] @ second * rng.uniform(0.5, 2.0, 40)
    np.testing.assert_allclose(moved_numbers(first, turned, units), moved, atol=1e-12)
    np.testing.assert_array_equal(moved_numbers(second, first, units), moved)
    np.testing.assert_array_equal(moved_numbers(first, first, units), np.zeros(40))


def test_an_item_whose_cosines_do_not_vary_moved_by_0_or_1() -> None:
    first, units = np.eye(3), np.arange(3)
    np.testing.assert_array_equal(moved_numbers(first, first, units), [0, 0, 0])
    second = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 0.5]])
    np.testing.assert_array_equal(moved_numbers(first, second, units), [1, 1, 1])
    np.testing.assert_array_equal(moved_numbers(0 * first, 0 * first, units), [0, 0, 0])
    np.testing.assert_array_equal(moved_numbers(first, second, np.zeros(3, np.int64)), [0, 0, 0])


def test_numbers_are_those_of_the_predictions_on_what_is_shared(
    texts: tuple[NextTokenStatistics, NextTokenStatistics], found: TextComparison
) -> None:
    mine, theirs = shared_statistics(*texts)
    sides = [predict(one, tolerance=1e-6) for one in (mine, theirs)]
    labels = [tuple(one.S[:, [j]].toarray().ravel().tolist() for one in (mine, theirs)) for j in range(mine.m)]
    units = [labels.index(one) for one in labels]
    assert len(set(units)) < len(units), "two contexts have the same supports in both texts"
    expected = brute_force(sides[0].H, sides[1].H, units)
    assert found.contexts.names == tuple(mine.context_text(j) for j in range(mine.m))
    np.testing.assert_allclose(found.contexts.moved, expected, atol=1e-5)
    W = [(one.W - one.W.mean(axis=0)).T for one in sides]
    np.testing.assert_allclose(found.tokens.moved, brute_force(W[0], W[1], range(mine.V)), atol=1e-5)
    x, y = (cosines(one.H) for one in sides)
    apart = np.not_equal.outer(units, units)
    assert found.agreements["context_agreement"].value == pytest.approx(np.corrcoef(x[apart], y[apart])[0, 1], abs=1e-5)
    assert tuple(found.agreements) == NUMBERS
    assert 0.2 < found.agreements["token_agreement"].value < 0.999


def test_a_text_compared_with_itself_did_not_move(texts: tuple[NextTokenStatistics, NextTokenStatistics]) -> None:
    for gap in (None, 0.2):
        same = compare_texts(texts[0], texts[0], loss_gap=gap, permutations=0)
        for one in same.movements:
            assert not one.moved.any()
            assert not any(item.gained or item.lost or item.only_first or item.only_second for item in one.listed)
        assert [one.value for one in same.agreements.values()] == pytest.approx([1.0] * 6, abs=1e-12)
        assert same.first.share == same.second.share == 1.0
        assert same.first.only_pairs == 0
        assert "Nothing moved" in same.summary()


def test_numbers_depend_on_neither_order(
    texts: tuple[NextTokenStatistics, NextTokenStatistics], found: TextComparison
) -> None:
    back = compare_texts(texts[1], texts[0], **FEW)
    assert numbers_of(back) == numbers_of(found)
    assert (back.first, back.second) == (found.second, found.first)
    for mine, theirs in zip(found.contexts.listed, back.contexts.listed, strict=True):
        assert (mine.name, [one.name for one in mine.gained]) == (theirs.name, [one.name for one in theirs.lost])
        assert (mine.only_first, mine.in_second) == (theirs.only_second, theirs.in_first)
    rng = np.random.default_rng(1)
    rows, columns = rng.permutation(texts[0].V), rng.permutation(texts[0].m)
    shuffled = NextTokenStatistics.from_counts(
        texts[0].counts.toarray()[rows][:, columns],
        [texts[0].context_text(int(j)) for j in columns],
        [texts[0].vocabulary[int(z)] for z in rows],
    )
    again = compare_texts(shuffled, texts[1], **FEW)
    assert numbers_of(again) == numbers_of(found)
    assert repr(again.contexts.listed) == repr(found.contexts.listed)


def test_the_limit_depends_on_supports_alone_and_a_loss_on_counts_too() -> None:
    counts = random_counts(3)
    louder = counts * np.random.default_rng(0).integers(1, 20, size=counts.shape)
    pair = named_counts(counts), named_counts(louder)
    limit = compare_texts(*pair, permutations=0)
    assert not limit.contexts.moved.any()
    assert not limit.tokens.moved.any()
    at_loss = compare_texts(*pair, loss_gap=0.3, permutations=0, top=1)
    assert at_loss.contexts.moved.max() > 1e-3
    assert at_loss.loss_gap == 0.3
    assert "how often" in at_loss.summary()
    other = compare_texts(*pair, loss_gap=0.3, norm="gamma2", permutations=0, top=1)
    assert other.contexts.moved.tolist() != at_loss.contexts.moved.tolist()


def test_reasons_are_the_differences_of_the_supports(
    texts: tuple[NextTokenStatistics, NextTokenStatistics], found: TextComparison
) -> None:
    mine, theirs = shared_statistics(*texts)
    tables = [one.counts.toarray() for one in (mine, theirs)]
    names = {"contexts": list(found.contexts.names), "tokens": list(found.tokens.names)}
    for one, other in ((found.contexts, "tokens"), (found.tokens, "contexts")):
        for item in one.listed:
            place = names[one.items].index(item.name)
            a, b = (table[:, place] if one.items == "contexts" else table[place] for table in tables)
            expected = {names[other][z]: int(a[z]) for z in np.flatnonzero((a > 0) & (b == 0))}
            assert {follower.name: follower.count for follower in item.only_first} == dict(
                sorted(expected.items(), key=lambda pair: (-pair[1], pair[0]))[: module.LISTED]
            )
            assert (item.in_first, item.in_both) == (len(expected), int(((a > 0) & (b > 0)).sum()))
    alone = (tables[0] > 0) & (tables[1] == 0)
    assert found.first.only_pairs == int(alone.sum())
    assert found.first.only_once == int((alone & (tables[0] == 1)).sum())
    assert (found.first.windows, found.first.all_windows) == (int(tables[0].sum()), texts[0].n)


def test_neighbours_are_gained_and_lost_by_their_cosines(
    texts: tuple[NextTokenStatistics, NextTokenStatistics],
) -> None:
    found = compare_texts(*texts, neighbours=3, top=30, **FEW)
    x, y = (cosines(predict(one, tolerance=1e-6).H) for one in shared_statistics(*texts))
    names = found.contexts.names
    assert any(item.gained and item.lost for item in found.contexts.listed)
    for item in found.contexts.listed:
        i = names.index(item.name)
        for one in (*item.gained, *item.lost):
            j = names.index(one.name)
            assert (one.first, one.second) == pytest.approx((x[i, j], y[i, j]), abs=1e-4)
        # A gained neighbour is among the three nearest in the second text alone.
        third = [np.sort(np.delete(row, i))[-3] for row in (x[i], y[i])]
        for one in item.gained:
            assert one.second > max(0.0, third[1] - 1e-4)
            assert one.first < max(0.0, third[0]) + 1e-4


def test_only_items_at_an_acute_angle_are_neighbours(texts: tuple[NextTokenStatistics, NextTokenStatistics]) -> None:
    found = compare_texts(*texts, neighbours=50, top=30, **FEW)
    x, y = (cosines(predict(one, tolerance=1e-6).H) for one in shared_statistics(*texts))
    for item in found.contexts.listed:
        i = found.contexts.names.index(item.name)
        gained = {name for j, name in enumerate(found.contexts.names) if y[i, j] > 1e-4 and x[i, j] < -1e-4}
        assert gained <= {one.name for one in item.gained}
        assert all(one.first <= 0 < one.second for one in item.gained)
        assert all(one.second <= 0 < one.first for one in item.lost)


def test_contexts_with_the_same_supports_are_listed_once(found: TextComparison) -> None:
    listed = {item.name: item for item in found.contexts.listed}
    assert len({"c00", "c01"} & set(listed)) <= 1
    everything = found.contexts
    assert everything.moved[0] == pytest.approx(everything.moved[1], abs=1e-9)
    assert sorted((item.moved for item in everything.listed), reverse=True) == [i.moved for i in everything.listed]


def test_the_proxy_stands_in_where_the_prediction_is_too_large(
    texts: tuple[NextTokenStatistics, NextTokenStatistics], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = compare_texts(*texts, proxy=True, **FEW)
    assert asked.is_proxy
    monkeypatch.setattr(module, "LIMIT_ENTRIES", 10)
    monkeypatch.setattr(module, "AT_LOSS_ENTRIES", {"nuclear": 10, "gamma2": 10})
    for gap in (None, 0.1):
        found = compare_texts(*texts, loss_gap=gap, **FEW)
        assert (found.is_proxy, found.loss_gap) == (True, None)
        assert numbers_of(found) == numbers_of(asked)
        assert found.limitations[0].startswith("The proxy stands in for ")
        assert "--no-proxy" in found.limitations[0]
        assert "those of the proxy" in found.summary()
    assert not compare_texts(*texts, proxy=False, **FEW).is_proxy
    with pytest.raises(InputError, match="The proxy has no loss"):
        compare_texts(*texts, proxy=True, loss_gap=0.1)


def test_a_context_without_a_direction_is_left_out_of_the_agreement() -> None:
    counts = random_counts(4)
    full = counts.copy()
    full[:, 5] = 1
    found = compare_texts(named_counts(counts), named_counts(full), permutations=0)
    assert any("1 of 22 contexts have no predicted direction" in one for one in found.limitations)
    assert found.contexts.moved[5] == 1.0
    assert np.isfinite(found.agreements["context_agreement"].value)


@pytest.mark.parametrize(
    ("first", "second", "settings", "error", "message"),
    [
        (np.eye(3, dtype=int), np.eye(3, dtype=int), {"top": 0}, InputError, "top must be at least 1"),
        (np.eye(3, dtype=int), np.eye(3, dtype=int), {"norm": "l2"}, InputError, "norm must be one of"),
        (np.eye(3, dtype=int), np.eye(3, dtype=int), {"loss_gap": 99.0}, ProblemError, "strictly between"),
        (np.eye(1, dtype=int), np.eye(1, dtype=int), {}, StatisticsError, "at least 2 tokens"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    first: Any, second: Any, settings: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        compare_texts(named_counts(first), named_counts(second), **settings)


def test_the_smallest_texts_can_be_compared() -> None:
    found = compare_texts(named_counts(np.eye(2, dtype=int)), named_counts(1 + np.eye(2, dtype=int)), permutations=0)
    assert np.isfinite(found.contexts.moved).all()
    assert isinstance(found.contexts, Movement)
    assert found.summary()
    assert asdict(found.first)["windows"] == 2
