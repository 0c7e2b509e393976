"""Agreement and SIM over pairs: compared with loops over pairs, with scipy, and by simulation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tokengeom.comparison import similarity_numbers
from tokengeom.comparison.agreement import ItemKind, Name, assess, permutation_orders
from tokengeom.comparison.similarity import STABILISER
from tokengeom.comparison.similarity_numbers import KINDS, MOST_ITEMS, SimilarityNumbers, equal_strata, full_cosines
from tokengeom.core.numerics import Float, Int, unit_columns

SEEDS = st.integers(0, 2**32 - 1)


WEIGHTINGS: list[ItemKind] = ["contexts", "supports"]


def by_loops(
    run: Float, target: Float, groups: Int, chosen: Int | None = None, items: ItemKind = "contexts"
) -> dict[Name, float]:
    """Both numbers from loops over pairs; sizes of groups are those of all items."""
    n = run.shape[1]
    X, Y = (unit_columns(M) for M in (run, target))
    sizes = np.bincount(groups)[groups] if items == "supports" else np.ones(n)
    x, y, w, all_x, all_y, all_w = (list[float]() for _ in range(6))
    for i in range(n) if chosen is None else chosen:
        for j in range(n) if chosen is None else chosen:
            cosine = (1.0, 1.0) if i == j else (float(X[:, i] @ X[:, j]), float(Y[:, i] @ Y[:, j]))
            all_x.append(cosine[0])
            all_y.append(cosine[1])
            all_w.append(1.0 / (sizes[i] * sizes[j]))
            if groups[i] != groups[j]:
                x.append(cosine[0])
                y.append(cosine[1])
                w.append(all_w[-1])
    C, D = np.cov(all_x, all_y, ddof=0, aweights=all_w), np.cov(x, y, ddof=0, aweights=w)
    item = items.removesuffix("s")
    return {
        ("", f"{item}_agreement"): float(D[0, 1] / np.sqrt(D[0, 0] * D[1, 1])),
        ("", f"{item}_similarity"): float((C[0, 1] + STABILISER) / (np.sqrt(C[0, 0] * C[1, 1]) + STABILISER)),
    }


@pytest.mark.parametrize("items", WEIGHTINGS)
@given(SEEDS, st.integers(6, 12))
@settings(max_examples=15, deadline=None)
def test_values_are_those_of_loops_over_pairs(items: ItemKind, seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    run, target = rng.standard_normal((3, n)), rng.standard_normal((4, n))
    groups = np.concatenate([np.arange(4), rng.integers(0, 4, n - 4)])
    found = SimilarityNumbers.of(items, run, {"": target}, groups).values()
    assert found == pytest.approx(by_loops(run, target, groups, items=items), abs=1e-9)


def test_with_one_context_per_support_both_weightings_are_the_same() -> None:
    rng = np.random.default_rng(0)
    run, target = rng.standard_normal((3, 9)), rng.standard_normal((4, 9))
    once, pairs = (
        assess(SimilarityNumbers.of(items, run, {"": target}, np.arange(9)), permutations=20, seed=0).agreements()
        for items in ("supports", "contexts")
    )
    for kind in KINDS:
        one, other = once["", f"support_{kind}"], pairs["", f"context_{kind}"]
        ends = [(a.value, a.low, a.high, a.null, a.gaussian) for a in (one, other)]
        assert ends[0] == pytest.approx(ends[1], abs=1e-12)


@given(SEEDS, st.integers(2, 5))
@settings(max_examples=10, deadline=None)
def test_copies_of_the_contexts_of_a_support_change_no_number_over_supports(seed: int, copies: int) -> None:
    rng = np.random.default_rng(seed)
    groups = np.array([0, 0, 1, 1, 1, 2, 3, 4, 4, 5])
    run, target = rng.standard_normal((3, 10)), rng.standard_normal((4, 10))
    again = np.concatenate([np.arange(10), np.tile([2, 3, 4], copies)])

    def number(items: ItemKind, columns: Int) -> float:
        numbers = SimilarityNumbers.of(items, run[:, columns], {"": target[:, columns]}, groups[columns])
        return numbers.values()["", numbers.number("agreement")]

    assert number("supports", again) == pytest.approx(number("supports", np.arange(10)), abs=1e-9)
    assert number("contexts", again) != pytest.approx(number("contexts", np.arange(10)), abs=1e-6)


@pytest.mark.parametrize("items", WEIGHTINGS)
@given(SEEDS)
@settings(max_examples=6, deadline=None)
def test_the_jackknife_leaves_out_one_support_group_at_a_time(items: ItemKind, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, groups = 14, np.array([0, 0, 0, 1, 1, 2, 3, 4, 4, 5, 5, 5, 6, 6])
    run, target = rng.standard_normal((3, n)), rng.standard_normal((4, n))
    numbers = SimilarityNumbers.of(items, run, {"": target}, groups)
    name, assessed = ("", numbers.number("agreement")), assess(numbers, permutations=0, seed=0)
    for g in range(7):
        expected = by_loops(run, target, groups, np.flatnonzero(groups != g), items)
        assert {key: assessed.left_out[key][g] for key in expected} == pytest.approx(expected, abs=1e-9)
    # The interval by hand: atanh, the standard error less half of what is counted twice, Student's quantile.
    z, centre = np.arctanh(assessed.left_out[name]), np.arctanh(numbers.values()[name])
    Q = []
    for a, b in assessed.pairs:
        without = by_loops(run, target, groups, np.flatnonzero((groups != a) & (groups != b)), items)[name]
        Q.append(7 * centre - 6 * (z[a] + z[b]) + 5 * np.arctanh(without))
    variance = 6 / 7 * np.sum((z - z.mean()) ** 2)
    variance -= 0.5 * min(36 / (2 * 7 * 5) * np.mean(np.square(Q)), variance / 2)
    reach = stats.t.ppf(0.975, 6) * np.sqrt(variance)
    one = assessed.agreements()[name]
    assert (one.low, one.high) == pytest.approx((np.tanh(centre - reach), np.tanh(centre + reach)), abs=1e-9)


@pytest.mark.parametrize("items", WEIGHTINGS)
@given(SEEDS)
@settings(max_examples=6, deadline=None)
def test_a_permutation_gives_each_group_the_mean_direction_of_another(items: ItemKind, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, groups = 11, np.array([0, 0, 0, 1, 1, 2, 3, 4, 4, 5, 5])
    run, target = rng.standard_normal((3, n)), rng.standard_normal((4, n))
    numbers = SimilarityNumbers.of(items, run, {"a": target, "b": 2 * target}, groups)
    agreement, similarity = (numbers.number(kind) for kind in KINDS)
    orders = permutation_orders(rng, 6, 4)
    found = numbers.permuted(orders)
    directions = unit_columns(target)
    for k, order in enumerate(orders):
        means = np.stack([directions[:, groups == g].mean(axis=1) for g in range(6)], axis=1)
        expected = by_loops(run, means[:, order][:, groups], groups, items=items)
        assert found["a", agreement][k] == pytest.approx(expected["", agreement], abs=1e-9)
        assert found["a", similarity][k] == pytest.approx(expected["", similarity], abs=1e-9)
        assert found["b", agreement][k] == pytest.approx(found["a", agreement][k], abs=1e-9)


def test_permutations_do_not_depend_on_how_many_are_gathered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    numbers = SimilarityNumbers.of("tokens", rng.standard_normal((3, 9)), {"": rng.standard_normal((3, 9))})
    orders = permutation_orders(rng, 9, 7)
    at_once = numbers.permuted(orders)
    monkeypatch.setattr(similarity_numbers, "GATHERED", 200)
    for name, values in numbers.permuted(orders).items():
        assert values == pytest.approx(at_once[name], abs=1e-12)


@pytest.mark.parametrize("items", WEIGHTINGS)
@given(SEEDS)
@settings(max_examples=10, deadline=None)
def test_nothing_changes_under_rotation_scale_order_of_items_or_a_shift_of_tokens(items: ItemKind, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 10
    run, target, groups = rng.standard_normal((3, n)), rng.standard_normal((4, n)), rng.integers(0, 5, n)
    groups[:5] = np.arange(5)
    R, order = np.linalg.qr(rng.standard_normal((3, 3)))[0], rng.permutation(n)
    expected = pytest.approx(SimilarityNumbers.of(items, run, {"": target}, groups).values(), abs=1e-9)
    assert SimilarityNumbers.of(items, 3 * R @ run, {"": 0.1 * target}, groups).values() == expected
    moved = SimilarityNumbers.of(items, run[:, order], {"": target[:, order]}, 7 - groups[order])
    assert moved.values() == expected
    tokens = SimilarityNumbers.of("tokens", run, {"": target})
    shifted = tokens.of_other_run(run + rng.standard_normal((3, 1)))
    centred = SimilarityNumbers.of("tokens", run - run.mean(axis=1, keepdims=True), {"": target}).values()
    assert shifted == pytest.approx(centred, abs=1e-9), "another run's tokens lose their mean"


def test_an_item_without_a_direction_has_cosine_zero_with_all_others() -> None:
    target = np.array([[1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 0.0, 1.0]])
    assert full_cosines(target)[2].tolist() == [0.0, 0.0, 1.0, 0.0]
    numbers = SimilarityNumbers.of("tokens", np.eye(4), {"": target})
    assert numbers.targets[""].without_direction == 1


def test_what_does_not_vary_is_nan_and_has_no_interval() -> None:
    frame = np.eye(8) - 1 / 8
    rng = np.random.default_rng(0)
    found = assess(SimilarityNumbers.of("tokens", rng.standard_normal((4, 8)), {"": frame}), permutations=20, seed=0)
    one = found.agreements()["", "token_agreement"]
    assert np.isnan([one.value, one.low, one.null, one.gaussian]).all()
    same = assess(
        SimilarityNumbers.of("contexts", rng.standard_normal((4, 8)), {"": frame}, np.zeros(8, int)),
        permutations=20,
        seed=0,
    )
    assert np.isnan(same.agreements()["", "context_agreement"].value), "all contexts have one support"


def test_gaussian_embeddings_and_permutations_are_floors_of_unrelated_items() -> None:
    """SIM's diagonal makes its floor high; agreement has none."""
    rng = np.random.default_rng(1)
    tokens = rng.standard_normal((30, 60))
    found = assess(SimilarityNumbers.of("tokens", tokens, {"": rng.standard_normal((30, 60))}), permutations=60, seed=0)
    agreement, sim = found.agreements()["", "token_agreement"], found.agreements()["", "token_similarity"]
    assert abs(agreement.null) < 0.1
    assert abs(agreement.gaussian) < 0.1
    assert min(sim.null, sim.gaussian) > 0.3
    assert not agreement.above_floor
    assert not sim.above_floor


