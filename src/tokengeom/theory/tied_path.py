"""The search for the point of the path of tied features that has a given loss gap, and the limit of that path.

``B(lam) = argmin CE(B Phi) + lam ||B||_*``,   ``CE(B(lam) Phi) - H = g``

Each strength starts where the last one ended. Far from the gap that is asked for, points are solved roughly.

In the gamma_2 norm factors W and A are fitted to the loss (``gamma2_factors``), from the point in the nuclear norm. The
fit gives weights of tokens and features; the problem in the nuclear norm with these weights, solved from the fit,
proves how near it is to optimal, and is where the next fit starts.

In the limit of no loss B tends in direction to the smallest norm with margins 1 on ``B Phi``: the margin problem of the
linear model, with features in the place of embeddings. In the gamma_2 norm it is solved for small problems. Where
contexts have no feature of their own it may have no solution, which is proven.
"""

from __future__ import annotations

import math
import time
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
from tokengeom.problems.gamma2 import MaxNormFactors
from tokengeom.problems.ntp_svm import NORMS, MarginProblem
from tokengeom.problems.regularised_logits import Merging
from tokengeom.problems.supports import first_of_equal
from tokengeom.problems.tied_logits import DistinctFeatures, TiedLogits
from tokengeom.solvers.gamma2_admm import smallest_weight
from tokengeom.solvers.gamma2_factors import FittedFactors, fit_factors
from tokengeom.solvers.gamma2_margin import solve_gamma2_margin
from tokengeom.solvers.margin import solve_margin
from tokengeom.solvers.proximal_gradient import ContextRows, Momentum, ProximalGradient, norm_gap, state_at, take_step
from tokengeom.theory.at_loss import ROUNDING, LossSettings

ROUGH, NEAR_TOLERANCE = 0.3, 0.03
"""Tolerances of points that only guide the search, far from and near to the loss gap asked for."""
NEAR = 0.3
"""Distance in log g from which on a point is near."""
GAP_ACCURACY, ROUGH_ACCURACY = 0.01, 0.1
"""Relative difference between the loss gap asked for and the one reached; the second where factors are fitted next."""
FIRST = 0.5
"""First strength, as a share of the largest."""
LARGEST_FALL = math.log(6.0)
"""Largest fall of log lam from one point to the next."""
MOST_POINTS = 30
OUT_OF_REACH = 1e4
"""A loss gap is given up where it is proven to need a norm of so many times that of the last point."""
FIT_ACCURACIES = (1e-2, 3e-3, 1e-3, 5e-4, 2e-4)
"""Accuracies of one fit of factors after the other; the best that was proven is kept."""
PROOF_STEPS, MOST_PROOFS, SETTLED = 30, 8, 0.1
"""Steps before each proof, the most proofs, and what the dual may be above its bound, as a share of the gap."""
TIMED_STEPS = 3
ITERATIONS = (250, 800)
"""Iterations of all points of a search together, to a proof of 0.5%."""
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


