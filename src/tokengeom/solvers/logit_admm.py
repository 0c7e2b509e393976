"""One point of the regularisation path of learned features, by accelerated ADMM that holds down to lambda = 1e-12.

``min CE(L)/lambda + ||X||_*,  X = diag(r) L diag(c)``   with the loop of ``splitting``, in the scaled logits X

The proximal map of the loss separates by context. With ``kappa_ij = a_i pi_j / (lambda rho r_i^2 c_j^2)`` and ``l_j``
the column's log-sum-exp, every entry solves a scalar equation:

``u + kappa (g(u) - p) = x - log p - l``   with ``g = p e^u`` on support, ``g = e^u`` off it (p and log p are 0 there)

and ``l`` is the root of ``sum_i a_i (g_i - p_i) = 0``; the logit is then ``u + log p + l``. Newton's method solves for
u and l together: the step of u is eliminated entry by entry, which leaves one division per column. The unknowns are
log-ratios, so nothing of size kappa ~ 1e12 is ever subtracted from the logits. Started at the last roots it takes
three or four steps.

where ``x = w / (r c)`` is the point to move, V' x m', and ``p`` the probabilities.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from tokengeom.numerics import blas_threads_for
from tokengeom.problems.base import Solution
from tokengeom.solvers.splitting import AbstractSplitting, AbstractTerm, Bounds, Iterate

if TYPE_CHECKING:
    from tokengeom.problems.backend import Array
    from tokengeom.problems.regularised_logits import RegularisedLogits

NEWTON_STEPS = 200
ROOT_TOLERANCE = 1e-6
EXACT_STEPS = 2
"""Steps after all steps are below the tolerance: Newton's method squares the error, and these do not cancel."""
LARGEST_LEVEL_STEP = 5.0
LARGEST_RISE = 2.0
"""Newton's steps are cut at these: an exponential is far from its tangent."""


@dataclass(frozen=True)
class WarmStart:
    """Where a solve ended, for the start of the next.

    ``Z``, ``Y``, ``rho``
        Scaled logits, dual and penalty.
    ``u``, ``level``
        The roots of the last proximal map.
    ``r``, ``c``
        Weights of rows and columns, where the norm has weights that are solved for.
    ``lam``
        The strength, where the next solve needs to know it.
    """

    Z: Array
    Y: Array
    rho: float
    u: Array | None = None
    level: Array | None = None
    r: Array | None = None
    c: Array | None = None
    lam: float | None = None


