"""NTP-SVM in the Frobenius norm: tokengeom compared with cvxpy + Clarabel, cvxpy + OSQP and OSQP alone.

All sides solve the same data in the same run, alternating; ratios are between medians. Each peer gets sparse constraint
matrices over ``vec(W)``, as its documentation recommends, and tolerances for the accuracy that tokengeom is asked for.
The accuracy that a side reached is measured by the project's certificate, from that side's W and multipliers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from scipy import sparse
from tests.linear_instances import overparameterised

from benchmarks.harness import Benchmark, measure_calls, stopwatch
from tokengeom.core.numerics import Float
from tokengeom.problems.base import Certificate
from tokengeom.problems.linear_data import LinearData
from tokengeom.problems.ntp_svm import MarginProblem
from tokengeom.solvers.least_distance import equality_multipliers, equality_rows, margin_rows
from tokengeom.solvers.ntp_svm import solve_ntp_svm

REPEATS = 7
OURS = "tokengeom"
Found = tuple[Float, Float]


def multipliers(data: LinearData, pairs: Float, equalities: Float) -> Float:
    """Multipliers of a peer in our convention; for the equalities, the sign that proves more."""
    j, v = np.nonzero(~data.S.T)
    A = np.zeros(data.S.shape)
    A[v, j] = -np.abs(pairs)
    A[np.argmax(data.S, axis=0), np.arange(data.m)] -= A.sum(axis=0)
    problem = MarginProblem(data.S, data.H)
    return max((A + equality_multipliers(data.S, sign * equalities) for sign in (1.0, -1.0)), key=problem.bound)


def ours(data: LinearData) -> Callable[[], Found]:
    """Solve with tokengeom."""

    def solve() -> Found:
        solution = solve_ntp_svm(MarginProblem(data.S, data.H)).solution
        assert solution.dual is not None
        return solution.x, solution.dual

    return solve


def with_cvxpy(data: LinearData, solver: str, options: dict[str, object]) -> Callable[[], Found]:
    """Compile and solve with cvxpy; both are part of each call."""
    import cvxpy as cp

    E = sparse.csr_array(equality_rows(data.S, data.H))
    G = sparse.csr_array(margin_rows(data.S, data.H))

    def solve() -> Found:
        w = cp.Variable(data.V * data.d)
        equal, apart = E @ w == 0, G @ w >= 1
        cp.Problem(cp.Minimize(cp.sum_squares(w)), [equal, apart]).solve(solver=solver, **options)
        # The objective is twice ours, and so are the multipliers; the certificate does not depend on the factor.
        return np.reshape(w.value, (data.V, data.d)), multipliers(data, apart.dual_value, equal.dual_value)

    return solve


def with_osqp(data: LinearData, accuracy: float) -> Callable[[], Found]:
    """Set up and solve with OSQP, from matrices made beforehand."""
    import osqp

    E, G = equality_rows(data.S, data.H), margin_rows(data.S, data.H)
    A = sparse.csc_matrix(np.vstack([E, G]))
    lower = np.append(np.zeros(len(E)), np.ones(len(G)))
    upper = np.append(np.zeros(len(E)), np.full(len(G), np.inf))
    size = data.V * data.d
    P, q = sparse.identity(size, format="csc"), np.zeros(size)

    def solve() -> Found:
        solver = osqp.OSQP()
        solver.setup(
            P, q, A, lower, upper, verbose=False, eps_abs=accuracy, eps_rel=accuracy, max_iter=200_000, polishing=True
        )
        found = solver.solve()
        return np.reshape(found.x, (data.V, data.d)), multipliers(data, found.y[len(E) :], found.y[: len(E)])

    return solve


def describe(certificate: Certificate) -> str:
    """The accuracy that a side reached."""
    return f"gap {certificate.relative_gap:.1e}, residual {certificate.primal_residual:.1e}"


def small(benchmark: Benchmark, seed: int) -> None:
    """Compare all sides on one random draw of the paper's setting."""
    exact = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
    tight = {"eps_abs": 1e-9, "eps_rel": 1e-9, "max_iter": 200_000, "polishing": True}
    data = overparameterised(seed)
    problem = MarginProblem(data.S, data.H)
    measured = measure_calls(
        {
            OURS: ours(data),
            "cvxpy + Clarabel": with_cvxpy(data, "CLARABEL", exact),
            "cvxpy + OSQP": with_cvxpy(data, "OSQP", tight),
            "OSQP called directly, polished": with_osqp(data, 1e-9),
            "OSQP called directly, eps 1e-3, polished": with_osqp(data, 1e-3),
        },
        REPEATS,
    )
    job = benchmark.job(f"W^mm, V=10, d=60, m=50, supports of 6, seed {seed}", repeats=f"median of {REPEATS}")
    for name, (seconds, found) in measured.items():
        accuracy = describe(problem.certify(*found))
        if name == OURS:
            job.ours(seconds, accuracy=accuracy)
        else:
            job.peer(name, seconds, accuracy=accuracy)


def large(benchmark: Benchmark, size: int) -> None:
    """Time tokengeom at a size for which cvxpy does not finish within ten minutes."""
    data = overparameterised(0, V=200, d=300, m=1000, size=size, n=20_000)
    with stopwatch() as elapsed:
        answer = solve_ntp_svm(MarginProblem(data.S, data.H))
        seconds = elapsed()
    verdict = "separable" if answer.separable else "not separable"
    job = benchmark.job(f"W^mm, V=200, d=300, m=1000, supports of {size}", repeats="once", note=verdict)
    job.ours(seconds, accuracy=describe(answer.solution.certificate))


def main() -> None:
    """Run both sizes; with ``--quick`` one draw of the small one."""
    quick = "--quick" in sys.argv
    benchmark = Benchmark("linear_svm", "tokengeom", "numpy", "scipy", "cvxpy", "clarabel", "osqp", quick=quick)
    for seed in range(1 if quick else 3):
        small(benchmark, seed)
    for size in () if quick else (1, 5, 10):
        large(benchmark, size)


if __name__ == "__main__":
    main()
