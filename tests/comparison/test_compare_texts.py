"""Two texts side by side: numbers against brute force, invariances, reasons, and the proxy where it is needed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from movement_cases import brute_force, named_counts, random_counts, sampled
from synthetic_languages import planted_supports
from tokengeom.comparison import compare_texts as module
from tokengeom.comparison.compare_texts import LOSS_GAP, compare_texts
from tokengeom.comparison.movement import LISTED
from tokengeom.comparison.text_comparison import NUMBERS, Movement, TextComparison
from tokengeom.core.errors import InputError, ProblemError, StatisticsError
from tokengeom.core.numerics import cosines
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.statistics.shared import shared_statistics
from tokengeom.theory.predict import predict

FEW: dict[str, Any] = {"permutations": 20, "tolerance": 1e-6, "loss_gap": 0, "halves": False}
"""The limit of training, which these cases know most about."""


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
    for gap, halves in ((0, False), (0.2, False), (None, True)):
        same = compare_texts(texts[0], texts[0], loss_gap=gap, halves=halves, permutations=0)
        for one in same.movements:
            assert not one.moved.any()
            assert not any(item.gained or item.lost or item.only_first or item.only_second for item in one.listed)
        assert [one.value for one in same.agreements.values()] == pytest.approx([1.0] * len(NUMBERS), abs=1e-12)
        assert same.first.share == same.second.share == 1.0
        assert same.first.only_pairs == 0
        assert "Nothing moved" in same.summary()


def assert_swapped(back: TextComparison, found: TextComparison) -> None:
    """Whether a comparison is the other one with the texts in the other order."""
    assert (back.first, back.second) == (found.second, found.first)
    for mine, theirs in zip(found.contexts.listed, back.contexts.listed, strict=True):
        assert (mine.name, [one.name for one in mine.gained]) == (theirs.name, [one.name for one in theirs.lost])
        assert (mine.only_first, mine.in_second) == (theirs.only_second, theirs.in_first)


def test_numbers_depend_on_neither_order(
    texts: tuple[NextTokenStatistics, NextTokenStatistics], found: TextComparison
) -> None:
    back = compare_texts(texts[1], texts[0], **FEW)
    assert_swapped(back, found)
    assert numbers_of(back) == numbers_of(found)
    again = compare_texts(shuffled(texts[0]), texts[1], **FEW)
    assert numbers_of(again) == numbers_of(found)
    assert repr(again.contexts.listed) == repr(found.contexts.listed)


def shuffled(stats: NextTokenStatistics) -> NextTokenStatistics:
    """The same statistics with tokens and contexts in another order."""
    rng = np.random.default_rng(1)
    rows, columns = rng.permutation(stats.V), rng.permutation(stats.m)
    contexts = [stats.context_text(int(j)) for j in columns]
    vocabulary = [stats.vocabulary[int(z)] for z in rows]
    return NextTokenStatistics.from_counts(stats.counts.toarray()[rows][:, columns], contexts, vocabulary)


def test_numbers_of_halves_depend_on_neither_order() -> None:
    language = planted_supports(14, [4] * 22, seed=0)
    texts = sampled(language, 2000, 0), sampled(language, 900, 1)
    settings: dict[str, Any] = {"permutations": 0, "tolerance": 1e-6}
    found, back = compare_texts(*texts, **settings), compare_texts(*texts[::-1], **settings)
    assert_swapped(back, found)
    again = compare_texts(shuffled(texts[0]), texts[1], **settings)
    assert again.halves == back.halves == found.halves
    assert repr(again.agreements) == repr(found.agreements)
    for one, mirrored, repeated in zip(found.movements, back.movements, again.movements, strict=True):
        assert 0 < one.seen_enough <= len(one.names)
        assert repr(one.beyond) == repr(mirrored.beyond) == repr(repeated.beyond)
    for name in ("context_agreement", "token_agreement"):
        mine, theirs = found.agreements[name], back.agreements[name]
        assert (mine.reproducible, mine.reliability) == (theirs.reliability, theirs.reproducible)
        assert mine.corrected == pytest.approx(mine.mean / np.sqrt(mine.reproducible * mine.reliability), abs=1e-12)
        for number in ("value", "low", "mean", "corrected", "corrected_low", "corrected_high"):
            assert getattr(mine, number) == pytest.approx(getattr(theirs, number), abs=1e-12), number


def test_texts_are_compared_at_a_loss_unless_the_limit_is_asked_for(
    texts: tuple[NextTokenStatistics, NextTokenStatistics],
) -> None:
    settings: dict[str, Any] = {"permutations": 0, "halves": False}
    found = compare_texts(*texts, **settings)
    assert found.loss_gap == LOSS_GAP
    assert (found.settings["loss_gap"], found.limitations) == (None, ())
    assert numbers_of(found) == numbers_of(compare_texts(*texts, loss_gap=LOSS_GAP, **settings))
    assert "those of a loss gap of 0.2 nats" in found.summary()
    limit = compare_texts(*texts, loss_gap=0, **settings)
    assert (limit.loss_gap, limit.settings["loss_gap"]) == (None, 0)
    assert "those of the limit of training" in limit.summary()


def test_a_text_that_is_nearly_uniform_has_a_smaller_loss_gap_by_default() -> None:
    counts = random_counts(0)
    flat = named_counts(20 + counts)
    largest = float(np.log(flat.V) - flat.entropy)
    assert 0 < largest < LOSS_GAP
    found = compare_texts(named_counts(counts), flat, permutations=0)
    assert found.loss_gap == pytest.approx(largest / 2)
    assert found.limitations[0].startswith(f"The loss gap of the predictions is {largest / 2:.3g} nats")
    with pytest.raises(ProblemError, match="strictly between"):
        compare_texts(named_counts(counts), flat, permutations=0, loss_gap=LOSS_GAP)
    uniform = compare_texts(named_counts(counts), named_counts(np.ones_like(counts)), permutations=0, halves=False)
    assert uniform.loss_gap is None
    assert "a uniform guess has next to no loss gap" in uniform.limitations[0]


def test_texts_that_cannot_be_split_say_why(
    texts: tuple[NextTokenStatistics, NextTokenStatistics], monkeypatch: pytest.MonkeyPatch
) -> None:
    def why(*pair: NextTokenStatistics, **settings: Any) -> str:
        found = compare_texts(*pair, permutations=0, **settings)
        assert found.halves is None
        assert not found.contexts.beyond
        assert np.isnan(found.agreements["token_agreement"].corrected)
        assert found.to_frame("tokens")["beyond_chance"].isna().all()
        return found.limitations[0] if found.limitations else ""

    small = named_counts(np.eye(9, dtype=int)), named_counts(1 + np.eye(9, dtype=int))
    assert "not split into halves: fewer than 10 tokens or contexts" in why(*small, loss_gap=0.01)
    assert why(*texts, halves=False) == ""
    # Most tokens are seen once, and in no more than one half: what is left is nearly uniform.
    once = np.vstack([np.full((12, 15), 40), np.eye(28, 15, dtype=int) + np.eye(28, 15, -13, dtype=int)])
    assert "in a half, a uniform guess has a smaller loss gap than 0.5" in why(
        named_counts(once), named_counts(once + 10 * (once > 1)), loss_gap=0.5
    )
    monkeypatch.setattr(module, "AT_LOSS_ENTRIES", {"nuclear": 10, "gamma2": 10})
    assert "four more predictions of this size would take long" in why(*texts, proxy=False)
    assert compare_texts(*texts, proxy=False, halves=True, permutations=0).halves is not None
    assert compare_texts(*texts, permutations=0).halves is not None, "halves of the proxy are fast"


def test_the_limit_depends_on_supports_alone_and_a_loss_on_counts_too() -> None:
    counts = random_counts(3)
    louder = counts * np.random.default_rng(0).integers(1, 20, size=counts.shape)
    pair = named_counts(counts), named_counts(louder)
    limit = compare_texts(*pair, loss_gap=0, permutations=0, halves=False)
    assert limit.loss_gap is None
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
                sorted(expected.items(), key=lambda pair: (-pair[1], pair[0]))[:LISTED]
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
    for gap in (0, 0.1, None):
        found = compare_texts(*texts, **{**FEW, "loss_gap": gap})
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
    found = compare_texts(named_counts(counts), named_counts(full), loss_gap=0, permutations=0, halves=False)
    assert any("1 of 22 contexts have no predicted direction" in one for one in found.limitations)
    assert found.contexts.moved[5] == 1.0
    assert np.isfinite(found.agreements["context_agreement"].value)


@pytest.mark.parametrize(
    ("first", "second", "settings", "error", "message"),
    [
        (np.eye(3, dtype=int), np.eye(3, dtype=int), {"top": 0}, InputError, "top must be at least 1"),
        (np.eye(3, dtype=int), np.eye(3, dtype=int), {"norm": "l2"}, InputError, "norm must be one of"),
        (np.eye(3, dtype=int), np.eye(3, dtype=int), {"loss_gap": 99.0}, ProblemError, "strictly between"),
        (np.eye(3, dtype=int), np.eye(3, dtype=int), {"loss_gap": -0.1}, InputError, "0 for the limit"),
        (np.eye(3, dtype=int), np.eye(3, dtype=int), {"loss_gap": float("nan")}, InputError, "0 for the limit"),
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
