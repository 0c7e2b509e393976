"""Parts of a text: what was estimated and what happened, and agreement between parts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from tokengeom_studies.common.text_parts import LIMIT, Directions, Part, agreement, agreement_on, growth

COUNTS = sparse.csc_array(np.array([[3, 0, 1, 0, 2], [1, 2, 0, 0, 0], [0, 2, 4, 0, 1], [0, 0, 1, 5, 0]]))


def test_growth_counts_what_is_outside_the_supports() -> None:
    part = sparse.csc_array(np.array([[2, 0, 0], [1, 2, 0], [0, 0, 0]]))
    twin = sparse.csc_array(np.array([[1, 1, 4], [0, 2, 0], [3, 0, 0]]))
    rest = sparse.csc_array(np.array([[1, 1, 9], [0, 2, 0], [5, 1, 0]]))
    found = growth(part, twin, rest)
    # The third context was not seen, so nothing about it is estimated.
    assert (found["contexts"], found["windows"], found["pairs"]) == (2, 5, 3)
    assert found["missing_share"] == pytest.approx(1 / 5)
    assert found["missing_in_twin"] == pytest.approx((1 + 3) / 7)
    assert found["missing_in_rest"] == pytest.approx((1 + 5 + 1) / 10)
    assert found["new_pairs_in_twin"] == 2
    assert found["zeros_seen_later"] == pytest.approx(3 / 3)
    assert found["grew_in_twin"] == 1.0
    assert found["missing_error"] == pytest.approx(np.sqrt((0.2 * 0.8 + 2 * 2 / 5) / 5))


def test_good_turing_is_right_on_average_for_independent_windows() -> None:
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.full(30, 0.3), size=40).T
    draws = [[sparse.csc_array(rng.poisson(20 * shares)) for _ in range(2)] for _ in range(20)]
    found = [growth(part, twin, twin) for part, twin in draws]
    estimated, happened = (np.mean([one[name] for one in found]) for name in ("missing_share", "missing_in_twin"))
    assert estimated == pytest.approx(happened, rel=0.1)
    errors = np.std([one["missing_share"] - one["missing_in_twin"] for one in found])
    assert np.mean([one["missing_error"] for one in found]) == pytest.approx(errors, rel=0.7)


def test_a_threshold_leaves_out_rare_pairs_and_then_empty_contexts() -> None:
    part = Part.of(COUNTS, 3)
    assert part.kept.tolist() == [0, 2, 3]
    assert part.tokens.tolist() == [True, False, True, True]
    assert part.stats.counts.toarray().tolist() == [[3, 0, 0], [0, 0, 0], [0, 4, 0], [0, 0, 5]]


def test_a_text_agrees_with_itself_and_every_prediction_is_made() -> None:
    whole = Part.of(COUNTS)
    found = whole.directions([0.1])
    assert set(found) == {
        LIMIT, "proxy", "centred supports", "centred probabilities", "nuclear 0.1", "gamma2 0.1"
    }  # fmt: skip
    for directions in found.values():
        same = agreement(whole, directions, whole, directions)
        assert same["contexts"] == pytest.approx(1.0)
        assert same["tokens"] == pytest.approx(1.0)
        assert (same["contexts_compared"], same["tokens_compared"]) == (5, 4)


def test_contexts_are_matched_by_their_number_in_the_whole_text() -> None:
    rng = np.random.default_rng(1)
    whole, part = Part.of(COUNTS), Part.of(sparse.csc_array(COUNTS * np.array([1, 0, 1, 1, 1])))
    H = rng.standard_normal((3, 5))
    W = rng.standard_normal((4, 3))
    of_whole = Directions.of((W, H))  # type: ignore[arg-type]
    of_part = Directions.of((W, H[:, part.kept]))  # type: ignore[arg-type]
    assert agreement(whole, of_whole, part, of_part)["contexts"] == pytest.approx(1.0)
    other = Directions.of((W, rng.standard_normal((3, 5))))  # type: ignore[arg-type]
    kept = part.kept
    unit = [one.contexts[:, kept].T @ one.contexts[:, kept] for one in (of_whole, other)]
    above = np.triu_indices(4, 1)
    expected = np.corrcoef(unit[0][above], unit[1][above])[0, 1]
    assert agreement_on(whole, of_whole, other, part) == pytest.approx(expected)
