"""A sequence network: hidden states of contexts from their tokens, and a head without bias, ``L = W H``.

where
    H   states at the last token of each context, after the body's last norm with its gain, d x m
    W   weight of the head, V x d; the input embeddings of the next tokens themselves where it is tied

Contexts are written from the left and padded on the right, after everything that a causal network sees. A context that
is the beginning of another then needs no row of its own: its state is read from the row of the other. Where prefixes of
all lengths are pooled (autoregressive statistics), this is the usual training on every position at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokengeom.core.errors import ProblemError
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import Arrays, Float, Int
from tokengeom.models.factored import LOGIT_ARRAYS
from tokengeom.models.networks.base import AbstractArchitecture, NetworkShape, import_torch, threads_for
from tokengeom.statistics.windows import ABSENT, START

if TYPE_CHECKING:
    from tokengeom.statistics.context_features import ContextFeatures
    from tokengeom.statistics.next_token import NextTokenStatistics

# Tokens that go through a body at once: this bounds the memory of activations and still fills any machine.
_PORTION_TOKENS = 1 << 17
PASSED = 64
"""Contexts with which the memory of a network's activations is measured."""
ACTIVATIONS = 1.5
"""Peak of the activations over what is kept of them for the backward pass."""
NETWORK_CODE = 4 * 10**8
"""Bytes of compiled code and of the libraries themselves."""


@dataclass(frozen=True, eq=False)
class NetworkInputs:
    """Rows of tokens, and where each context is found in them.

    where
        rows       R x L tokens, numbered from 0; the last number pads short contexts
        row, end   row of each context and position of its last token, m each
        tokens     number of distinct tokens
        tied       V where the first V numbers are the next tokens in their order, otherwise 0
        spans      weight of each column of ``rows`` where its numbers are features of contexts; empty for tokens
    """

    rows: Int
    row: Int
    end: Int
    tokens: int
    tied: int
    spans: tuple[float, ...] = ()

    @property
    def length(self) -> int:
        """L, the longest context."""
        return int(self.rows.shape[1])

    @property
    def apart(self) -> bool:
        """Whether each context has its own row, in order, and ends at the end of it."""
        return self.row.size == len(self.rows) and bool(np.all(self.end == self.length - 1))

    @classmethod
    def of(cls, stats: NextTokenStatistics, *, causal: bool, tied: bool) -> NetworkInputs:
        """The inputs for the contexts of statistics; ``tied`` numbers the next tokens first."""
        ids = _tokens_of_contexts(stats)
        # Tokens on the left in their order, padding on the right.
        ids = np.take_along_axis(ids, np.argsort(ids == ABSENT, axis=1, kind="stable"), axis=1)
        first = _next_token_ids(stats) if tied else np.zeros(0, np.int64)
        numbers, tokens = _numbered(ids, first)
        rows, row = _shared_rows(numbers, tokens - 1) if causal else (numbers, np.arange(len(numbers)))
        end = np.maximum((ids != ABSENT).sum(axis=1) - 1, 0)
        return cls(rows, row, end, tokens, first.size)

    @classmethod
    def of_features(cls, stats: NextTokenStatistics, ties: str | ContextFeatures) -> NetworkInputs:
        """The features of each context in place of its tokens, one column per span; missing ones are padding.

        Features that were given as a matrix have no spans: their rows are empty, and only a start is made for them.
        """
        # GPU machines may lack scipy, which that module needs.
        from tokengeom.statistics.context_features import ContextFeatures

        if not isinstance(ties, str):
            return cls(np.zeros((ties.m, 0), np.int64), np.arange(ties.m), np.full(ties.m, -1), ties.F + 1, 0)
        features = ContextFeatures.of_contexts(_tokens_of_contexts(stats), ties)
        m, spans = features.numbers.shape
        return cls(
            features.numbers, np.arange(m), np.full(m, spans - 1), features.F + 1, 0, tuple(features.weights.values())
        )


def _tokens_of_contexts(stats: NextTokenStatistics) -> Int:
    if stats.contexts is None:
        raise ProblemError(
            "A network reads the tokens of contexts, and these statistics have none. Count them from a text, or "
            "give from_counts an m x L array of token ids as contexts; model='ufm' needs no tokens."
        )
    return np.asarray(stats.contexts, np.int64)


