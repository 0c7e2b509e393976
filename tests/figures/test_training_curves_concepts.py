from __future__ import annotations

import numpy as np
import pytest

from figure_cases import heatmap, line_panel
from tokengeom.core.errors import InputError
from tokengeom.figures.training_curves import LearnedConcepts, concepts
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.concepts import Concepts
from tokengeom.theory.proxy import proxy


def test_typical_tokens_have_their_entry_of_the_singular_vector(stats: NextTokenStatistics) -> None:
    found = Concepts.of(proxy(stats.S))
    panel = heatmap(concepts(found, stats, count=3, typical=2))
    for name, row in zip(panel.y_names, panel.values, strict=True):
        np.testing.assert_array_equal(row, found.U[stats.vocabulary.index(name), :3])


def test_measured_strength_is_a_share_of_its_largest_value(stats: NextTokenStatistics) -> None:
    learned = LearnedConcepts(np.array([1.0, 10.0]), np.array([[1.0, 4.0], [0.0, 0.0]]))
    figure = concepts(Concepts.of(proxy(stats.S)), stats, count=2, learned=learned)
    first, second = line_panel(figure, "Order of learning, measured").curves
    np.testing.assert_array_equal(first.y, [0.25, 1.0])
    np.testing.assert_array_equal(second.y, [0.0, 0.0])


def test_a_matrix_without_concepts_is_refused() -> None:
    with pytest.raises(InputError, match="every support is the whole vocabulary"):
        concepts(Concepts.of(np.zeros((3, 4))))
