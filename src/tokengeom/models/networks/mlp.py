"""MLP: the concatenated embeddings of a context's tokens through fully connected layers (Bengio et al. 2003)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, ClassVar

from tokengeom.models.networks.base import AbstractArchitecture, NetworkShape, import_torch
from tokengeom.statistics.mlp_kernel import LAYERS, WIDENING


class MLP(AbstractArchitecture):
    """Reads the whole context at once; shorter contexts are padded with a token of their own."""

    defaults: ClassVar[Mapping[str, Any]] = {"layers": LAYERS}
    causal: ClassVar[bool] = False

    def body(self, shape: NetworkShape) -> Any:
        """Embedding, hidden layers with GELU, linear map to d, norm with gain (for the reason given in ``lstm.py``)."""
        torch = import_torch()

        class Body(torch.nn.Module):  # type: ignore[name-defined, misc]
            def __init__(self) -> None:
                super().__init__()
                self.tokens = torch.nn.Embedding(shape.tokens, shape.dim)
                widths = [shape.length * shape.dim, *[WIDENING * shape.dim] * shape.layers]
                parts: list[Any] = []
                for before, after in pairwise(widths):
                    parts += [torch.nn.Linear(before, after), torch.nn.GELU()]
                last = torch.nn.Linear(widths[-1], shape.dim, bias=False)
                self.layers = torch.nn.Sequential(*parts, last, torch.nn.RMSNorm(shape.dim, eps=1e-6))

            def forward(self, tokens: Any) -> Any:
                hidden = self.layers(self.tokens(tokens).flatten(1))
                return hidden.unsqueeze(1).expand(-1, shape.length, -1)

        return Body()

    def embedding(self, body: Any) -> Any:
        return body.tokens
