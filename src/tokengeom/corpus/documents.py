"""Sources of documents: the interface of every source, and the readers of plain text and JSON lines; what tokens suit.

A corpus is a stream of documents, as text or as token ids. Memory does not grow with its size: a long document is read
in several pieces, and many short documents in one batch.
"""

from __future__ import annotations

import codecs
import io
import json
import re
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tokengeom.core.errors import CorpusError, ResourceError
from tokengeom.core.numerics import rounded_percent
from tokengeom.corpus.files import STANDARD_INPUT, Errors, OnBytes, byte_chunks, file_size, ignore_bytes

Ids = NDArray[np.int32]

PIECE_CHARACTERS = 1 << 20
"""A longer document is read in pieces of about this length."""
_NEAR = 4096
"""Characters at the end of a text in which a place to split it is looked for first."""
DEFAULT_MEMORY = 2 * 10**9
"""Bytes of memory that reading may take where no limit is given."""
UNSPACED = {
    "Han": (0x3400, 0x9FFF),
    "rare Han": (0x20000, 0x323AF),
    "compatibility Han": (0xF900, 0xFAFF),
    "Hiragana or Katakana": (0x3040, 0x30FF),
    "Thai": (0x0E00, 0x0E7F),
    "Lao": (0x0E80, 0x0EFF),
    "Tibetan": (0x0F00, 0x0FFF),
    "Myanmar": (0x1000, 0x109F),
    "Khmer": (0x1780, 0x17FF),
}
"""Scripts written without spaces between words, by the range of their characters in Unicode."""
FEWEST_SPACES = 0.02
"""Share of white space below which it cannot separate words: words would have 50 characters."""
CODE_MARKS = frozenset("{}()[]=;_")
MOST_MARKS, MOST_INDENTED = 0.045, 0.2
"""A text with more of these marks among its visible characters, and more indented lines, is taken for code."""
END_MARKS, MARKERS = ".,", re.compile(r"<unk>|\[UNK\]|@[^\w\s]@")
FEWEST_PIECES, MOST_ATTACHED, FEWEST_MARKERS = 20, 0.2, 0.001
"""A text with at least this many pieces between white space that end in a comma or a full stop, of which at most this
share are more than the mark, is split into tokens already; so is one with this share of `MARKERS` among its pieces."""
_ESCAPED_BYTE = re.compile("[\udc80-\udcff]")
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of one document's text; ``starts`` says whether it is the document's first.

    A document may be split anywhere: whoever tokenizes pieces joins them where a token may span two of them.
    """

    text: str
    starts: bool = True


def pieces_of(text: str) -> Iterator[Piece]:
    """A document in pieces; a document without visible characters has none."""
    if text and (text[0] > " " or text.strip()):
        for begin in range(0, len(text), PIECE_CHARACTERS):
            yield Piece(text[begin : begin + PIECE_CHARACTERS], starts=begin == 0)


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Documents as token ids, one after the other.

    ``tokens``     All ids of the batch.
    ``lengths``    Number of ids of each document, or part of a document, in the batch; they add up to ``tokens.size``.
    ``continues``  Whether the first ids continue the last document of the batch before.
    """

    tokens: Ids
    lengths: NDArray[np.int64]
    continues: bool = False


class AbstractSource(ABC):
    """Something to read documents from."""

    name: str
    """Its name in messages: a path, ``standard input``, ``<3 documents>``."""

    size: int | None = None
    """Length in bytes, for progress; None if unknown."""

    repeatable: bool = True
    """Whether the documents can be read more than once."""

    memory: int = DEFAULT_MEMORY
    """Bytes of memory that reading may take; what needs more is refused."""

    def __init__(self, name: str) -> None:
        self.name = name

    def require_memory(self, needed: int, what: str) -> None:
        """Refuse something that must be held in memory whole and does not fit."""
        if needed > self.memory:
            raise ResourceError(
                f"{self.name}: {what} must be held in memory whole and needs {needed / 1e6:,.0f} MB; the limit is "
                f"{self.memory / 1e6:,.0f} MB. Raise --memory, or split the documents into smaller ones."
            )


class AbstractTextSource(AbstractSource):
    """Documents as text."""

    replaced_bytes: int = 0
    """Number of bytes that were not valid UTF-8 and were replaced by U+FFFD, when it was last read to the end."""

    @abstractmethod
    def pieces(self, on_bytes: OnBytes = ignore_bytes) -> Iterator[Piece]:
        """Yield the text; ``on_bytes`` is called with the number of bytes read since its last call."""