def _numbered(ids: Int, first: Int) -> tuple[Int, int]:
    """Ids as numbers from 0: those of ``first`` in their order, then the others, and the padding last."""
    others = np.setdiff1d(np.unique(ids), np.append(first, ABSENT))
    known = np.concatenate((first, others, [ABSENT]))
    order = np.argsort(known)
    return order[np.searchsorted(known[order], ids)], known.size


def _shared_rows(numbers: Int, padding: int) -> tuple[Int, Int]:
    """The rows that are not the beginning of another, and the row in which each context is found."""
    # Sorted with the padding as the smallest number, a beginning comes right before its continuations.
    keyed = np.where(numbers == padding, -1, numbers)
    order = np.lexsort(keyed.T[::-1])
    after = np.append(order[1:], order[-1])
    padded = keyed[order] == -1
    begins = np.all((keyed[order] == keyed[after]) | padded, axis=1)
    begins[-1] = False
    kept = np.flatnonzero(~begins)
    host = kept[np.searchsorted(kept, np.arange(order.size))]
    # Rows in the order of contexts, so contexts that share no row keep their own.
    columns, row_sorted = np.unique(order[host], return_inverse=True)
    row = np.empty(order.size, np.int64)
    row[order] = row_sorted.ravel()
    return numbers[columns], row


def _next_token_ids(stats: NextTokenStatistics) -> Int:
    """Id in the contexts of each next token, which tells a tied head the rows of the input embeddings to share."""
    tokens: Sequence[str] = stats.vocabulary
    if stats.tokenizer is None:
        largest = int(np.max(np.asarray(stats.contexts), initial=START))
        if largest >= len(tokens):
            raise ProblemError(
                f"A tied head needs the id of each next token in the contexts; these statistics have no tokenizer, and "
                f"context ids reach {largest} with V={len(tokens)}. Use tied=False."
            )
        return np.arange(len(tokens), dtype=np.int64)
    known = stats.tokenizer.vocabulary()
    place = {token: number for number, token in enumerate(known)}
    missing = [token for token in tokens if token not in place]
    if missing or len(place) < len(known):
        reason = f"{missing[0]!r} is not a token" if missing else "two tokens have the same text"
        raise ProblemError(
            f"A tied head needs the id of each next token in the contexts, but {reason}. Use tied=False."
        )
    return np.array([place[token] for token in tokens], np.int64)


