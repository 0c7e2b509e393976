"""Normalised gradient descent: ``x <- x - lr g / ||g||``, the norm taken over all trained parameters together.

The length of a step does not shrink with the gradient, so on separable data the norm grows about linearly in the number
of steps instead of logarithmically. In the tests its direction is that of the maximum margin in the Frobenius norm.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tokengeom.training.kernels import jit
from tokengeom.training.optimizers.base import AbstractOptimizer


@dataclass(frozen=True)
class NGD(AbstractOptimizer):
    """Steps of a fixed length; a gradient of 0 makes no step."""

    slots: ClassVar[int] = 0
    elementwise: ClassVar[bool] = False
    needs_norm: ClassVar[bool] = True
    default_rate: ClassVar[float] = 0.01

    def kernel(self) -> Any:
        return update

    def torch_update(self, x: Any, g: Any, first: Any, second: Any, c: Any, norm: Any) -> None:
        x.sub_(c[1] * g / norm.masked_fill(norm == 0, 1.0))


@jit
def update(x, g, first, second, c, norm):
    """Apply the rule to one matrix, in place."""
    if norm > 0:
        xf, gf = x.ravel(), g.ravel()
        scale = x.dtype.type(c[1] / norm)
        for i in range(xf.size):
            xf[i] -= scale * gf[i]