class AbstractTokenSource(AbstractSource):
    """Documents as token ids."""

    @abstractmethod
    def batches(self, on_bytes: OnBytes = ignore_bytes) -> Iterator[TokenBatch]:
        """Yield the ids; ``on_bytes`` is called with the number of bytes read since its last call."""


class AbstractUtf8Source(AbstractTextSource):
    """A text source over one UTF-8 file, read in chunks, with every kind of line end as a line feed.

    With ``errors="replace"`` every byte that is not valid UTF-8 becomes one U+FFFD and is counted; with
    ``errors="strict"`` the first one is an error that names its position.
    """

    def __init__(self, path: Path, errors: Errors) -> None:
        super().__init__("standard input" if path == STANDARD_INPUT else str(path))
        self._path, self._errors = path, errors
        self.size = file_size(path)
        self.repeatable = path != STANDARD_INPUT

    def _text(self, on_bytes: OnBytes) -> Iterator[str]:
        # surrogateescape maps each bad byte to one lone surrogate, so bytes can be counted.
        policy = "strict" if self._errors == "strict" else "surrogateescape"
        decoder = codecs.getincrementaldecoder("utf-8-sig")(errors=policy)
        newlines = io.IncrementalNewlineDecoder(None, translate=True)
        offset = self.replaced_bytes = 0
        for chunk in byte_chunks(self._path, on_bytes):
            yield newlines.decode(self._decode(decoder, chunk, offset, final=False))
            offset += len(chunk)
        yield newlines.decode(self._decode(decoder, b"", offset, final=True), final=True)

    def _decode(self, decoder: codecs.IncrementalDecoder, chunk: bytes, offset: int, final: bool) -> str:
        self._refuse_other_encodings(chunk, offset)
        pending = len(decoder.getstate()[0])
        try:
            text = decoder.decode(chunk, final)
        except UnicodeDecodeError as error:
            where = offset - pending + error.start
            bad = error.object[error.start]
            raise CorpusError(
                f"{self.name} is not valid UTF-8: byte 0x{bad:02x} at position {where:,}. "
                "Convert the file, or pass --errors replace to read each invalid byte as U+FFFD."
            ) from error
        if self._errors == "replace":
            text, replaced = _ESCAPED_BYTE.subn("\ufffd", text)
            self.replaced_bytes += replaced
        return text

    def _refuse_other_encodings(self, chunk: bytes, offset: int) -> None:
        if offset == 0 and chunk.startswith(_UTF16_MARKS):
            raise CorpusError(
                f"{self.name} is not UTF-8: it begins with the mark of UTF-16. Convert it first, as in: "
                f"iconv -f UTF-16 -t UTF-8"
            )
        if b"\0" in chunk:
            raise CorpusError(
                f"{self.name} is not text: byte {offset + chunk.index(0):,} is zero. "
                "Token files need --format bin; UTF-16 text must be converted to UTF-8 first."
            )


AUTO = "auto"
BLANK_LINE = "blank"
KNOWN_MARKER = "<|endoftext|>"

_BLANK = re.compile(r"\n[^\S\n]*\n\s*")
_LONGEST_WHITE_SPACE = 1 << 24


