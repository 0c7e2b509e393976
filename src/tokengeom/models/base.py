"""The one model interface: contexts in; W, H and logits out.

A factored model (linear, unconstrained features) *is* its matrices. A sequence network has other parameters, and
its H is computed from the contexts' tokens; both hand out the same :class:`Factors`, which is all that is measured.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from tokengeom.errors import ProblemError
from tokengeom.factors import Factors
from tokengeom.numerics import Float


class AbstractModel(ABC):
    """A model of the next token. ``trainable`` names the parameters that an optimizer moves."""

    name: ClassVar[str]

    @property
    @abstractmethod
    def trainable(self) -> tuple[str, ...]:
        """Names of the parameters that are trained."""

    @abstractmethod
    def readout(self) -> Factors:
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

    def readout(self) -> Factors:
        """Return the parameters themselves."""
        return Factors(self.W, self.H)
