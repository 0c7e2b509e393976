"""The smallest number of dimensions that separates given supports, bracketed with proofs on both sides."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, pi, sqrt
from typing import Any

import numpy as np

from tokengeom.extending import Bool, Float, MarginProblem, ResourceError, separating_decoder, solve_ntp_svm
from tokengeom_studies.common.measured import Interval, Row, chosen
from tokengeom_studies.common.random_limits import separability_limit

NEAR = 0.03
STANDARD_ERRORS = 3.3
"""Standard errors beyond which a correct estimate lies with probability 0.001."""

FEW = 4
"""Contexts per token from which on the vocabulary counts as small."""

SOLVED, FINE = 0.1, 1e-6
"""Tolerances of the solver: a decoder from the first is made exactly feasible; the second is tried where this fails."""


def separates(S: Bool, H: Float, max_iterations: int) -> tuple[bool | None, float]:
    """Whether embeddings H (d x m) separate supports S (V x m), proven, and the residual of a refutation.

    None where neither a decoder nor a refutation was found.
    """
    problem = MarginProblem(S, H)
    for tolerance in (SOLVED, FINE):
        try:
            answer = solve_ntp_svm(problem, tolerance=tolerance, max_iterations=max_iterations)
        except ResourceError:
            return None, 0.0
        if not answer.separable:
            proof = answer.solution.certificate
            return False, max(proof.primal_residual, proof.dual_residual)
        if separating_decoder(problem, answer.solution.x) is not None:
            return True, 0.0
    return None, 0.0


def bracket(S: Bool, H: Float, k: int, resolution: float, max_iterations: int) -> dict[str, Any]:
    """The smallest separating number of rows of H (m x m) lies in ``(low, high]``, at most ``resolution`` m wide.

    The search starts at the formula and doubles its steps until both ends are proven, so where it starts does not
    matter for the result. It stops at an undecided dimension; the bracket before it is kept.
    """
    began = time.perf_counter()
    V, m = S.shape
    limit = separability_limit(V, k)
    low, high, undecided, worst = 0, m, 0, 0.0
    step = max(1, ceil(2.0 * limit.width * sqrt(m)))
    d = min(max(round(limit.ratio * m + (V - 1) / 8), 1), m - 1)
    while high - low > max(1.0, resolution * m):
        answer, residual = separates(S, H[:d], max_iterations)
        worst = max(worst, residual)
        if answer is None:
            undecided = 1
            break
        low, high = (low, d) if answer else (d, high)
        if low == 0 or high == m:
            d = max(high - step, 1) if low == 0 else min(low + step, m - 1)
            step *= 2
        else:
            d = (low + high) // 2
        if not low < d < high:
            d = (low + high) // 2
    return {
        "low": low,
        "high": high,
        "undecided": undecided,
        "refutation_residual": worst,
        "seconds": time.perf_counter() - began,
    }


def separates_by_linear_program(S: Bool, H: Float) -> bool:
    """The same question as a linear program, ``max t`` over decoders with entries in [-1, 1], solved by HiGHS."""
    from scipy.optimize import linprog

    V, m = S.shape
    d = H.shape[0]
    equal, lower = [], []
    for j in range(m):
        first, *others = np.flatnonzero(S[:, j])
        for v in range(V):
            row = np.zeros((V, d))
            row[v], row[first] = row[v] + H[:, j], row[first] - H[:, j]
            if v in others:
                equal.append(np.append(row.ravel(), 0.0))
            elif not S[v, j]:
                lower.append(np.append(row.ravel(), 1.0))
    program = linprog(
        np.append(np.zeros(V * d), -1.0),
        A_ub=np.array(lower),
        b_ub=np.zeros(len(lower)),
        A_eq=np.array(equal) if equal else None,
        b_eq=np.zeros(len(equal)) if equal else None,
        bounds=[(-1.0, 1.0)] * (V * d) + [(0.0, 1.0)],
        method="highs",
    )
    return bool(program.x[-1] > 1e-7)


@dataclass(frozen=True)
class Threshold:
    """``d*`` of one setting: location and standard deviation of the fitted logistic, with the location's error."""

    V: int
    k: int
    m: int
    draws: int
    undecided: int
    location: float
    error: float
    deviation: float

    @property
    def expected(self) -> float:
        """M times the formula."""
        return separability_limit(self.V, self.k).ratio * self.m

    @property
    def shift(self) -> float:
        """Dimensions above the formula."""
        return self.location - self.expected

    @property
    def few_tokens(self) -> bool:
        """Whether ``V <= m/4``, where the formula is tested."""
        return self.m >= self.V * FEW


