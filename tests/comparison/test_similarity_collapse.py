"""Collapse by support group: exact zeros on the simplex frame, known values on noise, and what it depends on."""

from __future__ import annotations

import numpy as np
import pytest

from tokengeom.comparison.similarity import subspace_collapse
from tokengeom.core.errors import ProblemError


def simplex(C: int, copies: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """H and labels of complete collapse in d dimensions, rotated at random."""
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((d, C)))[0]
    labels = np.repeat(np.arange(C), copies)
    return (Q @ (np.eye(C) - 1.0 / C))[:, labels], labels


def test_a_simplex_frame_gives_zero_whatever_its_norms_are() -> None:
    H, labels = simplex(5, 4, 8)
    scaled = H * np.random.default_rng(0).uniform(0.5, 2.0, H.shape[1])
    assert subspace_collapse(H, labels) < 1e-28
    assert subspace_collapse(scaled, labels) < 1e-28


def test_random_directions_have_the_known_mean_score() -> None:
    rng = np.random.default_rng(3)
    G, copies, d = 20, 10, 60
    labels = np.repeat(np.arange(G), copies)
    scores = [subspace_collapse(rng.standard_normal((d, G * copies)), labels) for _ in range(20)]
    assert np.mean(scores) == pytest.approx((G * copies - G) / G, rel=0.02)
    assert subspace_collapse(rng.standard_normal((d, G * copies)), labels) > 5.0


def test_collapse_depends_only_on_the_partition() -> None:
    rng = np.random.default_rng(4)
    H, labels = rng.standard_normal((5, 12)), rng.integers(0, 4, 12)
    order = rng.permutation(12)
    R = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    expected = pytest.approx(subspace_collapse(H, labels), rel=1e-12)
    assert subspace_collapse(H[:, order], labels[order]) == expected
    assert subspace_collapse(7.0 * R @ H, 10 * labels + 3) == expected


def test_contexts_without_a_group_or_a_direction_are_left_out() -> None:
    rng = np.random.default_rng(5)
    H, labels = rng.standard_normal((5, 8)), np.array([0, 0, 1, 1, 2, 2, -1, 2])
    H[:, 7] = 0.0
    assert subspace_collapse(H, labels) == pytest.approx(subspace_collapse(H[:, :6], labels[:6]), rel=1e-12)
    assert np.isnan(subspace_collapse(H[:, :3], np.arange(3)))
    assert np.isnan(subspace_collapse(H[:, :3], np.zeros(3, int)))
    assert np.isnan(subspace_collapse(H[:, :3], np.full(3, -1)))


def test_labels_of_the_wrong_shape_are_refused() -> None:
    with pytest.raises(ProblemError, match=r"\(2, 3\) and labels of shape \(2,\)"):
        subspace_collapse(np.ones((2, 3)), np.zeros(2, int))
