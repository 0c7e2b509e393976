"""The search for the point of a regularisation path that has a given loss gap, and the limit of the gamma_2 path.

g grows with lambda, and nearly in proportion to it where both are small. The search is a secant in logarithms; a point
far from the wanted gap is solved only roughly, and each solve starts where the nearest one ended. Factors are
fitted to a high loss: in the gamma_2 norm, where lambda follows a low one within the first iterations, and on large
problems in the nuclear norm.

As the loss falls to its floor, the path of the gamma_2 norm tends in direction to the logits of smallest gamma_2 norm
with margins 1, `Gamma2Limit`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csc_array

from tokengeom.core.errors import ProblemError
from tokengeom.core.numerics import Float, blas_threads_for
from tokengeom.core.progress import AbstractProgress, SilentProgress
from tokengeom.core.resources import Estimate, fewer_contexts, require_memory
from tokengeom.core.settings import is_boolean
from tokengeom.problems.backend import Backend
from tokengeom.problems.base import LARGEST_GAP, Certificate, Solution
from tokengeom.problems.gamma2 import Gamma2Logits, Gamma2SVM, MaxNormFactors
from tokengeom.problems.regularised_logits import Merging, RegularisedLogits
from tokengeom.problems.supports import SupportReduction
from tokengeom.solvers.gamma2_admm import HELD, Gamma2ADMM, largest_lam
from tokengeom.solvers.gamma2_svm_admm import Gamma2MarginADMM
from tokengeom.solvers.logit_admm import LogitADMM, WarmStart
from tokengeom.solvers.nuclear_factors import FIT_TOLERANCE, fit_at_loss
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.at_loss import NORMS, LossPrediction, LossSettings, PredictedCosines
from tokengeom.theory.solving_time import GAMMA2_AT_LOSS, NUCLEAR_AT_LOSS, work_at_loss

if TYPE_CHECKING:
    from tokengeom.theory.features import FeaturePrediction
    from tokengeom.theory.tied import TiedPrediction

GAP_ACCURACY = 0.01
"""Relative difference between the loss gap asked for and the one reached."""
ROUGH = 1e-2
"""Relative duality gap of points that only guide the search."""
FINEST = 2e-5
"""Smallest duality gap that is asked for beyond the tolerance: nearer to zero logits the search would not end."""
NEAR = 0.15
"""Distance in log g from which on points are solved to the tolerance."""
MOST_POINTS = 25
FARTHEST_BELOW, FARTHEST_ABOVE = 0.5, 8.0
"""Largest distance in log lambda by which a solve in the gamma_2 norm may start below and above its own: weights that
suit much larger logits lead it astray, and those of much smaller ones help less."""
MOST_STATES = 16
"""States kept to start from: a path that is followed for thousands of points needs no more memory than these."""
LARGE = 2_000_000
"""Entries of the merged logits from which on a problem is large."""
FITTED_FROM, FITTED_FROM_IF_LARGE = 0.1, 0.01
"""Loss gap, as a share of that of a uniform guess, from which on factors in the gamma_2 norm are fitted to it; the
second on large problems, where an iteration of the splitting costs as much as ten or more steps of a fit."""
NUCLEAR_FITTED_ENTRIES = 1_000_000
"""Merged tokens times merged contexts above which factors in the nuclear norm are fitted to a high loss, on a CPU."""
FITS = 4
"""Largest number of such fits, each from the state in which the proof of the last one stopped."""
FIRST_ITERATIONS = 10
"""Iterations that make the state from which the first factors are fitted."""
WARM_ITERATIONS = 600
"""Iterations after which a solve in the gamma_2 norm that has a start is given up; it is then begun without one."""


class LossPath:
    """Predictions at many losses for probabilities P (V x m) and shares pi (m), each started at the nearest before it.

    ``backend`` says where to solve; by default on the device of the settings, in this process alone.
    """

    def __init__(
        self,
        P: csc_array,
        pi: Float,
        *,
        entropy: float,
        statistics_hash: str | None = None,
        settings: LossSettings | None = None,
        backend: Backend | None = None,
    ) -> None:
        self.settings = settings or LossSettings()
        self.entropy, self.statistics_hash = entropy, statistics_hash
        self.pi = pi
        self.gamma2 = self.settings.norm == "gamma2"
        self.merging = Merging.of(P, None if self.gamma2 else pi)
        rows, columns = self.merging.a.size, self.merging.n.size
        if backend is None:
            backend = Backend.on(None if self.settings.device == "cpu" else self.settings.device)
        for needed, device in (GAMMA2_AT_LOSS if self.gamma2 else NUCLEAR_AT_LOSS).needed(rows, columns, backend):
            require_memory(
                needed,
                f"The path on {rows} merged tokens x {columns} merged contexts",
                lambda share: f"{fewer_contexts(share, int(pi.size))}.",
                self.settings.memory_limit,
                device,
            )
        with blas_threads_for(rows, columns):
            self.problem = self.merging.problem(P, pi, 1.0, backend)
            self.largest_gap = self.problem.zero_gap
            self.largest_lam = largest_lam(Gamma2Logits(self.problem)) if self.gamma2 else self.problem.largest_lam
        self._solved: dict[float, tuple[float, WarmStart | None]] = {}

    @staticmethod
    def beside(known: FeaturePrediction | NextTokenStatistics | TiedPrediction, settings: LossSettings) -> LossPath:
        """Predictions for statistics, or for those of another prediction."""
        own = known.hash if isinstance(known, NextTokenStatistics) else known.statistics_hash
        return LossPath(known.P, known.pi, entropy=known.entropy, statistics_hash=own, settings=settings)

    def estimate(self, loss_gap: float, *, only_if_long: bool = False) -> Estimate:
        """The time and memory that the first prediction is expected to take; later ones start from earlier ones."""
        self._require(loss_gap)
        rows, columns = self.merging.a.size, self.merging.n.size
        work = work_at_loss(self.settings.norm, loss_gap / self.largest_gap, fitted=self._is_fitted(loss_gap))
        return work.estimate(
            f"Prediction at a loss ({NORMS[self.settings.norm]}) of {rows:,} x {columns:,} (merged)",
            (rows, columns),
            self.problem.backend,
            tolerance=self.settings.tolerance,
            most=self.settings.max_iterations,
            only_if_long=only_if_long,
        )

    def at(self, loss_gap: float, progress: AbstractProgress | None = None) -> LossPrediction:
        """The point of the path whose loss gap is within 1% of the one asked for."""
        self._require(loss_gap)
        with blas_threads_for(self.merging.a.size, self.merging.n.size):
            return self._search(loss_gap, progress or SilentProgress())

    def _is_fitted(self, loss_gap: float) -> bool:
        """Whether factors are fitted to a loss gap."""
        if not self.gamma2:
            on_cpu = self.problem.backend.device is None and self.problem.backend.world == 1
            can = on_cpu and self.merging.entries > NUCLEAR_FITTED_ENTRIES and self.settings.tolerance >= FIT_TOLERANCE
            return can and loss_gap >= FITTED_FROM * self.largest_gap
        share = FITTED_FROM_IF_LARGE if self.merging.entries > LARGE else FITTED_FROM
        return loss_gap >= share * self.largest_gap

    def _search(self, loss_gap: float, progress: AbstractProgress) -> LossPrediction:
        target = math.log(loss_gap)
        log_lam, slope = self._first_guess(target)
        # Two points that were solved before predict the next well enough to solve it at once.
        trusted, start = self.gamma2 or len(self._solved) > 1, None
        fitted = self._is_fitted(loss_gap)
        wanted, iterations, seconds = self.settings.tolerance, 0, 0.0
        points: list[tuple[float, float]] = []
        with progress.stage(f"Predicting at a loss gap of {loss_gap:.3g}", None) as stage:
            for _ in range(MOST_POINTS):
                near = trusted or (bool(points) and min(abs(y - target) for _, y in points) < NEAR)
                by_factors = self._fitted(loss_gap, wanted, log_lam) if fitted else None
                fitted = by_factors is not None and by_factors[1].converged
                if by_factors is not None:
                    problem, solution, state = by_factors
                    near, log_lam = True, math.log(problem.lam)
                else:
                    if self.gamma2 and not points:
                        guide, lam = Gamma2ADMM(tolerance=wanted), math.exp(log_lam)
                        lam, start, made = guide.near_loss(self.problem, lam, self._start(log_lam), loss_gap)
                        log_lam, iterations = math.log(lam), iterations + made
                    problem = self.problem.at(min(math.exp(log_lam), self.largest_lam))
                    tolerance = wanted if near else max(ROUGH, wanted)
                    solution, state = self._solve(problem, tolerance, start or self._start(log_lam))
                reached = problem.loss_gap(solution.x.logits if self.gamma2 else solution.x)
                iterations, seconds = iterations + solution.iterations, seconds + solution.seconds
                stage.advance(0.0, f"loss gap {reached:.3g}, proven gap {solution.certificate.relative_gap:.1e}")
                # A state that did not converge would lead the next solve astray.
                self._keep(log_lam, math.log(reached), state if solution.converged else None)
                start = None
                if near and abs(reached / loss_gap - 1.0) <= GAP_ACCURACY:
                    finer = self._finer(solution, reached)
                    if finer is None:
                        break
                    wanted = finer
                    continue
                points.append((log_lam, math.log(reached)))
                slope = _slope(points, slope)
                log_lam = min(log_lam + (target - points[-1][1]) / slope, math.log(self.largest_lam) - 1e-9)
        status = f"{solution.status}, {iterations} iterations in total"
        if abs(reached / loss_gap - 1.0) > GAP_ACCURACY:
            raise ProblemError(
                f"The search for a loss gap of {loss_gap:.4g} ended at {reached:.4g}: {solution.status}. Likely the "
                "gap is at the end of its range, or the tolerance is too large. Lower the tolerance or choose another "
                "gap."
            )
        return self._prediction(problem, solution, reached, status, seconds)

    def _finer(self, solution: Solution[Any, Any], reached: float) -> float | None:
        """A smaller tolerance where the norm, at high losses a small part of the objective, is not proven enough."""
        proof = solution.certificate
        enough = LARGEST_GAP * (1.0 - reached / proof.value)
        rough = self.settings.tolerance >= LARGEST_GAP or not solution.converged or enough < FINEST
        return None if rough or proof.relative_gap <= enough else 0.5 * enough

    def _require(self, loss_gap: object) -> None:
        wrong = is_boolean(loss_gap) or not isinstance(loss_gap, int | float | np.integer | np.floating)
        if wrong or not 0.0 < loss_gap < self.largest_gap:  # type: ignore[operator]
            raise ProblemError(
                f"A loss gap must lie strictly between 0 and {self.largest_gap:.4g} nats, the gap of a uniform guess "
                f"on these statistics; got {loss_gap!r}. Without a loss gap, the prediction is that in the limit."
            )

    def _first_guess(self, target: float) -> tuple[float, float]:
        """Log lambda and slope from the nearest points that were solved before, or in proportion to the largest gap."""
        nearest = sorted(((x, y) for x, (y, _) in self._solved.items()), key=lambda point: abs(point[1] - target))[:2]
        if not nearest:
            # Powers as measured on natural text.
            power = 1.05 if self.gamma2 else 1.8 if self._is_fitted(math.exp(target)) else 1.2
            return math.log(self.largest_lam) + power * (target - math.log(self.largest_gap)), 1.0
        slope = _slope(nearest[::-1], 1.0)
        return min(nearest[0][0] + (target - nearest[0][1]) / slope, math.log(self.largest_lam) - 1e-9), slope

    def _start(self, log_lam: float) -> WarmStart | None:
        """Where the nearest solve ended; in the gamma_2 norm only if its lambda is not far from this one."""
        below, above = (FARTHEST_BELOW, FARTHEST_ABOVE) if self.gamma2 else (math.inf, math.inf)
        near = {x: state for x, (_, state) in self._solved.items() if -below < x - log_lam < above}
        known = {x: state for x, state in near.items() if state is not None}
        if not known:
            return None
        nearest = min(known, key=lambda x: abs(x - log_lam))
        if self.problem.layout.several:
            # Of states this large only the last is kept, and a solve takes it over.
            self._solved = {x: (y, None) for x, (y, _) in self._solved.items()}
        return known[nearest]

    def _keep(self, log_lam: float, log_gap: float, state: WarmStart | None) -> None:
        """Keep a point; of the states, which are large, those nearest to it."""
        if self.problem.layout.several:
            self._solved = {x: (y, None) for x, (y, _) in self._solved.items()}
        self._solved[log_lam] = (log_gap, state)
        started = [x for x, (_, kept) in self._solved.items() if kept is not None]
        if len(started) > MOST_STATES:
            farthest = max(started, key=lambda x: abs(x - log_lam))
            self._solved[farthest] = (self._solved[farthest][0], None)

    def _solve(
        self, problem: RegularisedLogits, tolerance: float, start: WarmStart | None
    ) -> tuple[Solution[Any, Any], WarmStart]:
        most = self.settings.max_iterations
        if not self.gamma2:
            return LogitADMM(tolerance=tolerance, max_iterations=most)(problem, start)
        if start is not None:
            quick = Gamma2ADMM(tolerance=tolerance, max_iterations=min(most, WARM_ITERATIONS))
            solved = quick(Gamma2Logits(problem), start)
            if solved[0].converged:
                return solved
        return Gamma2ADMM(tolerance=tolerance, max_iterations=most)(Gamma2Logits(problem), None)

    def _fitted(
        self, loss_gap: float, tolerance: float, log_lam: float
    ) -> tuple[RegularisedLogits, Solution[Any, Any], WarmStart | None] | None:
        """The point at a loss gap, by factors that are fitted to it: in the gamma_2 norm, from a state near a strength.

        None where no factors with this loss are found.
        """
        if not self.gamma2:
            return *fit_at_loss(self.problem.at(math.exp(log_lam)), loss_gap, tolerance), None
        most = min(self.settings.max_iterations, WARM_ITERATIONS)
        start = self._start(log_lam)
        if start is None:
            first = Gamma2Logits(self.problem.at(min(math.exp(log_lam), 0.9 * self.largest_lam)))
            start = Gamma2ADMM(max_iterations=FIRST_ITERATIONS)(first)[1]
        # What a proof lacks at first, such as further dimensions, is in the state where it stopped.
        for iterations in (*[min(HELD, most)] * (FITS - 1), most):
            solver = Gamma2ADMM(tolerance=tolerance, max_iterations=iterations)
            found = solver.at_loss(self.problem, start, loss_gap)
            if found is None or found[1].converged:
                break
            start = found[2]
        return None if found is None else (found[0].loss, *found[1:])

    def _prediction(
        self, problem: RegularisedLogits, solution: Solution[Any, Any], gap: float, status: str, seconds: float
    ) -> LossPrediction:
        backend, x = problem.backend, solution.x
        dual: Any = solution.dual
        factors = weights = None
        if self.gamma2:
            # Every process holds all of W and p, and its own columns of H and q.
            factors = MaxNormFactors(backend.to_numpy(x.W), backend.whole(x.H))
            weights = (backend.to_numpy(dual.r) ** 2, backend.whole(dual.c) ** 2)
        return LossPrediction(
            merging=self.merging,
            P_merged=backend.whole(problem.blocks_of_P()),
            pi=self.pi,
            L_merged=backend.whole(x) if factors is None else factors.logits,
            change_merged=backend.whole(dual.matrix if self.gamma2 else dual),
            lam=problem.lam,
            loss_gap=gap,
            certificate=solution.certificate,
            entropy=self.entropy,
            status=status,
            seconds=seconds,
            norm=self.settings.norm,
            factors=factors,
            weights=weights,
            statistics_hash=self.statistics_hash,
        )


def _slope(points: list[tuple[float, float]], last: float) -> float:
    """Slope of log g against log lambda through the last two points, kept in a range that the path can have."""
    if len(points) < 2 or points[-1][0] == points[-2][0]:
        return last
    slope = (points[-1][1] - points[-2][1]) / (points[-1][0] - points[-2][0])
    return min(max(slope, 0.7), 4.0)


@dataclass(frozen=True, eq=False)
class Gamma2Limit(PredictedCosines):
    """Logits of smallest gamma_2 norm that separate every support by a margin of 1, with their certificate.

    Contexts with equal supports have equal columns here; there may be other solutions in which they have not.

    ``W_merged``, ``H_merged``
        Factors that attain the norm, of merged tokens and support groups, V' x d and d x g.
    ``status``, ``seconds``
        How the solver ended, and the time that it took.
    """

    reduction: SupportReduction
    W_merged: Float
    H_merged: Float
    certificate: Certificate
    status: str
    seconds: float

    @property
    def norm_value(self) -> float:
        """``gamma_2`` of these logits."""
        return self.certificate.value

    @property
    def lower_bound(self) -> float:
        """Proven lower bound on the gamma_2 norm of all logits with these margins."""
        return self.certificate.bound

    @cached_property
    def W(self) -> Float:
        """Token embeddings, V x d."""
        return np.asarray(self.W_merged[self.reduction.row_of])

    @cached_property
    def H(self) -> Float:
        """Context embeddings, d x m; 0 for a context whose support is the whole vocabulary."""
        column_of = self.reduction.column_of
        return np.asarray(np.where(column_of >= 0, self.H_merged[:, column_of], 0.0))

    @cached_property
    def L(self) -> Float:
        """Diverging direction of the logits, V x m."""
        V, m = self.reduction.V, self.reduction.m
        require_memory(8 * V * m, f"L ({V} x {m})", "Use W and H, which are small.")
        return self.W @ self.H


def solve_gamma2_limit(
    reduction: SupportReduction, *, tolerance: float = 3e-3, max_iterations: int = 3000, device: str = "cpu"
) -> Gamma2Limit:
    """The limit for a merged pattern of supports."""
    if 0 in reduction.S_red.shape:
        raise ProblemError("Every support is the whole vocabulary: there is nothing to separate.")
    backend = Backend.on(None if device == "cpu" else device)
    solver = Gamma2MarginADMM(tolerance=tolerance, max_iterations=max_iterations)
    solution = solver(Gamma2SVM(reduction.S_red, backend))
    W, H = backend.to_numpy(solution.x.W), backend.to_numpy(solution.x.H)
    return Gamma2Limit(reduction, W, H, solution.certificate, solution.status, solution.seconds)
