"""Spectral descent: ``x <- x - lr polar(u)``, with ``u <- mu u + g`` (Muon; ``mu = 0`` has no momentum).

where
    polar(u)   ``U V^T`` from ``u = U Sigma V^T``: the direction of steepest descent in the spectral norm

The polar factor is exact, from a singular value decomposition, or approximated by five Newton-Schulz iterations
``y <- a y + b (y y^T) y + c (y y^T)^2 y`` from ``y = u / ||u||_F``: matrix products only, which suit a GPU.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from tokengeom.core.errors import ProblemError
from tokengeom.core.numerics import Float
from tokengeom.training.kernels import jit
from tokengeom.training.optimizers.base import AbstractOptimizer, check_fraction

# The quintic of Muon's reference implementation: steep at 0; singular values end between about 0.7 and 1.2.
_A, _B, _C = 3.4445, -4.7750, 2.0315
_ITERATIONS = 5


@dataclass(frozen=True)
class Spectral(AbstractOptimizer):
    """Orthogonalised gradient.

    ``cutoff``    Singular values below ``cutoff`` times the largest count as 0: their directions are rounding noise of
                  the gradient (its columns sum to 0, so there is always one). None means the square root of the machine
                  epsilon.
    ``nesterov``  Orthogonalise ``g + mu u`` instead of ``u``, as Muon does.
    """

    slots: ClassVar[int] = 1
    elementwise: ClassVar[bool] = False
    decoupled: ClassVar[bool] = True
    default_rate: ClassVar[float] = 0.01
    momentum: float = 0.0
    nesterov: bool = False
    method: Literal["svd", "newton-schulz"] = "svd"
    cutoff: float | None = None

    def __post_init__(self) -> None:
        check_fraction(self.name, "momentum", self.momentum)
        if self.method not in ("svd", "newton-schulz"):
            raise ProblemError(f"method of spectral must be 'svd' or 'newton-schulz'; got {self.method!r}.")
        if self.cutoff is not None:
            check_fraction(self.name, "cutoff", self.cutoff)

    @property
    def capturable(self) -> bool:
        """Newton-Schulz can be recorded; the singular value decomposition cannot."""
        return self.method == "newton-schulz"

    def rule(self, steps: Float, rates: Float, decays: Float) -> list[Float | float]:
        """``c = (0, lr, momentum, nesterov, exact, cutoff or -1, shrinkage)``."""
        cutoff = -1.0 if self.cutoff is None else self.cutoff
        return [rates, self.momentum, float(self.nesterov), float(self.method == "svd"), cutoff, rates * decays]

    def kernel(self) -> Any:
        return update

    def torch_update(self, x: Any, g: Any, first: Any, second: Any, c: Any, norm: Any) -> None:
        first.mul_(self.momentum).add_(g)
        u = g + self.momentum * first if self.nesterov else first
        y = _torch_polar(u, self.cutoff) if self.method == "svd" else _torch_newton_schulz(u)
        x.sub_(c[6] * x).sub_(c[1] * y)


@jit
def update(x, g, first, second, c, norm):
    """Apply the rule to one matrix, in place."""
    u = np.empty_like(g)
    gf, ff, uf = g.ravel(), first.ravel(), u.ravel()
    for i in range(gf.size):
        ff[i] = c[2] * ff[i] + gf[i]
        uf[i] = gf[i] + c[2] * ff[i] if c[3] != 0 else ff[i]
    cutoff = c[5] if c[5] >= 0 else np.sqrt(np.finfo(x.dtype).eps)
    y = polar(u, cutoff) if c[4] != 0 else newton_schulz(u)
    xf, yf = x.ravel(), y.ravel()
    for i in range(xf.size):
        xf[i] = xf[i] - c[6] * xf[i] - c[1] * yf[i]


@jit
def polar(u, cutoff):
    """``U V^T`` over the singular values above ``cutoff`` times the largest; zero at zero."""
    left, s, right = np.linalg.svd(u, False)
    for k in range(s.size):
        if s[k] <= cutoff * s[0]:
            right[k, :] = 0
    return np.dot(left, right)


@jit
def newton_schulz(u):
    """Muon's approximate polar factor, computed on the smaller side."""
    wide = u.shape[0] <= u.shape[1]
    y = u.copy() if wide else u.T.copy()
    y /= np.sqrt(np.sum(y * y)) + y.dtype.type(1e-30)
    for _ in range(_ITERATIONS):
        a = np.dot(y, y.T.copy())
        b = y.dtype.type(_B) * a + y.dtype.type(_C) * np.dot(a, a)
        y = y.dtype.type(_A) * y + np.dot(b, y)
    return y if wide else y.T.copy()


def _torch_polar(u: Any, cutoff: float | None) -> Any:
    import torch

    left, s, right = torch.linalg.svd(u, full_matrices=False)
    cutoff = float(torch.finfo(u.dtype).eps) ** 0.5 if cutoff is None else cutoff
    return (left * (s > cutoff * s[..., :1]).to(u.dtype).unsqueeze(-2)) @ right


def _torch_newton_schulz(u: Any) -> Any:
    wide = u.shape[-2] <= u.shape[-1]
    y = u.clone() if wide else u.mT.clone()
    y = y / (y.square().sum((-2, -1), keepdim=True).sqrt() + 1e-30)
    for _ in range(_ITERATIONS):
        a = y @ y.mT
        y = _A * y + (_B * a + _C * (a @ a)) @ y
    return y if wide else y.mT
