"""Contexts as a few wide integers, one to one.

A context is a row of L fields, and a field is one of ``V + 2`` codes::

    0            absent: the context is shorter than L (pooled prefixes)
    1            the start of a document (padding)
    2 + z        token z

Fields are the digits of a number in base ``V + 2``, newest token last, cut into words that each stay below
``2^63`` so that signed and unsigned engines agree. The map is one to one: unlike a hash, two contexts never share
a key, and the order of keys is the order of contexts (shorter ones first, then by ids).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokengeom.errors import StatisticsError

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
