"""Gradient descent: ``x <- x - lr g``, with optional heavy-ball momentum ``u <- mu u + g, x <- x - lr u``.

On compatible and separable data its direction becomes that of the maximum margin in the Frobenius norm
[thrampoulidis2024].
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tokengeom.core.numerics import Float
from tokengeom.training.kernels import jit
from tokengeom.training.optimizers.base import AbstractOptimizer, check_fraction


@dataclass(frozen=True)
class GD(AbstractOptimizer):
    """Gradient descent; with ``momentum=0`` it is the method of the theorem."""

    slots: ClassVar[int] = 1
    default_rate: ClassVar[float] = 0.1
    momentum: float = 0.0

    def __post_init__(self) -> None:
        check_fraction(self.name, "momentum", self.momentum)

    def rule(self, steps: Float, rates: Float, decays: Float) -> list[Float | float]:
        """``c = (decay, lr, momentum)``."""
        return [rates, self.momentum]

    def kernel(self) -> Any:
        return update

    def torch_update(self, x: Any, g: Any, first: Any, second: Any, c: Any, norm: Any) -> None:
        first.mul_(self.momentum).add_(g)
        x.sub_(c[1] * first)


@jit
def update(x, g, first, second, c, norm):
    """Apply the rule to one matrix, in place."""
    xf, gf, uf = x.ravel(), g.ravel(), first.ravel()
    for i in range(xf.size):
        u = c[2] * uf[i] + gf[i]
        uf[i] = u
        xf[i] -= c[1] * u
