"""Initialisations: zero, and LeCun's (entries of variance one over the number of inputs).

Linear model: ``L = W H`` with the context embeddings H given; W is trained, and H too when asked.

With ``learn_embeddings`` the same run starts from the same W and H, and both move: the seed's question of how
much of the fixed-embedding picture survives when features are learned.

Unconstrained features: ``L = W H`` with both factors free [zhao2024, eq. NTP-UFM].

It stands for a network that is expressive enough to give each context any embedding it likes.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from tokengeom.errors import ProblemError
from tokengeom.models.base import AbstractFactoredModel
from tokengeom.numerics import Float

Init = Literal["zero", "lecun"]


def initial_matrix(shape: tuple[int, int], fan_in: int, init: Init, generator: np.random.Generator) -> Float:
    """Matrix of zeros, or of independent ``N(0, 1 / fan_in)`` entries."""
    if init == "zero":
        return np.zeros(shape)
    if init == "lecun":
        return np.asarray(generator.standard_normal(shape) / np.sqrt(fan_in))
    raise ProblemError(f"init must be 'zero' or 'lecun'; got {init!r}.")


class Linear(AbstractFactoredModel):
    """Decoder over given embeddings.

    where
        embeddings   H, d x m, columns in the order of the statistics
        W            starts at zero, or at LeCun's ``N(0, 1/d)``
    """

    name: ClassVar[str] = "linear"

    def __init__(
        self,
        V: int,
        embeddings: Float,
        *,
        m: int | None = None,
        init: Init = "zero",
        generator: np.random.Generator | None = None,
        learn_embeddings: bool = False,
    ) -> None:
        H = checked_embeddings(embeddings, m)
        generator = np.random.default_rng(0) if generator is None else generator
        super().__init__(initial_matrix((V, H.shape[0]), H.shape[0], init, generator), H)
        self.learn_embeddings = learn_embeddings

    @property
    def trainable(self) -> tuple[str, ...]:
        """``W``, and ``H`` when embeddings are learned."""
        return ("W", "H") if self.learn_embeddings else ("W",)


def checked_embeddings(embeddings: object, m: int | None) -> Float:
    """Refuse embeddings that are not a finite d x m matrix with nonzero columns, naming what is wrong."""
    H = np.asarray(embeddings, np.float64)
    if H.ndim != 2 or H.shape[0] < 1:
        raise ProblemError(f"embeddings must be a d x m matrix with d >= 1; got shape {H.shape}.")
    if m is not None and H.shape[1] != m:
        hint = " It looks transposed: pass embeddings.T." if H.shape[0] == m else ""
        raise ProblemError(f"embeddings must have one column a context, m={m}; got shape {H.shape}.{hint}")
    bad = np.argwhere(~np.isfinite(H))
    if bad.size:
        i, j = (int(x) for x in bad[0])
        raise ProblemError(f"embeddings must be finite; embeddings[{i}, {j}] is {H[i, j]} (context {j}).")
    zero = np.flatnonzero(~np.any(H != 0, axis=0))
    if zero.size:
        raise ProblemError(
            f"Every context needs a nonzero embedding; that of context {zero[0]} is zero ({zero.size} such). Its "
            f"logits would be zero whatever W is: drop the context or give it an embedding."
        )
    return H


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
