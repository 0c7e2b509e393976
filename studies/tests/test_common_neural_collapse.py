"""Measures of neural collapse: exact zeros on the simplex frame, and how they differ from collapse by support group."""

from __future__ import annotations

import numpy as np
import pytest

from tokengeom.extending import ProblemError, subspace_collapse
from tokengeom_studies.common.neural_collapse import neural_collapse


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


def test_collapse_measures_noise_outside_the_span_of_the_means_and_nc1_does_not() -> None:
    W, H, labels = simplex(4, 2, 5)
    free = np.linalg.svd(H)[0][:, -1]
    X = H + np.outer(free, np.tile([0.5, -0.5], 4))
    assert neural_collapse(W, X, labels).NC1 < 1e-20
    assert subspace_collapse(X, labels) > 0.01


def test_each_measure_of_neural_collapse_responds_to_its_own_defect() -> None:
    W, H, labels = simplex(4, 3, 6)
    norms = neural_collapse(W, H * (1.0 + labels), labels)
    assert norms.NC2_norms > 0.1
    assert neural_collapse(W[[1, 2, 3, 0]], H, labels).NC3 > 0.5
    assert neural_collapse(W[[1, 2, 3, 0]], H, labels).NC4 == 1.0
    assert abs(neural_collapse(W + np.ones(6), H, labels).NC3) < 1e-14
    assert np.isnan(neural_collapse(W, H[:, :3], np.zeros(3, int)).NC1)


def test_labels_out_of_range_are_refused() -> None:
    with pytest.raises(ProblemError, match="V-1 = 3"):
        neural_collapse(np.ones((4, 2)), np.ones((2, 3)), np.array([0, 1, 4]))
