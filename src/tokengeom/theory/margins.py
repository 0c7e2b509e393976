"""Largest margins of the linear model in the norms that optimizers are known or suspected to follow.

::

    min ||W||  s.t.  equal in-support logits, and every in-support logit at least 1 above every off-support one

in the Frobenius norm (gradient descent), the max norm (sign descent, Adam), the spectral norm (Muon) and the
entrywise-sum norm. For one-hot labels normalised steepest descent in a norm maximises its margin; for sparse soft
labels this is open, and this is the ruler to measure with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokengeom.problems.ntp_svm import NORMS, MarginProblem, norm_named
from tokengeom.solvers.margin import solve_margin
from tokengeom.theory.linear import linear_data

if TYPE_CHECKING:
    from tokengeom.numerics import Float
    from tokengeom.problems.base import Certificate


@dataclass(frozen=True, eq=False)
class MaxMargin:
    """The decoder of largest margin in one norm.

    ``W``: V x d, 0 when the data are not separable; ``margin``: of W per unit of its norm, 0 when not separable;
    ``certificate``: its proof, or the proof that no decoder separates.
    """

    norm: str
    separable: bool
    W: Float
    margin: float
    certificate: Certificate


def max_margin(stats: Any, embeddings: Any, norm: str = "frobenius") -> MaxMargin:
    """Solve for the largest margin in a norm: ``frobenius``, ``max``, ``spectral`` or ``sum``."""
    data = linear_data(stats, embeddings)
    problem = MarginProblem(data.S, data.H, norm_named(norm))
    answer = solve_margin(problem)
    W = answer.solution.x
    margin = problem.margin(W) if answer.separable and np.any(W) else 0.0
    return MaxMargin(norm, answer.separable, W, margin, answer.solution.certificate)


__all__ = ["NORMS", "MaxMargin", "max_margin"]
