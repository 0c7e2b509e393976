"""Tied features: contexts that share tokens share embeddings, ``L = W f(A Phi)``.

where
    Phi   features of contexts (`ContextFeatures`), F x m: its tokens by place, its suffixes, the context itself
    A     embeddings of the features, d x F, trained
    f     the identity, or the last norm of networks: each column divided by its root mean square, times a gain
    W     head, V x d, trained

With the context itself as its only feature and no norm these are unconstrained features: ``Phi = I`` and ``A = H``. A
context that was never seen has ``h(x) = f(A phi(x))``, from those of its features that some trained context has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tokengeom.core.numerics import Float
from tokengeom.models.networks.base import AbstractArchitecture, NetworkShape, import_torch

if TYPE_CHECKING:
    from scipy.sparse import csc_array

TIES = "positions+suffixes+self"
"""Features of contexts where none are given."""
EPSILON = 1e-6
"""Added to the mean square by which the last norm divides, as in the other networks."""


class Tied(AbstractArchitecture):
    """The sum of the embeddings of a context's features, each times its weight."""

    defaults: ClassVar[Mapping[str, Any]] = {"ties": TIES, "last_norm": False, "head_start": 1.0, "feature_start": 1.0}
    causal: ClassVar[bool] = False

    @property
    def options(self) -> tuple[str, ...]:
        """Its own; a head that shares the embeddings of input tokens has no meaning here."""
        return (*self.defaults, "compiled")

    def body(self, shape: NetworkShape) -> Any:
        """A table of embeddings, whose last row is that of no feature, and the norm."""
        torch = import_torch()

        class Body(torch.nn.Module):  # type: ignore[name-defined, misc]
            def __init__(self) -> None:
                super().__init__()
                none = shape.tokens - 1
                table = shape.feature_start * torch.randn(shape.tokens, shape.dim) / shape.dim**0.5
                table[none] = 0.0
                self.features = torch.nn.EmbeddingBag.from_pretrained(table, freeze=False, mode="sum", padding_idx=none)
                self.norm = torch.nn.RMSNorm(shape.dim, eps=EPSILON) if shape.last_norm else torch.nn.Identity()
                self.equal = all(weight == 1.0 for weight in shape.spans)
                self.register_buffer("spans", torch.tensor(shape.spans), persistent=False)

            def forward(self, numbers: Any) -> Any:
                # Without weights, the sum and its gradient take half the time.
                weights = None if self.equal else self.spans.expand(numbers.shape)
                return self.norm(self.features(numbers, per_sample_weights=weights)).unsqueeze(1)

        return Body()

    def embedding(self, body: Any) -> Any:
        """The table of features."""
        return body.features

    def kept(self, body: Any) -> dict[str, Any]:
        """A (d x F), and the gain of the norm (d) where there is one."""
        gain = {"gain": body.norm.weight} if hasattr(body.norm, "weight") else {}
        return {"A": body.features.weight[:-1].T, **gain}


def tied_states(A: Float, gain: Float | None, Phi: Float | csc_array) -> Float:
    """``f(A Phi)``, d x k, of contexts with the features ``Phi`` (F x k); without a gain, f is the identity."""
    H = np.asarray((Phi.T @ A.T).T)
    return H if gain is None else H / np.sqrt(np.mean(H**2, axis=0) + EPSILON) * gain[:, None]
