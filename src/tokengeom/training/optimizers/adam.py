"""Adam: ``u <- b1 u + (1-b1) g``, ``v <- b2 v + (1-b2) g^2``, ``x <- x - lr u^ / (sqrt(v^) + eps)``.

where u^ = u / (1 - b1^t) and v^ = v / (1 - b2^t). Weight decay, if any, is the ridge's gradient, as in the
original; :mod:`tokengeom.training.optimizers.adamw` has it decoupled.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tokengeom.numerics import Float
from tokengeom.training.jit import jit
from tokengeom.training.optimizers.base import AbstractOptimizer, check_fraction, check_positive


@dataclass(frozen=True)
class AbstractAdam(AbstractOptimizer):
    """Adaptive moments, whichever way weight decay is taken."""

    slots: ClassVar[int] = 2
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def __post_init__(self) -> None:
        check_fraction(self.name, "betas[0]", self.betas[0])
        check_fraction(self.name, "betas[1]", self.betas[1])
        check_positive(self.name, "eps", self.eps)

    def rule(self, steps: Float, rates: Float, decays: Float) -> list[Float | float]:
        """``c = (decay, lr / (1 - b1^t), 1 / sqrt(1 - b2^t), b1, b2, eps, decoupled shrinkage)``."""
        b1, b2 = self.betas
        shrink = rates * decays if self.decoupled else np.zeros_like(rates)
        return [rates / (1 - b1**steps), 1 / np.sqrt(1 - b2**steps), b1, b2, self.eps, shrink]

    def kernel(self) -> Any:
        """Return the compiled rule."""
        return update

    def torch_update(self, x: Any, g: Any, first: Any, second: Any, c: Any, norm: Any) -> None:
        """Apply the rule to a batch of matrices."""
        b1, b2 = self.betas
        first.lerp_(g, 1 - b1)
        second.mul_(b2).addcmul_(g, g, value=1 - b2)
        move = first.div(second.sqrt().mul_(c[2]).add_(self.eps)).mul_(c[1])
        if self.decoupled:
            move.addcmul_(x, c[6])
        x.sub_(move)


@dataclass(frozen=True)
class Adam(AbstractAdam):
    """Adam; the linear experiments of the papers take ``betas=(0.9, 0.99)``."""

    name: ClassVar[str] = "adam"
    default_rate: ClassVar[float] = 0.01


@jit
def update(x, g, first, second, c, norm):
    """Apply the rule to one matrix, in place."""
    xf, gf, uf, vf = x.ravel(), g.ravel(), first.ravel(), second.ravel()
    rate, root, b1, b2, eps, shrink = c[1], c[2], c[3], c[4], c[5], c[6]
    n1, n2 = x.dtype.type(1) - b1, x.dtype.type(1) - b2
    for i in range(xf.size):
        u = b1 * uf[i] + n1 * gf[i]
        v = b2 * vf[i] + n2 * gf[i] * gf[i]
        uf[i] = u
        vf[i] = v
        xf[i] = xf[i] - shrink * xf[i] - rate * u / (np.sqrt(v) * root + eps)
