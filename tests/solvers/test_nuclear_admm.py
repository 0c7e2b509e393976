from __future__ import annotations

import subprocess
import sys
import tracemalloc
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_cases import random_pattern
from tokengeom.core.numerics import Bool
from tokengeom.problems.backend import Backend
from tokengeom.problems.columns import STATE_BYTES
from tokengeom.problems.nuclear_svm import NuclearSVM
from tokengeom.problems.supports import reduce_support
from tokengeom.solvers.nuclear_admm import NuclearADMM, _Constraints
from tokengeom.solvers.splitting import Threshold, Thresholded
from tokengeom_studies.common.known_patterns import KnownInstance, catalogue


def pattern(V: int, m: int, seed: int) -> Bool:
    return random_pattern(V, m, seed, density=np.random.default_rng(seed).uniform(0.15, 0.6))


def by_cvxpy(S: Bool, solver: str) -> float:
    """The smallest nuclear norm that cvxpy finds, on the whole pattern, with one level per context."""
    V, m = S.shape
    L, level = cp.Variable((V, m)), cp.Variable((1, m))
    spread = np.ones((V, 1)) @ level
    on, off = S.astype(float), 1.0 - S
    constraints = [cp.multiply(on, L - spread) == 0, cp.multiply(off, spread - L) >= off]
    tight = {"eps_abs": 1e-8, "eps_rel": 1e-8} if solver == "SCS" else {}
    return float(cp.Problem(cp.Minimize(cp.normNuc(L)), constraints).solve(solver=solver, **tight))


@settings(max_examples=8, deadline=None)
@given(V=st.integers(2, 6), m=st.integers(1, 8), seed=st.integers(0, 10**6))
def test_the_optimum_is_that_of_cvxpy_with_clarabel(V: int, m: int, seed: int) -> None:
    S = pattern(V, m, seed)
    solution = NuclearADMM(tolerance=1e-8)(NuclearSVM.from_support(S))
    assert solution.converged, solution.status
    assert solution.certificate.value == pytest.approx(by_cvxpy(S, "CLARABEL"), rel=1e-5, abs=1e-6)


@settings(max_examples=5, deadline=None)
@given(V=st.integers(3, 8), m=st.integers(3, 15), seed=st.integers(0, 10**6))
def test_the_optimum_is_that_of_cvxpy_with_scs(V: int, m: int, seed: int) -> None:
    S = pattern(V, m, seed)
    solution = NuclearADMM()(NuclearSVM.from_support(S))
    assert solution.certificate.value == pytest.approx(by_cvxpy(S, "SCS"), rel=1e-5, abs=1e-5)


@settings(max_examples=10, deadline=None)
@given(V=st.integers(2, 7), m=st.integers(2, 20), seed=st.integers(0, 10**6))
def test_the_merged_and_the_whole_problem_have_the_same_optimum(V: int, m: int, seed: int) -> None:
    S = pattern(V, m, seed)
    merged, whole = NuclearSVM.from_support(S), NuclearSVM.from_support(S, merge=False)
    solver = NuclearADMM(tolerance=1e-8)
    small, large = solver(merged), solver(whole)
    assert small.certificate.value == pytest.approx(large.certificate.value, rel=1e-6, abs=1e-9)
    # The merged solution on all tokens and contexts is certified by the whole problem.
    kept = ~S.all(axis=0)
    L = merged.reduction.expand(small.x)[:, kept]
    assert small.dual is not None
    G = merged.reduction.expand_dual(small.dual)[:, kept]
    proof = whole.certify(L, G)
    assert proof.holds(1e-7)


@pytest.mark.parametrize("known", catalogue(), ids=lambda known: known.name)
@pytest.mark.parametrize("seed", [None, 0])
def test_known_answers_are_found_from_the_proxy_and_from_a_random_start(known: KnownInstance, seed: int | None) -> None:
    p = NuclearSVM.from_support(known.S)
    start = None if seed is None else np.random.default_rng(seed).standard_normal(p.shape)
    solution = NuclearADMM(tolerance=1e-10)(p, start=start)
    assert solution.certificate.value == pytest.approx(known.nuclear_norm, rel=1e-9)
    assert solution.certificate.bound == pytest.approx(known.nuclear_norm, rel=1e-9)