class PlainText(AbstractUtf8Source):
    """Documents of a text file.

    ``path``       The file, or ``-`` for standard input.
    ``separator``  ``"blank"``: one or more blank lines; ``"file"``: the file is one document; ``"auto"``: the marker
                   ``<|endoftext|>`` if the first mebibyte has it, else blank lines; anything else: that marker.
    ``errors``     ``"strict"`` or ``"replace"``, for bytes that are not UTF-8.

    White space around a document is removed, and documents of white space alone are skipped.
    """

    def __init__(self, path: Path, separator: str = AUTO, errors: Errors = "strict") -> None:
        if not separator:
            raise CorpusError("The separator between documents must not be empty: use blank, file or a marker.")
        super().__init__(path, errors)
        self.separator = separator

    def pieces(self, on_bytes: OnBytes = ignore_bytes) -> Iterator[Piece]:
        waiting, starts = "", True
        for chunk in self._text(on_bytes):
            if self.separator == AUTO and chunk:
                self.separator = KNOWN_MARKER if KNOWN_MARKER in chunk else BLANK_LINE
            *finished, waiting = self._split(waiting + chunk)
            for text in finished:
                yield from _stripped(text, starts, ends=True)
                starts = True
            if len(waiting) > PIECE_CHARACTERS:
                begin, end = self._complete(waiting, starts)
                if end > begin:
                    yield Piece(waiting[begin:end], starts)
                    starts = False
                waiting = waiting[end:]
                self._refuse_vast_white_space(waiting)
        yield from _stripped(waiting, starts, ends=True)

    def _split(self, text: str) -> list[str]:
        match self.separator:
            case "file":
                return [text]
            case "blank":
                return _BLANK.split(text)
            case marker:
                return text.split(marker)

    def _complete(self, text: str, starts: bool) -> tuple[int, int]:
        """Begin and end of what surely belongs to the document: not to a separator or to the white space around it."""
        # The beginning of a marker may stand at the end of a chunk, so a marker's length is kept back.
        kept_back = 0 if self.separator in (BLANK_LINE, "file") else len(self.separator)
        sure = text[: max(len(text) - kept_back, 0)]
        end = len(sure.rstrip())
        if not starts:
            return 0, end
        return (len(sure) - len(sure.lstrip()), end) if end else (len(sure), len(sure))

    def _refuse_vast_white_space(self, waiting: str) -> None:
        if len(waiting) > _LONGEST_WHITE_SPACE:
            raise CorpusError(
                f"{self.name} has more than {_LONGEST_WHITE_SPACE:,} characters of white space in a row inside a "
                "document, which is more than is read. Remove them."
            )


def _stripped(text: str, starts: bool, ends: bool) -> Iterator[Piece]:
    if starts:
        text = text.lstrip()
    if ends:
        text = text.rstrip()
    if text:
        yield Piece(text, starts)


class JsonLines(AbstractUtf8Source):
    """Documents of a ``.jsonl`` file, one object per line; empty lines and empty documents are skipped."""

    def __init__(self, path: Path, column: str = "text", errors: Errors = "strict") -> None:
        super().__init__(path, errors)
        self.column = column

    def pieces(self, on_bytes: OnBytes = ignore_bytes) -> Iterator[Piece]:
        lines = self._lines(on_bytes)
        number = 0
        # No variable holds a line while its document is processed: both can be long.
        while (text := self._document(next(lines, None), number := number + 1)) is not None:
            yield from pieces_of(text)

    def _document(self, line: str | None, number: int) -> str | None:
        """The document in a line: empty in an empty line, and None after the last one."""
        if line is None or not line or line.isspace():
            return None if line is None else ""
        where = f"{self.name}, line {number:,}"
        if len(line) > PIECE_CHARACTERS:
            self.require_memory(_bytes_of_json(line), f"line {number:,} of {len(line):,} characters")
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise CorpusError(f"{where} cannot be read as JSON: {error}. Mend or remove the line.") from error
        if not isinstance(record, dict) or self.column not in record:
            raise CorpusError(f"{where} has no key '{self.column}'{_why_no_key(record)}")
        text = record[self.column]
        if not isinstance(text, str):
            raise CorpusError(
                f"{where}: '{self.column}' must be a string; it is of type {type(text).__name__}. "
                "Name another key with --column, or remove the line."
            )
        return text

    def _lines(self, on_bytes: OnBytes) -> Iterator[str]:
        # Not str.splitlines: it also splits at U+2028 and others, which JSON strings may contain.
        waiting: list[str] = []
        size = number = 0
        for chunk in self._text(on_bytes):
            head, *rest = chunk.split("\n")
            waiting.append(head)
            size += sys.getsizeof(head)
            for line in rest:
                number += 1
                yield "".join(waiting)
                waiting, size = [line], sys.getsizeof(line)
            self.require_memory(_COPIES_OF_A_LINE * size, f"line {number + 1:,}")
        yield "".join(waiting)


_COPIES_OF_A_LINE = 3
"""A line is held in pieces, as a whole, and as the document in it."""
_BYTES_PER_VALUE = 96
_KEYS_SHOWN = 20


