from __future__ import annotations

import numpy as np

from tokengeom.problems.regularised_logits import Merging
from tokengeom.statistics.next_token import NextTokenStatistics

COLUMNS = [[1.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]


def test_contexts_of_different_shares_are_merged_only_where_shares_do_not_matter() -> None:
    stats = NextTokenStatistics.from_probabilities(COLUMNS, pi=[0.5, 0.3, 0.2])
    assert Merging.of(stats.P, stats.pi).column_of.tolist() == [0, 1, 2]
    assert Merging.of(stats.P).column_of.tolist() == [0, 0, 1]
    equal = NextTokenStatistics.from_probabilities(COLUMNS, pi=[0.4, 0.4, 0.2])
    assert Merging.of(equal.P, equal.pi).column_of.tolist() == [0, 0, 1]


def test_tokens_with_equal_rows_are_one_row_and_shares_are_added() -> None:
    stats = NextTokenStatistics.from_probabilities([[0.5, 0.0], [0.5, 0.0], [0.0, 1.0], [0.0, 0.0]], pi=[0.25, 0.75])
    found = Merging.of(stats.P)
    assert found.row_of.tolist() == [0, 0, 1, 2]
    assert found.a.tolist() == [2.0, 1.0, 1.0]
    assert np.allclose(found.shares(stats.pi), [0.25, 0.75])
