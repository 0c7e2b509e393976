"""Factors of smallest gamma_2 norm with a given loss, by L-BFGS on unit vectors.

``min_{W, H} log(CE(t W H) - H)   s.t.  ||w_i|| <= 1,  ||h_j|| <= 1``

for a norm t that is moved by Newton's method until the loss gap is the one asked for. A vector in the unit ball is a
unit vector without its last coordinate, so nothing constrains the variables. At a solution, with ``G = diag(a) (P -
softmax) diag(pi)`` and ``L = t W H``,

``lambda = <G, L> / t = -dCE/dt``,   ``r_i^2 = <G_i, L_i> / (t lambda)``,   ``c_j^2 = <G_j, L_j> / (t lambda)``

are the strength of the point of the path and the weights of the norm, since ``G h = lambda r^2 w`` there. So one fit
gives what the splitting of ``gamma2_admm`` looks for, in products of matrices alone. It converges fast where the loss
is high. At low losses, where logits are large and the loss is nearly flat, the splitting is faster.

The loss curves in proportion to the share of a token or context, which differ by factors of thousands, so L-BFGS starts
from that curvature. With 5,000 tokens and 100,000 contexts this makes the difference between a fit that the splitting
proves in a few iterations and one that it does not prove.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from tokengeom.problems.backend import Array, Backend, Blocks, blocks_of
from tokengeom.problems.columns import Computed, kept, mapped, per_column
from tokengeom.problems.gamma2 import MaxNormFactors
from tokengeom.problems.regularised_logits import RegularisedLogits
from tokengeom.solvers.logit_admm import WarmStart

FIT_ACCURACY = 3e-3
"""Largest relative error of the loss of fitted factors."""
KEPT_FROM = 0.6
"""Singular values of a state, as a share of the threshold, from which on they are dimensions of the first factors."""
MEMORY = 10
"""Steps that L-BFGS remembers."""
MOST_STEPS = 40
"""Steps for one norm t."""
MOST_NORMS = 15
PATIENCE = 4
"""Steps over which the decrease is compared with the accuracy."""
SETTLED = 0.2
"""Decrease over them, as a share of the accuracy, from which on one norm t is given up for the next."""
SMALLEST_SHARE = 1e-3
"""Added to shares of tokens and contexts, in units of the mean one."""
SUFFICIENT = 1e-4
"""Share of the predicted decrease that a step must reach."""
SHORTEST_STEP = 1e-3
SLACK = 0.1
"""Smallest last coordinate at the start: where it is 0, its derivative is too."""
LARGEST_NORM_CHANGE = 0.5
"""Largest relative change of t in one step of Newton's method."""
Vector = tuple[Array, Array]
"""Rows of W, V' x (d + 1), and columns of H, (d + 1) x m', of which this process holds its own."""


@final
@dataclass(frozen=True)
class Triplets:
    """``U diag(s) Vt`` of a matrix, V' x k, k and k x m', with s rising; Vt is in blocks where the matrix is."""

    U: Array
    s: Array
    Vt: Array

    @staticmethod
    def of(backend: Backend, M: Array | Blocks, tau: float = 0.0) -> Triplets:
        """Singular triplets of M with values lowered by tau, those below it left out."""
        if not backend.by_rows(M):
            turned = Triplets.of(backend, blocks_of(M)[0].T, tau)
            return Triplets(turned.Vt.T, turned.s, mapped(lambda _: turned.U.T, M))
        eigenvalues, Q = backend.eigh(backend.gram(M))
        if tau > 0.0:
            Q = Q[:, eigenvalues > (0.99 * tau) ** 2]
        Y = kept(mapped(lambda block: Q.T @ block, M))
        # Lengths of the rows have all their digits where roots of eigenvalues do not.
        squares: Array = 0.0
        for block in blocks_of(Y):
            squares = squares + (block**2).sum(1)
        s = backend.total(squares) ** 0.5
        large = s > max(tau, 1e-12 * backend.norm(M))
        s = s[large]
        return Triplets(Q[:, large], s - tau, mapped(lambda block: block[large] / s[:, None], Y))

    @property
    def X(self) -> Array:
        """The matrix, V' x m', in blocks where Vt is."""
        scaled = self.U * self.s
        return mapped(lambda Vt: scaled @ Vt, self.Vt)

    def squared_norms(self, r: Array, c: Array) -> tuple[Array, Array]:
        """Squared norms of the rows of W and of the columns of H, V' and m'."""
        return (self.U**2 @ self.s) / r**2, self.sums_of_squares(self.s) / c**2

    def sums_of_squares(self, weights: Array) -> Array:
        """Weighted sum of the squares of each column of Vt, m'."""
        return per_column(lambda Vt: weights @ Vt**2, self.Vt)

    def factors(self, r: Array, c: Array) -> MaxNormFactors:
        """``W = diag(1/r) U diag(sqrt s)`` and ``H = diag(sqrt s) Vt diag(1/c)``."""
        root = self.s**0.5
        return MaxNormFactors(self.U * root / r[:, None], mapped(lambda Vt, c: root[:, None] * Vt / c, self.Vt, c))