def test_collapsed_contexts_raise_the_floor_of_sim_and_not_of_agreement() -> None:
    """Contexts of one support agree with any other support that they all get together."""
    rng = np.random.default_rng(2)
    groups = np.repeat(np.arange(10), 12)
    H = rng.standard_normal((20, 10))[:, groups] + 0.05 * rng.standard_normal((20, 120))
    target = rng.standard_normal((20, 10))[:, groups]
    found = assess(SimilarityNumbers.of("contexts", H, {"": target}, groups), permutations=60, seed=0).agreements()
    assert found["", "context_similarity"].null > 0.4
    assert found["", "context_agreement"].null < 0.5
    assert not found["", "context_similarity"].above_floor


def test_vectors_that_know_only_how_many_contexts_a_token_follows_are_at_the_floor() -> None:
    """Tokens with large degrees lie together; permutations of all tokens would call that agreement."""
    rng = np.random.default_rng(5)
    degree = np.repeat([1, 2, 4, 8, 16], 16)
    run, target = (np.vstack([np.log2(1 + degree), rng.standard_normal((8, 80))]) for _ in range(2))
    numbers = SimilarityNumbers.of("tokens", run, {"": target})
    floors = {}
    for name, strata in (("all", None), ("strata", equal_strata(degree))):
        assessed = assess(replace(numbers, strata=strata), permutations=100, seed=0)
        floors[name] = replace(assessed, gaussian={}).agreements()["", "token_agreement"]
    assert floors["all"].value == floors["strata"].value > 0.15
    assert floors["all"].above_floor
    assert not floors["strata"].above_floor
    assert floors["strata"].null == pytest.approx(floors["strata"].value, abs=0.06)
    assert floors["all"].null < 0.1
    # Where tokens of equal degree lie as predicted, that is above the floor.
    own = SimilarityNumbers.of("tokens", run, {"": run + 0.5 * rng.standard_normal(run.shape)})
    assert (
        assess(replace(own, strata=equal_strata(degree)), permutations=40, seed=0)
        .agreements()["", "token_agreement"]
        .above_floor
    )


