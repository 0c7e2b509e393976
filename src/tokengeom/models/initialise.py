"""Initialisations: zero, and LeCun's (entries of variance one over the number of inputs)."""

from __future__ import annotations

from typing import Literal

import numpy as np

from tokengeom.errors import ProblemError
from tokengeom.numerics import Float

Init = Literal["zero", "lecun"]


def initial_matrix(shape: tuple[int, int], fan_in: int, init: Init, generator: np.random.Generator) -> Float:
    """Matrix of zeros, or of independent ``N(0, 1 / fan_in)`` entries."""
    if init == "zero":
        return np.zeros(shape)
    if init == "lecun":
        return np.asarray(generator.standard_normal(shape) / np.sqrt(fan_in))
    raise ProblemError(f"init must be 'zero' or 'lecun'; got {init!r}.")