def thresholds(rows: Sequence[Row]) -> list[Threshold]:
    """The fitted threshold of every setting, in the order of V, k and m."""
    draws = chosen(rows, kind="draw")
    settings = sorted({(row["V"], row["k"], row["m"]) for row in draws})
    measured = []
    for V, k, m in settings:
        mine = chosen(draws, V=V, k=k, m=m)
        start = separability_limit(V, k)
        location, error, scale = fit_logistic(
            np.array([row["low"] for row in mine], float),
            np.array([row["high"] for row in mine], float),
            start.width * sqrt(m),
        )
        undecided = sum(row["undecided"] for row in mine)
        measured.append(Threshold(V, k, m, len(mine), undecided, location, error, scale * pi / sqrt(3.0)))
    return measured


def fit_logistic(low: Float, high: Float, start: float) -> tuple[float, float, float]:
    """Location, its standard error, and scale of a logistic distribution, from brackets ``(low, high)`` of its draws.

    Maximum likelihood with the observed information; ``start`` is a guess of the standard deviation. A weak prior on
    the logarithm of the scale (a factor of 4 either way) keeps the fit defined for few draws. The search starts at the
    narrowest brackets: far from them the likelihood is 0 up to rounding, and flat.
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    widths = high - low
    middle = (0.5 * (low + high))[widths <= 2.0 * widths.min()]
    log_scale = np.log(max(start, 0.3) * sqrt(3.0) / pi)

    def loss(x: Float) -> float:
        scale = np.exp(x[1])
        share = expit((high - x[0]) / scale) - expit((low - x[0]) / scale)
        return float(-np.log(np.maximum(share, 1e-300)).sum() + 0.5 * ((x[1] - log_scale) / np.log(4.0)) ** 2)

    best = minimize(loss, [float(np.median(middle)), log_scale], method="Nelder-Mead", options={"xatol": 1e-4})
    location, scale = float(best.x[0]), float(np.exp(best.x[1]))
    h = 0.1 * scale
    aside = np.array([h, 0.0])
    curvature = (loss(best.x + aside) - 2.0 * loss(best.x) + loss(best.x - aside)) / h**2
    return location, 1.0 / sqrt(max(curvature, 1e-12)), scale


@dataclass(frozen=True)
class Slope:
    """Slope of ``d*`` over m for one (V, k), relative to the formula, with its standard error.

    ``shift``
        Weighted mean of ``(d* - m formula) / (V - 1)``.
    """

    V: int
    k: int
    relative: float
    error: float
    shift: Interval

    @property
    def refuted(self) -> bool:
        """Whether the slope contradicts the formula."""
        return abs(self.relative - 1.0) - STANDARD_ERRORS * self.error > NEAR


def slopes_of(measured: Sequence[Threshold]) -> list[Slope]:
    """Weighted least squares of the threshold on m, per (V, k) with at least two m."""
    slopes = []
    for V, k in dict.fromkeys((threshold.V, threshold.k) for threshold in measured):
        mine = [threshold for threshold in measured if (threshold.V, threshold.k) == (V, k) and threshold.few_tokens]
        if len(mine) < 2:
            continue
        A = np.array([[threshold.m, 1.0] for threshold in mine]) / np.array([[threshold.error] for threshold in mine])
        covariance = np.linalg.inv(A.T @ A)
        slope, _ = covariance @ A.T @ np.array([threshold.location / threshold.error for threshold in mine])
        ratio = separability_limit(V, k).ratio
        slopes.append(Slope(V, k, float(slope) / ratio, sqrt(covariance[0, 0]) / ratio, shift_per_token(mine)))
    return slopes


def weighted_mean(values: Sequence[float], errors: Sequence[float]) -> Interval:
    """Mean weighted with the inverse squares of standard errors, and its 95% interval."""
    weights = 1.0 / np.square(errors)
    mean, half = float(weights @ np.array(values) / weights.sum()), 1.96 / sqrt(float(weights.sum()))
    return Interval(mean, mean - half, mean + half, len(values))


def shift_per_token(measured: Sequence[Threshold]) -> Interval:
    """The shift divided by V - 1, mean over thresholds."""
    return weighted_mean(
        [threshold.shift / (threshold.V - 1) for threshold in measured],
        [threshold.error / (threshold.V - 1) for threshold in measured],
    )
