"""Contexts as a few wide integers, one to one.

A context is a row of L fields, and a field is one of ``V + 2`` codes::

    0            absent: the context is shorter than L (pooled prefixes)
    1            the start of a document (padding)
    2 + z        token z

Fields are the digits of a number in base ``V + 2``, newest token last, cut into words that each stay below
``2^63`` so that signed and unsigned engines agree. The map is one to one: unlike a hash, two contexts never share
a key, and the order of keys is the order of contexts (shorter ones first, then by ids).

The relational plan: from a token table to counted pairs of context and next token.

One expression serves every engine that Ibis speaks to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from tokengeom.errors import StatisticsError

if TYPE_CHECKING:
    import ibis


ABSENT, START = -2, -1
"""What a field that holds no token is called in `NextTokenStatistics.contexts`; a token is its id, 0 or more."""

_CODE_OF_TOKEN_0 = 2
_WORD_LIMIT = 2**63


@dataclass(frozen=True)
class ContextPacking:
    """How contexts of ``length`` fields over ``vocabulary`` tokens become words."""

    vocabulary: int
    length: int

    def __post_init__(self) -> None:
        if self.length < 1 or self.vocabulary < 1:
            raise StatisticsError(
                "A context needs at least one token of a vocabulary of at least one; "
                f"got length {self.length} and vocabulary {self.vocabulary}."
            )

    @property
    def base(self) -> int:
        """Number of codes that a field can take."""
        # A Python integer: powers of a NumPy one would wrap around.
        return int(self.vocabulary) + _CODE_OF_TOKEN_0

    @property
    def fields_per_word(self) -> int:
        """How many digits of this base fit below ``2^63``."""
        fields = 1
        while self.base ** (fields + 1) <= _WORD_LIMIT:
            fields += 1
        return fields

    @property
    def spans(self) -> list[range]:
        """The fields that each word holds; only the first word may be short, so that order is kept."""
        step = self.fields_per_word
        first = self.length % step or step
        bounds = [0, *range(first, self.length + 1, step)]
        return [range(a, b) for a, b in pairwise(bounds)]

    @property
    def columns(self) -> list[str]:
        """Names of the word columns in every relational table."""
        return [f"context_{word}" for word in range(len(self.spans))]

    def pack(self, fields: Sequence[Any]) -> list[Any]:
        """Words from fields, each field an id, `START` or `ABSENT`.

        The fields may be integers, arrays or columns of a relational engine: anything with ``+`` and ``*``.
        """
        codes = [field + _CODE_OF_TOKEN_0 for field in fields]
        return [reduce(self._append, (codes[index] for index in span)) for span in self.spans]

    def _append(self, word: Any, code: Any) -> Any:
        return word * self.base + code

    def unpack(self, words: Sequence[NDArray[np.int64]]) -> NDArray[np.int32]:
        """Fields, a row a context, from words."""
        contexts = np.empty((len(words[0]), self.length), np.int32)
        for word, span in zip(words, self.spans, strict=True):
            rest = np.array(word, np.int64)
            for index in reversed(span):
                # Not divmod: NumPy divides by a constant with wide instructions only in floor_divide.
                above = rest // self.base
                contexts[:, index] = rest - above * self.base - _CODE_OF_TOKEN_0
                rest = above
        return contexts


WindowKind = Literal["sliding", "prefixes"]
LONGEST_CONTEXT = 64


@dataclass(frozen=True)
class Windows:
    """Which pairs of context and next token are taken from a document ``x_0 ... x_{N-1}``.

    ``sliding``
        Contexts of exactly ``context`` tokens: ``(x_{i-L} .. x_{i-1}) -> x_i`` for every ``i >= L``.
    ``prefixes``
        Contexts of every length from 1 to ``context``, pooled: what a network trained on all positions of
        every window sees (autoregressive mode).

    With ``pad``, a document is preceded by its start: by L start markers for sliding windows, so that every token
    is predicted once, and by a single one for prefixes, so that the first token has a context too.
    """

    context: int
    kind: WindowKind = "sliding"
    pad: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.context <= LONGEST_CONTEXT:
            raise StatisticsError(f"The context must have between 1 and {LONGEST_CONTEXT} tokens; got {self.context}.")
        if self.kind not in ("sliding", "prefixes"):
            raise StatisticsError(f"The windows must be 'sliding' or 'prefixes'; got '{self.kind}'.")

    @property
    def lengths(self) -> range:
        """The lengths of context that are counted."""
        return range(1 if self.kind == "prefixes" else self.context, self.context + 1)

    @property
    def padding(self) -> int:
        """Number of start markers before a document."""
        if not self.pad:
            return 0
        return 1 if self.kind == "prefixes" else self.context

    @property
    def shortest_document(self) -> int:
        """Number of tokens that a document needs to hold at least one window."""
        return max(1, self.lengths[0] + 1 - self.padding)


def count_windows(tokens: ibis.Table, windows: Windows, packing: ContextPacking) -> ibis.Table:
    """Count every window of a token table.

    Parameters
    ----------
    tokens
        Columns ``start`` (whether the row's first token is its document's first), ``lead`` (how many tokens at
        the row's head were counted with the row before and serve as context only) and ``tokens``.

    Returns
    -------
    The table ``context_0 .. context_k, next, count`` with one row a distinct pair, in no order.
    """
    import ibis

    pairs = [_pairs(tokens, length, windows, packing) for length in windows.lengths]
    pooled = pairs[0] if len(pairs) == 1 else ibis.union(*pairs, distinct=False)
    keys = [*packing.columns, "next"]
    return pooled.group_by(keys).aggregate(count=pooled.count())


def _pairs(tokens: ibis.Table, length: int, windows: Windows, packing: ContextPacking) -> ibis.Table:
    """All windows with contexts of one length; ``at`` is the place of the next token in its row."""
    import ibis

    ids, padding = tokens.tokens, windows.padding
    lead = tokens.lead
    if padding:
        markers = ibis.array([ibis.literal(START, "int32")] * padding)
        ids = tokens.start.ifelse(markers.concat(ids), ids)
        lead = lead + tokens.start.cast("int32") * padding
    first = ibis.greatest(lead, ibis.literal(length, "int32")).cast("int32")
    rows = tokens.select(ids=ids, first=first)
    # Unnesting an empty range drops the row in every engine: such a row holds no window.
    ends = rows.filter(rows.first < rows.ids.length())
    places = ends.select(ends.ids, at=ibis.range(ends.first, ends.ids.length().cast("int32")).unnest())
    absent = [ibis.literal(ABSENT, "int64")] * (packing.length - length)
    # Spark takes no wider index than int32; a row is never that long.
    present = [places.ids[(places.at - back).cast("int32")].cast("int64") for back in range(length, 0, -1)]
    words = dict(zip(packing.columns, packing.pack([*absent, *present]), strict=True))
    return places.select(**words, next=places.ids[places.at.cast("int32")].cast("int32"))
