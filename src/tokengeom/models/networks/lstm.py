"""LSTM: PyTorch's recurrent layers on token embeddings, followed by a norm, as in the other networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tokengeom.models.networks.base import AbstractArchitecture, NetworkShape, import_torch


class LSTM(AbstractArchitecture):
    """Stacked LSTM layers.

    Without the last norm, states start small and grow a hundredfold; in the run in docs/experiments.md the loss reached
    its floor all the same, and the geometry stayed far from the predicted one.
    """

    defaults: ClassVar[Mapping[str, Any]] = {"layers": 2}

    def body(self, shape: NetworkShape) -> Any:
        """Embedding, LSTM layers, norm with gain."""
        torch = import_torch()

        class Body(torch.nn.Module):  # type: ignore[name-defined, misc]
            def __init__(self) -> None:
                super().__init__()
                self.tokens = torch.nn.Embedding(shape.tokens, shape.dim)
                self.layers = torch.nn.LSTM(shape.dim, shape.dim, shape.layers, batch_first=True)
                self.norm = torch.nn.RMSNorm(shape.dim, eps=1e-6)

            def forward(self, tokens: Any) -> Any:
                states, _ = self.layers(self.tokens(tokens))
                return self.norm(states)

        return Body()

    def embedding(self, body: Any) -> Any:
        return body.tokens
