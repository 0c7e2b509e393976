"""The search for the point of the path of tied features that has a given loss gap, and the limit of that path.

``B(lam) = argmin CE(B Phi) + lam ||B||_*``,   ``CE(B(lam) Phi) - H = g``

Each strength starts where the last one ended. Far from the gap that is asked for, points are solved roughly.

In the gamma_2 norm the strength follows the loss of the first iterations, and its point is solved by a splitting
(``tied_admm``). Where that point misses the loss gap, the next strength comes from the last two points (a secant).

In the limit of no loss B tends in direction to the smallest norm with margins 1 on ``B Phi``: the margin problem of the
linear model, with features in the place of embeddings. In the gamma_2 norm it is solved for small problems. Where
contexts have no feature of their own it may have no solution, which is proven.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy.sparse import csc_array

from tokengeom.core.errors import ProblemError
from tokengeom.core.numerics import Float, blas_threads_for, x_log_x
from tokengeom.core.progress import AbstractProgress, SilentProgress
from tokengeom.core.resources import Estimate, fewer_contexts, require_memory
from tokengeom.problems.backend import Array, Backend
from tokengeom.problems.base import LARGEST_GAP, Certificate, Solution
from tokengeom.problems.ntp_svm import NORMS, MarginProblem
from tokengeom.problems.regularised_logits import Merging
from tokengeom.problems.supports import first_of_equal
from tokengeom.problems.tied_logits import DistinctFeatures, TiedLogits
from tokengeom.solvers.gamma2_margin import solve_gamma2_margin
from tokengeom.solvers.margin import solve_margin
from tokengeom.solvers.proximal_gradient import ContextRows, Momentum, ProximalGradient, state_at, take_step
from tokengeom.solvers.tied_admm import TiedADMM, steps_remembered
from tokengeom.theory.at_loss import ROUNDING, LossSettings

ROUGH, NEAR_TOLERANCE = 0.3, 0.03
"""Tolerances of points that only guide the search, far from and near to the loss gap asked for."""
NEAR = 0.3
"""Distance in log g from which on a point is near."""
GAP_ACCURACY = 0.01
"""Relative difference between the loss gap asked for and the one reached."""
FIRST = 0.5
"""First strength, as a share of the largest."""
LARGEST_FALL = math.log(6.0)
"""Largest fall of log lam from one point to the next."""
MOST_POINTS = 30
MOST_EXACT = 16.0
"""In the gamma_2 norm, how many times more exactly than asked for a point is solved whose loss was missed before."""
OUT_OF_REACH = 1e4
"""A loss gap is given up where it is proven to need a norm of so many times that of the last point."""
TIMED_STEPS = 3
ITERATIONS, GAMMA2_ITERATIONS = (250, 800), (80, 280)
"""Iterations of all points of a search together, to a proof of 0.5%; the second where each solves for weights."""
FEATURE_ARRAYS, CONTEXT_ARRAYS = 9, 8
"""Arrays of F' x V' and of m x V' that are held at the peak of a solve."""
RANK_TOLERANCE = 1e-7
MORE_FEATURES = "Add 'self' to the ties, or ask for a larger gap."
LARGEST_MARGINS, LARGEST_GAMMA2_MARGINS = 4_000_000, 60_000
"""Merged tokens times contexts, in the gamma_2 norm times features, up to which the limit is solved for: minutes."""
START = 3e-2
"""Tolerance of the limit in the nuclear norm from which that in the gamma_2 norm is found."""


@dataclass(frozen=True, eq=False)
class TiedPoint:
    """A point of the path: tokens W (V x d), features A (d x F), and what is proven about them."""

    W: Float
    A: Float
    lam: float
    loss_gap: float
    certificate: Certificate
    status: str
    seconds: float
    weights: tuple[Float, Float] | None = None
    change: Float | None = None


