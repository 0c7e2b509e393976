"""Contexts as a network reads them: rows of tokens, and where in which row each context ends.

Contexts are written from the left, so that filling on the right comes after all that a causal network has to see. A
context that is the beginning of another then needs no row of its own: its state is read off the other's row. With all
prefix lengths pooled (autoregressive statistics) this is the usual way to train on every position at once.

A sequence network: hidden states of contexts from their tokens, and a head without bias, ``L = W H``.

where
    H   states at the contexts' last tokens, after the body's last norm with its gain, d x m
    W   weight of the head, V x d; the input embeddings of the next tokens themselves when tied
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokengeom.errors import ProblemError
from tokengeom.factors import Factors
from tokengeom.models.base import AbstractModel
from tokengeom.models.networks.base import AbstractArchitecture, NetworkShape, import_torch
from tokengeom.statistics.windows import ABSENT, START

Ids = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class NetworkInputs:
    """Rows of tokens with the place of each context.

    where
        rows       R x L tokens, numbered from 0; the last number fills short contexts
        row, end   row of each context and position of its last token, m each
        tokens     number of distinct tokens
        tied       how many of the first numbers are next tokens, in their order: V, or 0 where none is known
    """

    rows: Ids
    row: Ids
    end: Ids
    tokens: int
    tied: int

    @property
    def length(self) -> int:
        """L, the longest context."""
        return int(self.rows.shape[1])

    @property
    def apart(self) -> bool:
        """Whether each context has a row of its own, in order, and ends at its end."""
        return self.row.size == len(self.rows) and bool(np.all(self.end == self.length - 1))

    @classmethod
    def of(cls, stats: Any, *, causal: bool, tied: bool) -> NetworkInputs:
        """From statistics with tokens in their contexts; ``tied`` numbers the next tokens first."""
        contexts = getattr(stats, "contexts", None)
        if contexts is None:
            raise ProblemError(
                "A network reads the tokens of contexts, and these statistics have none. Count them from a text, or "
                "give from_counts an m x L array of token ids as contexts; model='ufm' needs no tokens."
            )
        ids = _from_the_left(np.asarray(contexts, np.int64))
        first = _next_token_ids(stats) if tied else np.zeros(0, np.int64)
        numbers, tokens = _numbered(ids, first)
        rows, row = _shared_rows(numbers, tokens - 1) if causal else (numbers, np.arange(len(numbers)))
        end = np.maximum((ids != ABSENT).sum(axis=1) - 1, 0)
        return cls(rows, row, end, tokens, first.size)


def _from_the_left(contexts: Ids) -> Ids:
    """Real tokens to the left in their order, filling to the right."""
    order = np.argsort(contexts == ABSENT, axis=1, kind="stable")
    return np.take_along_axis(contexts, order, axis=1)


def _numbered(ids: Ids, first: Ids) -> tuple[Ids, int]:
    """Ids as numbers from 0: those of ``first`` in their order, then the others, and the filling last."""
    others = np.setdiff1d(np.unique(ids), np.append(first, ABSENT))
    known = np.concatenate((first, others, [ABSENT]))
    order = np.argsort(known)
    return order[np.searchsorted(known[order], ids)], known.size


def _shared_rows(numbers: Ids, filling: int) -> tuple[Ids, Ids]:
    """Rows that are the beginning of no other, and the row in which each context is found."""
    # Sorted with the filling as the smallest, a beginning stands right before its continuations.
    keyed = np.where(numbers == filling, -1, numbers)
    order = np.lexsort(keyed.T[::-1])
    after = np.append(order[1:], order[-1])
    filled = keyed[order] == -1
    begins = np.all((keyed[order] == keyed[after]) | filled, axis=1)
    begins[-1] = False
    kept = np.flatnonzero(~begins)
    host = kept[np.searchsorted(kept, np.arange(order.size))]
    # Rows in the order of contexts, so that contexts apart keep theirs.
    columns, row_sorted = np.unique(order[host], return_inverse=True)
    row = np.empty(order.size, np.int64)
    row[order] = row_sorted.ravel()
    return numbers[columns], row


def _next_token_ids(stats: Any) -> Ids:
    """Id in the contexts of each next token, by which a tied head shares the input's rows."""
    tokens: Sequence[str] = stats.vocabulary
    tokenizer = getattr(stats, "tokenizer", None)
    if tokenizer is None:
        if int(stats.contexts.max(initial=START)) >= len(tokens):
            raise ProblemError(
                f"A tied head needs each next token's id in the contexts; these statistics have no tokenizer, and "
                f"context ids reach {int(stats.contexts.max())} with V={len(tokens)}. Use tied=False."
            )
        return np.arange(len(tokens), dtype=np.int64)
    known = tokenizer.vocabulary()
    place = {token: number for number, token in enumerate(known)}
    missing = [token for token in tokens if token not in place]
    if missing or len(place) < len(known):
        reason = f"{missing[0]!r} is not a token" if missing else "two tokens have the same text"
        raise ProblemError(f"A tied head needs each next token's id in the contexts, but {reason}. Use tied=False.")
    return np.array([place[token] for token in tokens], np.int64)


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

    def readout(self) -> Factors:
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
        found = Factors(np.ascontiguousarray(W), np.ascontiguousarray(K.T))
        # Training may have left the finite numbers, which the loop reports in its own words.
        if np.all(np.isfinite(logits)):
            found.require_logits(logits.T)
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
