"""LSTM: PyTorch's recurrent layers over an embedding of each token, with the last norm that the other networks have."""

from __future__ import annotations

from typing import Any, ClassVar

from tokengeom.models.networks.base import AbstractArchitecture, NetworkShape, import_torch


class LSTM(AbstractArchitecture):
    """Stacked LSTM layers.

    The last norm is not decoration. Without it states start small and grow a hundredfold, the loss reaches its floor
    all the same, and the geometry stays far from the predicted one (measured in docs/experiments.md).
    """

    name: ClassVar[str] = "lstm"
    default_layers: ClassVar[int] = 2

    def body(self, shape: NetworkShape) -> Any:
        """Embedding, layers, norm with gain."""
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
        """The first layer."""
        return body.tokens