@final
@dataclass(frozen=True, eq=False)
class FittedFactors:
    """Factors at a loss, and the point of the path that they are near to.

    ``factors``
        W (V' x d) and H (d x m') with rows and columns of length at most ``sqrt t``.
    ``lam``, ``r``, ``c``
        Strength of that point, and the weights of its norm.
    ``steps``
        Steps of L-BFGS that were made.
    """

    factors: MaxNormFactors
    lam: float
    r: Array
    c: Array
    steps: int

    def state(self, loss: RegularisedLogits) -> WarmStart:
        """The state of the splitting at these factors, with their weights and rho from the size of their logits."""
        loss, logits = loss.reweighted(self.r, self.c), self.factors.logits
        Z = loss.layout.kept(loss.weighted(logits))
        Y = loss.each(lambda part, L: part.scaled_dual(part.dual_change(L)) / part.lam, logits)
        s = loss.backend.fast_singular_values(Z)
        return WarmStart(Z, Y, 1.0 / float(s[s > 0.01 * s[-1]].mean()), r=self.r, c=self.c)


@final
@dataclass(frozen=True, eq=False)
class Slopes:
    """Loss gap at ``t W H``, and its derivatives with respect to W (of all processes) and to H, divided by t."""

    gap: float
    W: Array
    H: Array


