from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokengeom.errors import ProblemError, ResourceError
from tokengeom.problems.instances import KnownInstance, catalogue
from tokengeom.problems.nuclear_svm import NuclearSVM
from tokengeom.solvers.nuclear_admm import NuclearADMM


def pattern(V: int, m: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    S = rng.random((V, m)) < rng.uniform(0.15, 0.6)
    S[rng.integers(V, size=m), np.arange(m)] = True
    return S


def by_cvxpy(S: np.ndarray, solver: str) -> float:
    """The smallest nuclear norm as cvxpy finds it, on the whole pattern, one anchor a context."""
    import cvxpy as cp

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
def test_merged_equals_unmerged(V: int, m: int, seed: int) -> None:
    S = pattern(V, m, seed)
    merged, whole = NuclearSVM.from_support(S), NuclearSVM.from_support(S, merge=False)
    solver = NuclearADMM(tolerance=1e-8)
    small, large = solver(merged), solver(whole)
    assert small.certificate.value == pytest.approx(large.certificate.value, rel=1e-6, abs=1e-9)
    # The merged answer, brought to all tokens and contexts, is certified by the whole problem.
    kept = ~S.all(axis=0)
    L = merged.reduction.expand(small.x)[:, kept]
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


def test_the_exact_proxy_needs_one_iteration_and_holds_to_ten_digits() -> None:
    for known in catalogue():
        solution = NuclearADMM()(NuclearSVM.from_support(known.S))
        assert solution.iterations == 1
        assert solution.certificate.value == pytest.approx(known.nuclear_norm, rel=1e-10)


def test_the_certificate_rejects_a_perturbed_solution() -> None:
    p = NuclearSVM.from_support(pattern(8, 20, 5))
    solution = NuclearADMM(tolerance=1e-8)(p)
    assert solution.certificate.holds(1e-8)
    rng = np.random.default_rng(0)
    noise = rng.standard_normal(p.shape)
    assert not p.certify(solution.x + 1e-3 * noise, solution.dual).holds(1e-6)
    assert not p.certify(solution.x, solution.dual + 1e-3 * noise).holds(1e-6)
    # Feasible, but no longer optimal: only the gap can tell.
    wider = p.certify(solution.x * 1.001, solution.dual)
    assert wider.primal_residual <= 1e-2
    assert wider.relative_gap == pytest.approx(1e-3, rel=0.1)


def test_relabelling_tokens_and_permuting_or_repeating_contexts_changes_nothing_but_the_order() -> None:
    S = pattern(9, 14, 2)
    rng = np.random.default_rng(1)
    rows, columns = rng.permutation(9), rng.permutation(14)
    solver = NuclearADMM(tolerance=1e-9)

    def value(T: np.ndarray) -> float:
        return solver(NuclearSVM.from_support(T)).certificate.value

    assert value(S[rows][:, columns]) == pytest.approx(value(S), rel=1e-8)
    assert value(np.concatenate([S, S], axis=1)) == pytest.approx(value(S) * np.sqrt(2.0), rel=1e-8)


def test_acceleration_changes_the_way_and_not_the_answer() -> None:
    p = NuclearSVM.from_support(pattern(20, 60, 7))
    plain = NuclearADMM(memory=0, tolerance=1e-8)(p)
    fast = NuclearADMM(tolerance=1e-8)(p)
    assert fast.certificate.value == pytest.approx(plain.certificate.value, rel=1e-7)
    assert np.allclose(fast.x, plain.x, atol=1e-3)


def test_torch_and_numpy_agree() -> None:
    pytest.importorskip("torch")
    S = pattern(12, 30, 3)
    here = NuclearADMM()(NuclearSVM.from_support(S))
    there = NuclearADMM()(NuclearSVM.from_support(S, device="cpu"))
    assert there.certificate.value == pytest.approx(here.certificate.value, rel=1e-6)
    assert there.certificate.relative_gap <= 2e-6


def test_a_missing_gpu_is_said_in_words() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ResourceError, match="cuda"):
        NuclearSVM.from_support(np.eye(3), device="cuda")


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


@pytest.mark.parametrize("setting", [{"tolerance": 0.0}, {"relaxation": 2.0}, {"memory": -1}, {"check_every": 0}])
def test_settings_that_cannot_work_are_refused(setting: dict[str, float]) -> None:
    with pytest.raises(ProblemError, match=next(iter(setting))):
        NuclearADMM(**setting)  # type: ignore[arg-type]


def test_the_solver_runs_where_only_numpy_and_torch_are_installed() -> None:
    code = (
        "import sys\n"
        "for name in ('scipy', 'threadpoolctl', 'safetensors', 'pyarrow', 'ibis'): sys.modules[name] = None\n"
        "import numpy as np\n"
        "from tokengeom.problems.nuclear_svm import NuclearSVM\n"
        "from tokengeom.solvers.nuclear_admm import NuclearADMM\n"
        "print(NuclearADMM()(NuclearSVM.from_support(np.eye(5), device='cpu')).certificate.value)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(found.stdout) == pytest.approx(4.0)
