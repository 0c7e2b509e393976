"""LSTM: PyTorch's recurrent layers with a learned start, over an embedding of each token."""

from __future__ import annotations

from typing import Any, ClassVar

from tokengeom.models.networks.base import AbstractArchitecture, NetworkShape, import_torch


class LSTM(AbstractArchitecture):
    """Stacked LSTM layers.

    A state of an LSTM lies in (-1, 1), which would bound the logits through H; training is free to grow W instead.
    A linear map after the last layer leaves H unbounded, as theory has it.
    """

    name: ClassVar[str] = "lstm"
    default_layers: ClassVar[int] = 2

    def body(self, shape: NetworkShape) -> Any:
        """Embedding, layers, linear map."""
        torch = import_torch()

        class Body(torch.nn.Module):  # type: ignore[name-defined, misc]
            def __init__(self) -> None:
                super().__init__()
                self.tokens = torch.nn.Embedding(shape.tokens, shape.dim)
                self.layers = torch.nn.LSTM(shape.dim, shape.dim, shape.layers, batch_first=True)
                self.out = torch.nn.Linear(shape.dim, shape.dim, bias=False)

            def forward(self, tokens: Any) -> Any:
                states, _ = self.layers(self.tokens(tokens))
                return self.out(states)

        return Body()

    def embedding(self, body: Any) -> Any:
        """The first layer."""
        return body.tokens
