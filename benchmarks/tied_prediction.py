"""Prediction with ties at a loss: beside cvxpy at a small size, and alone at 64 tokens x 40,000 contexts.

    python -m benchmarks.tied_prediction            # byte pairs of the built-in stories, contexts of 10; minutes
    python -m benchmarks.tied_prediction --quick    # small sizes, seconds

cvxpy solves ``min CE(B Phi) + lambda ||B||_*`` with ``normNuc`` and ``log_sum_exp``, for the lambda that our search
found: finding lambda counts on our side only. Both gaps are to our bound. Compiling and solving both count.
"""

from __future__ import annotations

import argparse
from itertools import islice

import numpy as np

import tokengeom as tg
from benchmarks.harness import Benchmark, stopwatch
from benchmarks.prediction_at_loss import SOLVERS
from tokengeom.core.numerics import Float
from tokengeom.corpus.stories import stories
from tokengeom.theory.tied import TiedPrediction

LOSS_GAP, TOLERANCE = 0.2, 5e-3
TIES = "positions+suffixes+self"
STORIES, LENGTH, CONTEXTS, VOCABULARY = 4_000, 10, 40_000, 64


def ours(stats: tg.NextTokenStatistics, repeats: int) -> tuple[float, TiedPrediction]:
    """Seconds of one prediction, best of several, and the prediction."""
    best = float("inf")
    for _ in range(repeats):
        with stopwatch() as elapsed:
            found = tg.predict(stats, loss_gap=LOSS_GAP, ties=TIES, tolerance=TOLERANCE)
            best = min(best, elapsed())
    return best, found


def by_cvxpy(found: TiedPrediction, solver: str) -> tuple[float, Float]:
    """Seconds to compile and solve, and B."""
    import cvxpy as cp

    P, pi, Phi = found.P.toarray(), found.pi, found.features.matrix
    options = {"eps": 1e-4, "max_iters": 200_000} if solver == "SCS" else {}
    with stopwatch() as elapsed:
        B = cp.Variable((P.shape[0], Phi.shape[0]))
        L = B @ Phi
        loss = pi @ cp.log_sum_exp(L, axis=0) - cp.sum(cp.multiply(P * pi, L))
        cp.Problem(cp.Minimize(loss + found.lam * cp.normNuc(B))).solve(solver=solver, **options)
        return elapsed(), np.asarray(B.value)


def compare(benchmark: Benchmark, contexts: int, vocabulary: int, solver: str) -> None:
    """Both times, both gaps and the ratio."""
    stats = tg.count(context=2, top_contexts=contexts, vocabulary=vocabulary)
    seconds, found = ours(stats, 3)
    theirs, B = by_cvxpy(found, solver)
    log_p = B @ found.features.matrix
    log_p -= np.log(np.exp(log_p).sum(axis=0))
    value = -float(np.sum(found.P.toarray() * found.pi * log_p)) - found.entropy + found.lam * np.linalg.norm(B, "nuc")
    job = benchmark.job(_name(found), repeats="best of 3; cvxpy once", note="cvxpy at the lambda that was found")
    job.ours(seconds, accuracy=f"gap {found.certificate.relative_gap:.1e}")
    job.peer(f"cvxpy + {SOLVERS[solver]}", theirs, accuracy=f"gap {1.0 - found.certificate.bound / value:.1e}")


def _name(found: TiedPrediction) -> str:
    (V, m), F = found.P.shape, found.features.F
    return f"prediction with ties at a loss, V={V}, m={m:,}, {F:,} features"


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    quick = parser.parse_args().quick
    benchmark = Benchmark("tied_prediction", "tokengeom", "numpy", "scipy", "cvxpy", "scs", "clarabel", quick=quick)
    compare(benchmark, *((12, 8, "CLARABEL") if quick else (40, 20, "SCS")))
    texts = list(islice(stories(0), STORIES // (100 if quick else 1)))
    counted = tg.count(texts, context=LENGTH, tokenizer="bpe:300")
    stats = counted.limited(top_contexts=CONTEXTS, vocabulary=VOCABULARY, rest="merge")
    seconds, found = ours(stats, 1)
    benchmark.job(_name(found), repeats="once").ours(seconds, accuracy=f"norm within {found.relative_gap:.1e}")


if __name__ == "__main__":
    main()
