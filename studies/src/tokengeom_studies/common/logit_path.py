"""The regularisation path of learned features, down to vanishing weight decay, with a duality gap at each point.

``L(lambda) = argmin CE(L) + lambda ||L||_*``,  lambda -> 0:
``CE - H -> 0``,  ``P_F(L) -> L_in``,  ``L / ||L|| -> L_mm / ||L_mm||``   [zhao2024]

where ``L`` are logits, V x m, ``L_in`` and ``L_mm`` the predicted finite part and direction, V x m.

Expected rates, which the fits measure: off support the softmax falls like ``exp(-R)`` along ``L_in + R L_mm``, so the
best R has ``CE - H ~ lambda ||L_mm||_*`` and grows like ``log 1/lambda``; the distance to ``L_in`` falls like lambda;
the rest of L stays bounded, so the angle to L_mm falls like 1/R and ``1 - cos`` like ``1 / log(1/lambda)^2``.
Contexts with equal supports but different probabilities have different columns along the path, so they are not
merged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from tokengeom import Certificate, NextTokenStatistics
from tokengeom.extending import (
    Backend,
    Computed,
    Float,
    LogitADMM,
    PathColumns,
    ProblemError,
    RegularisedLogits,
    WarmStart,
    centre_columns,
    finite_part,
    project_on_F,
)

SMALL_LAMBDA = 1e-5
"""Rates are those of the limit: points with a larger strength are left out of the fits."""
TOLERANCE, MAX_ITERATIONS = 1e-6, 3000
"""Proven relative gap of each point, and iterations after which a point is left as it is."""


@dataclass(frozen=True)
class PathPoint:
    """One strength: its certificate, and the distance of its logits from the limit.

    ``loss_gap``
        ``CE - H`` in nats, to full relative precision.
    ``finite_distance``
        ``||P_F(L) - L_in|| / ||L_in||`` (absolute where L_in is 0); falls to 0.
    ``direction_cosine``
        ``cos(L, L_mm)`` in [-1, 1]; rises to 1. NaN where L or L_mm is 0.
    ``growth``
        ``<L, L_mm> / ||L_mm||^2``: the multiple of L_mm in the logits; grows like log 1/lambda.
    """

    lam: float
    loss_gap: float
    nuclear_norm: float
    rank: int
    finite_distance: float
    direction_cosine: float
    growth: float
    certificate: Certificate
    iterations: int
    seconds: float


@dataclass(frozen=True)
class LogitPath:
    """The path, from the largest strength to the smallest, and the logits at its end."""

    points: tuple[PathPoint, ...]
    last_logits: Float

    def column(self, name: str) -> Float:
        """One measurement along the path."""
        return np.array([getattr(point, name) for point in self.points], dtype=np.float64)

    @property
    def relative_gaps(self) -> Float:
        """Proven duality gap at each point, relative to the objective above H."""
        return np.array([point.certificate.relative_gap for point in self.points])

    @property
    def loss_rate(self) -> float:
        """Slope of ``log(CE - H)`` against ``log lambda``; 1 is expected."""
        return self._slope("loss_gap", np.log)

    @property
    def finite_rate(self) -> float:
        """Slope of log distance to L_in against ``log lambda``; 1 is expected."""
        return self._slope("finite_distance", np.log)

    @property
    def direction_rate(self) -> float:
        """Slope of ``log(1 - cos)`` against ``log log 1/lambda``; -2 is expected in the limit."""
        return self._slope("direction_cosine", lambda c: np.log(1.0 - c), np.log(-np.log(self._small())))

    def to_rows(self) -> list[dict[str, float]]:
        """One row per point: every measurement and the gap."""
        names = ("lam", "loss_gap", "nuclear_norm", "rank", "finite_distance", "direction_cosine", "growth",
                 "iterations", "seconds")  # fmt: skip
        return [
            {name: float(getattr(point, name)) for name in names} | {"relative_gap": point.certificate.relative_gap}
            for point in self.points
        ]

    def columns(self) -> PathColumns:
        """What the figure of a path shows."""
        with np.errstate(divide="ignore"):
            loss = np.log10(self.column("loss_gap"))
        return PathColumns(
            1.0 / self.column("lam"),
            "1 / lambda",
            "H",
            loss,
            self.column("finite_distance"),
            "||P_F(L) - L^in|| / ||L^in||",
            [("L with L^mm", self.column("direction_cosine"))],
            "The logits that minimise CE + lambda ||L||_*, as lambda decreases (learned features); each point is "
            f"optimal within a proven relative duality gap of {float(np.max(self.relative_gaps)):.1e}.",
        )

    def _small(self) -> Float:
        lams = self.column("lam")
        return lams[lams <= SMALL_LAMBDA]

    def _slope(self, name: str, transform: Callable[[Float], Float], against: Float | None = None) -> float:
        lams = self.column("lam")
        y = self.column(name)[lams <= SMALL_LAMBDA]
        x = np.log(self._small()) if against is None else against
        with np.errstate(divide="ignore", invalid="ignore"):
            y = transform(y)
        good = np.isfinite(y)
        if good.sum() < 3:
            return float("nan")
        return float(np.polyfit(x[good], y[good], 1)[0])


def regularisation_path(stats: NextTokenStatistics, L_mm: Float, lambdas: ArrayLike) -> LogitPath:
    """The path from the largest strength to the smallest, with the distance of each point from the limit.

    ``L_mm``
        Predicted direction, V x m.
    ``lambdas``
        Strengths, in any order.
    """
    lams = np.sort(np.asarray(lambdas, dtype=np.float64).ravel())[::-1]
    if lams.size == 0 or not (np.isfinite(lams).all() and (lams > 0).all()):
        raise ProblemError(
            f"Strengths must be > 0 and finite; got lambdas={lams}. At lambda = 0 the loss has no minimiser. "
            "Use np.logspace(-1, -12, 23)."
        )
    # The points are whole matrices.
    in_one_block = replace(Backend.on(), largest_block=2**62)
    problem = RegularisedLogits.from_probabilities(stats.P, stats.pi, float(lams[0]), backend=in_one_block)
    if L_mm.shape != problem.P.shape:
        raise ProblemError(
            f"The direction must have the shape of P; got L_mm {L_mm.shape} and P {problem.P.shape}. "
            "Likely merged logits. Pass prediction.L_mm."
        )
    measure = _Measure(problem, centre_columns(L_mm))
    solver = LogitADMM(tolerance=TOLERANCE, max_iterations=MAX_ITERATIONS)
    return _follow(problem, lams, solver, measure)


def _follow(problem: RegularisedLogits, lams: Float, solver: LogitADMM, measure: _Measure) -> LogitPath:
    points: list[PathPoint] = []
    states: list[WarmStart] = []
    L = np.zeros_like(problem.P)
    for i, lam in enumerate(lams):
        start = None if i == 0 else _extrapolated(states, np.log(lams[max(i - 2, 0) : i + 1]))
        solution, state = solver(problem.at(float(lam)), start)
        states = [*states[-1:], state]
        L = solution.x
        points.append(measure(problem.at(float(lam)), L, solution.certificate, solution.iterations, solution.seconds))
    return LogitPath(tuple(points), L)


def _extrapolated(states: list[WarmStart], logs: Float) -> WarmStart:
    """The next point on the line through the last two logits (in log lambda); the dual hardly moves along the path."""
    last = states[-1]
    if len(states) < 2:
        return last
    ratio = float((logs[2] - logs[1]) / (logs[1] - logs[0])) if logs[1] != logs[0] else 0.0
    before, now = states[0].Z, last.Z
    Z = Computed(now.layout, lambda k: now[k] + ratio * (now[k] - before[k]))
    return WarmStart(now.layout.kept(Z), last.Y, last.rho)


class _Measure:
    """Distances of logits from the limit, which is the same along the path."""

    def __init__(self, problem: RegularisedLogits, L_mm: Float) -> None:
        self.L_in, self.L_mm = finite_part(problem.P), L_mm
        self.in_norm = float(np.linalg.norm(self.L_in)) or 1.0
        self.mm_norm = float(np.linalg.norm(L_mm))

    def __call__(
        self, problem: RegularisedLogits, L: Float, proof: Certificate, iterations: int, seconds: float
    ) -> PathPoint:
        s = np.linalg.svd(L, compute_uv=False)
        inner, norm = float((L * self.L_mm).sum()), float(np.linalg.norm(L))
        seen = norm > 0 and self.mm_norm > 0
        return PathPoint(
            lam=problem.lam,
            loss_gap=problem.loss_gap(L),
            nuclear_norm=float(s.sum()),
            rank=int((s > 1e-6 * max(float(s[0]), 1e-300)).sum()),
            finite_distance=float(np.linalg.norm(project_on_F(L, problem.S) - self.L_in)) / self.in_norm,
            direction_cosine=inner / (norm * self.mm_norm) if seen else float("nan"),
            growth=inner / self.mm_norm**2 if self.mm_norm > 0 else float("nan"),
            certificate=proof,
            iterations=iterations,
            seconds=seconds,
        )
