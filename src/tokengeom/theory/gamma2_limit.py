"""The limit of the gamma_2 path as the loss falls to its floor: the smallest gamma_2 norm with margins 1."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tokengeom.core.errors import ProblemError
from tokengeom.core.numerics import Float, cosines
from tokengeom.core.resources import require_memory
from tokengeom.problems.backend import Backend
from tokengeom.problems.base import Certificate
from tokengeom.problems.gamma2 import Gamma2SVM
from tokengeom.problems.supports import SupportReduction
from tokengeom.solvers.gamma2_svm_admm import Gamma2MarginADMM


@dataclass(frozen=True, eq=False)
class Gamma2Limit:
    """Logits of smallest gamma_2 norm that separate every support by a margin of 1, with their certificate.

    ``W_merged``, ``H_merged``
        Factors that attain the norm, of merged tokens and support groups, V' x d and d x g.
    ``status``, ``seconds``
        How the solver ended, and the time that it took.
    """

    reduction: SupportReduction
    W_merged: Float
    H_merged: Float
    certificate: Certificate
    status: str
    seconds: float

    @property
    def norm_value(self) -> float:
        """``gamma_2`` of these logits."""
        return self.certificate.value

    @property
    def lower_bound(self) -> float:
        """Proven lower bound on the gamma_2 norm of all logits with these margins."""
        return self.certificate.bound

    @cached_property
    def W(self) -> Float:
        """Token embeddings, V x d."""
        return np.asarray(self.W_merged[self.reduction.row_of])

    @cached_property
    def H(self) -> Float:
        """Context embeddings, d x m; 0 for a context whose support is the whole vocabulary."""
        column_of = self.reduction.column_of
        return np.asarray(np.where(column_of >= 0, self.H_merged[:, column_of], 0.0))

    @cached_property
    def L(self) -> Float:
        """Diverging direction of the logits, V x m."""
        V, m = self.reduction.V, self.reduction.m
        require_memory(8 * V * m, f"L ({V} x {m})", "Use W and H, which are small.")
        return self.W @ self.H

    @property
    def token_cosines(self) -> Float:
        """Cosines between tokens, V x V; 0 where a token has no direction."""
        return cosines(self.W.T)

    @property
    def context_cosines(self) -> Float:
        """Cosines between contexts, m x m; 0 where a context has no direction."""
        return cosines(self.H)


def solve_gamma2_limit(
    reduction: SupportReduction, *, tolerance: float = 3e-3, max_iterations: int = 3000, device: str = "cpu"
) -> Gamma2Limit:
    """The limit for a merged pattern of supports."""
    if 0 in reduction.S_red.shape:
        raise ProblemError("Every support is the whole vocabulary: there is nothing to separate.")
    backend = Backend.on(None if device == "cpu" else device)
    solver = Gamma2MarginADMM(tolerance=tolerance, max_iterations=max_iterations)
    found = solver(Gamma2SVM(reduction.S_red, backend))
    W, H = backend.to_numpy(found.x.W), backend.to_numpy(found.x.H)
    return Gamma2Limit(reduction, W, H, found.certificate, found.status, found.seconds)
