"""What a tokenizer is: text to ids and back, saved as one text whose hash names it."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from tokengeom.corpus.source import Ids


class AbstractTokenizer(ABC):
    """Turns text into ids and ids into text.

    Some tokenizers learn their vocabulary while they encode (see `grows`). Such a one is frozen before it is saved
    or hashed, and a frozen one refuses text that it cannot write.
    """

    kind: str
    """``word``, ``character``, ``byte`` or ``huggingface``."""

    grows: bool = False
    """Whether `encode` still adds new tokens to the vocabulary."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of tokens V in the vocabulary, at this moment."""

    @property
    def cuts_at_gaps(self) -> bool:
        """Whether a text may be cut before white space and its parts encoded apart, with the same ids as the whole."""
        return True

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Ids of each text."""

    @abstractmethod
    def token(self, identifier: int) -> str:
        """One token as a person reads it."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Text of a sequence of ids."""

    @abstractmethod
    def to_json(self) -> str:
        """Everything needed to make this tokenizer again."""

    def freeze(self) -> AbstractTokenizer:
        """The same tokenizer with its vocabulary closed."""
        return self

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 of `to_json`: equal hashes mean equal ids for every text."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def vocabulary(self) -> list[str]:
        """Every token as a person reads it, in the order of ids."""
        return [self.token(identifier) for identifier in range(self.size)]


def ids_array(values: Sequence[int]) -> Ids:
    """A sequence of ids as an array."""
    return np.asarray(values, dtype=np.int32)
