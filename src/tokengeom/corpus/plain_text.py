"""Plain text: documents between blank lines, between markers, or one a file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tokengeom.corpus.opening import AbstractUtf8Source, Errors
from tokengeom.corpus.source import PIECE_CHARACTERS, OnBytes, Piece
from tokengeom.errors import CorpusError

AUTO = "auto"
BLANK_LINE = "blank"
WHOLE_FILE = "file"
KNOWN_MARKER = "<|endoftext|>"

_BLANK = re.compile(r"\n[^\S\n]*\n\s*")
# White space between two visible characters: no tokenizer here makes one token of both sides.
_GAP = re.compile(r"(?<=\S)\s+(?=\S)")


class PlainText(AbstractUtf8Source):
    """Documents of a text file.

    Parameters
    ----------
    path
        The file, or ``-`` for standard input.
    separator
        ``"blank"``: one or more blank lines; ``"file"``: the file is one document; ``"auto"``: the marker
        ``<|endoftext|>`` if the first mebibyte has it, else blank lines; anything else: that marker.
    errors
        ``"strict"`` or ``"replace"``, for bytes that are not UTF-8.

    White space around a document is not part of it, and a document of white space alone is none.
    """

    def __init__(self, path: Path, separator: str = AUTO, errors: Errors = "strict") -> None:
        super().__init__(path, errors)
        if not separator:
            raise CorpusError("The separator between documents must not be empty: give blank, file or a marker.")
        self.separator = separator

    def pieces(self, on_bytes: OnBytes = lambda _: None) -> Iterator[Piece]:
        """Yield each document, in pieces if it is long."""
        waiting, starts = "", True
        searched = 0
        for chunk in self._text(on_bytes):
            if self.separator == AUTO and chunk:
                self.separator = KNOWN_MARKER if KNOWN_MARKER in chunk else BLANK_LINE
            *finished, waiting = self._split(waiting + chunk)
            for text in finished:
                yield from _stripped(text, starts, ends=True)
                starts, searched = True, 0
            if len(waiting) > PIECE_CHARACTERS:
                cut = self._safe_cut(waiting, searched)
                searched = 0 if cut else len(waiting) - len(self.separator)
                if cut:
                    yield from _stripped(waiting[:cut], starts, ends=False)
                    waiting, starts = waiting[cut:], False
        yield from _stripped(waiting, starts, ends=True)

    def _split(self, text: str) -> list[str]:
        match self.separator:
            case "file":
                return [text]
            case "blank":
                return _BLANK.split(text)
            case marker:
                return text.split(marker)

    def _safe_cut(self, text: str, searched: int) -> int:
        """Where the last gap between two words starts; 0 if there is none, as is known up to ``searched``."""
        # A marker may hold white space and be cut in two by the end of a chunk: that much stays behind.
        end = len(text) - len(self.separator)
        # Words are short: looking at the last few thousand characters first avoids a scan of everything.
        for begin in (max(0, end - 4096), max(0, searched - 1)):
            gaps = [match.start() for match in _GAP.finditer(text, begin, end)]
            if gaps:
                return gaps[-1]
        return 0


def _stripped(text: str, starts: bool, ends: bool) -> Iterator[Piece]:
    if starts:
        text = text.lstrip()
    if ends:
        text = text.rstrip()
    if text:
        yield Piece(text, starts)
