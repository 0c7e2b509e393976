"""Numbers of one pattern against NumPy, and random patterns like a given one."""

from __future__ import annotations

import numpy as np
import pytest

from tokengeom.extending import Float, NuclearADMM, NuclearSVM
from tokengeom_studies.common.random_data import random_supports
from tokengeom_studies.common.solved_patterns import excess_of, random_like, solve_pattern, uniform_supports
from tokengeom_studies.common.support_designs import projective_plane


def correlation_of_cosines(A: Float, B: Float) -> float:
    """Plain correlation over pairs of different rows of two factors."""
    cosines = []
    for X in (A, B):
        unit = X / np.linalg.norm(X, axis=1, keepdims=True)
        cosines.append((unit @ unit.T)[np.triu_indices(len(X), 1)])
    return float(np.corrcoef(*cosines)[0, 1])


@pytest.mark.parametrize(("V", "m"), [(14, 20), (20, 14)])
def test_the_numbers_are_those_of_plain_singular_value_decompositions(V: int, m: int) -> None:
    S = random_supports(np.random.default_rng(1), V, m, 4)
    row = solve_pattern(S, "cpu", 1e-7)
    problem = NuclearSVM.from_support(S)
    assert problem.shape == S.shape
    L = NuclearADMM(tolerance=1e-7)(problem).x
    (U, s, Vt), (P, p, Qt) = (np.linalg.svd(X - X.mean(axis=0), full_matrices=False) for X in (L, S.astype(float)))
    assert excess_of(row) == pytest.approx(p.sum() / s.sum() - 1, abs=1e-6)
    assert row["excess_low"] <= row["excess_high"]
    assert row["effective_rank"] == pytest.approx(s.sum() ** 2 / (s**2).sum(), rel=1e-6)
    assert row["cosine"] == pytest.approx(np.sum((U * s) @ Vt * ((P * p) @ Qt)) / np.linalg.norm(s) / np.linalg.norm(p))
    rank = int(np.count_nonzero(p > 1e-9))
    polar = P[:, :rank] @ Qt[:rank]
    assert row["positive"] == pytest.approx(np.mean(polar[~S] > 1e-9))
    kept = s > 1e-7 * s[0]
    ours = (U * np.sqrt(s))[:, kept], (Vt.T * np.sqrt(s))[:, kept]
    theirs = (P * np.sqrt(p))[:, :rank], (Qt.T * np.sqrt(p))[:, :rank]
    assert row["tokens"] == pytest.approx(correlation_of_cosines(ours[0], theirs[0]), abs=1e-3)
    assert row["contexts"] == pytest.approx(correlation_of_cosines(ours[1], theirs[1]), abs=1e-3)


def test_a_design_is_exact_and_its_equal_cosines_have_no_correlation() -> None:
    row = solve_pattern(projective_plane(2).S, "cpu", 1e-6)
    assert row["excess_high"] <= 2e-6
    assert row["rank"] == row["rank_of_proxy"] == 6
    assert row["tokens"] is None


def test_random_patterns_keep_the_sizes_and_on_request_the_frequencies() -> None:
    rng = np.random.default_rng(0)
    S = np.zeros((30, 400), dtype=bool)
    for j in range(400):
        S[rng.choice(10, size=1 + j % 3, replace=False), j] = True
    same_sizes, same_frequencies = (random_like(S, rng, control) for control in ("sizes", "frequencies"))
    for drawn in (same_sizes, same_frequencies):
        assert (drawn.sum(axis=0) == S.sum(axis=0)).all()
    assert same_sizes[10:].any(axis=1).all()
    # Tokens that never occur have a weight of nearly 0.
    assert not same_frequencies[10:].any()


def test_uniform_supports_have_one_size_and_equal_chances() -> None:
    S = uniform_supports(np.random.default_rng(0), 10, 4_000, 3)
    assert S.shape == (10, 4_000)
    assert (S.sum(axis=0) == 3).all()
    assert np.abs(S.mean(axis=1) - 0.3).max() < 4 * np.sqrt(0.3 * 0.7 / 4_000)
    shared = (S.astype(float) @ S.T)[~np.eye(10, dtype=bool)] / 4_000
    assert np.abs(shared - 3 * 2 / (10 * 9)).max() < 4 * np.sqrt(0.07 / 4_000)


def test_torch_gives_the_numbers_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tokengeom_studies.common.solved_patterns.MOST_COMPARED", 9)
    S = random_supports(np.random.default_rng(2), 12, 30, 3)
    by_numpy, by_torch = (solve_pattern(S, device, 1e-6) for device in ("cpu", "cpu:0"))
    for name in ("excess_low", "excess_high", "effective_rank", "cosine", "positive", "contexts", "tokens"):
        assert by_torch[name] == pytest.approx(by_numpy[name], abs=1e-4), name
    assert np.allclose(by_torch["spectrum"], by_numpy["spectrum"], atol=1e-4)


def test_a_solution_in_blocks_gives_the_numbers_of_one_array(monkeypatch: pytest.MonkeyPatch) -> None:
    S = random_supports(np.random.default_rng(3), 12, 40, 3)
    whole = solve_pattern(S, "cpu:0", 1e-6)
    monkeypatch.setattr("tokengeom.problems.backend.CPU_BLOCK", 100)
    assert len(NuclearSVM.from_support(S, device="cpu:0").layout) > 2
    in_blocks = solve_pattern(S, "cpu:0", 1e-6)
    for name in ("excess_low", "excess_high", "effective_rank", "cosine", "positive", "contexts", "tokens"):
        assert in_blocks[name] == pytest.approx(whole[name], abs=1e-4), name
