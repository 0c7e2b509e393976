"""Prediction at a loss compared with cvxpy: same statistics, same lambda, proven gap of 1e-4, ratio printed.

    python -m benchmarks.prediction_at_loss            # built-in stories; takes some minutes
    python -m benchmarks.prediction_at_loss --quick    # small sizes, seconds

cvxpy solves ``min CE(L) + lambda ||L||_*`` with ``normNuc`` and ``log_sum_exp``, for the lambda that our search found:
finding lambda counts on our side only. ``RegularisedLogits.certify`` measures both answers; the dual is ours. Compiling
and solving both count. Best of three for tokengeom, one run for cvxpy.
"""

from __future__ import annotations

import argparse

import numpy as np

import tokengeom as tg
from benchmarks.harness import Benchmark, stopwatch
from tokengeom.core.numerics import Float
from tokengeom.problems.regularised_logits import RegularisedLogits
from tokengeom.theory.at_loss import LossPrediction

LOSS_GAP = 0.05
SOLVERS = {"CLARABEL": "Clarabel", "SCS": "SCS"}


def statistics(contexts: int, vocabulary: int) -> tg.NextTokenStatistics:
    """The most frequent contexts and next tokens of the built-in stories."""
    return tg.count(top_contexts=contexts, vocabulary=vocabulary)


def ours(stats: tg.NextTokenStatistics) -> tuple[float, LossPrediction]:
    """Seconds of one prediction at a loss, best of three, and the prediction."""
    best = float("inf")
    for _ in range(3):
        with stopwatch() as elapsed:
            found = tg.predict(stats, loss_gap=LOSS_GAP)
            best = min(best, elapsed())
    return best, found


def by_cvxpy(stats: tg.NextTokenStatistics, lam: float, solver: str) -> tuple[float, Float]:
    """Seconds to compile and solve, and the logits."""
    import cvxpy as cp

    P, pi = stats.P.toarray(), stats.pi
    options = {"eps": 1e-5, "max_iters": 200_000} if solver == "SCS" else {}
    with stopwatch() as elapsed:
        L = cp.Variable(P.shape)
        loss = pi @ cp.log_sum_exp(L, axis=0) - cp.sum(cp.multiply(P * pi, L))
        cp.Problem(cp.Minimize(loss + lam * cp.normNuc(L))).solve(solver=solver, **options)
        return elapsed(), np.asarray(L.value)


def compare(benchmark: Benchmark, contexts: int, vocabulary: int, solver: str) -> None:
    """Both times, both gaps and the ratio."""
    stats = statistics(contexts, vocabulary)
    seconds, found = ours(stats)
    theirs, L = by_cvxpy(stats, found.lam, solver)
    whole = RegularisedLogits.from_probabilities(stats.P.toarray(), stats.pi, found.lam)
    value = whole.certify(L, None).value
    gap = (value - found.certificate.bound) / value
    job = benchmark.job(_name(stats), repeats="best of 3; cvxpy once", note="cvxpy at the lambda that was found")
    job.ours(seconds, accuracy=f"gap {found.certificate.relative_gap:.1e}")
    job.peer(f"cvxpy + {SOLVERS[solver]}", theirs, accuracy=f"gap {gap:.1e}")


def _name(stats: tg.NextTokenStatistics) -> str:
    return f"prediction at a loss, V={stats.V}, m={stats.m}"


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    quick = parser.parse_args().quick
    benchmark = Benchmark("prediction_at_loss", "tokengeom", "numpy", "cvxpy", "scs", "clarabel", quick=quick)
    tg.predict(statistics(20, 10), loss_gap=LOSS_GAP)
    for contexts, vocabulary, solver in [(20, 10, "CLARABEL"), (20, 10, "SCS")] if quick else PEERS:
        compare(benchmark, contexts, vocabulary, solver)
    stats = statistics(*((60, 30) if quick else (400, 104)))
    seconds, found = ours(stats)
    benchmark.job(_name(stats), repeats="best of 3").ours(seconds, accuracy=f"gap {found.relative_gap:.1e}")
    features = tg.predict(stats)
    with stopwatch() as elapsed:
        points = features.path(np.geomspace(2.0, 1e-4, 20).tolist())
        seconds = elapsed()
    job = benchmark.job(f"{_name(stats)}, at 20 losses", repeats="once")
    job.ours(seconds, accuracy=f"gaps up to {max(p.relative_gap for p in points):.1e}")


PEERS = [(40, 20, "CLARABEL"), (40, 20, "SCS"), (100, 40, "SCS")]
"""Contexts, vocabulary and solver of the peer."""


if __name__ == "__main__":
    main()
