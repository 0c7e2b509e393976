"""The regularisation path of the linear model, whose end is the limit of training, and margins in other norms.

::

    W_B  = argmin CE(W)  s.t.  ||W||_F <= B
    W_mu = argmin CE(W) + (mu / 2) ||W||_F^2

As ``B -> inf`` or ``mu -> 0`` both have ``P_F(W) -> W_star`` and ``W / ||W|| -> W_mm / ||W_mm||`` [thrampoulidis2024,
Thm 1]. They are one curve: ``W_B = W_mu`` at the strength mu where the norm is B. Each point starts on the tangent at
the last one (``solvers.path_newton``). ``CE - loss_floor`` falls like ``exp(-B * margin)``, so its logarithm is
computed.

`max_margin` has the largest margin in each norm that an optimizer is known or conjectured to follow: the Frobenius norm
(gradient descent), the entrywise max norm (sign descent, Adam), the spectral norm (Muon), its dual norm, the nuclear
norm, and the entrywise-sum norm. For one-hot labels normalised steepest descent in a norm maximises its margin. For
sparse soft labels this is open; these margins are what a run is compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tokengeom.core.errors import ProblemError, ResourceError
from tokengeom.core.numerics import Float, Matrix, blas_threads_for
from tokengeom.problems.base import Certificate
from tokengeom.problems.linear_data import LinearData, SoftLabels
from tokengeom.problems.linear_limit import ReducedLoss
from tokengeom.problems.ntp_svm import MarginProblem, norm_named
from tokengeom.solvers.margin import solve_margin
from tokengeom.solvers.ntp_svm import orthonormal_factor
from tokengeom.solvers.path_newton import PathNewton, PathState, path_newton
from tokengeom.theory.linear import LinearPrediction


@dataclass(frozen=True, eq=False)
class PathPoint:
    """One point of a path, compared with the predicted limit.

    ``W``
        The decoder at this point, V x d.
    ``norm``, ``log_strength``
        ``||W||_F`` and ``log mu``.
    ``log_loss_gap``, ``loss_gap``
        Logarithm of ``CE - loss_floor``, and the number itself (0 only below 1e-308).
    ``cosine``, ``cosine_direction``
        ``cos(W, W_mm)`` and ``cos(W - W_star, W_mm)``; both tend to 1. NaN when nothing diverges.
    ``finite_error``
        ``||P_F(W) - W_star|| / ||W_star||``, or the numerator when ``W_star = 0``; tends to 0.
    """

    W: Float
    norm: float
    log_strength: float
    log_loss_gap: float
    cosine: float
    cosine_direction: float
    finite_error: float

    @property
    def loss_gap(self) -> float:
        """``CE - loss_floor`` as a number."""
        return float(np.exp(self.log_loss_gap))


@dataclass(frozen=True, eq=False)
class RegularisationPath:
    """Points in the order of the norms that were given."""

    points: tuple[PathPoint, ...]

    def column(self, name: str) -> Float:
        """One measurement at all points, for example ``column("cosine_direction")``."""
        return np.array([getattr(point, name) for point in self.points], dtype=np.float64)


def norm_path(prediction: LinearPrediction, norms: Sequence[float] | Float) -> RegularisationPath:
    """``min CE s.t. ||W||_F <= B`` for each B in ``norms``; W_star itself where the constraint is not active."""
    targets = np.asarray(norms, dtype=np.float64)
    if targets.ndim != 1 or not np.all(np.isfinite(targets)) or np.any(targets <= 0):
        raise ProblemError(f"norms must be a list of finite positive numbers; got {targets.tolist()!r}.")
    curve = _Curve(prediction)
    points: dict[float, PathPoint] = {}
    with blas_threads_for(*prediction.W_mm.shape):
        for B in np.unique(targets):
            points[float(B)] = curve.at_norm(float(B))
    return RegularisationPath(tuple(points[float(B)] for B in targets))


class _Curve:
    """Follows the curve from strong to weak regularisation, each point from the tangent at the last one."""

    def __init__(self, prediction: LinearPrediction) -> None:
        self.prediction = prediction
        data = prediction.data
        R, self.U = orthonormal_factor(data.H)
        problem = ReducedLoss(prediction.effective_support, data.P, data.pi, R)
        exact = data.P if prediction.reaches_entropy else None
        self.newton: PathNewton = path_newton(problem, prediction.W_star @ self.U, exact)
        self.largest_norm = float(np.linalg.norm(prediction.W_star)) if not prediction.W_mm.any() else np.inf
        self.state: PathState | None = None
        self.last: tuple[PathState, tuple[Float, Float]] | None = None

    def at_norm(self, B: float) -> PathPoint:
        """The point of norm B; W_star where the constraint is not active."""
        if self.largest_norm * (1.0 - 1e-12) <= B:
            return self._finite_limit()
        state = self.state
        if state is None:
            # W is about -grad CE(0) / mu for strong regularisation; start where its norm is below B.
            tau = 0.0
            state = self._first(tau)
            while self.newton.norm(state) > B:
                tau += 1.0
                state = self._first(tau)
        for _ in range(500):
            ratio = np.log(B / self.newton.norm(state))
            if abs(ratio) <= 1e-10:
                self.state = state
                return self._measure(state)
            state = self._walk(state, state.tau + self._stride(state, float(ratio)))
        raise ResourceError(f"No strength was found whose solution has norm {B}; reached {self.newton.norm(state)}.")

    def _stride(self, state: PathState, ratio: float) -> float:
        dx, dy = self._tangent(state)
        mu = state.mu
        along = float((self.newton.w + mu * state.x) @ (mu * (dx + state.x))) + float(state.y @ dy)
        slope = along / self.newton.norm(state) ** 2
        # For large norms log||W|| is concave in tau with slope about 1/tau, so the stride is bounded, not the norm.
        reach = max(1.0, 0.5 * abs(state.tau))
        return float(np.clip(ratio / slope if slope < 0 else -reach, -reach, reach))

    def _tangent(self, state: PathState) -> tuple[Float, Float]:
        """Tangent at a state, kept for the next call: `_stride` and `_walk` both use it."""
        if self.last is None or self.last[0] is not state:
            self.last = state, self.newton.tangent(state)
        return self.last[1]

    def _first(self, tau: float) -> PathState:
        state, done = self.newton.solve(self.newton.at_zero(tau))
        if not done:
            raise ResourceError(
                f"Newton's method did not converge at log strength {tau}; scale the embeddings to size 1."
            )
        return state

    def _walk(self, state: PathState, tau: float) -> PathState:
        stride = tau - state.tau
        for _ in range(10_000):
            left = tau - state.tau
            if left == 0.0:
                return state
            move = left if abs(left) <= abs(stride) else float(np.copysign(stride, left))
            reach = max(1.0, 0.5 * abs(state.tau))
            move = float(np.clip(move, -reach, reach))
            dx, dy = self._tangent(state)
            begin = PathState(tau if move == left else state.tau + move, state.x + move * dx, state.y + move * dy)
            reached, done = self.newton.solve(begin)
            if done:
                state, stride = reached, 2.0 * move
            else:
                stride = 0.25 * move
        raise ResourceError(f"The path did not reach log strength {tau}; it stopped at {state.tau}.")

    def _measure(self, state: PathState) -> PathPoint:
        X, Y = self.newton.deviation(state)
        W_star, W_mm = self.prediction.W_star @ self.U, self.prediction.W_mm @ self.U
        W = W_star + X + Y
        scale = float(np.linalg.norm(W_star))
        # The norm is taken before the strength is multiplied in: the square of 1e-200 underflows.
        error = state.mu * float(np.linalg.norm(state.x)) / (scale if scale > 0 else 1.0)
        return PathPoint(
            W @ self.U.T,
            self.newton.norm(state),
            state.tau,
            self.newton.log_excess(state),
            _cosine(W, W_mm),
            _cosine(X + Y, W_mm),
            error,
        )

    def _finite_limit(self) -> PathPoint:
        W = self.prediction.W_star
        return PathPoint(W, float(np.linalg.norm(W)), -np.inf, -np.inf, np.nan, np.nan, 0.0)


def _cosine(X: Float, Y: Float) -> float:
    size = float(np.linalg.norm(X)) * float(np.linalg.norm(Y))
    return float(np.vdot(X, Y)) / size if size > 0 else float("nan")


@dataclass(frozen=True, eq=False)
class MaxMargin:
    """The decoder of largest margin in one norm.

    ``W``
        V x d; 0 when the data are not separable.
    ``margin``
        Margin of W per unit of its norm; 0 when the data are not separable.
    ``certificate``
        Certificate of W, or of the refutation of separability.
    ``status``
        How the solver ended; where the gap is larger than asked for, it says so.
    """

    norm: str
    separable: bool
    W: Float
    margin: float
    certificate: Certificate
    status: str


def max_margin(stats: SoftLabels, embeddings: Matrix, norm: str = "frobenius", tolerance: float = 1e-6) -> MaxMargin:
    """The decoder of largest margin in a norm: ``frobenius``, ``max``, ``spectral``, ``nuclear`` or ``sum``.

    ``tolerance`` is the relative gap to prove in the spectral and the nuclear norm; others are exact up to rounding.
    """
    data = LinearData.of(stats, embeddings)
    problem = MarginProblem(data.S, data.H, norm_named(norm))
    answer = solve_margin(problem, tolerance)
    W = answer.solution.x
    margin = problem.margin(W) if answer.separable and np.any(W) else 0.0
    return MaxMargin(norm, answer.separable, W, margin, answer.solution.certificate, answer.solution.status)
