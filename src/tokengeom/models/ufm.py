"""Unconstrained features: ``L = W H`` with both factors free [zhao2024, eq. NTP-UFM].

It stands for a network that is expressive enough to give each context any embedding it likes.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tokengeom.errors import ProblemError
from tokengeom.models.base import AbstractFactoredModel
from tokengeom.models.initialise import Init, initial_matrix


class UFM(AbstractFactoredModel):
    """Both factors trained.

    where
        dim   d, from 1 up; V or more loses nothing against the convex problem in the logits
        W, H  start at LeCun's ``N(0, 1/d)``: at zero both gradients vanish and nothing would ever move
    """

    name: ClassVar[str] = "ufm"

    def __init__(
        self, V: int, m: int, dim: int, *, init: Init = "lecun", generator: np.random.Generator | None = None
    ) -> None:
        if dim < 1:
            raise ProblemError(f"dim must be a whole number >= 1; got {dim!r}.")
        if init == "zero":
            raise ProblemError(
                "model 'ufm' cannot start at init='zero': with W = 0 and H = 0 both gradients are zero and training "
                "never moves. Use init='lecun'."
            )
        generator = np.random.default_rng(0) if generator is None else generator
        W = initial_matrix((V, dim), dim, init, generator)
        super().__init__(W, initial_matrix((dim, m), dim, init, generator))

    @property
    def trainable(self) -> tuple[str, ...]:
        """Both factors."""
        return ("W", "H")
