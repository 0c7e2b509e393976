"""What a corpus is to the rest of the house: a stream of documents, as text or as token ids.

Streams are cut so that memory does not grow with the input: a long document arrives in several pieces, and many
short documents arrive in one batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]
OnBytes = Callable[[int], None]

PIECE_CHARACTERS = 1 << 20
"""A document longer than this is handed on in pieces, each cut where a word ends."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of one document's text. ``starts`` says whether a new document starts with it."""

    text: str
    starts: bool = True


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Documents as ids, laid end to end.

    ``tokens``
        All ids of the batch.
    ``lengths``
        Length of each document's stretch in the batch; they add up to ``tokens.size``.
    ``continues``
        Whether the first stretch goes on with the last document of the batch before.
    """

    tokens: Ids
    lengths: NDArray[np.int64]
    continues: bool = False


def _ignore(_: int) -> None:
    """Nobody watches the bytes go by."""


class AbstractSource(ABC):
    """Something that documents can be read from."""

    name: str
    """What messages call it: a path, ``standard input``, ``<list of 3 documents>``."""

    size: int | None = None
    """Length in bytes, as far as progress is concerned; None when it cannot be known."""

    repeatable: bool = True
    """Whether the documents can be read more than once."""

    def __init__(self, name: str) -> None:
        self.name = name


class AbstractTextSource(AbstractSource):
    """Documents as text."""

    replaced_bytes: int = 0
    """Bytes that were not valid UTF-8 and were replaced by U+FFFD, in the last full reading."""

    @abstractmethod
    def pieces(self, on_bytes: OnBytes = _ignore) -> Iterator[Piece]:
        """Yield the text; ``on_bytes`` hears how many bytes of the source went by since it was last called."""


class AbstractTokenSource(AbstractSource):
    """Documents as ids that some tokenizer made before."""

    @abstractmethod
    def batches(self, on_bytes: OnBytes = _ignore) -> Iterator[TokenBatch]:
        """Yield the ids; ``on_bytes`` hears how many bytes of the source went by since it was last called."""
