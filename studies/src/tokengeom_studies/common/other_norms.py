"""Predictions at a loss in more norms, for the question which norm goes with which optimizer.

`smallest_spectral`   logits of smallest spectral norm with a loss gap: convex, with a lower bound as its proof
`smallest_one_sided`  the same for a norm between nuclear and gamma_2: the longest token times the root mean square of
                      the contexts, or the root mean square of the tokens times the longest context
`smallest_entries`    W and H whose largest entry is smallest at a loss gap: not convex, a fit without a proof

The first is solved by Douglas-Rachford splitting for ``min CE(L)`` over ``||L||_2 <= radius`` at several radii, with
the proximal map of the loss from ``solvers.logit_admm``. For any distributions R, with G = ``(R - P) diag(pi)``,

``CE(L) - H >= sum_j pi_j (Ent(r_j) - Ent(p_j)) - radius ||G||_*``   for all L of spectral norm at most the radius.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from tokengeom.extending import (
    Backend,
    Gamma2ADMM,
    Gamma2Logits,
    Merging,
    RegularisedLoss,
    blas_threads_for,
    largest_lam,
    threads_for,
)
from tokengeom_studies.common.torch_runs import DeviceText, Predicted

RELAXATION = 1.6
CHECK_EVERY = 25
GAP_ACCURACY = 0.02
"""Relative difference between the loss gap asked for and the one reached."""
MOST_RADII = 8


def smallest_spectral(
    text: DeviceText, loss_gap: float, *, tolerance: float = 0.02, iterations: int = 600
) -> Predicted:
    """Logits of smallest spectral norm at a loss gap; ``relative_gap`` is how far the loss may be above its minimum."""
    with blas_threads_for(text.stats.V, text.stats.m):
        return _smallest_spectral(text, loss_gap, tolerance, iterations)


def _smallest_spectral(text: DeviceText, loss_gap: float, tolerance: float, iterations: int) -> Predicted:
    backend = Backend.on(None if text.device == "cpu" else text.device)
    P, pi = text.stats.P, text.stats.pi
    merging = Merging.of(P, pi)
    problem = merging.problem(P, pi, 1.0, backend)
    assert not problem.layout.several, "large texts are solved for in blocks, which this search does not do"
    term = RegularisedLoss(problem)
    w = 0.0 * problem.P
    radius = _first_radius(text, loss_gap)
    points: list[tuple[float, float]] = []
    rho = 1e-3 / radius
    for _ in range(MOST_RADII):
        X, w, rho, value, bound = _on_ball(problem, term, w, rho, radius, tolerance, iterations)
        if abs(value / loss_gap - 1.0) <= GAP_ACCURACY:
            break
        points.append((math.log(radius), math.log(value)))
        slope = -2.0
        if len(points) > 1 and points[-1][0] != points[-2][0]:
            slope = (points[-1][1] - points[-2][1]) / (points[-1][0] - points[-2][0])
        slope = min(slope, -0.3)
        radius *= math.exp(min(max((math.log(loss_gap) - points[-1][1]) / slope, -1.0), 1.0))
    L = backend.to_numpy(X / problem.weight)[merging.row_of][:, merging.column_of]
    W, H = _balanced(L - L.mean(axis=0))
    return Predicted(W, H, value, radius, 1.0 - bound / value, W.shape[1])


def _first_radius(text: DeviceText, loss_gap: float) -> float:
    """A part of the spectral norm of the logits of smallest nuclear norm, which is larger than needed."""
    known = text.prediction(loss_gap, "nuclear")
    return 0.28 * float(np.linalg.norm(known.W, 2) * np.linalg.norm(known.H, 2))


def _on_ball(
    problem: Any, term: RegularisedLoss, w: Any, rho: float, radius: float, tolerance: float, iterations: int
) -> tuple[Any, Any, float, float, float]:
    """The smallest loss within a radius: logits, state, penalty, loss gap and a lower bound on it."""
    backend, best, bound = problem.backend, math.inf, -math.inf
    answer = w
    before = None
    for k in range(1, iterations + 1):
        Z = term.prox(0, w, rho)
        X = _clipped(backend, 2.0 * Z - w, radius)
        if k % CHECK_EVERY == 0:
            value = problem.loss_gap(X / problem.weight)
            if value < best:
                best, answer = value, X
            change = problem.dual_change(X / problem.weight)
            norm = float(backend.fast_singular_values(problem.scaled_dual(change)).sum())
            bound = max(bound, problem.entropy_gain(change)[0] - radius * norm)
            if best - bound <= tolerance * best:
                break
            primal = float(backend.norm(X - Z)) / max(float(backend.norm(Z)), 1e-300)
            moved = float(backend.norm(Z - before)) / max(float(backend.norm(w - Z)), 1e-300)
            factor = math.sqrt(primal / max(moved, 1e-300))
            if not 0.5 <= factor <= 2.0:
                factor = min(max(factor, 0.4), 2.5)
                w, rho = Z + (w - Z) / factor, rho * factor
                continue
        w, before = w + RELAXATION * (X - Z), Z
    return answer, w, rho, best, bound


def _clipped(backend: Backend, M: Any, radius: float) -> Any:
    """M with singular values above the radius lowered to it."""
    if M.shape[0] > M.shape[1]:
        return _clipped(backend, M.T, radius).T
    values, Q = backend.eigh(M @ M.T)
    s = backend.at_least(values, radius**2) ** 0.5
    return (Q * (radius / s)) @ (Q.T @ M)


def _balanced(L: Any) -> tuple[Any, Any]:
    """``U Sigma^(1/2)`` and ``Sigma^(1/2) V^T`` of logits, in single precision."""
    values, U = np.linalg.eigh(L @ L.T)
    s = np.sqrt(np.maximum(values, 0.0))
    kept = s > 1e-5 * s[-1]
    U, root = U[:, kept], np.sqrt(s[kept])
    return (U * root).astype(np.float32), ((U.T @ L) / root[:, None]).astype(np.float32)


def smallest_one_sided(text: DeviceText, loss_gap: float, longest: str, *, tolerance: float = 2e-3) -> Predicted:
    """Logits of smallest one-sided norm at a loss gap: the ``longest`` of "tokens" or "contexts" counts.

    Of the others the root mean square counts. It is gamma_2 with uniform weights for them.
    """
    P, pi = text.stats.P, text.stats.pi
    # Of repeated columns one is enough for a maximum; for a mean their shares must be equal, as in the nuclear norm.
    merging = Merging.of(P, pi if longest == "tokens" else None)
    loss = merging.problem(P, pi, 1.0, Backend.on(None if text.device == "cpu" else text.device))
    if longest == "tokens":
        problem = Gamma2Logits(loss, c=(loss.backend.asarray(merging.n) / float(merging.n.sum())) ** 0.5)
    else:
        problem = Gamma2Logits(loss, r=(loss.backend.asarray(merging.a) / float(merging.a.sum())) ** 0.5)
    with blas_threads_for(*loss.P.shape):
        log_lam = math.log(largest_lam(problem)) + 1.2 * math.log(loss_gap / loss.zero_gap)
        points: list[tuple[float, float]] = []
        for _ in range(MOST_RADII):
            at = replace(problem, loss=loss.at(math.exp(log_lam)))
            solution, _ = Gamma2ADMM(tolerance=tolerance)(at)
            reached = loss.loss_gap(solution.x.logits)
            if abs(reached / loss_gap - 1.0) <= GAP_ACCURACY:
                break
            points.append((log_lam, math.log(reached)))
            slope = 1.0
            if len(points) > 1 and points[-1][0] != points[-2][0]:
                slope = (points[-1][1] - points[-2][1]) / (points[-1][0] - points[-2][0])
            log_lam += (math.log(loss_gap) - points[-1][1]) / min(max(slope, 0.7), 4.0)
    norm, proof = at.norm(solution.x), solution.certificate
    W, H = (loss.backend.to_numpy(factor) for factor in (solution.x.W, solution.x.H))
    gap = (proof.value - proof.bound) / (at.loss.lam * norm)
    return Predicted(W[merging.row_of], H[:, merging.column_of], reached, norm, gap, W.shape[1])


def smallest_entries(text: DeviceText, loss_gap: float, dim: int, *, seed: int = 0, steps: int = 1_500) -> Predicted:
    """W and H with entries in [-c, c] at a loss gap, c by bisection; each fit is accelerated projected descent."""
    low, high, best = 0.02, 2.0, None
    with threads_for(text.torch, 3.0 * dim * text.P.numel()):
        for _ in range(9):
            c = math.sqrt(low * high)
            W, H, gap = _in_box(text, c, dim, seed, steps, loss_gap)
            if gap > loss_gap:
                low = c
            else:
                high, best = c, (W, H, gap, c)
        if best is None:
            best = (*_in_box(text, high, dim, seed, steps, loss_gap), high)
    W, H, gap, c = best
    return Predicted(W.cpu().numpy(), H.cpu().numpy(), gap, c, float("nan"), dim)


def _in_box(text: DeviceText, c: float, dim: int, seed: int, steps: int, enough: float) -> tuple[Any, Any, float]:
    """The smallest loss found with entries in [-c, c]; ends once the loss gap is at most ``enough``."""
    torch = text.torch
    generator = torch.Generator().manual_seed(seed)
    V, m = text.P.shape
    W = (0.1 * c * torch.randn(V, dim, generator=generator)).to(text.device)
    H = (0.1 * c * torch.randn(dim, m, generator=generator)).to(text.device)
    before, size, last, t = (W, H), 1.0 / c**2, math.inf, 1.0
    gap = text.loss_gap(W, H)
    for step in range(1, steps + 1):
        after = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * t * t))
        weight = (t - 1.0) / after
        YW, YH = W + weight * (W - before[0]), H + weight * (H - before[1])
        R = (torch.softmax(YW @ YH, 0) - text.P) * text.pi
        new = ((YW - size * (R @ YH.mT)).clamp(-c, c), (YH - size * (YW.mT @ R)).clamp(-c, c))
        before, (W, H), t = (W, H), new, after
        if step % 10 == 0:
            gap = text.loss_gap(W, H)
            if not math.isfinite(gap) or gap > last + 1e-4:
                W, H, t, size = *before, 1.0, 0.5 * size
                before = (W, H)
            else:
                size *= 1.1
                last = gap
            if gap <= enough:
                break
    return W, H, text.loss_gap(W, H)
