from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokengeom.core.errors import ProblemError
from tokengeom.theory.concepts import Concepts, learning_curve
from tokengeom_studies.common.known_patterns import nested


def test_concepts_give_the_matrix_back_without_its_null_space() -> None:
    M = nested(7).L_mm
    concepts = Concepts.of(M)
    assert len(concepts) == 6
    assert np.allclose((concepts.U * concepts.singular_values) @ concepts.Vt, M, atol=1e-12)
    assert len(Concepts.of(M, count=2)) == 2


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_signs_do_not_depend_on_the_svd(seed: int) -> None:
    M = np.random.default_rng(seed).standard_normal((5, 8))
    U, s, Vt = np.linalg.svd(M, full_matrices=False)
    flip = np.random.default_rng(seed).choice([-1.0, 1.0], size=5)
    a, b = Concepts.of(M), Concepts.from_svd(U * flip, s, Vt * flip[:, None])
    assert np.allclose(a.U, b.U, atol=1e-10)


def test_typical_tokens_are_the_largest_entries_of_each_side() -> None:
    U = np.array([[0.9], [-0.8], [0.1], [0.0]])
    concept = Concepts.from_svd(U, np.array([2.0]), np.array([[0.5, -1.0, 0.2]])).concept(0, typical=2)
    assert [side.tolist() for side in concept.tokens] == [[0, 2], [1]]
    assert [side.tolist() for side in concept.contexts] == [[0, 2], [1]]
    assert concept.token_texts(["a", "b", "c", "d"]) == (["a", "c"], ["b"])
    assert concept.importance == 2.0


def test_entries_far_below_the_largest_are_not_typical() -> None:
    U = np.array([[0.9], [-0.8], [0.08], [1e-17], [-1e-17]])
    concept = Concepts.from_svd(U, np.array([2.0]), np.array([[1.0, -1e-16, 0.5]])).concept(0)
    assert [side.tolist() for side in concept.tokens] == [[0], [1]]
    assert [side.tolist() for side in concept.contexts] == [[0, 2], []]


def test_larger_concepts_are_learned_earlier() -> None:
    concepts = Concepts.of(nested(7).L_mm)
    half = concepts.half_times()
    assert (np.diff(half) > 0).all()
    at_half = np.array([learning_curve(concepts.singular_values, [t])[i, 0] for i, t in enumerate(half)])
    assert np.allclose(at_half, concepts.singular_values / 2.0, rtol=1e-10)


def test_the_learning_curve_solves_its_differential_equation() -> None:
    # ds/dt = 2 s (sigma - s), from s(0) = e^{-2 delta}.
    sigma, t, h, delta = np.array([3.0, 1.0]), np.linspace(0.1, 6.0, 7), 1e-5, 4.0
    s = learning_curve(sigma, t, delta=delta)
    slope = (learning_curve(sigma, t + h, delta=delta) - learning_curve(sigma, t - h, delta=delta)) / (2 * h)
    assert np.allclose(slope, 2.0 * s * (sigma[:, None] - s), rtol=1e-5, atol=1e-8)
    assert np.allclose(learning_curve(sigma, [0.0], delta=delta), np.exp(-2 * delta))
    assert np.allclose(learning_curve(sigma, [100.0])[:, 0], sigma)


def test_matrices_and_counts_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(ProblemError, match="NaN"):
        Concepts.of(np.array([[np.nan, 1.0]]))
    with pytest.raises(ProblemError, match="count=0"):
        Concepts.of(np.eye(3), count=0)
