"""NTP-SVM: the smallest decoder that separates every context's support from its other tokens, in any of five norms.

::

    min ||W||  s.t.  (W h_j)_z  = a_j       for z in S_j
                     (W h_j)_v <= a_j - 1   for v not in S_j,  j = 1..m

where ``W`` is V x d, ``H = [h_1 .. h_m]`` is d x m, ``S`` is the V x m support and ``a_j`` is free. In the Frobenius
norm the solution is W_mm, the direction in which gradient descent diverges [thrampoulidis2024, sec. 4]. Other norms
belong to other optimizers: for separable data with one-hot labels, steepest descent in a norm maximises the margin of
that norm (docs/theory.md section 5), which is the entrywise max norm for sign descent and the spectral norm for
spectral descent. The nuclear norm is the dual of the spectral norm; among decoders that separate it favours those of
low rank.

The dual has one multiplier matrix A, V x m, with columns that sum to 0 and ``A <= 0`` off support::

    max <S, A>  s.t.  ||A H^T||_dual <= 1

For every such A, ``<S, A> / ||A H^T||_dual`` is a lower bound on the optimum. An A with ``A H^T = 0`` and ``<S, A> >
0`` proves that no decoder separates: the weights ``-A_vj / <S, A>`` are a convex combination of the constraints'
normals that vanishes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tokengeom.core.errors import ProblemError
from tokengeom.core.numerics import Bool, Float
from tokengeom.problems.base import AbstractProblem, Certificate
from tokengeom.problems.supports import in_support_spread, margins, repair_multipliers


@dataclass(frozen=True)
class Norm:
    """A norm on V x d matrices and its dual norm."""

    name: str
    value: Callable[[Float], float]
    dual: Callable[[Float], float]


_VALUES: dict[str, Callable[[Float], float]] = {
    "frobenius": lambda W: float(np.linalg.norm(W)),
    "max": lambda W: float(np.max(np.abs(W), initial=0.0)),
    "spectral": lambda W: float(np.linalg.norm(W, 2)),
    "nuclear": lambda W: float(np.linalg.norm(W, "nuc")),
    "sum": lambda W: float(np.sum(np.abs(W))),
}
_DUALS = {"frobenius": "frobenius", "max": "sum", "spectral": "nuclear", "nuclear": "spectral", "sum": "max"}
NORMS: dict[str, Norm] = {name: Norm(name, _VALUES[name], _VALUES[dual]) for name, dual in _DUALS.items()}
FROBENIUS = NORMS["frobenius"]


def norm_named(name: str) -> Norm:
    """The norm of that name."""
    if name not in NORMS:
        raise ProblemError(f"norm must be one of {', '.join(sorted(NORMS))}; got norm={name!r}.")
    return NORMS[name]


@dataclass(frozen=True, eq=False)
class MarginProblem(AbstractProblem[Float, Float]):
    """Supports ``S`` (V x m, no column empty), embeddings ``H`` (d x m) and the norm that is minimised."""

    S: Bool
    H: Float
    norm: Norm = FROBENIUS

    @property
    def has_margins(self) -> bool:
        """Whether any token is off support; if none is, ``W = 0`` is the answer."""
        return not bool(self.S.all())

    def margin(self, W: Float) -> float:
        """Smallest in-support minus off-support logit of W, per unit of the norm; may be negative."""
        size = self.norm.value(W)
        smallest = float(np.min(margins(W @ self.H, self.S)))
        return smallest / size if size > 0 else 0.0

    def certify(self, x: Float, dual: Float | None) -> Certificate:
        """Certificate of a decoder ``x`` (V x d) and multipliers ``dual`` (V x m).

        The primal residual is the larger of the in-support spread and the missing margin, both in units of the margin
        1. The bound comes from the repaired multipliers, so it is valid up to rounding.
        """
        L = x @ self.H
        missing = max(0.0, 1.0 - float(np.min(margins(L, self.S)))) if self.has_margins else 0.0
        primal = max(in_support_spread(L, self.S), missing)
        if dual is None:
            return Certificate(primal, math.inf, self.norm.value(x), 0.0)
        return Certificate(primal, self._dual_residual(dual), self.norm.value(x), self.bound(dual))

    def bound(self, dual: Float) -> float:
        """Lower bound on the optimum that the multipliers prove after repair; ``inf`` when they refute."""
        A = repair_multipliers(dual, self.S)
        gain, size = float(np.sum(A, where=self.S)), self.norm.dual(A @ self.H.T)
        if gain <= 0.0:
            return 0.0
        return gain / size if size > 0.0 else math.inf

    def refute(self, dual: Float) -> Certificate:
        """Certificate of a proof that no decoder separates; ``value`` is the relative margin that it leaves possible.

        The margin of every W is at most ``||A H^T|| / <S, A>`` per unit of Frobenius norm. It is given relative to the
        same sum without cancellation: 1e-15 is a perfect proof, and 1 proves nothing.
        """
        A = repair_multipliers(dual, self.S)
        uncancelled = float(np.abs(A).sum(axis=0) @ np.linalg.norm(self.H, axis=0))
        if uncancelled == 0.0:
            return Certificate(math.inf, math.inf, math.inf, 0.0)
        relative = float(np.linalg.norm(A @ self.H.T)) / uncancelled
        return Certificate(relative, self._dual_residual(dual), relative, relative)

    def _dual_residual(self, dual: Float) -> float:
        scale = float(np.max(np.abs(dual), initial=0.0))
        if scale == 0.0:
            return 0.0
        positive = float(np.max(dual, where=~self.S, initial=0.0))
        return max(positive, float(np.max(np.abs(dual.sum(axis=0))))) / scale