class Network:
    """A body of some architecture with a head, on the contexts of given statistics.

    ``decoder`` is the torch module; called with a slice or an array of contexts, it returns their logits. ``options``
    are settings that the architecture has among its ``defaults``; None means the default.
    """

    def __init__(
        self,
        architecture: AbstractArchitecture,
        stats: NextTokenStatistics,
        *,
        dim: int,
        tied: bool = False,
        seed: int = 0,
        **options: object,
    ) -> None:
        self.name, self._architecture = architecture.name, architecture
        unknown = [name for name in options if name not in architecture.defaults]
        if unknown:
            raise ProblemError(
                f"{unknown[0]} is not a setting of model {self.name!r}, which has {', '.join(architecture.options)}."
            )
        given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        given = {**architecture.defaults, **given}
        if "ties" in given:
            self.inputs = NetworkInputs.of_features(stats, given["ties"])
        else:
            self.inputs = NetworkInputs.of(stats, causal=architecture.causal, tied=tied)
        self.shape = NetworkShape(self.inputs.tokens, self.inputs.length, dim, spans=self.inputs.spans, **given)
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

    def portions(self, within: slice | None = None) -> Iterator[slice]:
        """Slices of the contexts (or of those ``within``) that go through the body at once."""
        size = max(1, _PORTION_TOKENS // self.inputs.length)
        everything = slice(0, self.inputs.row.size)
        within = everything if within is None else within
        # Contexts that share a row can be anywhere in the order: rows are shared only where one portion has them all.
        if within == everything and len(self.inputs.rows) <= size:
            yield everything
            return
        for begin in range(within.start, within.stop, size):
            yield slice(begin, min(begin + size, within.stop))

    @property
    def W(self) -> Float:
        """Weight of the head, V x d, in double precision, as a copy."""
        # In double precision an array without a copy would go on changing with the parameters.
        return np.array(self.decoder.W.detach().double().cpu().numpy(), order="C")

    def set_W(self, W: Float) -> None:
        """Replace the weight of the head, V x d, which must not be tied."""
        if self.inputs.tied:
            raise ProblemError("A tied head has no weight of its own that could be replaced. Use tied=False.")
        torch = import_torch()
        with torch.no_grad():
            self.decoder.weight.copy_(torch.as_tensor(W))

    @property
    def work(self) -> float:
        """Multiplications per step: one forward pass, and a backward pass of twice the work."""
        inputs = self.inputs
        if inputs.spans:
            return 3.0 * (int(self.decoder.weight.shape[0]) + inputs.length) * self.dim * len(inputs.rows)
        return 3.0 * sum(int(parameter.numel()) for parameter in self.decoder.parameters()) * inputs.rows.size

    def kept(self) -> Arrays:
        """Weights that a run keeps beside W and H, in double precision, as copies."""
        tensors = self._architecture.kept(self.decoder.body)
        return {name: np.array(tensor.detach().double().cpu().numpy(), order="C") for name, tensor in tensors.items()}

    def readout(self) -> Factors:
        """W and H in double precision, compared with the logits that the network itself returns."""
        torch = import_torch()
        training = self.decoder.training
        self.decoder.eval()
        with torch.no_grad():
            parts = [self.decoder.states(which) for which in self.portions()]
            logits = torch.cat([self.decoder.head(K) for K in parts]).double().cpu().numpy()
            K = torch.cat(parts).double().cpu().numpy()
        self.decoder.train(training)
        factors = Factors(self.W, np.ascontiguousarray(K.T))
        # Training may have diverged, which the loop reports.
        if np.all(np.isfinite(logits)):
            factors.require_logits(logits.T)
        return factors


def _decoder(architecture: AbstractArchitecture, shape: NetworkShape, V: int, inputs: NetworkInputs) -> Any:
    torch = import_torch()

    class Decoder(torch.nn.Module):  # type: ignore[name-defined, misc]
        """Body and head; the tokens of the contexts are buffers, which move to a device with the weights."""

        def __init__(self) -> None:
            super().__init__()
            self.body = architecture.body(shape)
            self.tied = inputs.tied
            if not self.tied:
                self.weight = torch.nn.Parameter(shape.head_start * torch.randn(V, shape.dim) / shape.dim**0.5)
            for name in ("rows", "row", "end"):
                self.register_buffer(name, torch.as_tensor(getattr(inputs, name)), persistent=False)

        @property
        def W(self) -> Any:
            return architecture.embedding(self.body).weight[: self.tied] if self.tied else self.weight

        def states(self, which: Any) -> Any:
            """Hidden states of the chosen contexts, one row per context."""
            everything = isinstance(which, slice) and which == slice(0, self.row.shape[0])
            if inputs.apart:
                return self.body(self.rows if everything else self.rows[which])[:, -1]
            if everything:
                return self.body(self.rows)[self.row, self.end]
            states = self.body(self.rows[self.row[which]])
            index = self.end[which].view(-1, 1, 1).expand(-1, 1, states.shape[2])
            return states.gather(1, index).squeeze(1)

        def head(self, states: Any) -> Any:
            # Logits keep the precision of W, whatever the precision of the products in the body.
            with torch.autocast(states.device.type, enabled=False):
                return torch.nn.functional.linear(states.to(self.W.dtype), self.W)

        def forward(self, which: Any) -> Any:
            return self.head(self.states(which))

    return Decoder()


def network_bytes(model: Network, V: int, m: int, batch: int | None) -> int:
    """Bytes that training of a network holds at its peak, from the activations of a few contexts."""
    parameters = sum(p.numel() * p.element_size() for p in model.decoder.parameters())
    largest = max((part.stop - part.start for part in model.portions()), default=0)
    together = min(largest, batch or largest)
    activations = ACTIVATIONS * together * _bytes_per_context(model)
    logits = 4 * 4 * V * together
    measured = 8 * LOGIT_ARRAYS * V * m
    return int(max(activations + logits, measured) + 5 * parameters + NETWORK_CODE)


def _bytes_per_context(model: Network) -> float:
    """Bytes that a forward pass keeps per context for the backward pass."""
    torch = import_torch()
    contexts = min(PASSED, int(model.inputs.row.size))
    parameters = {p.untyped_storage().data_ptr() for p in model.decoder.parameters()}
    kept = {}

    def keep(tensor: object) -> object:
        storage = tensor.untyped_storage()  # type: ignore[attr-defined]
        # The tensor is kept too, so that no other one gets its address while the pass goes on.
        kept[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with torch.random.fork_rng(devices=[]), threads_for(torch, 0.0), hooks:
        model.decoder(torch.arange(contexts))
    return float(sum(size for place, (size, _) in kept.items() if place not in parameters)) / contexts