@final
class RegularisedLoss(AbstractTerm):
    """``CE / lambda`` of scaled logits with its proximal map, which starts at the roots of the last one.

    ``change``
        ``softmax - P`` of the last proximal point, V' x m'.
    """

    def __init__(self, problem: RegularisedLogits, start: WarmStart | None = None) -> None:
        self.problem = problem
        self.change = 0.0 * problem.P
        self.u = None if start is None else start.u
        self.level = None if start is None else start.level
        self._base = problem.backend.xp.where(problem.S, problem.P, 1.0)

    def prox(self, w: Array, rho: float) -> Array:
        """Scaled logits ``argmin CE/lambda + rho/2 ||. - w||^2``, V' x m'."""
        problem, xp = self.problem, self.problem.backend.xp
        P, a = problem.P, problem.a[:, None]
        kappa = (problem.a / problem.r**2)[:, None] * (problem.pi / problem.c**2 / (problem.lam * rho))[None, :]
        shift = w / problem.weight - problem.log_P
        level = (a * P * shift).sum(0) if self.level is None else self.level
        u = problem.backend.at_most(shift - level, 0.0) if self.u is None else self.u
        exact = 0
        for _ in range(NEWTON_STEPS):
            growth = self._base * xp.exp(u)
            # Far from the root the difference is good enough; near it P e^u - P would cancel.
            change = xp.where(problem.S, P * xp.expm1(u), growth) if exact else growth - P
            residual = u + kappa * change - (shift - level)
            inverse = 1.0 / (1.0 + kappa * growth)
            pull = a * growth * inverse
            # Far below the root every exponential may be 0; the step is then cut below.
            rise = ((a * change).sum(0) - (pull * residual).sum(0)) / problem.backend.at_least(pull.sum(0), 1e-300)
            rise = xp.clip(rise, -LARGEST_LEVEL_STEP, LARGEST_LEVEL_STEP)
            step = problem.backend.at_most(-(residual + rise) * inverse, LARGEST_RISE)
            u, level = u + step, level + rise
            if exact == EXACT_STEPS:
                break
            # Columns do not depend on each other, so a process does not ask the others when to stop.
            if exact or rise.shape[0] == 0 or max(float(abs(step).max()), float(abs(rise).max())) <= ROOT_TOLERANCE:
                exact += 1
        self.u, self.level = u, level
        self.change = xp.where(problem.S, P * xp.expm1(u), xp.exp(u))
        return (u + problem.log_P + level) * problem.weight

    def bounds(self, at: Iterate) -> Bounds:
        """The better of the values at both halves of the step, and the bound of the change, scaled to be feasible."""
        problem, X = self.problem, at.thresholded.X
        norm_of_Z = float(problem.backend.fast_singular_values(at.Z).sum())
        at_Z = problem.loss_gap(at.Z / problem.weight) + problem.lam * norm_of_Z
        at_X = problem.loss_gap(X / problem.weight) + problem.lam * at.thresholded.nuclear_norm
        # Singular values from a Gram matrix have half the digits, so a tie goes to X, whose norm is exact.
        value, answer = (at_X, 1.0 * X) if at_X <= at_Z * (1.0 + 1e-9) else (at_Z, at.Z)
        spectral = float(problem.backend.fast_singular_values(problem.scaled_dual(self.change))[-1])
        change = self.change * min(1.0, problem.lam / max(spectral, 1e-300))
        return Bounds(value, answer, problem.entropy_gain(change)[0], change)


@final
@dataclass(frozen=True)
class LogitADMM(AbstractSplitting):
    """A configured solver for one point of the path: call it with a ``RegularisedLogits``.

    ``tolerance`` is relative to the objective above the entropy floor.
    """

    max_iterations: int = 3000
    check_every: int = 5

    def __call__(
        self, problem: RegularisedLogits, start: WarmStart | None = None
    ) -> tuple[Solution[Array, Array], WarmStart]:
        """The solution (logits, and as its dual ``softmax - P``), and the state to start the next point from."""
        with blas_threads_for(*problem.P.shape):
            return self._solve(problem, start or first_state(problem))

    def _solve(self, problem: RegularisedLogits, start: WarmStart) -> tuple[Solution[Array, Array], WarmStart]:
        began, term = time.perf_counter(), RegularisedLoss(problem, start)
        run = self.iterate(term, problem.backend, start.Z + start.Y / start.rho, start.rho)
        L, change = run.best.answer / problem.weight, run.best.dual
        certificate = problem.certify(L, change)
        converged = certificate.relative_gap <= 1.01 * self.tolerance
        status, seconds = self._status(run.iterations, certificate.relative_gap, converged), time.perf_counter() - began
        solution = Solution(L, change, certificate, status, run.iterations, seconds, converged)
        return solution, WarmStart(run.Z, run.rho * (run.w - run.Z), run.rho, term.u, term.level)


def first_state(problem: RegularisedLogits) -> WarmStart:
    """Logits 0, whose dual is ``1/V - P``, and rho from the size of the centred support."""
    backend = problem.backend
    S = backend.as_float(problem.S)
    scale = backend.fast_singular_values((S - problem.a @ S / problem.a.sum()) * problem.weight)
    kept = scale[scale > 1e-6 * max(float(scale[-1]), 1e-300)]
    rho = 1.0 / float(kept.mean()) if kept.shape[0] else 1.0
    Y = problem.scaled_dual(1.0 / float(problem.a.sum()) - problem.P) / problem.lam
    # A subgradient of the nuclear norm has spectral norm at most 1.
    spectral = float(backend.fast_singular_values(Y)[-1])
    return WarmStart(0.0 * problem.P, Y / max(1.0, spectral), rho)
