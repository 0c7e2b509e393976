"""Agreement without the differences between seeds, on made-up geometries whose common part is known."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from tokengeom.extending import Float
from tokengeom_studies.common.corrected import Measured, corrected, corrected_difference, explained, jackknifed, shown
from tokengeom_studies.common.measured import Interval


def measured(share: float, noise: float, seeds: int = 6, size: int = 20_000) -> tuple[Measured, Measured, Measured]:
    """Runs with a common part that an explanation has a share of: agreement, with a noisy explanation, and of pairs."""
    generator = np.random.default_rng(0)
    explanation, rest = generator.standard_normal((2, size))
    common = np.sqrt(share) * explanation + np.sqrt(1 - share) * rest
    runs = [common + noise * generator.standard_normal(size) for _ in range(seeds)]
    noisy = [explanation + noise * generator.standard_normal(size) for _ in range(2)]

    def r(a: Float, b: Float) -> float:
        return float(np.corrcoef(a, b)[0, 1])

    agreed: Measured = {(seed,): r(run, explanation) for seed, run in enumerate(runs)}
    one_training: Measured = {(seed,): r(run, noisy[0]) for seed, run in enumerate(runs)}
    pairs: Measured = {(s, t): r(runs[s], runs[t]) for s, t in combinations(range(seeds), 2)}
    of_explanation: Measured = {(0, 1): r(*noisy)}
    assert corrected(one_training, pairs, of_explanation).mean == pytest.approx(np.sqrt(share), abs=0.03)
    return agreed, pairs, of_explanation


@pytest.mark.parametrize("noise", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("share", [0.4, 1.0])
def test_the_share_is_found_behind_any_noise_of_seeds(share: float, noise: float) -> None:
    agreed, pairs, _ = measured(share, noise)
    found = explained(corrected(agreed, pairs))
    assert found.mean == pytest.approx(share, abs=0.05)
    assert found.low < share + 0.03
    assert found.high > share - 0.03
    assert np.mean(list(agreed.values())) < np.sqrt(share)


def test_an_interval_needs_three_seeds_and_leaves_out_one_with_its_pairs() -> None:
    pairs: Measured = {(0, 1): 0.8, (0, 2): 0.4, (1, 2): 0.4}
    found = corrected(of_seeds(3), pairs)
    parts = 0.6 / np.sqrt([0.4, 0.4, 0.8])
    half = 4.302653 * np.sqrt(2 / 3 * np.sum((parts - parts.mean()) ** 2))
    assert found.high - found.mean == pytest.approx(half, rel=1e-5)
    assert shown(corrected(of_seeds(2), {(0, 1): 0.36})) == "1.000"


def of_seeds(count: int) -> Measured:
    """Agreement of 0.6 of each seed."""
    return {(seed,): 0.6 for seed in range(count)}


def test_next_to_nothing_reproducible_and_unknown_pairs_give_no_number() -> None:
    one = of_seeds(2)
    assert shown(corrected(one, {(0, 1): 0.04})) == "-"
    assert shown(corrected(one, {})) == "-"
    assert shown(corrected({}, {(0, 1): 0.5})) == "-"
    assert shown(corrected_difference((one, {(0, 1): 0.5}), (one, {(0, 1): 0.01}))) == "-"


def test_equal_runs_have_no_difference_and_a_negative_agreement_explains_nothing() -> None:
    agreed, pairs, _ = measured(0.5, 1.0)
    difference = corrected_difference((agreed, pairs), (agreed, pairs))
    assert (difference.low, difference.mean, difference.high) == (0.0, 0.0, 0.0)
    nothing = explained(Interval(-0.2, -0.5, 0.1, 5))
    assert (nothing.mean, nothing.low) == (0.0, 0.0)
    assert nothing.high == pytest.approx(0.01)


def test_the_jackknife_of_a_mean_is_its_standard_error() -> None:
    x = np.array([1.0, 2.0, 4.0, 7.0])
    found = jackknifed(range(4), lambda left: float(np.delete(x, [] if left is None else left).mean()))
    assert found.half == pytest.approx(3.182446 * x.std(ddof=1) / 2, rel=1e-6)
    assert jackknifed(range(2), lambda left: 1.0).high == np.inf
