"""Sign descent: ``x <- x - lr sign(g)``, steepest descent in the entrywise max norm (sign(0) = 0)."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tokengeom.training.kernels import jit
from tokengeom.training.optimizers.base import AbstractOptimizer


@dataclass(frozen=True)
class SignGD(AbstractOptimizer):
    """Every entry moves by the learning rate: Adam without its running averages."""

    slots: ClassVar[int] = 0
    default_rate: ClassVar[float] = 0.001

    def kernel(self) -> Any:
        return update

    def torch_update(self, x: Any, g: Any, first: Any, second: Any, c: Any, norm: Any) -> None:
        x.sub_(c[1] * g.sign())


@jit
def update(x, g, first, second, c, norm):
    """Apply the rule to one matrix, in place."""
    xf, gf = x.ravel(), g.ravel()
    for i in range(xf.size):
        xf[i] -= c[1] * np.sign(gf[i])
