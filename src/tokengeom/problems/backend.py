"""The array operations that the nuclear-norm code needs, over NumPy or PyTorch.

An algorithm is written once with a `Backend`. It runs on NumPy by default, and on PyTorch when a device such as
``"cuda"`` is given. Everything is float64: a proven gap of 1e-6 does not survive float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tokengeom.errors import ProblemError, ResourceError, missing_extra

if TYPE_CHECKING:
    from tokengeom.numerics import Float

Array = Any
"""A NumPy array or a PyTorch tensor; both share the operators and methods that are used here."""

UNIT = float(np.finfo(np.float64).eps) / 2
"""Unit of rounding of float64."""
GRAM_RANK_TOLERANCE = 1e-7
"""Singular values from a Gram matrix that are below this share of the largest are rounding."""


@dataclass(frozen=True)
class Backend:
    """One array library on one device.

    ``device``
        ``None`` for NumPy; otherwise a PyTorch device (``"cpu"``, ``"cuda"``, ``"cuda:1"``).
    """

    device: str | None
    xp: Any

    @staticmethod
    def on(device: str | None = None) -> Backend:
        """NumPy for ``None``, else PyTorch on that device; a device that does not exist is refused."""
        if device is None:
            return Backend(None, np)
        if device.split(":")[0] not in ("cpu", "cuda"):
            raise ProblemError(f"device must be 'cpu', 'cuda' or 'cuda:N'; got device={device!r}.")
        try:
            import torch
        except ImportError:
            missing_extra("torch", "torch", f"Solving on the device '{device}'")
        if device.startswith("cuda") and not torch.cuda.is_available():
            raise ResourceError(
                f"The device must exist; got device={device!r}, and PyTorch finds no CUDA device. Likely a machine "
                "without a GPU, or a CPU build of PyTorch. Leave device out to use the CPU."
            )
        return Backend(device, torch)

    @property
    def on_gpu(self) -> bool:
        """Whether arrays are in the memory of a GPU."""
        return self.device is not None and self.device.startswith("cuda")

    def asarray(self, x: Any) -> Array:
        """Float64 on this device; a boolean array stays boolean."""
        if self.device is None:
            return np.asarray(x, dtype=None if getattr(x, "dtype", None) == np.bool_ else np.float64)
        tensor = self.xp.as_tensor(x, device=self.device)
        return tensor if tensor.dtype == self.xp.bool else tensor.to(self.xp.float64)

    def to_numpy(self, x: Array) -> Float:
        """The array as a NumPy array."""
        return cast("Float", x if self.device is None else x.cpu().numpy())

    def full(self, shape: tuple[int, ...], value: float) -> Array:
        """An array that holds one value everywhere."""
        if self.device is None:
            return np.full(shape, value)
        return self.xp.full(shape, value, device=self.device, dtype=self.xp.float64)

    def as_float(self, mask: Array) -> Array:
        """A boolean array as zeros and ones, for use in a product."""
        return mask.astype(np.float64) if self.device is None else mask.to(self.xp.float64)

    def at_least(self, x: Array, low: float) -> Array:
        """``max(x, low)``, entry by entry."""
        return np.maximum(x, low) if self.device is None else x.clamp(min=low)

    def at_most(self, x: Array, high: float) -> Array:
        """``min(x, high)``, entry by entry."""
        return np.minimum(x, high) if self.device is None else x.clamp(max=high)

    def norm(self, x: Array) -> float:
        """Frobenius norm."""
        return float(self.xp.linalg.norm(x))

    def dot(self, x: Array, y: Array) -> float:
        """Inner product of two arrays of the same shape."""
        return float(np.vdot(x, y) if self.device is None else self.xp.vdot(x.reshape(-1), y.reshape(-1)))

    def gram(self, x: Array) -> Array:
        """``x x^T`` or ``x^T x``, whichever is smaller."""
        return x @ x.T if x.shape[0] <= x.shape[1] else x.T @ x

    def fast_singular_values(self, x: Array) -> Array:
        """Singular values, rising, from the smaller Gram matrix; those below 1e-8 of the largest are rounding."""
        return self.at_least(self.xp.linalg.eigvalsh(self.gram(x)), 0.0) ** 0.5

    def singular_values(self, x: Array) -> Array:
        """Singular values, rising: to full precision with NumPy, from the Gram matrix on a device."""
        if self.device is None:
            return np.linalg.svd(x, compute_uv=False)[::-1]
        return self.fast_singular_values(x)

    def is_positive_definite(self, A: Array) -> bool:
        """Whether the Cholesky factorisation of a symmetric matrix runs to its end."""
        if self.device is not None:
            return int(self.xp.linalg.cholesky_ex(A).info) == 0
        try:
            np.linalg.cholesky(A)
        except np.linalg.LinAlgError:
            return False
        return True

    def proven_spectral_norm(self, x: Array) -> float:
        """An upper bound of the spectral norm that holds in spite of rounding.

        With G the computed smaller Gram matrix (n x n, products of length k), ``||x||^2 <= lambda_max(G) + gamma_k
        ||x||_F^2``. If the Cholesky factorisation of ``A = t I - G`` runs to its end, then ``lambda_max(G) <= t +
        gamma_{n+1} trace(A) / (1 - gamma_{n+1})`` [rump2006]; here ``gamma_k = k u / (1 - k u)`` and u is the unit of
        rounding. t starts just above the computed eigenvalue and is raised until the factorisation succeeds.
        """
        k, n = max(x.shape), min(x.shape)
        size = self.norm(x) ** 2 * (1.0 + 4.0 * k * UNIT)
        if not size > 0.0:
            return 0.0
        G = self.gram(x)
        top = max(float(self.xp.linalg.eigvalsh(G)[-1]), 0.0)
        margin = 8.0 * n * UNIT
        identity = self.asarray(np.eye(n))
        while True:
            t = top * (1.0 + margin) + 1e-300
            A = t * identity - G
            if self.is_positive_definite(A):
                break
            margin *= 4.0
        trace = n * t
        squared = t + 2.0 * (n + 2) * UNIT * trace + 2.0 * k * UNIT * size
        return float(np.sqrt(squared)) * (1.0 + 4.0 * UNIT)

    def polar_factor(self, x: Array) -> tuple[Array, Array]:
        """``U V^T`` of ``x = U diag(s) V^T`` and the nonzero ``s``, rising, from the smaller Gram matrix."""
        eigenvalues, Q = self.xp.linalg.eigh(self.gram(x))
        s = self.at_least(eigenvalues, 0.0) ** 0.5
        kept = s > GRAM_RANK_TOLERANCE * float(s[-1])
        Q, s = Q[:, kept], s[kept]
        inverse_root = (Q / s) @ Q.T
        return (inverse_root @ x if x.shape[0] <= x.shape[1] else x @ inverse_root), s

    def synchronise(self) -> None:
        """Wait for the device to finish, before a clock is read."""
        if self.on_gpu:
            self.xp.cuda.synchronize()
