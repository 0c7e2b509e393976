"""JSON lines: one object a line, the document under a named key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from tokengeom.corpus.opening import AbstractUtf8Source, Errors
from tokengeom.corpus.source import OnBytes, Piece
from tokengeom.errors import CorpusError


class JsonLines(AbstractUtf8Source):
    """Documents of a ``.jsonl`` file; empty lines and empty documents are passed over."""

    def __init__(self, path: Path, column: str = "text", errors: Errors = "strict") -> None:
        super().__init__(path, errors)
        self.column = column

    def pieces(self, on_bytes: OnBytes = lambda _: None) -> Iterator[Piece]:
        """Yield the document of each line."""
        for number, line in enumerate(_lines(self._text(on_bytes)), start=1):
            if line.strip() and (text := self._document(line, number)).strip():
                yield Piece(text)

    def _document(self, line: str, number: int) -> str:
        where = f"{self.name}, line {number:,}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise CorpusError(f"{where} cannot be read as JSON: {error}.") from error
        if not isinstance(record, dict) or self.column not in record:
            keys = ", ".join(map(str, record)) if isinstance(record, dict) else f"a {type(record).__name__}"
            raise CorpusError(f"{where} has no key '{self.column}'; it has: {keys}. Name the right one with --column.")
        text = record[self.column]
        if not isinstance(text, str):
            raise CorpusError(f"{where}: '{self.column}' must be a string; it is a {type(text).__name__}.")
        return text


def _lines(chunks: Iterator[str]) -> Iterator[str]:
    # Not str.splitlines: it also breaks at U+2028 and others, which JSON strings may hold.
    waiting: list[str] = []
    for chunk in chunks:
        head, *rest = chunk.split("\n")
        waiting.append(head)
        for line in rest:
            yield "".join(waiting)
            waiting = [line]
    yield "".join(waiting)