@final
class FactorFit:
    """``log(CE - H)`` as a function of vectors of any length that stand for unit vectors, for one norm t."""

    def __init__(self, problem: RegularisedLogits, t: float) -> None:
        self.problem, self.t = problem, t
        self.shares: Vector = (1.0, 1.0)

    def scale_steps(self, x: Vector) -> None:
        """Scale steps by the share of each token, V' x 1, and of each context, 1 x m'.

        A token's share is the mean of those in the text and in the model at x: the tokens that never follow, which are
        one row, have none in the text, and most of it in a model that has hardly learned.
        """
        problem, backend, (W, H) = self.problem, self.problem.backend, _inner(x)
        tokens, columns = 0.0 * problem.a, problem.pi
        for k in range(len(problem.layout)):
            part = problem.part(k)
            tokens = tokens + problem.a * (part.P @ part.pi) + 0.5 * self._part(k, W, H)[1].sum(1)
        tokens, mean = backend.total(tokens), float(backend.total(columns.sum()))
        mean /= float(backend.total(float(columns.shape[0])))
        tokens, columns = tokens / float(tokens.mean()) + SMALLEST_SHARE, columns / mean + SMALLEST_SHARE
        self.shares = tokens[:, None], columns[None, :]

    def _part(self, k: int, W: Array, H: Array) -> tuple[float, Array, Array]:
        """Loss gap of block k, its gradient by the logits, and the contexts."""
        h = H[:, self.problem.layout.slices[k]]
        return *self.problem.part(k).gap_and_gradient(self.t * (W @ h)), h

    def slopes(self, W: Array, H: Array) -> Slopes:
        """Loss gap and derivatives, block by block."""
        problem, gap, of_W, of_H = self.problem, 0.0, 0.0 * W, []
        for k in range(len(problem.layout)):
            new, gradient, h = self._part(k, W, H)
            gap += new
            of_W = of_W + gradient @ h.T
            of_H.append(W.T @ gradient)
        return Slopes(gap, problem.backend.total(of_W), problem.backend.xp.concatenate(of_H, 1))

    def __call__(self, x: Vector) -> tuple[float, Vector]:
        """Value and gradient; the last coordinate of each vector is not part of W and H."""
        (W, rows), (H, columns) = _unit(x[0], 1), _unit(x[1], 0)
        slopes = self.slopes(*_inner((W, H)))
        if not 0.0 < slopes.gap < math.inf:
            return math.inf, x
        scale, xp = self.t / slopes.gap, self.problem.backend.xp
        of_W = xp.concatenate([scale * slopes.W, 0.0 * W[:, -1:]], 1)
        of_H = xp.concatenate([scale * slopes.H, 0.0 * H[-1:]], 0)
        of_W = of_W - W * (of_W * W).sum(1)[:, None]
        of_H = of_H - H * (of_H * H).sum(0)[None, :]
        return math.log(slopes.gap), (of_W / rows, of_H / columns)

    def minimise(self, x: Vector, accuracy: float) -> tuple[Vector, int]:
        """Unit vectors at which steps of L-BFGS no longer lower the value by ``accuracy``, and their number."""
        steps: list[tuple[Vector, Vector, float]] = []
        value, gradient = self(x)
        values = [value]
        for step in range(MOST_STEPS):
            if len(values) > PATIENCE and values[-1 - PATIENCE] - values[-1] <= accuracy:
                return _normalised(x), step
            direction = self._direction(gradient, steps)
            slope = self._dot(direction, gradient)
            if not slope < 0.0:
                steps, direction = [], _times(gradient, -1.0)
                slope = self._dot(direction, gradient)
            if not slope < 0.0:
                return _normalised(x), step
            length = 1.0 if steps else 1.0 / max(1.0, math.sqrt(-slope))
            while True:
                tried = _plus(x, direction, length)
                value, new = self(tried)
                if value <= values[-1] + SUFFICIENT * length * slope or length < SHORTEST_STEP:
                    break
                length *= 0.4
            if not value < values[-1]:
                return _normalised(x), step
            moved, turned = _times(direction, length), _plus(new, gradient, -1.0)
            curvature = self._dot(moved, turned)
            if curvature > 0.0:
                steps = [*steps[-MEMORY + 1 :], (moved, turned, curvature)]
            x, gradient = tried, new
            values.append(value)
        return _normalised(x), MOST_STEPS

    def _direction(self, gradient: Vector, steps: list[tuple[Vector, Vector, float]]) -> Vector:
        """The step of L-BFGS: minus the gradient, by the inverse of the remembered curvature."""
        q, shares = _times(gradient, -1.0), []
        for moved, turned, curvature in reversed(steps):
            share = self._dot(moved, q) / curvature
            shares.append(share)
            q = _plus(q, turned, -share)
        q = self._divided(q)
        if steps:
            _, turned, curvature = steps[-1]
            q = _times(q, curvature / self._dot(turned, self._divided(turned)))
        for (moved, turned, curvature), share in zip(steps, reversed(shares), strict=True):
            q = _plus(q, moved, share - self._dot(turned, q) / curvature)
        return q

    def _divided(self, x: Vector) -> Vector:
        return x[0] / self.shares[0], x[1] / self.shares[1]

    def _dot(self, x: Vector, y: Vector) -> float:
        """Inner product; every process holds all rows, and its own columns."""
        return float((x[0] * y[0]).sum()) + float(self.problem.backend.total((x[1] * y[1]).sum()))


