"""The relational plan: from a token table to counted pairs of context and next token.

One expression serves every engine that Ibis speaks to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tokengeom.errors import StatisticsError
from tokengeom.statistics.packing import ABSENT, START, ContextPacking

if TYPE_CHECKING:
    import ibis

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