def test_acceleration_far_from_the_solution_does_not_lead_away() -> None:
    S = np.array([[1, 1, 0], [1, 0, 1], [0, 1, 1], [1, 0, 0]], bool)
    problem = NuclearSVM(reduce_support(S), Backend.on(None))
    generator, proxy = np.random.default_rng(0), problem.backend.whole(problem.proxy())
    for _ in range(8):
        start = proxy + 4.0 * np.abs(proxy).mean() * generator.standard_normal(proxy.shape)
        solution = NuclearADMM(tolerance=1e-8)(problem, start=start)
        assert solution.certificate.holds(1e-8)
        assert solution.iterations < 200


def test_the_exact_proxy_needs_one_iteration_and_holds_to_ten_digits() -> None:
    for known in catalogue():
        solution = NuclearADMM()(NuclearSVM.from_support(known.S))
        assert solution.iterations == 1
        assert solution.certificate.value == pytest.approx(known.nuclear_norm, rel=1e-10)


def test_the_certificate_rejects_a_perturbed_solution() -> None:
    p = NuclearSVM.from_support(pattern(8, 20, 5))
    solution = NuclearADMM(tolerance=1e-8)(p)
    assert solution.certificate.holds(1e-8)
    assert solution.dual is not None
    rng = np.random.default_rng(0)
    noise = rng.standard_normal(p.shape)
    assert not p.certify(solution.x + 1e-3 * noise, solution.dual).holds(1e-6)
    assert not p.certify(solution.x, solution.dual + 1e-3 * noise).holds(1e-6)
    # Feasible, but not optimal: only the gap shows it.
    wider = p.certify(solution.x * 1.001, solution.dual)
    assert wider.primal_residual <= 1e-2
    assert wider.relative_gap == pytest.approx(1e-3, rel=0.1)


def test_relabelling_tokens_and_permuting_or_repeating_contexts_changes_nothing_but_the_order() -> None:
    S = pattern(9, 14, 2)
    rng = np.random.default_rng(1)
    rows, columns = rng.permutation(9), rng.permutation(14)
    solver = NuclearADMM(tolerance=1e-9)

    def value(T: Bool) -> float:
        return solver(NuclearSVM.from_support(T)).certificate.value

    assert value(S[rows][:, columns]) == pytest.approx(value(S), rel=1e-8)
    assert value(np.concatenate([S, S], axis=1)) == pytest.approx(value(S) * np.sqrt(2.0), rel=1e-8)


def test_acceleration_changes_the_iterations_and_not_the_answer() -> None:
    p = NuclearSVM.from_support(pattern(20, 60, 7))
    plain = NuclearADMM(memory=0, tolerance=1e-8)(p)
    fast = NuclearADMM(tolerance=1e-8)(p)
    assert fast.certificate.value == pytest.approx(plain.certificate.value, rel=1e-7)
    assert np.allclose(fast.x, plain.x, atol=1e-3)


def test_polishing_improves_the_bound_of_a_dual_and_keeps_it_feasible() -> None:
    p = NuclearSVM.from_support(pattern(40, 120, 4))
    optimum = NuclearADMM(tolerance=1e-9)(p).certificate.value
    Z, level = p.project(p.proxy())
    term, rough = _Constraints(p, 1e-9, [level]), NuclearADMM(tolerance=1e-3)(p).dual
    assert rough is not None
    G, _ = p.project_dual(rough + 1e-3 * np.random.default_rng(0).standard_normal(p.shape))
    norm = max(1.0, float(np.linalg.norm(G, 2)))
    before = float((p.B * G).sum()) / norm
    bound, found, size = term._polished(before, p.layout.split(G), norm, optimum)
    polished = found[0]
    assert before < bound <= optimum
    assert optimum - bound < 0.5 * (optimum - before)
    proof = p.certify(p.unscale(Z), polished / size)
    assert proof.bound == pytest.approx(bound, rel=1e-10)


