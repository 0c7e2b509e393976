"""Linear model: ``L = W H`` with the context embeddings H given; W is trained, and H too when asked.

With ``learn_embeddings`` the same run starts from the same W and H, and both move: the seed's question of how
much of the fixed-embedding picture survives when features are learned.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tokengeom.errors import ProblemError
from tokengeom.models.base import AbstractFactoredModel
from tokengeom.models.initialise import Init, initial_matrix
from tokengeom.numerics import Float


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
