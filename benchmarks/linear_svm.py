"""NTP-SVM in the Frobenius norm: tokengeom compared with cvxpy + Clarabel, cvxpy + OSQP and OSQP alone.

All sides solve the same data in the same run, alternating; ratios are between medians. Each peer gets sparse constraint
matrices over ``vec(W)``, as its documentation recommends, and tolerances for the accuracy that tokengeom is asked for.
The accuracy that a side reached is measured by the project's certificate, from that side's W and multipliers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import sparse

from benchmarks.harness import measure_calls, print_machine, stopwatch
from tokengeom.numerics import Float
from tokengeom.problems.base import Certificate
from tokengeom.problems.instances import overparameterised
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
    """One line with the value and accuracy that a side reached."""
    return (
        f"norm {certificate.value:.10f}  gap {certificate.relative_gap:7.1e}  "
        f"primal {certificate.primal_residual:7.1e}  dual {certificate.dual_residual:7.1e}"
    )


def small(seed: int) -> None:
    """Compare all sides on one random draw of the paper's setting."""
    exact = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
    tight = {"eps_abs": 1e-9, "eps_rel": 1e-9, "max_iter": 200_000, "polishing": True}
    data = overparameterised(seed)
    problem = MarginProblem(data.S, data.H)
    measured = measure_calls(
        {
            OURS: ours(data),
            "cvxpy + Clarabel, compile and solve": with_cvxpy(data, "CLARABEL", exact),
            "cvxpy + OSQP, compile and solve": with_cvxpy(data, "OSQP", tight),
            "OSQP direct, eps 1e-9 and polishing": with_osqp(data, 1e-9),
            "OSQP direct, eps 1e-3 and polishing": with_osqp(data, 1e-3),
        },
        REPEATS,
    )
    print(f"V=10 d=60 m=50 |S_j|=6 seed {seed}, medians of {REPEATS} alternating repeats")
    for name, (seconds, found) in measured.items():
        ratio = seconds / measured[OURS][0]
        print(f"  {name:36s} {1e3 * seconds:9.3f} ms  x{ratio:7.1f}  {describe(problem.certify(*found))}")


def large(size: int) -> None:
    """Time tokengeom at a size for which cvxpy does not finish within ten minutes."""
    data = overparameterised(0, V=200, d=300, m=1000, size=size, n=20_000)
    with stopwatch() as elapsed:
        answer = solve_ntp_svm(MarginProblem(data.S, data.H))
        seconds = elapsed()
    verdict = "separable" if answer.separable else "not separable"
    print(f"V=200 d=300 m=1000 |S_j|={size}: {verdict}, {seconds:.2f} s, {describe(answer.solution.certificate)}")


def main() -> None:
    """Run both sizes."""
    print_machine("numpy", "scipy", "cvxpy", "clarabel", "osqp")
    for seed in range(3):
        small(seed)
    for size in (1, 5, 10):
        large(size)


if __name__ == "__main__":
    main()
