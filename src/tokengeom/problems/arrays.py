"""The few array operations that the nuclear-norm code needs, over NumPy or over PyTorch.

An algorithm is written once with ``Arrays``; it runs on NumPy by default, and on PyTorch when a device such
as ``"cuda"`` is asked for. Everything stays in float64: a proven gap of 1e-6 does not survive float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tokengeom.errors import ResourceError, missing_extra

if TYPE_CHECKING:
    from tokengeom.numerics import Float

Array = Any
"""A NumPy array or a PyTorch tensor; both share the operators and methods that are used here."""


@dataclass(frozen=True)
class Arrays:
    """One array library on one device.

    ``device``
        ``None`` for NumPy; otherwise a PyTorch device (``"cpu"``, ``"cuda"``, ``"cuda:1"``).
    """

    device: str | None
    xp: Any

    @staticmethod
    def on(device: str | None = None) -> Arrays:
        """Pick the library: NumPy for ``None``, else PyTorch on that device, refused if it is not there."""
        if device is None:
            return Arrays(None, np)
        try:
            import torch
        except ImportError:
            missing_extra("torch", "torch", f"Solving on the device '{device}'")
        if device.startswith("cuda") and not torch.cuda.is_available():
            raise ResourceError(
                f"A device must exist to be solved on: device={device!r}, but PyTorch sees no CUDA device. "
                "Likely a machine without a GPU, or a CPU build of PyTorch. Leave device out to use the CPU."
            )
        return Arrays(device, torch)

    def asarray(self, x: Any) -> Array:
        """Float64 on this device (a boolean stays boolean)."""
        if self.device is None:
            return np.asarray(x, dtype=None if getattr(x, "dtype", None) == np.bool_ else np.float64)
        tensor = self.xp.as_tensor(x, device=self.device)
        return tensor if tensor.dtype == self.xp.bool else tensor.to(self.xp.float64)

    def to_numpy(self, x: Array) -> Float:
        """Bring an array back as a NumPy array."""
        return cast("Float", x if self.device is None else x.cpu().numpy())

    def full(self, shape: tuple[int, ...], value: float) -> Array:
        """Make an array of one value."""
        if self.device is None:
            return np.full(shape, value)
        return self.xp.full(shape, value, device=self.device, dtype=self.xp.float64)

    def as_float(self, mask: Array) -> Array:
        """Turn a boolean array into 0 and 1, so that it can enter a product."""
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
        """Singular values, rising, from the smaller Gram; those below 1e-8 of the largest are rounding."""
        return self.at_least(self.xp.linalg.eigvalsh(self.gram(x)), 0.0) ** 0.5

    def singular_values(self, x: Array) -> Array:
        """Singular values to full precision where that is affordable (NumPy), from the Gram on a device."""
        if self.device is None:
            return np.linalg.svd(x, compute_uv=False)[::-1]
        return self.fast_singular_values(x)

    def synchronise(self) -> None:
        """Wait for the device, so that a clock read next is true."""
        if self.device is not None and self.device.startswith("cuda"):
            self.xp.cuda.synchronize()