def _bytes_of_json(line: str) -> int:
    """Memory for a line and the values in it, estimated from above."""
    values = line.count(",") + line.count("[") + line.count("{")
    # With escapes, a document may need four bytes per character where its line needs one.
    decoded = 4 * len(line) if "\\u" in line else sys.getsizeof(line)
    return (_COPIES_OF_A_LINE - 1) * sys.getsizeof(line) + decoded + _BYTES_PER_VALUE * values


def _why_no_key(record: object) -> str:
    if not isinstance(record, dict):
        return f": it must be an object and is a {type(record).__name__}. Write one object per line."
    keys = [str(key)[:_KEYS_SHOWN] for key in list(record)[:_KEYS_SHOWN]]
    more = ", ..." if len(record) > _KEYS_SHOWN else ""
    return f"; it has: {', '.join(keys)}{more}. Name the right one with --column."


BEFORE_WHITE_SPACE = re.compile(r"(?<=\S)(?=\s)")
"""Where a text may be split, and its parts tokenized separately, with the same tokens whatever stands around it."""


def last_match(pattern: re.Pattern[str], text: str) -> int:
    """Where the last match of a pattern in a text begins; 0 without a match."""
    # A match is rarely far from the end, so the last few thousand characters are searched first.
    for begin in (max(0, len(text) - _NEAR), 0):
        places = [match.start() for match in pattern.finditer(text, begin)]
        if places:
            return places[-1]
    return 0


def choose_tokenizer(documents: Iterable[str]) -> tuple[str, str]:
    """Name of the tokenizer that suits a text, and the reason in a sentence."""
    seen: Counter[str] = Counter()
    pieces: Counter[str] = Counter()
    lines = indented = 0
    for document in documents:
        seen.update(document)
        pieces.update(document.split())
        for line in filter(str.strip, document.split("\n")):
            lines, indented = lines + 1, indented + line[0].isspace()
    total = max(sum(seen.values()), 1)
    letters = max(sum(count for character, count in seen.items() if character.isalpha()), 1)
    by_script = {
        name: sum(n for character, n in seen.items() if a <= ord(character) <= b) for name, (a, b) in UNSPACED.items()
    }
    unspaced = sum(by_script.values()) / letters
    spaces = sum(count for character, count in seen.items() if character.isspace()) / total
    if unspaced > 0.5:
        script = max(by_script, key=lambda name: by_script[name])
        return "character", (
            f"Tokens are characters: {rounded_percent(min(unspaced, 1.0))} of the letters belong to a script without "
            f"spaces between words (mostly {script})."
        )
    if spaces < FEWEST_SPACES:
        return "character", (
            f"Tokens are characters: only {rounded_percent(spaces, 1)} of the text is white space, too little to "
            "separate words."
        )
    visible = max(sum(count for character, count in seen.items() if not character.isspace()), 1)
    marks = sum(seen[character] for character in CODE_MARKS) / visible
    if marks > MOST_MARKS and indented > MOST_INDENTED * lines:
        return "code", (
            "Tokens are those of program code, in its own case, with line breaks and indentation: "
            f"{rounded_percent(marks)} of the visible characters are brackets and the like, and "
            f"{rounded_percent(indented / lines)} of the lines are indented."
        )
    if why := _split_already(pieces):
        return "whitespace", f"Tokens are what stands between white space, in its own case: {why}."
    return "word", (
        "Tokens are lower-case words and punctuation marks, because white space or punctuation separates words "
        f"({spaces:.0%} of the characters are white space)."
    )


def _split_already(pieces: Counter[str]) -> str:
    """Why a text counts as split into tokens already, by its pieces between white space; empty where it is not."""
    ends = {piece: count for piece, count in pieces.items() if piece[-1] in END_MARKS}
    marks, alone = sum(ends.values()), sum(ends.get(mark, 0) for mark in END_MARKS)
    if marks >= FEWEST_PIECES and marks - alone <= MOST_ATTACHED * marks:
        return (
            f"the text is split into tokens already, since {alone:,} of {marks:,} commas and full stops before white "
            "space have white space before them too"
        )
    markers = Counter({piece: count for piece, count in pieces.items() if MARKERS.fullmatch(piece)})
    if markers.total() >= max(FEWEST_PIECES, FEWEST_MARKERS * pieces.total()):
        return (
            f"the text is split into tokens already, since {markers.most_common(1)[0][0]} and the like stand alone "
            f"{markers.total():,} times"
        )
    return ""
