"""The four norms whose margins the house can maximise, each with its dual norm.

Steepest descent in a norm is biased towards the margin of that norm (docs/theory.md section 5): gradient descent and
normalised gradient descent Frobenius, sign descent and Adam max, Muon and spectral descent spectral. The
dual norm of ``A H^T`` is what the multipliers of the margin problem must keep at or below 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokengeom.errors import ProblemError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokengeom.numerics import Float


@dataclass(frozen=True)
class Norm:
    """A norm on V x d matrices and its dual, as functions to floats."""

    name: str
    value: Callable[[Float], float]
    dual: Callable[[Float], float]


def _frobenius(W: Float) -> float:
    return float(np.linalg.norm(W))


def _largest(W: Float) -> float:
    return float(np.max(np.abs(W), initial=0.0))


def _entrywise_sum(W: Float) -> float:
    return float(np.sum(np.abs(W)))


def _spectral(W: Float) -> float:
    return float(np.linalg.norm(W, 2))


def _nuclear(W: Float) -> float:
    return float(np.linalg.norm(W, "nuc"))


FROBENIUS = Norm("frobenius", _frobenius, _frobenius)
MAX = Norm("max", _largest, _entrywise_sum)
SUM = Norm("sum", _entrywise_sum, _largest)
SPECTRAL = Norm("spectral", _spectral, _nuclear)
NORMS: dict[str, Norm] = {norm.name: norm for norm in (FROBENIUS, MAX, SPECTRAL, SUM)}


def norm_named(name: str) -> Norm:
    """Look a norm up by name."""
    if name not in NORMS:
        raise ProblemError(f"norm must be one of {', '.join(sorted(NORMS))}; got norm={name!r}.")
    return NORMS[name]
