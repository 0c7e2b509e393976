"""Largest margins of the linear model, in each norm that an optimizer is known or conjectured to follow.

::

    min ||W||  s.t.  equal in-support logits, and every in-support logit at least 1 above every off-support one

in the Frobenius norm (gradient descent), the max norm (sign descent, Adam), the spectral norm (Muon), its dual norm,
the nuclear norm, and the entrywise-sum norm. For one-hot labels normalised steepest descent in a norm maximises its
margin. For sparse soft labels this is open; these margins are what a run is compared with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokengeom.problems.linear_data import LinearData, SoftLabels
from tokengeom.problems.ntp_svm import MarginProblem, norm_named
from tokengeom.solvers.margin import solve_margin

if TYPE_CHECKING:
    from tokengeom.core.numerics import Float, Matrix
    from tokengeom.problems.base import Certificate


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