def fit_from_state(
    problem: RegularisedLogits, state: WarmStart, loss_gap: float, *, accuracy: float, smallest: float
) -> FittedFactors | None:
    """Factors that are fitted to a loss gap from where the splitting stands."""
    reflected = Computed(problem.layout, lambda k: state.Z[k] - state.Y[k] / state.rho)
    near = Triplets.of(problem.backend, reflected, KEPT_FROM / state.rho)
    factors = near.factors(state.r, state.c)
    return fit_factors(problem, factors, float(near.s.sum()), loss_gap, accuracy=accuracy, smallest=smallest)


def fit_factors(
    problem: RegularisedLogits,
    near: MaxNormFactors,
    t: float,
    loss_gap: float,
    *,
    accuracy: float,
    smallest: float,
) -> FittedFactors | None:
    """Factors with a loss gap within a relative ``accuracy`` of the one asked for; None where they are not found.

    ``near``, ``t``
        Factors to start from, and about their norm: what is longer than ``sqrt t`` is shortened.
    ``smallest``
        Smallest ``r_i^2`` and ``c_j^2``, as a share of the uniform one.
    """
    backend, root, made = problem.backend, t**0.5, 0
    whole = backend.xp.concatenate(list(blocks_of(near.H)), 1)
    x = _with_slack(backend, near.W / root, 1), _with_slack(backend, whole / root, 0)
    fit = FactorFit(problem, t)
    fit.scale_steps(x)
    for _ in range(MOST_NORMS):
        x, steps = fit.minimise(x, SETTLED * accuracy)
        made += steps
        W, H = _inner(x)
        slopes = fit.slopes(W, H)
        lam = -float((slopes.W * W).sum())
        if lam > 0.0 and abs(slopes.gap / loss_gap - 1.0) <= accuracy:
            break
        # Where a smaller norm would have a smaller loss, directions are far from those of this norm.
        change = (slopes.gap - loss_gap) / lam if lam > 0.0 else -fit.t
        fit.t += min(max(change, -LARGEST_NORM_CHANGE * fit.t), LARGEST_NORM_CHANGE * fit.t)
    else:
        return None
    r = _weights(-(slopes.W * W).sum(1), backend, lambda x: float(x.sum()), smallest)
    c = _weights(-(slopes.H * H).sum(0), backend, lambda x: float(backend.total(x.sum())), smallest)
    root = fit.t**0.5
    return FittedFactors(MaxNormFactors(root * W, problem.layout.split(root * H)), lam, r, c, made)


def _unit(x: Array, axis: int) -> tuple[Array, Array]:
    """Rows (axis 1) or columns (axis 0) divided by their lengths, and these."""
    lengths = (x**2).sum(axis) ** 0.5
    lengths = lengths[:, None] if axis else lengths[None, :]
    return x / lengths, lengths


def _inner(x: Vector) -> Vector:
    """W and H of unit vectors: all but their last coordinate."""
    return x[0][:, :-1], x[1][:-1]


def _normalised(x: Vector) -> Vector:
    return _unit(x[0], 1)[0], _unit(x[1], 0)[0]


def _with_slack(backend: Backend, x: Array, axis: int) -> Array:
    """Unit vectors, rows (axis 1) or columns (axis 0), that begin with these; what is too long is shortened."""
    last = backend.at_least(1.0 - (x**2).sum(axis), SLACK**2) ** 0.5
    last = last[:, None] if axis else last[None, :]
    return _unit(backend.xp.concatenate([x, last], axis), axis)[0]


def _times(x: Vector, factor: float) -> Vector:
    return x[0] * factor, x[1] * factor


def _plus(x: Vector, y: Vector, factor: float) -> Vector:
    return x[0] + factor * y[0], x[1] + factor * y[1]


def _weights(shares: Array, backend: Backend, total: Callable[[Array], float], smallest: float) -> Array:
    """Square roots of shares with sum 1, none below its smallest one."""
    raised = backend.at_least(shares, smallest * total(shares) / total(0.0 * shares + 1.0))
    return (raised / total(raised)) ** 0.5
