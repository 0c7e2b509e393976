"""Collapse scores: exact zeros on the simplex frame, known values on noise, and what each depends on."""

from __future__ import annotations

import numpy as np
import pytest

from tokengeom.comparison.similarity import neural_collapse, subspace_collapse
from tokengeom.core.errors import ProblemError


def simplex(C: int, copies: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """W, H and labels of complete neural collapse in d dimensions, rotated at random."""
    Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((d, C)))[0]
    frame = Q @ (np.eye(C) - 1.0 / C)
    labels = np.repeat(np.arange(C), copies)
    return 2.0 * frame.T, 3.0 * frame[:, labels], labels


def test_a_simplex_frame_gives_zeros() -> None:
    W, H, labels = simplex(5, 4, 8)
    found = neural_collapse(W, H, labels).to_dict()
    assert list(found) == ["NC1", "NC2", "NC2_norms", "NC2_angles", "NC3", "NC4"]
    assert max(found.values()) < 1e-14
    assert subspace_collapse(H, labels) < 1e-28


def test_collapse_depends_on_directions_and_not_on_norms() -> None:
    _, H, labels = simplex(4, 3, 6)
    scaled = H * np.random.default_rng(0).uniform(0.5, 2.0, H.shape[1])
    assert subspace_collapse(scaled, labels) < 1e-28
    assert neural_collapse(np.eye(4, 6), scaled, labels).NC1 > 0.01


def test_collapse_is_nc1_for_one_hot_labels_on_the_frame() -> None:
    C, copies = 5, 200
    _, H, labels = simplex(C, copies, C, seed=1)
    rng = np.random.default_rng(2)
    # Noise in the span of the frame that keeps the class means: its directions are those of a unit-norm run.
    noise = (np.eye(C) - 1.0 / C) @ rng.standard_normal((C, H.shape[1]))
    Q = np.linalg.qr(np.random.default_rng(1).standard_normal((C, C)))[0]
    X = H / np.linalg.norm(H, axis=0) + 1e-4 * Q @ noise
    for c in range(C):
        mine = labels == c
        target = (H / np.linalg.norm(H, axis=0))[:, mine][:, :1]
        X[:, mine] += target - X[:, mine].mean(axis=1, keepdims=True)
    X /= np.linalg.norm(X, axis=0)
    one = neural_collapse(np.eye(C), X, labels).NC1
    assert subspace_collapse(X, labels) == pytest.approx(one, rel=1e-6)


def test_random_directions_have_the_known_mean_score() -> None:
    rng = np.random.default_rng(3)
    G, copies, d = 20, 10, 60
    labels = np.repeat(np.arange(G), copies)
    scores = [subspace_collapse(rng.standard_normal((d, G * copies)), labels) for _ in range(20)]
    assert np.mean(scores) == pytest.approx((G * copies - G) / G, rel=0.02)
    assert subspace_collapse(rng.standard_normal((d, G * copies)), labels) > 5.0


def test_collapse_measures_noise_outside_the_span_of_the_means_and_nc1_does_not() -> None:
    W, H, labels = simplex(4, 2, 5)
    free = np.linalg.svd(H)[0][:, -1]
    X = H + np.outer(free, np.tile([0.5, -0.5], 4))
    assert neural_collapse(W, X, labels).NC1 < 1e-20
    assert subspace_collapse(X, labels) > 0.01


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


def test_each_measure_of_neural_collapse_responds_to_its_own_defect() -> None:
    W, H, labels = simplex(4, 3, 6)
    norms = neural_collapse(W, H * (1.0 + labels), labels)
    assert norms.NC2_norms > 0.1
    assert neural_collapse(W[[1, 2, 3, 0]], H, labels).NC3 > 0.5
    assert neural_collapse(W[[1, 2, 3, 0]], H, labels).NC4 == 1.0
    assert abs(neural_collapse(W + np.ones(6), H, labels).NC3) < 1e-14
    assert np.isnan(neural_collapse(W, H[:, :3], np.zeros(3, int)).NC1)


def test_labels_of_the_wrong_shape_or_range_are_refused() -> None:
    with pytest.raises(ProblemError, match=r"\(2, 3\) and labels of shape \(2,\)"):
        subspace_collapse(np.ones((2, 3)), np.zeros(2, int))
    with pytest.raises(ProblemError, match="V-1 = 3"):
        neural_collapse(np.ones((4, 2)), np.ones((2, 3)), np.array([0, 1, 4]))