class TiedPath:
    """Predictions of tied features at losses, for probabilities P (V x m), shares pi (m) and features Phi (F x m)."""

    def __init__(
        self, P: csc_array, pi: Float, Phi: csc_array, settings: LossSettings, backend: Backend | None = None
    ) -> None:
        self.tolerance, self.max_iterations = settings.tolerance, settings.max_iterations
        self.gamma2 = settings.norm == "gamma2"
        self.backend = Backend.on() if backend is None else backend
        self.merging, self.features = Merging.of_tokens(P), DistinctFeatures.of(Phi, largest_rows=self.gamma2)
        self.shape = (self.merging.a.size, *self.features.matrix.shape)
        require_memory(
            self.bytes_needed(),
            "Tied features of {:,} merged tokens, {:,} distinct features and {:,} contexts".format(*self.shape),
            lambda share: f"{fewer_contexts(share, Phi.shape[1])}, or a smaller vocabulary.",
            settings.memory_limit,
            self.backend.device,
        )
        with blas_threads_for(*self.shape[:2]):
            self.problem = TiedLogits.of(P, pi, self.features.matrix, self.merging, self.backend)
            self.largest_gap, self.largest_lam = self.problem.zero_gap, self.problem.largest_lam
        self.smallest_gap = shared_logits_gap(P, pi, Phi)

    def bytes_needed(self) -> int:
        """Bytes that a solve holds at its peak."""
        rows, features, contexts = self.shape
        held = FEATURE_ARRAYS * features + CONTEXT_ARRAYS * contexts
        if self.gamma2:
            held += 2 * steps_remembered(rows * (features + contexts)) * (features + contexts)
        return int(8 * rows * held + 32 * self.features.matrix.nnz)

    def estimate(self, loss_gap: float | None) -> Estimate:
        """The time and memory that a prediction at a loss is expected to take, from a few steps at its start."""
        what = "Tied features of {:,} x {:,} features x {:,} contexts (merged)".format(*self.shape)
        if loss_gap is None:
            raise ProblemError("Time is estimated for tied features at a loss: give a loss gap.")
        self._require_gap(loss_gap)
        with blas_threads_for(*self.shape[:2]):
            step = self._timed_step()
            step()
            began = time.perf_counter()
            for _ in range(TIMED_STEPS):
                step()
            self.backend.synchronise()
            each = (time.perf_counter() - began) / TIMED_STEPS
        digits = max(-math.log10(self.tolerance), 1.0) / -math.log10(LARGEST_GAP)
        fewest, most = (count * each * digits for count in (GAMMA2_ITERATIONS if self.gamma2 else ITERATIONS))
        return Estimate(what, fewest, most, self.bytes_needed())

    def _timed_step(self) -> Callable[[], object]:
        """A step of the solver at its start."""
        problem = self.problem.at(FIRST * self.largest_lam)
        if self.gamma2:
            run = TiedADMM().begin(problem)
            return lambda: run.advance(checked=False, balanced=False)
        rows = ContextRows(problem)
        state = state_at(rows)
        return lambda: take_step(rows, state)

    def at(self, loss_gap: float, progress: AbstractProgress | None = None) -> TiedPoint:
        """The point of the path whose loss gap is within 1% of the one asked for, proven to the tolerance."""
        self._require_gap(loss_gap)
        with blas_threads_for(*self.shape[:2]):
            shown = progress or SilentProgress()
            return self._weighted(loss_gap, shown) if self.gamma2 else self._point(*self._search(loss_gap, shown))

    def _require_gap(self, loss_gap: float) -> None:
        """Refuse a loss gap that no logits of these features have."""
        if not 0.0 < loss_gap < self.largest_gap:
            raise ProblemError(
                f"A loss gap must lie strictly between 0 and {self.largest_gap:.4g} nats, the gap of a uniform guess "
                f"on these statistics; got {loss_gap!r}. Without a loss gap, the prediction is that in the limit."
            )
        if loss_gap <= self.smallest_gap * (1.0 + ROUNDING):
            raise ProblemError(
                f"These features cannot reach a loss gap of {loss_gap:.4g} nats: contexts that share all of them have "
                f"equal logits, with which it is at least {self.smallest_gap:.4g}. {MORE_FEATURES}"
            )

    def _weighted(self, loss_gap: float, progress: AbstractProgress) -> TiedPoint:
        """The point in the gamma_2 norm: a strength that is nearly right, then solves from where the last one ended."""
        began, solver, target = time.perf_counter(), TiedADMM(self.tolerance, self.max_iterations), math.log(loss_gap)
        known: list[tuple[float, float]] = []
        with progress.stage(f"Predicting at a loss gap of {loss_gap:.3g}", None) as stage:
            problem, state, iterations = solver.near_loss(self.problem, loss_gap)
            for _ in range(MOST_POINTS):
                solution, state = solver(problem, state)
                reached, iterations = problem.loss_gap(solution.x), iterations + solution.iterations
                stage.advance(0.0, f"loss gap {reached:.3g}, {solution.status}")
                if abs(reached / loss_gap - 1.0) <= GAP_ACCURACY or not solution.converged:
                    break
                known.append((math.log(problem.lam), math.log(reached)))
                problem = problem.at(math.exp(known[-1][0] + (target - known[-1][1]) / _slope(known)))
                # Answers that are just within the tolerance may miss the loss by more than is allowed, either way.
                solver = replace(solver, tolerance=max(0.5 * solver.tolerance, self.tolerance / MOST_EXACT))
        if abs(reached / loss_gap - 1.0) > GAP_ACCURACY:
            raise ProblemError(
                f"The search for a loss gap of {loss_gap:.4g} ended at {reached:.4g}: {solution.status}. Likely these "
                f"features cannot reach it, or it needs more iterations. {MORE_FEATURES}"
            )
        host, dual = self.backend.to_numpy, solution.dual
        assert dual is not None, "every bound has one"
        vectors = host(solution.x.W)[self.merging.row_of], self.features.of_all(host(solution.x.H))
        status, seconds = f"{solution.status}, {iterations} iterations in total", time.perf_counter() - began
        weights, change = (host(dual.r) ** 2, host(dual.c) ** 2), self.backend.whole(dual.matrix)
        return TiedPoint(*vectors, problem.lam, reached, solution.certificate, status, seconds, weights, change)

    def _split(self, X: Array) -> tuple[Float, Float]:
        """Factors W (V' x d) and A (d x F') of a B in the nuclear norm that share its singular values equally."""
        x = self.backend.to_numpy(X)
        eigenvalues, Q = np.linalg.eigh(x.T @ x)
        s = np.sqrt(np.maximum(eigenvalues, 0.0))[::-1]
        rank = int((s > RANK_TOLERANCE * max(float(s[0]), 1e-300)).sum())
        root, Q = np.sqrt(s[:rank]), Q[:, ::-1][:, :rank]
        return (Q * root) / np.sqrt(self.merging.a)[:, None], (x @ Q / root).T

    def _point(self, solution: Solution[Array, None], problem: TiedLogits, seconds: float) -> TiedPoint:
        """What is kept of a solution in the nuclear norm, on all tokens and features."""
        W, A = self._split(solution.x)
        reached = problem.loss_gap(solution.x)
        status, proof = solution.status, solution.certificate
        return TiedPoint(W[self.merging.row_of], self.features.of_all(A), problem.lam, reached, proof, status, seconds)

    def _search(self, loss_gap: float, progress: AbstractProgress) -> tuple[Solution[Array, None], TiedLogits, float]:
        """The point in the nuclear norm with a loss gap, its problem, and the seconds of all solves."""
        log_lam, target = math.log(FIRST * self.largest_lam), math.log(loss_gap)
        tolerance, seconds, iterations = ROUGH, 0.0, 0
        state: Momentum | None = None
        known: list[tuple[float, float]] = []
        with progress.stage(f"Predicting at a loss gap of {loss_gap:.3g}", None) as stage:
            for _ in range(MOST_POINTS):
                problem = self.problem.at(math.exp(log_lam))
                solver = ProximalGradient(
                    max(tolerance, self.tolerance),
                    self.max_iterations,
                    lambda _, excess: stage.advance(0.0, f"dual above its bound by {excess:.1%}"),
                )
                solution, state = solver(problem, state)
                reached = problem.loss_gap(solution.x)
                seconds, iterations = seconds + solution.seconds, iterations + solution.iterations
                away = target - math.log(reached)
                self._require_in_reach(solution, problem, loss_gap, reached)
                if solver.tolerance == self.tolerance and abs(math.expm1(-away)) <= GAP_ACCURACY:
                    break
                known.append((log_lam, math.log(reached)))
                tolerance = _next_tolerance(away, tolerance)
                if abs(math.expm1(-away)) > GAP_ACCURACY:
                    log_lam = min(log_lam + max(away / _slope(known), -LARGEST_FALL), math.log(self.largest_lam) - 1e-9)
            else:
                raise ProblemError(
                    f"The search for a loss gap of {loss_gap:.4g} ended at {reached:.4g}: {solution.status}. Likely "
                    f"these features cannot reach it. {MORE_FEATURES}"
                )
        return replace(solution, status=f"{solution.status}, {iterations} iterations in total"), problem, seconds

    def _require_in_reach(
        self, solution: Solution[Array, None], problem: TiedLogits, loss_gap: float, reached: float
    ) -> None:
        """Refuse a loss gap that needs a far larger norm: ``CE - H >= bound - lam ||B||`` for every B."""
        needed, norm = (solution.certificate.bound - loss_gap) / problem.lam, problem.norm(solution.x)
        if reached > loss_gap and needed > OUT_OF_REACH * norm:
            raise ProblemError(
                f"These features do not reach a loss gap of {loss_gap:.4g} nats: it is proven to need a nuclear norm "
                f"above {needed:.2g}, where {norm:.2g} is enough for one of {reached:.4g}. {MORE_FEATURES}"
            )

    def limit(self, S: csc_array, Phi: csc_array) -> TiedPoint:
        """The smallest norm of B with margins 1 on ``B Phi``; refused, with its proof, where there is none."""
        rows, features, contexts = self.shape
        kind, size, most = "contexts", rows * contexts, LARGEST_MARGINS
        if self.gamma2:
            kind, size, most = "features", rows * features, LARGEST_GAMMA2_MARGINS
        if size > most:
            raise ProblemError(
                f"The limit of tied features in the norm {'gamma2' if self.gamma2 else 'nuclear'} is solved for up to "
                f"{most:,} tokens x {kind}; got {size:,}. Give a loss gap, at which tied features are predicted at any "
                "size, or take fewer contexts."
            )
        merged = np.unique(self.merging.row_of, return_index=True)[1] if self.gamma2 else slice(None)
        given = self.features.matrix if self.gamma2 else Phi
        problem = MarginProblem((S.toarray() > 0)[merged], given.toarray(), NORMS["nuclear"])
        answer = solve_margin(problem, START if self.gamma2 else self.tolerance)
        solution = answer.solution
        if not answer.separable:
            raise ProblemError(
                "These features cannot separate the supports, so nothing can be predicted in the limit: weights of "
                f"contexts and tokens prove it, whose features cancel up to {solution.certificate.dual_residual:.1e}. "
                "Add 'self' to the ties, or give a loss gap."
            )
        if self.gamma2:
            return self._gamma2_limit(problem, solution)
        U, s, Vt = np.linalg.svd(solution.x, full_matrices=False)
        kept = s > RANK_TOLERANCE * s[0]
        root = np.sqrt(s[kept])
        return TiedPoint(
            U[:, kept] * root,
            root[:, None] * Vt[kept],
            0.0,
            0.0,
            solution.certificate,
            solution.status,
            solution.seconds,
        )

    def _gamma2_limit(self, problem: MarginProblem, start: Solution[Float, Float]) -> TiedPoint:
        """The limit in the gamma_2 norm, from that in the nuclear norm."""
        assert start.dual is not None, "separable data have multipliers"
        found = solve_gamma2_margin(problem, start.x, start.dual, self.tolerance)
        gap, seconds = found.certificate.relative_gap, start.seconds + found.seconds
        status = f"norm proven within {gap:.1e}" + ("" if gap <= self.tolerance else f", above {self.tolerance:.0e}")
        W, A = found.factors.W[self.merging.row_of], self.features.of_all(found.factors.H)
        return TiedPoint(W, A, 0.0, 0.0, found.certificate, status, seconds, found.weights)


