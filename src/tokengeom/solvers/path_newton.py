"""The ridge problem of the linear model by Newton's method, at strengths down to far below the smallest double.

::

    min_W  (CE(W) - loss_floor) / mu + ||W||_F^2 / 2,     mu = exp(tau)

around the limit ``W = W_star + mu X + Y`` with X in ``F^`` and Y in its complement. Both are of moderate size however
small mu is. With q* the reduced distribution at W_star and ``rho_j`` the odds of leaving the effective support, ::

    CE - loss_floor = sum_j pi_j [ log sum_z q*_jz exp(mu x_jz) - mu sum_z q*_jz x_jz  +  log(1 + rho_j) ]

is a sum of positive terms, each computed without cancellation and divided by mu in the exponent. The Newton system
couples X and Y only through mu: as mu underflows it becomes block triangular, not singular.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokengeom.core.errors import ResourceError
from tokengeom.core.numerics import Bool, Float, excess_exponential, log_sum_exp
from tokengeom.problems.linear_limit import ReducedLoss
from tokengeom.solvers.least_distance import equality_rows, row_and_null_space

MOST_UNKNOWNS = 3000
MOST_ENTRIES = 60_000_000


@dataclass(frozen=True)
class PathState:
    """A point of the path: ``tau = log mu``, coordinates of X in ``F^`` and of Y in its complement."""

    tau: float
    x: Float
    y: Float

    @property
    def mu(self) -> float:
        """``exp(tau)``; 0 where it would be denormal: every formula has a limit there."""
        return float(np.exp(self.tau)) if self.tau > -640.0 else 0.0


@dataclass(frozen=True)
class _Local:
    """What value, gradient and Hessian at one point share."""

    value: float
    excess: float
    q: Float
    leaving: Float
    gradient_x: Float
    gradient_y: Float


class PathNewton:
    """The ridge problem in the coordinates above, for ``H = R`` of full row rank (r x m)."""

    def __init__(self, S: Bool, q: Float, pi: Float, R: Float, W: Float) -> None:
        V, m = S.shape
        size = V * R.shape[0]
        if size > MOST_UNKNOWNS or size * V * m > MOST_ENTRIES:
            raise ResourceError(
                f"The path solver holds dense bases, so V * rank(H) must be at most {MOST_UNKNOWNS}; got "
                f"{V} * {R.shape[0]} = {size} with m={m} contexts. Use fewer contexts or embeddings of lower rank."
            )
        self.S, self.q, self.pi, self.shape = S, np.where(S, q, 0.0), pi, (V, R.shape[0])
        inside, across = map(np.ascontiguousarray, row_and_null_space(equality_rows(S, R), size))
        self.inside, self.across = inside, across
        self.w = inside.T @ W.ravel()
        self.v, self.j = np.nonzero(~S)
        self.weight = pi[self.j]
        logits = np.einsum("vrf,rj->vjf", inside.reshape(V, -1, inside.shape[1]), R)
        self.logits = np.ascontiguousarray(logits.reshape(V * m, -1))
        anchor = np.argmax(S, axis=0)[self.j]
        basis = across.reshape(V, -1, across.shape[1])
        self.G = np.einsum("prg,rp->pg", basis[self.v] - basis[anchor], R[:, self.j])
        L = W @ R
        self.offset = L[self.v, self.j] - log_sum_exp(np.where(S, L, -np.inf))[self.j]

    def norm(self, state: PathState) -> float:
        """Frobenius norm of W."""
        return float(np.hypot(np.linalg.norm(self.w + state.mu * state.x), np.linalg.norm(state.y)))

    def deviation(self, state: PathState) -> tuple[Float, Float]:
        """``mu X`` and ``Y`` as V x r matrices."""
        X, Y = self.inside @ (state.mu * state.x), self.across @ state.y
        return X.reshape(self.shape), Y.reshape(self.shape)

    def at_zero(self, tau: float) -> PathState:
        """State of ``W = 0``."""
        return PathState(tau, -self.w * float(np.exp(-tau)), np.zeros(self.across.shape[1]))

    def log_excess(self, state: PathState) -> float:
        """``log(CE - loss_floor)``."""
        excess = self._local(state).excess
        return float(np.log(excess) + state.tau) if excess > 0 else -np.inf

    def solve(self, state: PathState, max_iterations: int = 60) -> tuple[PathState, bool]:
        """The minimiser at ``state.tau``, from ``state``, and whether the steps shrank to rounding."""
        here = self._local(state)
        for _ in range(max_iterations):
            dx, dy = self._newton(state, here, -here.gradient_x, -here.gradient_y)
            decrement = -(state.mu * float(here.gradient_x @ dx) + float(here.gradient_y @ dy))
            small = float(np.linalg.norm(dy)) <= 1e-11 * (1.0 + float(np.linalg.norm(state.y)))
            if small and float(np.linalg.norm(dx)) <= 1e-9 * (1.0 + float(np.linalg.norm(state.x))):
                return PathState(state.tau, state.x + dx, state.y + dy), True
            moved = self._search(state, here, dx, dy, decrement)
            if moved is None:
                return state, small
            state, here = moved
        return state, False

    def tangent(self, state: PathState) -> tuple[Float, Float]:
        """Derivatives of x and y by tau along the path."""
        here = self._local(state)
        mu, q = state.mu, here.q
        L = (self.logits @ state.x).reshape(self.S.shape)
        pull = (self.pi * q * (L - np.sum(q * L, axis=0))).ravel()
        right_x = (here.gradient_x - self.w - mu * state.x) - self.logits.T @ pull - mu * state.x
        c = self._coupling(here)
        right_y = (here.gradient_y - state.y) - mu * (c.T @ state.x)
        return self._newton(state, here, right_x, right_y)

    def _search(
        self, state: PathState, here: _Local, dx: Float, dy: Float, decrement: float
    ) -> tuple[PathState, _Local] | None:
        length = 1.0
        for _ in range(60):
            tried = PathState(state.tau, state.x + length * dx, state.y + length * dy)
            there = self._local(tried)
            rounding = 1e-13 * abs(here.value)
            if there.value <= here.value - 1e-4 * length * decrement + rounding:
                return tried, there
            length *= 0.5
        return None

    def _local(self, state: PathState) -> _Local:
        mu = state.mu
        L = (self.logits @ state.x).reshape(self.S.shape)
        mean = np.sum(self.q * L, axis=0)
        centred = np.where(self.S, L - mean, 0.0)
        spread = np.sum(self.q * excess_exponential(mu * centred), axis=0)
        rise = _over(np.log1p(spread), spread, mu, 0.5 * mu * np.sum(self.q * centred**2, axis=0))
        # log of the odds of each off-support token, divided by mu
        with np.errstate(over="ignore"):
            exponent = self.offset + self.G @ state.y + mu * (L[self.v, self.j] - mean[self.j] - rise[self.j])
            odds = np.exp(exponent - state.tau)
            total = np.bincount(self.j, weights=odds, minlength=len(self.pi))
            share = np.log1p(np.minimum(mu * total, 1e300))
        loss = np.where(mu * total > 1e-300, share / mu if mu > 0 else total, total)
        delta = centred - rise - loss
        step = mu * delta
        with np.errstate(over="ignore", invalid="ignore"):
            change = np.where(np.abs(step) > 1e-290, np.expm1(step) / mu if mu > 0 else delta, delta)
        leaving = odds / (1.0 + mu * total)[self.j]
        pull = self.q * change
        pull[self.v, self.j] = leaving
        gradient_x = self.logits.T @ (pull * self.pi).ravel() + self.w + mu * state.x
        gradient_y = self.G.T @ (self.weight * leaving) + state.y
        excess = float(self.pi @ (rise + loss))
        size = float(np.vdot(self.w + mu * state.x, self.w + mu * state.x)) + float(np.vdot(state.y, state.y))
        q = self.q * (1.0 + mu * change)
        q[self.v, self.j] = mu * leaving
        value = excess + 0.5 * size
        return _Local(value if np.isfinite(value) else np.inf, excess, q, leaving, gradient_x, gradient_y)

    def _newton(self, state: PathState, here: _Local, right_x: Float, right_y: Float) -> tuple[Float, Float]:
        mu, weight = state.mu, self.weight * here.leaving
        root = np.sqrt(here.q * self.pi).reshape(-1, 1)
        scaled = self.logits * root
        # diag(q) - q q^T = D^(1/2) (I - r r^T) D^(1/2) with r = sqrt(q): subtract the part along r
        r = np.sqrt(here.q)
        cube = scaled.reshape(*self.S.shape, -1)
        along = np.einsum("vj,vjf->jf", r, cube)
        M_x = scaled.T @ scaled - along.T @ along + mu * np.eye(len(right_x))
        c = self._coupling(here)
        weighted = self.G * np.sqrt(weight)[:, None]
        gathered = np.zeros((len(self.pi), self.G.shape[1]))
        np.add.at(gathered, self.j, self.G * here.leaving[:, None])
        M_y = np.eye(len(right_y)) + weighted.T @ weighted - mu * (gathered.T * self.pi) @ gathered
        if len(right_x) == 0:
            return np.zeros(0), np.linalg.solve(M_y, right_y)
        eliminated = np.linalg.solve(M_x, np.column_stack([right_x, c]))
        schur = M_y - mu * (c.T @ eliminated[:, 1:])
        dy = np.linalg.solve(schur, right_y - mu * (c.T @ eliminated[:, 0]))
        return eliminated[:, 0] - eliminated[:, 1:] @ dy, dy

    def _coupling(self, here: _Local) -> Float:
        cube = self.logits.reshape(*self.S.shape, -1)
        mean = np.einsum("vj,vjf->jf", here.q, cube)
        return np.asarray((cube[self.v, self.j] - mean[self.j]).T @ (self.G * (self.weight * here.leaving)[:, None]))


def _over(value: Float, spread: Float, mu: float, limit: Float) -> Float:
    """``value / mu`` where that is finite, else its limit."""
    return np.where(spread > 1e-290, value / mu if mu > 0 else limit, limit)


def path_newton(problem: ReducedLoss, W: Float, q: Float | None = None) -> PathNewton:
    """The solver around the reduced minimiser W (V x r); ``q`` is its distribution where that is known exactly."""
    return PathNewton(problem.S, problem.distribution(W) if q is None else q, problem.pi, problem.H, W)