def weighted_proof(problem: TiedLogits, factors: MaxNormFactors) -> tuple[Certificate, float, Array]:
    """Proof of factors in the gamma_2 norm with the weights of the problem: certificate, gap, and the dual's answer."""
    rows, gap = ContextRows(problem), problem.loss_gap(factors)
    at = state_at(rows, (problem.c[:, None] * factors.H.T) @ (factors.W * problem.loss.r[:, None]).T)
    for _ in range(MOST_PROOFS):
        for _ in range(PROOF_STEPS):
            take_step(rows, at)
        proof = problem.certify(factors, problem.change(at.X))
        # Beyond what the dual is above its bound, weights or factors are what is not exact.
        if rows.excess(at.L) < SETTLED * norm_gap(proof, gap):
            break
    return proof, norm_gap(proof, gap), at.X


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
        return int(8 * rows * (FEATURE_ARRAYS * features + CONTEXT_ARRAYS * contexts) + 32 * self.features.matrix.nnz)

    def estimate(self, loss_gap: float | None) -> Estimate:
        """The time and memory that a prediction at a loss is expected to take, from a few steps at its start."""
        what = "Tied features of {:,} x {:,} features x {:,} contexts (merged)".format(*self.shape)
        if loss_gap is None:
            raise ProblemError("Time is estimated for tied features at a loss: give a loss gap.")
        self._require_gap(loss_gap)
        with blas_threads_for(*self.shape[:2]):
            rows = ContextRows(self.problem.at(FIRST * self.largest_lam))
            state = state_at(rows)
            take_step(rows, state)
            began = time.perf_counter()
            for _ in range(TIMED_STEPS):
                take_step(rows, state)
            self.backend.synchronise()
            each = (time.perf_counter() - began) / TIMED_STEPS
        digits = max(-math.log10(self.tolerance), 1.0) / -math.log10(LARGEST_GAP)
        fewest, most = (count * each * digits for count in ITERATIONS)
        return Estimate(what, fewest, most, self.bytes_needed())

    def at(self, loss_gap: float, progress: AbstractProgress | None = None) -> TiedPoint:
        """The point of the path whose loss gap is within 1% of the one asked for, proven to the tolerance."""
        self._require_gap(loss_gap)
        with blas_threads_for(*self.shape[:2]):
            shown = progress or SilentProgress()
            return self._fitted(loss_gap, shown) if self.gamma2 else self._point(*self._search(loss_gap, shown))

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

    def _fitted(self, loss_gap: float, progress: AbstractProgress) -> TiedPoint:
        """The point in the gamma_2 norm, by fits of factors and proofs in turn, until one is proven."""
        solution, _, seconds = self._search(loss_gap, progress, rough=True)
        began, (W, A) = time.perf_counter(), self._split(solution.x)
        with progress.stage(f"Fitting factors to a loss gap of {loss_gap:.3g}", None) as stage:
            known: tuple[float, FittedFactors, TiedLogits, Certificate] | None = None
            for accuracy in FIT_ACCURACIES:
                fit = self._fit(W, A, loss_gap, accuracy)
                if fit is None:
                    break
                weighted = self.problem.reweighted(fit.r, fit.c).at(fit.lam)
                proof, gap, X = weighted_proof(weighted, fit.factors)
                stage.advance(0.0, f"norm proven within {gap:.1e}")
                known = (gap, fit, weighted, proof) if known is None or gap < known[0] else known
                if gap <= self.tolerance:
                    break
                W, A = self._split(X, fit.r, fit.c)
        if known is None:
            raise ProblemError(f"No factors with a loss gap of {loss_gap:.4g} were found. Ask for another gap.")
        gap, fit, weighted, proof = known
        status = f"norm proven within {gap:.1e}" + ("" if gap <= self.tolerance else f", above {self.tolerance:.0e}")
        host = self.backend.to_numpy
        factors = host(fit.factors.W)[self.merging.row_of], self.features.of_all(host(fit.factors.H))
        weights = host(fit.r) ** 2, host(fit.c) ** 2
        reached, seconds = weighted.loss_gap(fit.factors), seconds + time.perf_counter() - began
        return TiedPoint(*factors, fit.lam, reached, proof, status, seconds, weights)

    def _fit(self, W: Float, A: Float, loss_gap: float, accuracy: float) -> FittedFactors | None:
        """Factors that are fitted to a loss gap from others, with vectors of tokens and features equally long."""
        row, column = _typical(np.linalg.norm(W, axis=1)), _typical(np.linalg.norm(A, axis=0))
        scale, asarray = math.sqrt(column / max(row, 1e-300)), self.backend.asarray
        near = MaxNormFactors(asarray(W * scale), asarray(A / scale))
        how = {"accuracy": accuracy, "smallest": smallest_weight(self.tolerance)}
        return fit_factors(self.problem.loss, near, row * column, loss_gap, **how, ties=self.problem.parts)

    def _split(self, X: Array, r: Array | None = None, c: Array | None = None) -> tuple[Float, Float]:
        """Factors W (V' x d) and A (d x F') of a weighted B that share its singular values equally."""
        x = self.backend.to_numpy(X)
        eigenvalues, Q = np.linalg.eigh(x.T @ x)
        s = np.sqrt(np.maximum(eigenvalues, 0.0))[::-1]
        rank = int((s > RANK_TOLERANCE * max(float(s[0]), 1e-300)).sum())
        root, Q = np.sqrt(s[:rank]), Q[:, ::-1][:, :rank]
        rows = np.sqrt(self.merging.a) if r is None else self.backend.to_numpy(r)
        columns = 1.0 if c is None else self.backend.to_numpy(c)
        return (Q * root) / rows[:, None], (x @ Q / root).T / columns

    def _point(self, solution: Solution[Array, None], problem: TiedLogits, seconds: float) -> TiedPoint:
        """What is kept of a solution in the nuclear norm, on all tokens and features."""
        W, A = self._split(solution.x)
        reached = problem.loss_gap(solution.x)
        status, proof = solution.status, solution.certificate
        return TiedPoint(W[self.merging.row_of], self.features.of_all(A), problem.lam, reached, proof, status, seconds)

    def _search(
        self, loss_gap: float, progress: AbstractProgress, *, rough: bool = False
    ) -> tuple[Solution[Array, None], TiedLogits, float]:
        """The point in the nuclear norm with a loss gap, its problem, and the seconds of all solves."""
        wanted, accuracy = (ROUGH, ROUGH_ACCURACY) if rough else (self.tolerance, GAP_ACCURACY)
        log_lam, target = math.log(FIRST * self.largest_lam), math.log(loss_gap)
        tolerance, seconds, iterations = ROUGH, 0.0, 0
        state: Momentum | None = None
        known: list[tuple[float, float]] = []
        with progress.stage(f"Predicting at a loss gap of {loss_gap:.3g}", None) as stage:
            for _ in range(MOST_POINTS):
                problem = self.problem.at(math.exp(log_lam))
                solver = ProximalGradient(
                    max(tolerance, wanted),
                    self.max_iterations,
                    lambda _, excess: stage.advance(0.0, f"dual above its bound by {excess:.1%}"),
                )
                solution, state = solver(problem, state)
                reached = problem.loss_gap(solution.x)
                seconds, iterations = seconds + solution.seconds, iterations + solution.iterations
                away = target - math.log(reached)
                self._require_in_reach(solution, problem, loss_gap, reached)
                if solver.tolerance == wanted and abs(math.expm1(-away)) <= accuracy:
                    break
                known.append((log_lam, math.log(reached)))
                tolerance = _next_tolerance(away, tolerance)
                if abs(math.expm1(-away)) > accuracy:
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


def _typical(lengths: Float) -> float:
    """The length of vectors that matter: the root of the mean square, each vector weighted with its own square."""
    return float(np.sqrt((lengths**4).sum() / max(float((lengths**2).sum()), 1e-300)))


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
