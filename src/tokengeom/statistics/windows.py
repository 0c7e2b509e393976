"""Windows of a text, the integer keys of their contexts, the query that counts them, and those of rows in memory.

A window is a context of up to L tokens and the token that follows it. In tables a context is one or a few integers: its
L fields, each one of ``V + 2`` codes, are the digits of a number in base ``V + 2``, newest token last::

    0            absent: the context has fewer than L tokens (pooled prefixes)
    1            the start of a document (padding)
    2 + z        token z

The number is split into keys below ``2^63``, so signed and unsigned engines agree. Unlike with a hash, two contexts
never share their keys, and the order of keys is the order of contexts: shorter ones first, then by token ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from tokengeom.core.errors import StatisticsError
from tokengeom.core.numerics import Int
from tokengeom.results.convert import Within

if TYPE_CHECKING:
    import ibis

    from tokengeom.statistics.token_table import TokenRows

ABSENT, START = -2, -1
"""Fields of `NextTokenStatistics.contexts` that hold no token; a token is its id, 0 or more."""

_CODE_OF_TOKEN_0 = 2
_KEY_LIMIT = 2**63

WindowKind = Literal["sliding", "prefixes"]
LONGEST_CONTEXT = 64


@dataclass(frozen=True)
class Windows:
    """Which pairs of context and next token are counted in a document ``x_0 ... x_{N-1}``.

    ``sliding``   Contexts of exactly ``context`` tokens: ``(x_{i-L} .. x_{i-1}) -> x_i`` for every ``i >= L``.
    ``prefixes``  Contexts of every length from 1 to ``context``, pooled: what a network sees that is trained on all
                  positions of every window (autoregressive mode).

    With ``pad``, start markers precede a document: L of them for sliding windows, so every token is predicted once,
    and one for prefixes, so the first token has a context too.
    """

    context: Annotated[int, Within(1, LONGEST_CONTEXT)]
    kind: WindowKind = "sliding"
    pad: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.context <= LONGEST_CONTEXT:
            raise StatisticsError(f"The context must have between 1 and {LONGEST_CONTEXT} tokens; got {self.context}.")
        if self.kind not in ("sliding", "prefixes"):
            raise StatisticsError(f"The windows must be 'sliding' or 'prefixes'; got '{self.kind}'.")

    @property
    def lengths(self) -> range:
        """Lengths of the contexts that are counted."""
        return range(1 if self.kind == "prefixes" else self.context, self.context + 1)

    @property
    def padding(self) -> int:
        """Number of start markers before a document."""
        if not self.pad:
            return 0
        return 1 if self.kind == "prefixes" else self.context

    @property
    def lowest_field(self) -> int:
        """The lowest field that a context can have: `ABSENT`, `START`, or the first token's id."""
        return ABSENT if self.kind == "prefixes" else (START if self.pad else 0)

    @property
    def shortest_document(self) -> int:
        """Number of tokens that a document needs to have a window."""
        return max(1, self.lengths[0] + 1 - self.padding)


@dataclass(frozen=True)
class ContextPacking:
    """The map between contexts of ``length`` fields over ``vocabulary`` tokens and their integer keys."""

    vocabulary: int
    length: int

    def __post_init__(self) -> None:
        if self.length < 1 or self.vocabulary < 1:
            raise StatisticsError(
                "A context needs at least one token, and a vocabulary needs at least one; "
                f"got length {self.length} and vocabulary {self.vocabulary}."
            )

    @property
    def base(self) -> int:
        """Number of codes that a field can have."""
        # A Python integer: powers of a NumPy one would wrap around.
        return int(self.vocabulary) + _CODE_OF_TOKEN_0

    @property
    def fields_per_key(self) -> int:
        """Number of digits in this base that fit below ``2^63``."""
        fields = 1
        while self.base ** (fields + 1) <= _KEY_LIMIT:
            fields += 1
        return fields

    @property
    def spans(self) -> list[range]:
        """The fields in each key; only the first key may have fewer, which preserves the order of contexts."""
        step = self.fields_per_key
        first = self.length % step or step
        bounds = [0, *range(first, self.length + 1, step)]
        return [range(a, b) for a, b in pairwise(bounds)]

    @property
    def columns(self) -> list[str]:
        """Names of the key columns in tables."""
        return [f"context_{key}" for key in range(len(self.spans))]

    def pack(self, fields: Sequence[Any]) -> list[Any]:
        """Keys from fields, each field an id, `START` or `ABSENT`.

        Fields may be integers, arrays or columns of a relational engine: anything with ``+`` and ``*``.
        """
        codes = [field + _CODE_OF_TOKEN_0 for field in fields]
        return [reduce(lambda key, code: key * self.base + code, (codes[i] for i in span)) for span in self.spans]

    def unpack(self, keys: Sequence[Int]) -> NDArray[np.int32]:
        """Fields from keys, one row per context."""
        contexts = np.empty((len(keys[0]), self.length), np.int32)
        for key, span in zip(keys, self.spans, strict=True):
            rest = np.array(key, np.int64)
            for index in reversed(span):
                # Not divmod: NumPy divides by a constant with wide instructions only in floor_divide.
                above = rest // self.base
                contexts[:, index] = rest - above * self.base - _CODE_OF_TOKEN_0
                rest = above
        return contexts


