"""One number on its scale: its floor, the rule for "more than chance", its interval, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tokengeom.comparison.agreement import TIE, Agreement, Better, assess, check_permutations, permutation_orders
from tokengeom.comparison.similarity_numbers import SimilarityNumbers
from tokengeom.core.errors import ProblemError
from tokengeom.core.numerics import MOST_BLOCKS, jackknife_interval, leave_out_blocks
from tokengeom.results.convert import from_plain, to_plain

NAN = float("nan")


@pytest.mark.parametrize(
    ("value", "low", "null", "better", "above"),
    [
        (0.5, 0.45, 0.4, "higher", True),
        (0.5, 0.35, 0.4, "higher", False),
        (0.5, NAN, 0.4, "higher", True),
        (0.4, NAN, 0.5, "higher", False),
        (0.5, 0.5, 0.5, "higher", False),
        (0.5, 0.5 * (1 + TIE / 2), 0.5, "higher", False),
        (0.5, 0.5 * (1 + TIE * 2), 0.5, "higher", True),
        (-0.5, -0.5 * (1 - TIE / 2), -0.5, "higher", False),
        (NAN, NAN, 0.5, "higher", False),
        (0.5, 0.4, NAN, "higher", False),
    ],
)
def test_more_than_chance_means_that_the_whole_interval_is_above_the_floor(
    value: float, low: float, null: float, better: Better, above: bool
) -> None:
    assert Agreement(value, low, 0.9, null, better=better).above_floor is above
    mirrored = Agreement(-value, -0.9, -low, -null, better="lower")
    assert mirrored.above_floor is above


def test_the_floor_is_the_hardest_of_those_that_are_known() -> None:
    assert Agreement(0.9, null=0.1, gaussian=0.3, untrained=0.2).floor == 0.3
    assert Agreement(0.9, null=0.1, untrained=0.3, better="lower").floor == 0.1
    assert Agreement(0.9, null=0.1).has_floor
    assert not Agreement(NAN, null=0.1).has_floor
    assert np.isnan(Agreement(0.9).floor)


def test_no_share_is_stated_where_trainings_hardly_agree() -> None:
    hardly = Agreement(0.11, reproducible=0.016, reproducible_low=-0.1, corrected=0.96, corrected_low=-5.0)
    assert hardly.is_hardly_reproducible
    assert hardly.explained_text() == ""
    assert "explains" not in str(hardly)
    assert "explains 92%" in str(replace(hardly, reproducible=0.5, reproducible_low=0.4, corrected_low=NAN))


def test_what_is_attainable_and_explained_follows_from_what_is_reproducible() -> None:
    one = Agreement(0.6, reproducible=0.64, mean=0.72, corrected=0.9, corrected_low=-0.2, corrected_high=1.1)
    assert one.attainable == pytest.approx(0.8)
    assert one.explained == pytest.approx(0.81)
    assert one.explained_interval == pytest.approx((0.0, 1.21)), "the share of a negative number is 0"
    assert (one.fair, replace(one, reliability=0.81).fair) == pytest.approx((0.72, 0.8))
    assert Agreement(0.4, reliability=0.25).fair == pytest.approx(0.8), "of one training, its own agreement counts"
    assert replace(one, reliability=0.25).fair == 1.0, "more than 1 is chance"
    assert replace(one, reproducible=-0.1).attainable == 0.0
    unknown = Agreement(0.6)
    assert np.isnan([unknown.attainable, unknown.explained, *unknown.explained_interval]).all()
    assert np.isnan(replace(one, reliability=NAN).fair)


def test_cells_and_text_leave_out_what_is_not_known() -> None:
    full = Agreement(0.51234, 0.4, 0.6, 0.3, reproducible=0.64, corrected=0.8, corrected_low=0.5, corrected_high=1.0)
    assert full.cells() == ("0.5123", "0.4 to 0.6", "0.3", "0.8")
    assert str(full) == "0.5123 [0.4, 0.6], floor 0.3, attainable 0.8, explains 64% [25, 100]"
    assert Agreement(0.51234).cells() == ("0.5123", "", "", "")
    assert str(Agreement(0.51234)) == "0.5123"
    assert str(Agreement(0.51234, seed_error=0.0123)) == "0.5123, standard error over seeds 0.012"
    assert str(from_plain(Agreement, to_plain(full), Path("folder"))) == str(full)
    given = full.to_dict()
    names = ("floor", "attainable", "explained", "explained_low", "explained_high")
    assert [given[name] for name in names] == pytest.approx([0.3, 0.8, 0.64, 0.25, 1.0])


def test_a_number_of_an_earlier_version_is_read_with_its_ceiling_as_what_is_reproducible() -> None:
    saved = {"value": 0.5, "low": 0.4, "high": 0.6, "null": 0.1, "gaussian": None, "untrained": None, "ceiling": 0.8}
    read = from_plain(Agreement, {**saved, "better": "higher", "items": "contexts", "floor": 0.1}, Path("folder"))
    assert (read.value, read.reproducible, read.reliability) == (0.5, 0.8, 1.0)
    assert np.isnan([read.mean, read.corrected, read.reproducible_low, read.seed_error]).all()


@pytest.mark.parametrize("permutations", [-1, 1, 19])
def test_too_few_permutations_for_a_percentile_are_refused(permutations: int) -> None:
    with pytest.raises(ProblemError, match=f"permutations={permutations}"):
        check_permutations(permutations)
    check_permutations(0)
    check_permutations(20)


def test_the_jackknife_of_a_mean_is_students_interval() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=15)
    left_out = (x.sum() - x) / 14
    low, high = jackknife_interval(float(x.mean()), left_out, bounded=False)
    expected = stats.t.interval(0.95, 14, x.mean(), stats.sem(x))
    assert (low, high) == pytest.approx(expected, rel=1e-10)
    # On the line of atanh for numbers that lie in [-1, 1].
    z = np.tanh(x / 10)
    value = float(np.tanh(np.mean(x / 10)))
    bounded = jackknife_interval(value, np.tanh((x.sum() - x) / 140), bounded=True)
    assert np.arctanh(bounded) == pytest.approx(stats.t.interval(0.95, 14, np.mean(x / 10), stats.sem(x / 10)))
    assert z.size == 15


@pytest.mark.parametrize("value", [1.0, -1.0, 0.0, 0.999999, 0.0959])
def test_an_interval_contains_its_value_and_stays_in_range(value: float) -> None:
    for left_out in (np.full(9, 0.5), np.linspace(-1.0, 1.0, 9), np.full(9, value)):
        low, high = jackknife_interval(value, left_out, bounded=True)
        assert -1.0 <= low <= value <= high <= 1.0


def test_trainings_that_are_left_out_in_turn_add_their_variance() -> None:
    rng = np.random.default_rng(1)
    x, runs = rng.normal(size=12), 0.4 + 0.1 * rng.normal(size=6)
    left_out = (x.sum() - x) / 11
    alone = jackknife_interval(float(x.mean()), left_out, bounded=False)
    both = jackknife_interval(float(x.mean()), left_out, bounded=False, trainings=(runs.sum() - runs) / 5)
    reach = np.hypot(x.mean() - alone[0], stats.t.ppf(0.975, 5) * stats.sem(runs))
    assert both == pytest.approx((x.mean() - reach, x.mean() + reach))
    undefined = jackknife_interval(float(x.mean()), left_out, bounded=False, trainings=np.array([NAN] * 6))
    assert undefined == alone


def test_too_few_defined_values_give_no_interval() -> None:
    assert np.isnan(jackknife_interval(0.5, np.full(4, 0.5), bounded=True)).all()
    assert np.isnan(jackknife_interval(0.5, np.array([0.5] * 5 + [NAN] * 6), bounded=True)).all()
    assert np.isnan(jackknife_interval(NAN, np.full(9, 0.5), bounded=True)).all()
    assert np.isnan(jackknife_interval(0.5, None, bounded=True)).all()


def test_units_are_left_out_whole_and_very_many_in_blocks() -> None:
    units = np.array([0, 1, 1, 2, 0])
    draws = leave_out_blocks(units, np.random.default_rng(0))
    assert draws.tolist() == [[0, 1, 1, 1, 0], [1, 0, 0, 1, 1], [1, 1, 1, 0, 1]]
    many = leave_out_blocks(np.arange(3 * MOST_BLOCKS + 7), np.random.default_rng(0))
    assert many.shape[0] == MOST_BLOCKS
    assert set((1 - many).sum(axis=0)) == {1.0}, "each item is left out once"
    assert set((1 - many).sum(axis=1)) <= {3.0, 4.0}


def test_the_model_before_training_is_a_floor_by_name() -> None:
    H = np.random.default_rng(0).normal(size=(3, 8))
    a, b = ("limit", "context_agreement"), ("limit", "context_similarity")
    found = assess(SimilarityNumbers.of("contexts", H, {"limit": H}), 0, 0, {a: 0.1}).agreements()
    assert found[a].untrained == found[a].floor == 0.1
    assert np.isnan([found[b].untrained, found[b].floor]).all()


def test_permutations_stay_within_strata_and_are_uniform_in_each() -> None:
    strata = np.array([1, 0, 1, 2, 0, 1])
    orders = permutation_orders(np.random.default_rng(0), 6, 3000, strata)
    assert np.array_equal(strata[orders], np.tile(strata, (3000, 1))), "an item changes places within its stratum"
    assert np.array_equal(np.sort(orders, axis=1), np.tile(np.arange(6), (3000, 1)))
    found, times = np.unique(orders, axis=0, return_counts=True)
    assert len(found) == 6 * 2, "3! orders of one stratum times 2! of another"
    assert stats.chisquare(times).pvalue > 1e-3
    assert len(np.unique(permutation_orders(np.random.default_rng(0), 3, 200), axis=0)) == 6


def test_one_item_has_a_value_at_most() -> None:
    H = np.ones((3, 1))
    found = assess(SimilarityNumbers.of("contexts", H, {"": H}), permutations=20, seed=0).agreements()
    assert np.isnan([found["", "context_agreement"].value, found["", "context_agreement"].low]).all()
    nothing = assess(SimilarityNumbers.of("contexts", np.ones((3, 0)), {"": np.ones((3, 0))}), permutations=20, seed=0)
    assert np.isnan(nothing.agreements()["", "context_agreement"].value)


def test_permutations_that_do_not_fit_are_refused_by_their_name() -> None:
    with pytest.raises(ProblemError, match=r"permutations must be at most 1,000,000; got 1,000,000,000,000\. 200 is"):
        check_permutations(10**12)
