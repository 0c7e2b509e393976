"""NTP-SVM* compared with cvxpy + SCS: same supports, proven gap of 1e-6, ratio printed. Takes about three minutes.

    python -m benchmarks.nuclear_svm            # V=300; then V=104 with 403 contexts in 40 groups, and 400 distinct
    python -m benchmarks.nuclear_svm --quick    # small sizes, seconds

SCS is called through cvxpy with vectorised constraints and ``normNuc``; compiling and solving both count. (SCS has a
nuclear-norm cone, but its Python package does not accept it.) ``NuclearSVM.certify`` measures both answers on all
contexts. SCS gets the largest eps of 1e-6, 1e-7, 1e-8 whose proven gap reaches 1e-6, and only that run counts. Best of
three for tokengeom, one run for SCS.
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks.harness import Benchmark, stopwatch
from tokengeom.core.numerics import Bool
from tokengeom.problems.base import Certificate
from tokengeom.problems.nuclear_svm import NuclearSVM
from tokengeom.solvers.nuclear_admm import NuclearADMM

TOLERANCE = 1e-6


def zipf_supports(V: int, groups: int, m: int, largest: int, seed: int) -> Bool:
    """V x m supports of m contexts in ``groups`` groups, 1 to ``largest`` tokens each; token z has weight 1/z."""
    rng = np.random.default_rng(seed)
    weight = 1.0 / np.arange(1, V + 1)
    supports: set[tuple[int, ...]] = set()
    while len(supports) < groups:
        k = int(rng.integers(1, largest + 1))
        drawn = rng.choice(V, size=k, replace=False, p=weight / weight.sum())
        supports.add(tuple(sorted(int(z) for z in drawn)))
    S = np.zeros((V, groups), dtype=bool)
    for j, support in enumerate(sorted(supports)):
        S[list(support), j] = True
    extra = rng.integers(0, groups, m - groups)
    return S[:, np.concatenate([np.arange(groups), extra])]


def ours(S: Bool) -> tuple[float, Certificate]:
    """Seconds from supports to certified logits of all contexts, best of three, and the certificate."""
    best = float("inf")
    for _ in range(3):
        with stopwatch() as elapsed:
            problem = NuclearSVM.from_support(S)
            solution = NuclearADMM(tolerance=TOLERANCE)(problem)
            L = problem.reduction.expand(solution.x)
            best = min(best, elapsed())
    whole = NuclearSVM.from_support(S, merge=False)
    return best, whole.certify(L, problem.reduction.expand_dual(solution.dual))


def by_scs(S: Bool, eps: float) -> tuple[float, float, Certificate]:
    """Seconds to compile, seconds to solve, and the certificate, of cvxpy + SCS on all contexts."""
    import cvxpy as cp

    V, m = S.shape
    on, off = np.nonzero(S), np.nonzero(~S)
    with stopwatch() as elapsed:
        L, level = cp.Variable((V, m)), cp.Variable(m)
        equal = L[on] - level[on[1]] == 0
        margin = level[off[1]] - L[off] >= 1
        task = cp.Problem(cp.Minimize(cp.normNuc(L)), [equal, margin])
        task.get_problem_data(cp.SCS)
        compiled = elapsed()
        task.solve(solver=cp.SCS, eps_abs=eps, eps_rel=eps, max_iters=100_000)
        solved = elapsed() - compiled
    G = np.zeros((V, m))
    G[on], G[off] = -equal.dual_value, -margin.dual_value
    whole = NuclearSVM.from_support(S, merge=False)
    certificates = [whole.certify(L.value, sign) for sign in (G, np.where(S, -G, G))]
    return compiled, solved, min(certificates, key=lambda one: one.relative_gap)


def compare(benchmark: Benchmark, name: str, S: Bool, *, with_peer: bool = True) -> None:
    """Run both sides on one matrix of supports."""
    job = benchmark.job(f"L^mm, {name}", repeats="best of 3; SCS once" if with_peer else "best of 3")
    seconds, own = ours(S)
    job.ours(seconds, accuracy=f"gap {own.relative_gap:.1e}")
    if not with_peer:
        return
    for eps in (1e-6, 1e-7, 1e-8):
        compiled, solved, peer = by_scs(S, eps)
        if peer.relative_gap <= TOLERANCE:
            break
    note = f"eps {eps:.0e}, of which {compiled:.1f} s to compile"
    job.peer("cvxpy + SCS", compiled + solved, accuracy=f"gap {peer.relative_gap:.1e}", note=note)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    args = parser.parse_args()
    benchmark = Benchmark("nuclear_svm", "tokengeom", "numpy", "scipy", "cvxpy", "scs", quick=args.quick)
    if args.quick:
        compare(benchmark, "V=20, m=60 in 15 support groups", zipf_supports(20, 15, 60, 5, 0))
        compare(benchmark, "V=20, 40 distinct supports", zipf_supports(20, 40, 40, 5, 0))
        return
    grouped, distinct = zipf_supports(104, 40, 403, 12, 0), zipf_supports(104, 400, 400, 12, 0)
    compare(benchmark, "V=300, 1,500 distinct supports", zipf_supports(300, 1500, 1500, 20, 0), with_peer=False)
    compare(benchmark, "V=104, m=403 in 40 support groups", grouped)
    compare(benchmark, "V=104, 400 distinct supports", distinct)
    merged = NuclearSVM.from_support(grouped).reduction
    first = np.unique(merged.column_of, return_index=True)[1]
    compare(benchmark, "V=104, only the 40 distinct supports", grouped[:, first])


if __name__ == "__main__":
    main()
