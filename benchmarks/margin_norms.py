"""Spectral and nuclear margins of the linear model compared with cvxpy: same data, proven gap of 1e-6, ratio printed.

    python -m benchmarks.margin_norms            # the largest sizes that cvxpy solves; takes some minutes
    python -m benchmarks.margin_norms --quick    # small sizes, seconds

cvxpy solves ``min ||W||`` with ``sigma_max`` or ``normNuc`` and sparse constraint matrices over ``vec(W)``. Its W is
made feasible and compared with the lower bound that tokengeom proves, so both gaps are measured alike. Compiling and
solving both count. Best of three for tokengeom, one run for cvxpy. Larger sizes follow for tokengeom alone.
"""

from __future__ import annotations

import argparse
import warnings
from contextlib import suppress

import numpy as np
from scipy import sparse
from tests.linear_instances import clusters, overparameterised

from benchmarks.harness import Benchmark, stopwatch
from tokengeom.core.numerics import Float
from tokengeom.problems.base import Solution
from tokengeom.problems.linear_data import LinearData
from tokengeom.problems.ntp_svm import NORMS, MarginProblem
from tokengeom.solvers.least_distance import equality_rows, margin_rows
from tokengeom.solvers.margin import solve_margin
from tokengeom.solvers.ntp_svm import separating_decoder

SINGULAR = ("spectral", "nuclear")
SOLVERS = {"CLARABEL": "Clarabel", "SCS": "SCS"}
OPTIONS = {
    "CLARABEL": {"tol_gap_abs": 1e-7, "tol_gap_rel": 1e-7, "tol_feas": 1e-7},
    "SCS": {"eps": 1e-7, "max_iters": 200_000},
}


def ours(problem: MarginProblem, repeats: int = 3) -> tuple[float, Solution[Float, Float]]:
    """Seconds from raw data to the certified answer, best of some runs, and the answer."""
    best = float("inf")
    for _ in range(repeats):
        with stopwatch() as elapsed:
            found = solve_margin(problem).solution
            best = min(best, elapsed())
    return best, found


def by_cvxpy(data: LinearData, norm: str, solver: str) -> tuple[float, Float | None]:
    """Seconds to compile and solve, and W; None where the solver gave up."""
    import cvxpy as cp

    apart = sparse.csr_array(margin_rows(data.S, data.H))
    equal = sparse.csr_array(equality_rows(data.S, data.H))
    with stopwatch() as elapsed:
        W = cp.Variable((data.V, data.d))
        w = cp.vec(W, order="C")
        constraints = [apart @ w >= 1] + ([equal @ w == 0] if equal.shape[0] else [])
        size = cp.sigma_max(W) if norm == "spectral" else cp.normNuc(W)
        with suppress(cp.error.SolverError), warnings.catch_warnings():
            # The gap that is printed says how inaccurate an answer is.
            warnings.simplefilter("ignore")
            cp.Problem(cp.Minimize(size), constraints).solve(solver=solver, **OPTIONS[solver])
        return elapsed(), None if W.value is None else np.asarray(W.value)


def compare(benchmark: Benchmark, name: str, data: LinearData, norm: str, solver: str) -> None:
    """Both times, both gaps and the ratio."""
    problem = MarginProblem(data.S, data.H, NORMS[norm])
    seconds, found = ours(problem)
    theirs, W = by_cvxpy(data, norm, solver)
    decoder = None if W is None else separating_decoder(problem, W)
    gap = 1.0 if decoder is None else 1.0 - found.certificate.bound / problem.norm.value(decoder)
    job = benchmark.job(_name(name, data, norm), repeats="best of 3; cvxpy once")
    job.ours(seconds, accuracy=f"gap {found.certificate.relative_gap:.1e}")
    job.peer(f"cvxpy + {SOLVERS[solver]}", theirs, accuracy=f"gap {gap:.1e}" if decoder is not None else "no answer")


def _name(name: str, data: LinearData, norm: str) -> str:
    return f"{norm}-norm margin, {name}, V={data.V}, d={data.d}, m={data.m}"


def alone(benchmark: Benchmark, name: str, data: LinearData, norm: str) -> None:
    """A size that cvxpy does not solve in reasonable time."""
    seconds, found = ours(MarginProblem(data.S, data.H, NORMS[norm]), repeats=1)
    job = benchmark.job(_name(name, data, norm), repeats="once")
    job.ours(seconds, accuracy=f"gap {found.certificate.relative_gap:.1e}")


def soft(V: int, d: int, m: int) -> LinearData:
    """Gaussian embeddings and random supports of 5 tokens."""
    return overparameterised(0, V=V, d=d, m=m, size=5, n=10 * m)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    quick = parser.parse_args().quick
    benchmark = Benchmark("margin_norms", "tokengeom", "numpy", "cvxpy", "scs", "clarabel", quick=quick)
    pairs = [("clusters", clusters(10, 10, 5), "CLARABEL")]
    large: list[tuple[str, LinearData]] = []
    if not quick:
        pairs += [
            ("clusters", clusters(10, 25, 50), "CLARABEL"),
            ("clusters", clusters(15, 25, 50), "CLARABEL"),
            ("soft labels", soft(10, 20, 20), "SCS"),
            ("soft labels", soft(20, 40, 40), "SCS"),
            ("soft labels", soft(50, 50, 50), "SCS"),
        ]
        large += [
            ("clusters", clusters(100, 25, 5, 0.05)),
            ("soft labels", soft(50, 50, 100)),
            ("clusters", clusters(100, 100, 10, 0.05)),
            ("soft labels", soft(100, 100, 200)),
            ("clusters", clusters(200, 100, 5, 0.05)),
            ("soft labels", soft(200, 100, 200)),
            ("clusters", clusters(500, 40, 2, 0.02)),
        ]
    for name, data, solver in pairs:
        for norm in SINGULAR:
            compare(benchmark, name, data, norm, solver)
    for name, data in large:
        for norm in SINGULAR:
            alone(benchmark, name, data, norm)


if __name__ == "__main__":
    main()
