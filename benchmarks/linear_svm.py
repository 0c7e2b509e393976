"""NTP-SVM in the Frobenius norm: ours against cvxpy + Clarabel, cvxpy + OSQP and OSQP called directly.

All sides solve the same data in the same run. Each peer gets ready sparse constraint matrices over ``vec(W)``, which is the form that its
documentation advises, and tolerances that aim at the accuracy asked of ours. What each side reached is judged by the
project's own certificate from that side's W and multipliers. Run: ``python -m benchmarks.linear_svm``.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import statistics
import time
from collections.abc import Callable

import numpy as np
from scipy import sparse

from tokengeom.numerics import Float
from tokengeom.problems.base import Certificate
from tokengeom.problems.instances import overparameterised
from tokengeom.problems.linear_data import LinearData
from tokengeom.problems.ntp_svm import MarginProblem
from tokengeom.solvers.least_distance import equality_rows, margin_rows, spread
from tokengeom.solvers.ntp_svm import solve_ntp_svm

ACCURACY = 1e-8
Found = tuple[Float, Float]


def multipliers(data: LinearData, pairs: Float, equalities: Float) -> Float:
    """A peer's multipliers as ours: whichever sign of the equalities' multipliers proves more."""
    j, v = np.nonzero(~data.S.T)
    A = np.zeros(data.S.shape)
    A[v, j] = -np.abs(pairs)
    A[np.argmax(data.S, axis=0), np.arange(data.m)] -= A.sum(axis=0)
    problem = MarginProblem(data.S, data.H)
    return max((A + spread(data.S, sign * equalities) for sign in (1.0, -1.0)), key=problem.bound)


def ours(data: LinearData) -> Callable[[], Found]:
    def solve() -> Found:
        solution = solve_ntp_svm(MarginProblem(data.S, data.H)).solution
        assert solution.dual is not None
        return solution.x, solution.dual

    return solve


def with_cvxpy(data: LinearData, solver: str, options: dict[str, object]) -> Callable[[], Found]:
    import cvxpy as cp

    E = sparse.csr_array(equality_rows(data.S, data.H))
    G = sparse.csr_array(margin_rows(data.S, data.H))

    def solve() -> Found:
        w = cp.Variable(data.V * data.d)
        equal, apart = E @ w == 0, G @ w >= 1
        cp.Problem(cp.Minimize(cp.sum_squares(w)), [equal, apart]).solve(solver=solver, **options)
        # The objective is twice ours, so the multipliers are too; the certificate does not see the factor.
        return np.reshape(w.value, (data.V, data.d)), multipliers(data, apart.dual_value, equal.dual_value)

    return solve


def with_osqp(data: LinearData, accuracy: float) -> Callable[[], Found]:
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


def measure(solve: Callable[[], Found], repeats: int) -> tuple[float, Found]:
    """Median wall seconds over ``repeats`` runs after one that warms up, and the last answer."""
    found = solve()
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        found = solve()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds), found


def describe(certificate: Certificate) -> str:
    return (
        f"norm {certificate.value:.10f}  gap {certificate.relative_gap:8.1e}  "
        f"primal {certificate.primal_residual:8.1e}  dual {certificate.dual_residual:8.1e}"
    )


def small(repeats: int, seeds: int) -> None:
    print(
        f"V=10 d=60 m=50 |S_j|=6, {seeds} seeds, median of {repeats} repeats each (after one warm-up), accuracy {ACCURACY:g}"
    )
    exact = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
    tight = {"eps_abs": 1e-9, "eps_rel": 1e-9, "max_iter": 200_000, "polishing": True}
    for seed in range(seeds):
        data = overparameterised(seed)
        problem = MarginProblem(data.S, data.H)
        reference, found = measure(ours(data), 5 * repeats)
        print(f"seed {seed}")
        print(f"  {'ours':32s} {1e3 * reference:10.3f} ms           {describe(problem.certify(*found))}")
        peers = {
            "cvxpy + Clarabel, compile+solve": with_cvxpy(data, "CLARABEL", exact),
            "cvxpy + OSQP, compile+solve": with_cvxpy(data, "OSQP", tight),
            "OSQP direct, same accuracy": with_osqp(data, 1e-9),
            "OSQP direct, its default 1e-3": with_osqp(data, 1e-3),
        }
        for name, solve in peers.items():
            seconds, found = measure(solve, repeats)
            ratio = seconds / reference
            print(f"  {name:32s} {1e3 * seconds:10.3f} ms  {ratio:7.1f} x  {describe(problem.certify(*found))}")


def large(sizes: list[int]) -> None:
    for size in sizes:
        data = overparameterised(0, V=200, d=300, m=1000, size=size, n=20_000)
        problem = MarginProblem(data.S, data.H)
        began = time.perf_counter()
        answer = solve_ntp_svm(problem)
        seconds = time.perf_counter() - began
        verdict = "separable" if answer.separable else "not separable"
        print(f"V=200 d=300 m=1000 |S_j|={size}: {verdict}, {seconds:.2f} s, {describe(answer.solution.certificate)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--large", type=int, nargs="*", default=[1, 5, 10], help="support sizes of the large data")
    arguments = parser.parse_args()
    packages = ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in ("numpy", "scipy", "cvxpy", "clarabel", "osqp")
    )
    threads = os.environ.get("OMP_NUM_THREADS", "default")
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, OMP_NUM_THREADS={threads}, Python {platform.python_version()}, {packages}"
    )
    small(arguments.repeats, arguments.seeds)
    large(arguments.large)


if __name__ == "__main__":
    main()