def shared_logits_gap(P: csc_array, pi: Float, Phi: csc_array) -> float:
    """The smallest ``CE - H`` of logits that are equal in contexts with equal features, and 0 where these are 0."""
    ends, m = Phi.indptr, len(pi)
    keys = ((Phi.indices[i:j].tobytes(), Phi.data[i:j].tobytes()) for i, j in pairwise(ends.tolist()))
    first, group = first_of_equal(keys)
    apart = csc_array(P * pi)
    together = csc_array(apart @ csc_array((np.ones(m), (np.arange(m), group))))
    size, least = _entropies(together)
    least = np.where(np.diff(ends)[first] == 0, size * math.log(P.shape[0]), least)
    return float(least.sum() - _entropies(apart)[1].sum())


def _entropies(X: csc_array) -> tuple[Float, Float]:
    """Sums of nonnegative columns, and their entropies times these."""
    size = np.add.reduceat(X.data, X.indptr[:-1])
    return size, x_log_x(size) - np.add.reduceat(x_log_x(X.data), X.indptr[:-1])


def _next_tolerance(away: float, last: float) -> float:
    """Solve nearer to the end as the loss gap comes nearer to the one asked for; 0 is as near as is wanted."""
    if abs(away) > NEAR:
        return ROUGH
    return NEAR_TOLERANCE if last > NEAR_TOLERANCE and abs(away) > GAP_ACCURACY else 0.0


def _slope(known: list[tuple[float, float]]) -> float:
    """Slope of log g against log lam through the last two points, kept in a range that the path can have."""
    if len(known) < 2 or known[-1][0] == known[-2][0]:
        return 1.0
    return min(max((known[-1][1] - known[-2][1]) / (known[-1][0] - known[-2][0]), 0.4), 3.0)
