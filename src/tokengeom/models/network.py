"""A sequence network: hidden states of contexts from their tokens, and a head without bias, ``L = W H``.

where
    H   states at the contexts' last tokens, after the body's last norm with its gain, d x m
    W   weight of the head, V x d; the input embeddings of the next tokens themselves when tied
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tokengeom.errors import ProblemError
from tokengeom.models.base import AbstractModel, Readout
from tokengeom.models.network_inputs import NetworkInputs
from tokengeom.models.networks.base import AbstractArchitecture, NetworkShape, import_torch

# Tokens that go through a body at once: bounds the memory of activations, and is far above what fills a machine.
_PORTION_TOKENS = 1 << 17


class Network(AbstractModel):
    """A body of some architecture with a head, over the contexts of given statistics.

    ``decoder`` is the torch module; called with a slice or an array of contexts it gives their logits.
    """

    def __init__(
        self,
        architecture: AbstractArchitecture,
        stats: Any,
        *,
        dim: int,
        layers: int | None = None,
        heads: int | None = None,
        positions: bool = False,
        tied: bool = False,
        attention_dropout: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.name = architecture.name  # type: ignore[misc]  # a network is called what its architecture is
        self.inputs = NetworkInputs.of(stats, causal=architecture.causal, tied=tied)
        self.shape = NetworkShape(
            self.inputs.tokens,
            self.inputs.length,
            dim,
            architecture.default_layers if layers is None else layers,
            architecture.default_heads if heads is None else heads,
            positions,
            attention_dropout,
        )
        if dim < 1 or self.shape.layers < 1:
            raise ProblemError(f"dim and layers must be >= 1; got dim={dim!r}, layers={self.shape.layers!r}.")
        architecture.check(self.shape)
        torch = import_torch()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.decoder = _decoder(architecture, self.shape, int(stats.V), self.inputs)

    @property
    def dim(self) -> int:
        """Embedding dimension d."""
        return self.shape.dim

    @property
    def trainable(self) -> tuple[str, ...]:
        """Every parameter of body and head."""
        return tuple(name for name, _ in self.decoder.named_parameters())

    def portions(self, within: slice | None = None) -> Iterator[slice]:
        """Contexts (or those ``within``) in portions that go through the body at once."""
        size = max(1, _PORTION_TOKENS // self.inputs.length)
        everything = slice(0, self.inputs.row.size)
        within = everything if within is None else within
        # Shared rows are read by contexts in any order: only one portion keeps the sharing.
        if within == everything and len(self.inputs.rows) <= size:
            yield everything
            return
        for begin in range(within.start, within.stop, size):
            yield slice(begin, min(begin + size, within.stop))

    def readout(self) -> Readout:
        """W and H in double precision, held against the logits that the network itself gives."""
        torch = import_torch()
        training = self.decoder.training
        self.decoder.eval()
        with torch.no_grad():
            parts = [self.decoder.states(which) for which in self.portions()]
            logits = torch.cat([self.decoder.head(K) for K in parts]).double().cpu().numpy()
            K = torch.cat(parts).double().cpu().numpy()
            W = self.decoder.W.detach().double().cpu().numpy()
        self.decoder.train(training)
        found = Readout(np.ascontiguousarray(W), np.ascontiguousarray(K.T))
        # Training may have left the finite numbers, which the loop reports in its own words.
        if np.all(np.isfinite(logits)):
            found.check(logits.T)
        return found


def _decoder(architecture: AbstractArchitecture, shape: NetworkShape, V: int, inputs: NetworkInputs) -> Any:
    torch = import_torch()

    class Decoder(torch.nn.Module):  # type: ignore[name-defined, misc]
        """Body and head; the contexts' tokens are buffers, so that they move with the weights."""

        def __init__(self) -> None:
            super().__init__()
            self.body = architecture.body(shape)
            self.tied = inputs.tied
            if not self.tied:
                self.weight = torch.nn.Parameter(torch.randn(V, shape.dim) / shape.dim**0.5)
            for name in ("rows", "row", "end"):
                self.register_buffer(name, torch.as_tensor(getattr(inputs, name)), persistent=False)

        @property
        def W(self) -> Any:
            return architecture.embedding(self.body).weight[: self.tied] if self.tied else self.weight

        def states(self, which: Any) -> Any:
            """Hidden states of the chosen contexts, one row each."""
            everything = isinstance(which, slice) and which == slice(0, self.row.shape[0])
            if everything or (inputs.apart and isinstance(which, slice)):
                states = self.body(self.rows if everything else self.rows[which])
                if inputs.apart:
                    return states[:, -1]
                return states[self.row, self.end]
            states = self.body(self.rows[self.row[which]])
            index = self.end[which].view(-1, 1, 1).expand(-1, 1, states.shape[2])
            return states.gather(1, index).squeeze(1)

        def head(self, states: Any) -> Any:
            # Logits keep the precision of W, whatever the body's products were made in.
            with torch.autocast(states.device.type, enabled=False):
                return torch.nn.functional.linear(states.to(self.W.dtype), self.W)

        def forward(self, which: Any) -> Any:
            return self.head(self.states(which))

    return Decoder()
