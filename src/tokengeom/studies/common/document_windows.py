"""Windows of a text with the document that each comes from, so that counts of any part of the text are a quick sum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np
from scipy import sparse

from tokengeom.corpus.stories import stories
from tokengeom.corpus.tokenizers import WordTokenizer
from tokengeom.errors import InputError
from tokengeom.numerics import Bool, Int
from tokengeom.statistics.supports import canonical
from tokengeom.studies.base import Recipe

Window = tuple[str, ...]
"""Tokens of a context, and the next token."""
Part = TypeVar("Part", str, Window)

END = "<|endoftext|>"
"""Separates the documents of a text file."""


@dataclass(frozen=True, eq=False)
class DocumentWindows:
    """One entry per window: the document, the context and the next token, on fixed contexts and a fixed vocabulary.

    ``shape``
        Numbers of tokens V and contexts m.
    ``documents``
        Number of documents, those without a window included.
    """

    document: Int
    context: Int
    token: Int
    shape: tuple[int, int]
    documents: int

    @staticmethod
    def of(texts: Iterable[str], length: int, contexts: int, vocabulary: int) -> DocumentWindows:
        """Windows whose context is among the most frequent of the whole text, and whose next token is too.

        ``length`` is the number of tokens of a context. The vocabulary has the tokens that follow the chosen contexts
        most often; windows with another next token are left out.
        """
        split = [WordTokenizer.split(text) for text in texts]
        seen: Counter[Window] = Counter()
        for tokens in split:
            seen.update(_windows(tokens, length))
        column = _numbered(seen, lambda window: window[:-1], contexts)
        chosen = Counter({window: count for window, count in seen.items() if window[:-1] in column})
        row = _numbered(chosen, lambda window: window[-1], vocabulary)
        found = [
            (number, column[window[:-1]], row[window[-1]])
            for number, tokens in enumerate(split)
            for window in _windows(tokens, length)
            if window[:-1] in column and window[-1] in row
        ]
        if not found:
            raise InputError("The text has no windows: it needs documents that are longer than a context.")
        document, context, token = np.array(found, np.int64).T
        return DocumentWindows(document, context, token, (len(row), len(column)), len(split))

    def counts(self, documents: Bool | None = None) -> sparse.csc_array:
        """Counts of tokens after contexts, V x m, in some of the documents or in all."""
        kept = slice(None) if documents is None else documents[self.document]
        token, context = self.token[kept], self.context[kept]
        return canonical(sparse.coo_array((np.ones(token.size, np.int64), (token, context)), shape=self.shape))

    def save(self, path: str | Path) -> None:
        """Write an .npz file, for machines that do not have the text."""
        sizes = np.array([*self.shape, self.documents])
        parts = {name: getattr(self, name).astype(np.int32) for name in ("document", "context", "token")}
        np.savez_compressed(path, **parts, sizes=sizes)

    @staticmethod
    def load(path: str | Path) -> DocumentWindows:
        """Windows that `save` wrote."""
        with np.load(path) as file:
            parts = [file[name].astype(np.int64) for name in ("document", "context", "token")]
            V, m, documents = (int(size) for size in file["sizes"])
        return DocumentWindows(parts[0], parts[1], parts[2], (V, m), documents)


def load_windows(text: str, recipe: Recipe) -> DocumentWindows:
    """Windows of the built-in stories ("stories"), of an .npz file, or of a text file of documents."""
    sizes = recipe["context"], recipe["contexts"], recipe["vocabulary"]
    if text == "stories":
        return DocumentWindows.of(islice(stories(recipe["seed"]), recipe["stories"]), *sizes)
    path = Path(text)
    if not path.is_file():
        raise InputError(f"A text must be 'stories', an .npz file of windows, or a text file; got {text!r}.")
    if path.suffix == ".npz":
        return DocumentWindows.load(path)
    return DocumentWindows.of(filter(str.strip, path.read_text(encoding="utf-8").split(END)), *sizes)


def _windows(tokens: Sequence[str], length: int) -> Iterable[Window]:
    return zip(*(tokens[start:] for start in range(length + 1)), strict=False)


def _numbered(windows: Mapping[Window, int], part: Callable[[Window], Part], most: int) -> dict[Part, int]:
    """The most frequent parts of windows, numbered from the most frequent; ties in the order of their names."""
    totals: Counter[Part] = Counter()
    for window, count in windows.items():
        totals[part(window)] += count
    order = sorted(totals.items(), key=lambda entry: (-entry[1], entry[0]))
    return {name: number for number, (name, _) in enumerate(order[:most])}