def test_another_run_gives_the_untrained_floor() -> None:
    rng = np.random.default_rng(3)
    T = rng.standard_normal((5, 30))
    run, again = T + 0.3 * rng.standard_normal((5, 30)), T + 0.3 * rng.standard_normal((5, 30))
    numbers = SimilarityNumbers.of("contexts", run, {"p": T, "q": T + 1.0})
    assert numbers.of_other_run(again)["p", "context_agreement"] == pytest.approx(
        SimilarityNumbers.of("contexts", again, {"p": T}).values()["p", "context_agreement"]
    )


def test_of_very_many_tokens_some_are_drawn_and_every_interval_contains_its_value() -> None:
    """With 1,242 tokens, resamples that paired copies once gave 0.0959 an interval from 0.103 to 0.119."""
    rng = np.random.default_rng(4)
    W, T = rng.standard_normal((40, 1242)), rng.standard_normal((40, 1242))
    numbers = SimilarityNumbers.of("tokens", W, {"": T + 0.3 * W})
    assert numbers.size == MOST_ITEMS
    for one in assess(numbers, permutations=0, seed=0).agreements().values():
        assert one.low < one.value < one.high
        assert one.high - one.low < 0.1


def coverage(items: ItemKind, units: int, noise: float, draws: int, seed: int = 1) -> dict[str, float]:
    """Share of 95% intervals that contain the number of the population that the units are drawn from.

    Groups have 1 to 6 contexts around a direction of their own; each token is its own group.
    """
    rng = np.random.default_rng(seed)
    d, G = 12, 4000
    centres = rng.standard_normal((d, 3)) @ rng.standard_normal((3, G)) + 0.6 * rng.standard_normal((d, G))
    n = np.ones(G, dtype=np.int64) if items == "tokens" else rng.integers(1, 7, G)
    mixed = rng.standard_normal((d, G))

    def sample(size: int) -> SimilarityNumbers:
        chosen = rng.choice(G, size, replace=False)
        groups = np.repeat(np.arange(size), n[chosen])
        target = centres[:, chosen][:, groups]
        observed = target + noise * mixed[:, chosen][:, groups] + 0.1 * rng.standard_normal(target.shape)
        return SimilarityNumbers.of(items, observed, {"": target}, groups)

    names = [f"{items.removesuffix('s')}_agreement"]
    large = [sample(250).values() for _ in range(20)]
    population = {name: float(np.mean([values["", name] for values in large])) for name in names}
    inside = dict.fromkeys(names, 0)
    for k in range(draws):
        found = assess(sample(units), permutations=0, seed=k).agreements()
        for name in inside:
            inside[name] += found["", name].low <= population[name] <= found["", name].high
    return {name: count / draws for name, count in inside.items()}


@pytest.mark.parametrize(
    ("items", "units", "noise"),
    [("contexts", 20, 1.0), ("supports", 60, 3.0), ("tokens", 30, 1.0), ("tokens", 40, 100.0)],
)
def test_intervals_have_about_their_nominal_coverage(items: ItemKind, units: int, noise: float) -> None:
    for name, share in coverage(items, units, noise, 100).items():
        assert share >= 0.86, name  # fewer than 86 of 100 have a chance below 2% at 92%


@pytest.mark.slow
@pytest.mark.parametrize("items", ["contexts", "supports", "tokens"])
@pytest.mark.parametrize("units", [20, 60])
@pytest.mark.parametrize("noise", [0.3, 1.0, 3.0, 10.0, 100.0])
def test_many_intervals_cover_ninety_to_ninety_eight_percent(items: ItemKind, units: int, noise: float) -> None:
    for name, share in coverage(items, units, noise, 500).items():
        assert 0.88 <= share <= 0.99, name  # 90 to 98%, and two standard errors of 500 draws