@pytest.mark.parametrize("device", [None, "cpu"])
def test_a_larger_problem_is_solved_with_few_decompositions(
    device: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[int] = []
    exact = Threshold._exact

    def counted(*given: Any) -> Thresholded:
        used.append(1)
        return exact(*given)

    monkeypatch.setattr(Threshold, "_exact", counted)
    rng = np.random.default_rng(0)
    S = np.zeros((280, 420), dtype=bool)
    for j in range(420):
        S[np.unique((280 * rng.random(8) ** 3).astype(int)), j] = True
    solution = NuclearADMM(tolerance=1e-5)(NuclearSVM.from_support(S, device=device))
    assert solution.converged, solution.status
    assert solution.certificate.relative_gap <= 1e-5
    assert len(used) < 0.6 * solution.iterations


def test_torch_and_numpy_agree() -> None:
    pytest.importorskip("torch")
    S = pattern(12, 30, 3)
    here = NuclearADMM()(NuclearSVM.from_support(S))
    there = NuclearADMM()(NuclearSVM.from_support(S, device="cpu"))
    assert there.certificate.value == pytest.approx(here.certificate.value, rel=1e-6)
    assert there.certificate.relative_gap <= 2e-6


def test_an_unfinished_solve_says_so_and_still_gives_a_feasible_answer() -> None:
    p = NuclearSVM.from_support(pattern(20, 60, 8))
    solution = NuclearADMM(tolerance=1e-12, max_iterations=3)(p)
    assert not solution.converged
    assert "max_iterations" in solution.status
    assert solution.certificate.primal_residual <= 1e-10
    assert np.isfinite(solution.certificate.relative_gap)


def test_full_supports_leave_nothing_to_solve() -> None:
    solution = NuclearADMM()(NuclearSVM.from_support(np.ones((4, 3))))
    assert solution.certificate.value == 0.0
    assert solution.converged


def test_the_solver_runs_where_only_numpy_scipy_and_torch_are_installed() -> None:
    code = (
        "import sys\n"
        "for name in ('threadpoolctl', 'safetensors', 'pyarrow', 'ibis'): sys.modules[name] = None\n"
        "import numpy as np\n"
        "from tokengeom.problems.nuclear_svm import NuclearSVM\n"
        "from tokengeom.solvers.nuclear_admm import NuclearADMM\n"
        "print(NuclearADMM()(NuclearSVM.from_support(np.eye(5), device='cpu')).certificate.value)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(found.stdout) == pytest.approx(4.0)


@pytest.mark.parametrize(("device", "memory"), [(None, None), ("cpu", None), ("cpu", 1)])
def test_blocks_of_columns_change_nothing_but_rounding(device: str | None, memory: int | None) -> None:
    reduction = reduce_support(pattern(20, 60, 7))
    backend = replace(Backend.on(device), largest_block=300, device_memory=memory)
    p = NuclearSVM(reduction, backend)
    whole, blocked = NuclearADMM(tolerance=1e-8)(NuclearSVM(reduction)), NuclearADMM(tolerance=1e-8)(p)
    assert len(p.layout) == 4
    assert p.layout.on_host == (memory is not None)
    assert blocked.converged
    assert blocked.iterations == whole.iterations
    assert np.allclose(backend.whole(blocked.x), whole.x, atol=1e-7)
    assert blocked.certificate.value == pytest.approx(whole.certificate.value, rel=1e-8)
    # The whole problem certifies what was solved in blocks, with the numbers claimed.
    again = NuclearSVM(reduction).certify(backend.whole(blocked.x), backend.whole(blocked.dual))
    assert again.bound == pytest.approx(blocked.certificate.bound, rel=1e-11)
    assert again.value == pytest.approx(blocked.certificate.value, rel=1e-11)


def test_a_solve_in_blocks_holds_less_memory() -> None:
    reduction, peaks = reduce_support(pattern(40, 2500, 3)), []
    for entries in (10**9, 4000):
        p = NuclearSVM(reduction, replace(Backend.on(), largest_block=entries))
        tracemalloc.start()
        try:
            NuclearADMM(tolerance=1e-12, max_iterations=12)(p)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] < 0.6 * peaks[0]
    assert peaks[1] <= STATE_BYTES * p.shape[0] * p.shape[1]
