"""Prediction at a loss in the gamma_2 norm: compared with cvxpy's semidefinite form, and with the nuclear norm.

    python -m benchmarks.gamma2_at_loss            # built-in stories; takes some minutes
    python -m benchmarks.gamma2_at_loss --text stories.txt --sizes 400x1200      # and words of a text, to 1e-3
    python -m benchmarks.gamma2_at_loss --quick    # small sizes, seconds

cvxpy solves ``min CE(L) + lambda t`` with ``[[A, L], [L^T, B]]`` positive semidefinite and diagonals at most t, for the
lambda that our search found: finding lambda counts on our side only. ``Gamma2Logits.certify`` measures the factors of
both answers on all tokens and contexts; the bound is ours, proven on merged ones, where the problem has the same value.
The peer gets the largest eps of 1e-4, 1e-5, 1e-6 whose gap reaches 1e-4, and only that run counts. Compiling
and solving count. Best of three for tokengeom, one run for cvxpy.

The nuclear norm, at the same loss gaps and tolerance, is a reference: the time in the gamma_2 norm should not be far
above it. *Cold* is one prediction by itself, *warm* all loss gaps one after the other, each from those before. Each is
one run, and iterations, which a busy machine does not change, are those of the whole search.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tokengeom as tg
from benchmarks.harness import Benchmark, stopwatch
from benchmarks.prediction_at_loss import statistics
from tokengeom.core.numerics import Float
from tokengeom.problems.gamma2 import Gamma2Logits, MaxNormFactors
from tokengeom.problems.regularised_logits import RegularisedLogits
from tokengeom.theory.at_loss import LossPrediction

LOSS_GAP, TOLERANCE = 0.05, 1e-4
LOSS_GAPS = (2.0, 0.3, 0.03, 1e-3, 1e-6)
SIZES = ((60, 30), (400, 104), (1000, 300))
"""Contexts and vocabulary of the comparison with the nuclear norm."""
TEXT_LOSS_GAPS, TEXT_TOLERANCE = (2.0, 0.5, 0.05, 1e-3, 1e-6), 1e-3
FINER_LOSS_GAPS, FINER_TOLERANCE = (0.05, 1e-6), 1e-4
"""Loss gaps and tolerances for a text."""


def whole(stats: tg.NextTokenStatistics, lam: float) -> Gamma2Logits:
    """The problem on all tokens and contexts."""
    return Gamma2Logits(RegularisedLogits.from_probabilities(stats.P.toarray(), stats.pi, lam))


def gap_of(problem: Gamma2Logits, factors: MaxNormFactors, found: LossPrediction) -> float:
    """Relative distance of factors from the proven bound."""
    value = problem.certify(factors, None).value
    return (value - found.certificate.bound) / value


def by_cvxpy(stats: tg.NextTokenStatistics, lam: float, eps: float) -> tuple[float, MaxNormFactors]:
    """Seconds to compile and solve with SCS, and factors of the logits."""
    import cvxpy as cp

    P, pi = stats.P.toarray(), stats.pi
    V, m = P.shape
    with stopwatch() as elapsed:
        square, t = cp.Variable((V + m, V + m), PSD=True), cp.Variable()
        L = square[:V, V:]
        loss = pi @ cp.log_sum_exp(L, axis=0) - cp.sum(cp.multiply(P * pi, L))
        task = cp.Problem(cp.Minimize(loss + lam * t), [cp.diag(square) <= t])
        task.solve(solver=cp.SCS, eps_abs=eps, eps_rel=eps, max_iters=200_000)
        seconds = elapsed()
    return seconds, factors_of(np.asarray(square.value), V)


def factors_of(square: Float, V: int) -> MaxNormFactors:
    """Rows of a root of a positive semidefinite matrix: V rows of W, and columns of H."""
    values, vectors = np.linalg.eigh(square)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return MaxNormFactors(root[:V], root[V:].T)


def compare_with_cvxpy(benchmark: Benchmark, contexts: int, vocabulary: int) -> None:
    """Both times, both gaps and the ratio."""
    stats = statistics(contexts, vocabulary)
    job = benchmark.job(
        f"prediction at a loss in the gamma_2 norm, V={stats.V}, m={stats.m}",
        repeats="best of 3; cvxpy once",
        note="cvxpy at the lambda that was found",
    )
    best = float("inf")
    for _ in range(3):
        with stopwatch() as elapsed:
            found = tg.predict(stats, loss_gap=LOSS_GAP, norm="gamma2", tolerance=TOLERANCE)
            best = min(best, elapsed())
    assert found.factors is not None, "gamma_2 has factors"
    rows, columns = found.merging.row_of, found.merging.column_of
    problem, own = whole(stats, found.lam), MaxNormFactors(found.factors.W[rows], found.factors.H[:, columns])
    job.ours(best, accuracy=f"gap {gap_of(problem, own, found):.1e}")
    for eps in (1e-4, 1e-5, 1e-6):
        seconds, theirs = by_cvxpy(stats, found.lam, eps)
        if (gap := gap_of(problem, theirs, found)) <= TOLERANCE:
            break
    job.peer("cvxpy + SCS, semidefinite", seconds, accuracy=f"gap {gap:.1e}", note=f"eps {eps:.0e}")


def iterations(found: LossPrediction) -> int:
    """Iterations of all solves of a search, from its status."""
    match = re.search(r"(\d+) iterations in total", found.status)
    assert match is not None, found.status
    return int(match[1])


def compare_with_nuclear(benchmark: Benchmark, contexts: int, vocabulary: int) -> None:
    """Both norms on built-in stories, at every loss gap by itself, and along all of them."""
    stats = statistics(contexts, vocabulary)
    features, where = tg.predict(stats), f"V={stats.V}, m={stats.m}"
    gaps = [gap for gap in LOSS_GAPS if gap < 0.95 * features.largest_gap]
    compare_cold(benchmark, stats, gaps, TOLERANCE, where)
    compare_warm(benchmark, stats, gaps, TOLERANCE, where)


def compare_on_text(benchmark: Benchmark, text: Path, vocabulary: int, contexts: int) -> None:
    """Both norms on words of a text."""
    stats = tg.count(text, tokenizer="word", context=4, top_contexts=contexts, vocabulary=vocabulary)
    where = f"words of {'/'.join(text.resolve().parts[-2:])}, V={stats.V:,}, m={stats.m:,}"
    compare_cold(benchmark, stats, TEXT_LOSS_GAPS, TEXT_TOLERANCE, f"{where}, to {TEXT_TOLERANCE:.0e}")
    compare_warm(benchmark, stats, TEXT_LOSS_GAPS, TEXT_TOLERANCE, f"{where}, to {TEXT_TOLERANCE:.0e}")
    compare_cold(benchmark, stats, FINER_LOSS_GAPS, FINER_TOLERANCE, f"{where}, to {FINER_TOLERANCE:.0e}")


def compare_cold(
    benchmark: Benchmark, stats: tg.NextTokenStatistics, gaps: Sequence[float], tolerance: float, where: str
) -> None:
    """Seconds and iterations of a prediction by itself at every loss gap."""
    for gap in gaps:
        job = benchmark.job(f"gamma_2 norm at a loss gap of {gap:g}, cold, {where}", repeats="once")
        for norm in ("gamma2", "nuclear"):
            with stopwatch() as elapsed:
                found = tg.predict(stats, loss_gap=gap, norm=norm, tolerance=tolerance)
                _add(job, norm, elapsed(), [found])


def compare_warm(
    benchmark: Benchmark, stats: tg.NextTokenStatistics, gaps: Sequence[float], tolerance: float, where: str
) -> None:
    """The same along all of them, each from those before."""
    features, shown = tg.predict(stats), f"{len(gaps)} loss gaps from {gaps[0]:g} to {gaps[-1]:g}"
    job = benchmark.job(f"gamma_2 norm at {shown}, warm, {where}", repeats="once")
    for norm in ("gamma2", "nuclear"):
        with stopwatch() as elapsed:
            points = features.path(gaps, norm=norm, tolerance=tolerance)
            _add(job, norm, elapsed(), points)


def _add(job: Any, norm: str, seconds: float, found: list[LossPrediction]) -> None:
    largest = max(one.relative_gap for one in found)
    accuracy = f"{sum(map(iterations, found))} iterations, gap {largest:.1e}"
    if norm == "gamma2":
        job.ours(seconds, accuracy=accuracy)
    else:
        job.peer("tokengeom, nuclear norm", seconds, accuracy=accuracy)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--text", type=Path, default=os.environ.get("TOKENGEOM_BENCHMARK_TEXT"), help="text file")
    parser.add_argument("--sizes", nargs="+", default=["400x1200"], help="tokens x contexts of the text")
    given = parser.parse_args()
    quick = given.quick
    benchmark = Benchmark("gamma2_at_loss", "tokengeom", "numpy", "cvxpy", "scs", quick=quick)
    tg.predict(statistics(20, 10), loss_gap=LOSS_GAP, norm="gamma2")
    for contexts, vocabulary in [(10, 6)] if quick else [(20, 10), (40, 20)]:
        compare_with_cvxpy(benchmark, contexts, vocabulary)
    for contexts, vocabulary in [(20, 10)] if quick else SIZES:
        compare_with_nuclear(benchmark, contexts, vocabulary)
    for size in given.sizes if given.text else ():
        compare_on_text(benchmark, given.text, *map(int, size.split("x")))


if __name__ == "__main__":
    main()
