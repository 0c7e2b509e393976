r"""`NamedVectors`: one vector per token or context, with its name and how frequent it is; as a table or for export.

Names are written into files in one of two forms, and both can be read back without loss:

``one_line``
    A backslash becomes ``\\``, and every control character, line break and half of a surrogate pair ``\uXXXX``. An
    empty name becomes ``\e``.
``one_word``
    The same, and a space becomes ``▁`` (U+2581, as SentencePiece writes it), and ``▁`` itself and every other white
    space ``\uXXXX``.

`numbered` makes equal names different: the second is followed by ``\#2``, the third by ``\#3``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from tokengeom.core.errors import InputError
from tokengeom.core.factors import Factors, HasFactors
from tokengeom.core.numerics import Float, Int
from tokengeom.results.contract import data_frame

if TYPE_CHECKING:
    from pandas import DataFrame

Items = Literal["tokens", "contexts"]
SPACE = "\u2581"
EMPTY = "\\e"
SUPPORT_COLUMN: dict[Items, str] = {"tokens": "contexts", "contexts": "support_size"}
"""What `NamedVectors.supports` counts: contexts that a token follows, and tokens that follow a context."""
_CONTROL = "\\\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"
_NOT_IN_LINE = re.compile(f"[{_CONTROL}]")
_NOT_IN_WORD = re.compile(f"[{_CONTROL}{SPACE} \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")


class NamesItems(Protocol):
    """Statistics, as far as they name tokens and contexts and say how frequent these are."""

    @property
    def V(self) -> int:
        """Number of tokens."""

    @property
    def m(self) -> int:
        """Number of contexts."""

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """Names of the tokens."""

    @property
    def hash(self) -> str:
        """Hash of the statistics."""

    @property
    def pi(self) -> Float:
        """Shares of the contexts, m."""

    @property
    def P(self) -> Any:
        """Probabilities of the next token, V x m, sparse."""

    @property
    def support_sizes(self) -> Int:
        """Number of tokens that follow each context, m."""

    def context_text(self, j: int) -> str:
        """Name of context j."""


@dataclass(frozen=True, eq=False)
class NamedVectors:
    """Vectors of all tokens or all contexts, with their names.

    ``items``
        "tokens" or "contexts".
    ``names``
        One name per vector, as statistics show it; "token 0", "token 1", ... where there are no statistics.
    ``matrix``, ``mean``
        Rows of W (V x d) and their mean, or columns of H (m x d) and 0. A vector is a row of the first without the
        second: removing the mean of all tokens changes no probability, and cosines between tokens are compared so.
    ``frequency``
        Share of the windows with this context, or with this next token; None where not known.
    ``supports``
        Number of contexts that a token follows, or of tokens that follow a context; None where not known.
    """

    items: Items
    names: tuple[str, ...]
    matrix: Float
    mean: Float
    frequency: Float | None
    supports: Int | None

    @staticmethod
    def of(given: HasFactors | tuple[object, object], items: Items, stats: NamesItems | None = None) -> NamedVectors:
        """Vectors of anything with W and H, named by the statistics that it belongs to."""
        if items not in SUPPORT_COLUMN:
            raise InputError(f"items must be tokens or contexts; got {items!r}.")
        factors = Factors.of(given)
        matrix = factors.W if items == "tokens" else factors.H.T
        mean = factors.W.mean(axis=0) if items == "tokens" else np.zeros(matrix.shape[1])
        if stats is None:
            names = tuple(f"{items[:-1]} {number}" for number in range(len(matrix)))
            return NamedVectors(items, names, matrix, mean, None, None)
        require_same_items(given, factors, stats)
        if items == "tokens":
            frequency = np.asarray(stats.P @ stats.pi)
            supports = np.bincount(stats.P.indices, minlength=stats.V).astype(np.int64)
        else:
            frequency, supports = stats.pi, stats.support_sizes
        return NamedVectors(items, item_names(stats, items), matrix, mean, frequency, supports)

    @property
    def vectors(self) -> Float:
        """All vectors, one per row."""
        return self.rows(0, len(self.names))

    def rows(self, begin: int, end: int) -> Float:
        """Some of the vectors, one per row."""
        return np.asarray(self.matrix[begin:end] - self.mean)

    def columns(self) -> dict[str, NDArray[Any]]:
        """What is known about each item besides its name."""
        found = {"frequency": self.frequency, SUPPORT_COLUMN[self.items]: self.supports}
        return {name: values for name, values in found.items() if values is not None}

    def to_frame(self) -> DataFrame:
        """Data frame with one row per item, indexed by name: what is known about it, then coordinates x0, x1, ..."""
        coordinates = [f"x{k}" for k in range(self.matrix.shape[1])]
        frame = data_frame(self.vectors, columns=coordinates)
        for place, (name, values) in enumerate(self.columns().items()):
            frame.insert(place, name, values)
        frame.index = list(self.names)
        frame.index.name = self.items[:-1]
        return frame


def item_names(stats: NamesItems, items: Items) -> tuple[str, ...]:
    """Names of all tokens or contexts of statistics, in their order."""
    return stats.vocabulary if items == "tokens" else tuple(map(stats.context_text, range(stats.m)))


def require_same_items(given: object, factors: Factors, stats: NamesItems) -> None:
    """Refuse statistics that other embeddings belong to: their names would be wrong."""
    known = getattr(given, "statistics_hash", None)
    if known is not None and known != stats.hash:
        raise InputError(
            f"The embeddings of this {type(given).__name__} are for other statistics (hash {known[:8]}) than these "
            f"({stats.hash[:8]}): it was predicted from, or trained on, another text or other cuts. Pass its own "
            "statistics."
        )
    if (factors.W.shape[0], factors.H.shape[1]) != (stats.V, stats.m):
        raise InputError(
            f"Names must come from the statistics that the embeddings are for: W and H have {factors.W.shape[0]:,} "
            f"tokens and {factors.H.shape[1]:,} contexts, the statistics {stats.V:,} and {stats.m:,}."
        )


def one_line(name: str) -> str:
    """A name without line breaks, tabs and other control characters; see the top of this file."""
    return _NOT_IN_LINE.sub(_escaped, name) or EMPTY


def one_word(name: str) -> str:
    """A name without white space and control characters; see the top of this file."""
    return _NOT_IN_WORD.sub(_escaped, name) or EMPTY


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    return {"\\": "\\\\", " ": SPACE}.get(character) or f"\\u{ord(character):04x}"


def numbered(names: Iterable[str]) -> list[str]:
    """The names, all different: an equal one is followed by its number."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = number = seen.get(name, 0) + 1
        found.append(name if number == 1 else f"{name}\\#{number}")
    return found
