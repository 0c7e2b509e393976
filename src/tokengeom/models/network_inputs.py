"""Contexts as a network reads them: rows of tokens, and where in which row each context ends.

Contexts are written from the left, so that filling on the right comes after all that a causal network has to see. A
context that is the beginning of another then needs no row of its own: its state is read off the other's row. With all
prefix lengths pooled (autoregressive statistics) this is the usual way to train on every position at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokengeom.errors import ProblemError
from tokengeom.statistics.packing import ABSENT, START

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
    words: Sequence[str] = stats.vocabulary
    tokenizer = getattr(stats, "tokenizer", None)
    if tokenizer is None:
        if int(stats.contexts.max(initial=START)) >= len(words):
            raise ProblemError(
                f"A tied head needs each next token's id in the contexts; these statistics have no tokenizer, and "
                f"context ids reach {int(stats.contexts.max())} with V={len(words)}. Use tied=False."
            )
        return np.arange(len(words), dtype=np.int64)
    known = tokenizer.vocabulary()
    place = {word: number for number, word in enumerate(known)}
    missing = [word for word in words if word not in place]
    if missing or len(place) < len(known):
        reason = f"{missing[0]!r} is not a token" if missing else "two tokens have the same text"
        raise ProblemError(f"A tied head needs each next token's id in the contexts, but {reason}. Use tied=False.")
    return np.array([place[word] for word in words], np.int64)
