"""Adam: ``u <- b1 u + (1-b1) g``, ``v <- b2 v + (1-b2) g^2``, ``x <- x - lr u^ / (sqrt(v^) + eps)``.

where u^ = u / (1 - b1^t) and v^ = v / (1 - b2^t). Weight decay, if any, is the ridge's gradient, as in the
original; :mod:`tokengeom.training.optimizers.adam` has it decoupled.

AdamW: Adam's rule beside the shrinkage ``x <- (1 - lr weight_decay) x`` (decoupled weight decay).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tokengeom.numerics import Float
from tokengeom.training.kernels import jit
from tokengeom.training.optimizers.base import (
    PAPER_STEPS,
    AbstractOptimizer,
    AbstractSchedule,
    check_fraction,
    check_positive,
)

# mypy: disable-error-code="no-untyped-def"


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
        """``c = (decay, r, q, b1, b2, eps, s, q / r, eps / r, 1 - s)``, the last three for torch.

        where r = lr / (1 - b1^t), q = 1 / sqrt(1 - b2^t), and s is the decoupled shrinkage.
        """
        b1, b2 = self.betas
        rate, root = rates / (1 - b1**steps), 1 / np.sqrt(1 - b2**steps)
        shrink = rates * decays if self.decoupled else np.zeros_like(rates)
        some = np.maximum(rate, 1e-30)  # a rate of zero makes a step of zero, not 0 / 0
        return [rate, root, b1, b2, self.eps, shrink, root / some, self.eps / some, 1 - shrink]

    def kernel(self) -> Any:
        """Return the compiled rule."""
        return update

    def torch_update(self, x: Any, g: Any, first: Any, second: Any, c: Any, norm: Any) -> None:
        """Apply the rule to a batch of matrices."""
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


@dataclass(frozen=True)
class AdamW(AbstractAdam):
    """Adam with decoupled weight decay and, unless another is given, the papers' schedule."""

    name: ClassVar[str] = "adamw"
    decoupled: ClassVar[bool] = True
    default_rate: ClassVar[float] = 1e-4

    def default_schedule(self) -> AbstractSchedule:
        """Learning rate times 0.4 at steps 5k, 10k, 15k, 20k and 25k."""
        return PAPER_STEPS
