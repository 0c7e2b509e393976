"""The one model interface: contexts in; W, H and logits out.

A factored model (linear, unconstrained features) *is* its matrices. A sequence network has other parameters, and
its H is computed from the contexts' tokens; both hand out the same :class:`Readout`, which is all that is measured.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tokengeom.errors import ProblemError
from tokengeom.numerics import Float


@dataclass(frozen=True)
class Readout:
    """Decoder and context embeddings, with ``logits = W H (+ bias)``.

    where
        W      one row a token, V x d
        H      one column a context, d x m
        bias   V, or None
    """

    W: Float
    H: Float
    bias: Float | None = None

    @property
    def logits(self) -> Float:
        """``L = W H (+ bias)``, V x m; not finite where the factors are too large, for the caller to judge."""
        with np.errstate(over="ignore", invalid="ignore"):
            L = self.W @ self.H
        return L if self.bias is None else L + self.bias[:, None]

    def check(self, logits: Float, tolerance: float = 1e-4) -> None:
        """Refuse W and H that do not reproduce the model's own logits."""
        require_equal_logits(self.logits, logits, tolerance)


def require_equal_logits(found: Float, logits: Float, tolerance: float = 1e-4) -> None:
    """Refuse logits made of W and H that are not the model's own."""
    error = float(np.max(np.abs(found - logits), initial=0.0))
    scale = max(1.0, float(np.max(np.abs(logits), initial=0.0)))
    if not error <= tolerance * scale:
        raise ProblemError(
            f"W H (+ bias) must equal the model's logits; the largest difference is {error:.3g} at a scale of "
            f"{scale:.3g}. Likely causes: a final norm whose gain was not folded, a bias, or a padded vocabulary."
        )


class AbstractModel(ABC):
    """A model of the next token. ``trainable`` names the parameters that an optimizer moves."""

    name: ClassVar[str]

    @property
    @abstractmethod
    def trainable(self) -> tuple[str, ...]:
        """Names of the parameters that are trained."""

    @abstractmethod
    def readout(self) -> Readout:
        """W, H and logits on the contexts that the model was built for."""


class AbstractFactoredModel(AbstractModel):
    """A model whose parameters are W (V x d) and H (d x m) themselves, so that its gradient is written out."""

    def __init__(self, W: Float, H: Float) -> None:
        if W.ndim != 2 or H.ndim != 2 or W.shape[1] != H.shape[0]:
            raise ProblemError(f"W must be V x d and H d x m with the same d; got {W.shape} and {H.shape}.")
        self.W = np.ascontiguousarray(W, np.float64)
        self.H = np.ascontiguousarray(H, np.float64)

    @property
    def dim(self) -> int:
        """Embedding dimension d."""
        return int(self.W.shape[1])

    def readout(self) -> Readout:
        """Return the parameters themselves."""
        return Readout(self.W, self.H)
