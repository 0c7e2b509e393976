"""Adam: ``u <- b1 u + (1-b1) g``, ``v <- b2 v + (1-b2) g^2``, ``x <- x - lr u^ / (sqrt(v^) + eps)``.

where u^ = u / (1 - b1^t) and v^ = v / (1 - b2^t). Weight decay, if any, is the ridge's gradient, as in the original
method; AdamW (``adamw.py``) decouples it.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tokengeom.core.numerics import Float
from tokengeom.training.kernels import jit
from tokengeom.training.optimizers.base import AbstractOptimizer, check_fraction, check_positive


@dataclass(frozen=True)
class AbstractAdam(AbstractOptimizer):
    """Adaptive moments, with weight decay coupled or decoupled."""

    slots: ClassVar[int] = 2
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def __post_init__(self) -> None:
        check_fraction(self.name, "betas[0]", self.betas[0])
        check_fraction(self.name, "betas[1]", self.betas[1])
        check_positive(self.name, "eps", self.eps)

    def rule(self, steps: Float, rates: Float, decays: Float) -> list[Float | float]:
        """``c = (decay, r, q, b1, b2, eps, s, q / r, eps / r, 1 - s)``, the last three for torch.

        where r = lr / (1 - b1^t), q = 1 / sqrt(1 - b2^t), and s is the decoupled shrinkage.
        """
        b1, b2 = self.betas
        rate, root = rates / (1 - b1**steps), 1 / np.sqrt(1 - b2**steps)
        shrink = rates * decays if self.decoupled else np.zeros_like(rates)
        some = np.maximum(rate, 1e-30)  # a learning rate of 0 makes no step, instead of 0 / 0
        return [rate, root, b1, b2, self.eps, shrink, root / some, self.eps / some, 1 - shrink]

    def kernel(self) -> Any:
        return update

    def torch_update(self, x: Any, g: Any, first: Any, second: Any, c: Any, norm: Any) -> None:
        import torch

        b1, b2 = self.betas
        first.lerp_(g, 1 - b1)
        second.mul_(b2).addcmul_(g, g, value=1 - b2)
        # r u / (q sqrt(v) + eps) = u / ((q / r) sqrt(v) + eps / r): as few passes over memory as torch allows.
        denominator = torch.addcmul(c[8], second.sqrt(), c[7])
        if self.decoupled:
            x.mul_(c[9])
        x.addcdiv_(first, denominator, value=-1.0)


@dataclass(frozen=True)
class Adam(AbstractAdam):
    """Adam; the papers' linear experiments use ``betas=(0.9, 0.99)``."""

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
