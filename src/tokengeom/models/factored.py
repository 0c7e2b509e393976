"""Models whose parameters are W and H themselves, ``L = W H``: the linear model and unconstrained features.

where
    W   decoder, V x d
    H   context embeddings, d x m

In the linear model H is given and W is trained. With ``learn_embeddings`` both are trained from the same start, which
shows how much of the geometry with fixed embeddings remains when features are learned. In the model of unconstrained
features [zhao2024, NTP-UFM] both are free: it stands for a network that is expressive enough to give each context any
embedding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np

from tokengeom.core.errors import ProblemError
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import Float

Init = Literal["zero", "lecun"]
LOGIT_ARRAYS, FACTOR_ARRAYS = 7, 8
"""Arrays of float64 held at the peak of training: V x m, and (V + m) x d."""
BLOCK_WORK, MOST_BLOCKS = 16e6, 64
"""Work of a block of contexts on the CPU and the largest number of blocks: each has its own V x d gradient.

With less work per block, distributing blocks over cores costs more than it saves."""
CODE = 10**8
"""Bytes of compiled code and of the libraries themselves."""


def initial_matrix(shape: tuple[int, int], fan_in: int, init: Init, generator: np.random.Generator) -> Float:
    """A matrix of zeros, or of independent ``N(0, 1 / fan_in)`` entries (LeCun's initialisation)."""
    if init == "zero":
        return np.zeros(shape)
    if init == "lecun":
        return np.asarray(generator.standard_normal(shape) / np.sqrt(fan_in))
    raise ProblemError(f"init must be 'zero' or 'lecun'; got {init!r}.")


class AbstractFactoredModel(ABC):
    """A model whose parameters are W (V x d) and H (d x m), so its gradient has a closed form.

    ``options`` names the settings of `train` that the model has besides ``dim``.
    """

    name: ClassVar[str]
    options: ClassVar[tuple[str, ...]]

    def __init__(self, W: Float, H: Float) -> None:
        if W.ndim != 2 or H.ndim != 2 or W.shape[1] != H.shape[0]:
            raise ProblemError(f"W must be V x d and H d x m with the same d; got {W.shape} and {H.shape}.")
        self.W = np.ascontiguousarray(W, np.float64)
        self.H = np.ascontiguousarray(H, np.float64)

    @property
    @abstractmethod
    def trainable(self) -> tuple[str, ...]:
        """Names of the parameters that are trained."""

    @property
    def dim(self) -> int:
        """Embedding dimension d."""
        return int(self.W.shape[1])

    def readout(self) -> Factors:
        """The parameters themselves."""
        return Factors(self.W, self.H)


class Linear(AbstractFactoredModel):
    """A decoder on given embeddings.

    where
        embeddings   H, d x m, columns in the order of the statistics
        W            starts at 0, or at LeCun's ``N(0, 1/d)``
    """

    name: ClassVar[str] = "linear"
    options: ClassVar[tuple[str, ...]] = ("init", "learn_embeddings")

    def __init__(
        self,
        V: int,
        embeddings: Float,
        *,
        init: Init = "zero",
        generator: np.random.Generator | None = None,
        learn_embeddings: bool = False,
    ) -> None:
        generator = np.random.default_rng(0) if generator is None else generator
        d = embeddings.shape[0]
        super().__init__(initial_matrix((V, d), d, init, generator), embeddings)
        self.learn_embeddings = learn_embeddings

    @property
    def trainable(self) -> tuple[str, ...]:
        return ("W", "H") if self.learn_embeddings else ("W",)


class UFM(AbstractFactoredModel):
    """Unconstrained features: both factors are trained.

    where
        dim   d >= 1; with V or more, every matrix of logits is within reach
        W, H  start at LeCun's ``N(0, 1/d)``: at 0 both gradients vanish and nothing would ever move
    """

    name: ClassVar[str] = "ufm"
    options: ClassVar[tuple[str, ...]] = ("init",)

    def __init__(
        self, V: int, m: int, dim: int, *, init: Init = "lecun", generator: np.random.Generator | None = None
    ) -> None:
        if dim < 1:
            raise ProblemError(f"dim must be a whole number >= 1; got {dim!r}.")
        if init == "zero":
            raise ProblemError(
                "model 'ufm' cannot start at init='zero': with W = 0 and H = 0 both gradients are 0 and training "
                "never moves. Use init='lecun'."
            )
        generator = np.random.default_rng(0) if generator is None else generator
        W = initial_matrix((V, dim), dim, init, generator)
        super().__init__(W, initial_matrix((dim, m), dim, init, generator))

    @property
    def trainable(self) -> tuple[str, ...]:
        return ("W", "H")


FACTORED: dict[str, type[AbstractFactoredModel]] = {kind.name: kind for kind in (Linear, UFM)}
"""The factored models by name."""


def factored_bytes(V: int, m: int, dims: Sequence[int], *, device: str = "cpu", itemsize: int = 8) -> int:
    """Bytes that training of factored models holds at its peak, on its device; ``itemsize`` is that of a GPU's."""
    d = sum(dims)
    if device == "cpu":
        blocks = min(max(round(6.0 * V * m * d / BLOCK_WORK), 1), MOST_BLOCKS)
        return 8 * (LOGIT_ARRAYS * V * m + FACTOR_ARRAYS * (V + m) * d + blocks * V * d) + CODE
    return itemsize * (4 * len(dims) * V * m + FACTOR_ARRAYS * (V + m) * d) + CODE
