"""Effective supports: the tokens of each context that no harmless direction pushes away.

A direction W never increases the loss if and only if it has equal in-support logits and margins ``>= 0``. Let
``s_jv(W)`` be its margin at the pair (j, v), v off support. The linear program

::

    max sum_jv s_jv  s.t.  0 <= s_jv <= min(1, margin_jv(W)),  in-support logits of W equal

has an optimum with every slack 0 or 1; the pairs with slack 0 belong to the effective support (docs/theory.md 2.2).
Its dual has the multipliers of NTP-SVM: ``A H^T = 0`` with ``-A_jv >= 1`` exactly at those pairs. So a yes (W
separates the other pairs strictly) and a no (A) together prove the claim, without a solver.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokengeom.numerics import Float
from tokengeom.problems.base import AbstractProblem, Certificate
from tokengeom.problems.columns import Bool, in_support_spread, margins, repair_multipliers


@dataclass(frozen=True, eq=False)
class EffectiveSupportProblem(AbstractProblem[Float, Float]):
    """Supports ``S`` (V x m) and embeddings ``H`` (d x m)."""

    S: Bool
    H: Float

    def certify(self, x: Float, dual: Float | None) -> Certificate:
        """Judge a direction ``x`` (V x d) and multipliers ``dual`` (V x m, zero when nothing is blocked).

        ``value`` is the number of pairs that x separates by at least 1/2 of its best margin class;
        ``bound`` is the number that the multipliers leave open.
        """
        L = x @ self.H
        gaps = margins(L, self.S)
        value = float(np.count_nonzero(gaps[~self.S] >= 0.5))
        primal = max(in_support_spread(L, self.S), max(0.0, -float(np.min(gaps, initial=0.0))))
        off = float(np.count_nonzero(~self.S))
        if dual is None or not dual.any():
            return Certificate(primal, 0.0 if dual is not None else np.inf, value, off)
        A = repair_multipliers(dual, self.S)
        blocked = -A[~self.S] > 1e-7 * float(np.max(-A[~self.S], initial=0.0))
        uncancelled = float(np.abs(A).sum(axis=0) @ np.linalg.norm(self.H, axis=0))
        residual = float(np.linalg.norm(A @ self.H.T)) / max(uncancelled, 1e-300)
        return Certificate(primal, residual, value, off - float(np.count_nonzero(blocked)))