def count_windows(tokens: ibis.Table, windows: Windows, packing: ContextPacking) -> ibis.Table:
    """The query that counts every window of a token table; one expression serves every engine that Ibis supports.

    ``tokens``  Columns ``start`` (whether the row's first token is its document's first), ``lead`` (how many tokens at
                the head of the row were counted with the row before and serve as context only) and ``tokens``.

    Returns
    -------
    The table ``context_0 .. context_k, next, count`` with one row per distinct pair, in any order.
    """
    import ibis

    pairs = [_pairs(tokens, length, windows, packing) for length in windows.lengths]
    pooled = pairs[0] if len(pairs) == 1 else ibis.union(*pairs, distinct=False)
    keys = [*packing.columns, "next"]
    return pooled.group_by(keys).aggregate(count=pooled.count())


def _pairs(tokens: ibis.Table, length: int, windows: Windows, packing: ContextPacking) -> ibis.Table:
    """All windows whose contexts have one length; ``at`` is the position of the next token in its row."""
    import ibis

    ids, padding = tokens.tokens, windows.padding
    lead = tokens.lead
    if padding:
        markers = ibis.array([ibis.literal(START, "int32")] * padding)
        ids = tokens.start.ifelse(markers.concat(ids), ids)
        lead = lead + tokens.start.cast("int32") * padding
    first = ibis.greatest(lead, ibis.literal(length, "int32")).cast("int32")
    rows = tokens.select(ids=ids, first=first)
    # A row without a window would have an empty range to unnest.
    ends = rows.filter(rows.first < rows.ids.length())
    places = ends.select(ends.ids, at=ibis.range(ends.first, ends.ids.length().cast("int32")).unnest())
    absent = [ibis.literal(ABSENT, "int64")] * (packing.length - length)
    # Spark takes no wider index than int32; a row is never that long.
    present = [places.ids[(places.at - back).cast("int32")].cast("int64") for back in range(length, 0, -1)]
    keys = dict(zip(packing.columns, packing.pack([*absent, *present]), strict=True))
    return places.select(**keys, next=places.ids[places.at.cast("int32")].cast("int32"))


def windows_in(rows: TokenRows, windows: Windows, packing: ContextPacking) -> tuple[list[Int], NDArray[np.int32]]:
    """Keys of the context, and next token, of every window in some rows of a token table, in the order of the text."""
    padded = _with_start_markers(rows, windows.padding)
    parts = [_windows_of_length(padded, length, packing) for length in windows.lengths]
    if len(parts) == 1:
        return parts[0]
    keys = [np.concatenate(columns) for columns in zip(*(part[0] for part in parts), strict=True)]
    return keys, np.concatenate([part[1] for part in parts])


def _with_start_markers(rows: TokenRows, padding: int) -> TokenRows:
    """The rows with start markers before the first token of each document, which serve as context only."""
    if not padding:
        return rows
    added = rows.start * padding
    places = np.repeat(np.cumsum(rows.lengths) - rows.lengths, added)
    tokens = np.insert(rows.tokens, places, START)
    return replace(rows, tokens=tokens, lengths=rows.lengths + added, lead=rows.lead + added.astype(np.int32))


def _windows_of_length(rows: TokenRows, length: int, packing: ContextPacking) -> tuple[list[Int], NDArray[np.int32]]:
    tokens = rows.tokens.astype(np.int64)
    is_next = _next_places(rows, length)[length:]
    end = max(tokens.size, length)
    fields = [tokens[back : end - length + back] for back in range(length)]
    absent = [np.int64(ABSENT)] * (packing.length - length)
    # Windows across two rows are packed too, and left out here: that is faster than leaving out each of their tokens.
    keys = [np.broadcast_to(key, is_next.shape)[is_next] for key in packing.pack([*absent, *fields])]
    return keys, rows.tokens[length:][is_next]


def _next_places(rows: TokenRows, length: int) -> NDArray[np.bool_]:
    """Whether each token is the next token of a context of that length."""
    is_next = np.ones(rows.tokens.size, np.bool_)
    begin, first = np.cumsum(rows.lengths) - rows.lengths, np.maximum(rows.lead, length)
    for place in range(int(first.max(initial=0))):
        is_next[begin[(place < first) & (place < rows.lengths)] + place] = False
    return is_next
