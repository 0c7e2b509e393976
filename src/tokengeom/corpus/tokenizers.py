"""What a tokenizer is: text to ids and back, saved as one text whose hash names it.

Tokenizers whose rule fits in a sentence: words, characters, bytes.

A tokenizer from what a user writes: a kind, ``bpe:SIZE``, or the path of a saved one.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property
from pathlib import Path

import numpy as np

from tokengeom.corpus.documents import Ids, exists
from tokengeom.errors import TokenizerError


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


_CODE_POINTS = 0x110000


class _GrowingIds(dict[str, int]):
    """Gives each new token the next free id."""

    def __missing__(self, token: str) -> int:
        self[token] = identifier = len(self)
        return identifier


class WordTokenizer(AbstractTokenizer):
    """Words in lower case.

    The rule: lower the case of the text; a token is then either a run of letters, digits and underscores with the
    marks that belong to them (accents, vowel signs), which may hold single apostrophes inside (``don't``), or one
    character of punctuation. White space only separates. Ids are given in the order in which words first appear.
    """

    kind = "word"
    RULE = "lower case; runs of letters, digits, marks and underscores with inner apostrophes; other characters alone"

    def __init__(self, words: Sequence[str] | None = None) -> None:
        self.grows = words is None
        known = {word: identifier for identifier, word in enumerate(words or ())}
        self._ids = _GrowingIds() if words is None else known
        self._words: list[str] = list(words or ())

    @property
    def size(self) -> int:
        """Number of distinct words so far."""
        return len(self._ids)

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Ids of each text; new words get new ids while the vocabulary is open."""
        return [self._encode(text) for text in texts]

    def _encode(self, text: str) -> Ids:
        words = _split_words(text.lower())
        try:
            return np.fromiter(map(self._ids.__getitem__, words), np.int32, len(words))
        except KeyError as error:
            raise _unknown(self.kind, str(error.args[0]), self.size) from None

    def freeze(self) -> WordTokenizer:
        """The same words with the vocabulary closed."""
        return WordTokenizer(list(self._ids)) if self.grows else self

    def token(self, identifier: int) -> str:
        """The word."""
        if len(self._words) != len(self._ids):
            self._words = list(self._ids)
        return self._words[identifier]

    def decode(self, ids: Sequence[int]) -> str:
        """The words with a space between; the original spacing and case are not kept."""
        return " ".join(self.token(identifier) for identifier in ids)

    def to_json(self) -> str:
        """Rule and words."""
        return _json(self.kind, {"rule": self.RULE, "vocabulary": list(self._ids)})


_PLAIN_WORDS = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")  # noqa: RUF001 - the typographic apostrophe is meant


@cache
def _marked_words() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """What finds a mark, and what finds words with marks: Python's class of word characters lacks them."""
    marks = "".join(chr(point) for point in range(0x300, 0x1F000) if unicodedata.category(chr(point))[0] == "M")
    mark = f"{marks}\u200c\u200d"
    word = rf"[\w{mark}]+"
    return re.compile(f"[{mark}]"), re.compile(rf"{word}(?:['’]{word})*|[^\s]")  # noqa: RUF001 - as above


def _split_words(text: str) -> list[str]:
    """The words of a text in lower case; text without marks goes the way that is three times faster."""
    if not text.isascii():
        mark, marked = _marked_words()
        if mark.search(text):
            return marked.findall(text)
    return _PLAIN_WORDS.findall(text)


class CharacterTokenizer(AbstractTokenizer):
    """Unicode code points, with ids in the order in which they first appear."""

    kind = "character"

    def __init__(self, characters: Sequence[str] | None = None) -> None:
        self.grows = characters is None
        self._characters = list(characters or ())
        self._ids = np.full(_CODE_POINTS, -1, np.int32)
        self._ids[[ord(character) for character in self._characters]] = np.arange(len(self._characters))

    @property
    def size(self) -> int:
        """Number of distinct characters so far."""
        return len(self._characters)

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Ids of each text; new characters get new ids while the vocabulary is open."""
        return [self._encode(text) for text in texts]

    def _encode(self, text: str) -> Ids:
        points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        ids: Ids = self._ids[points]
        if ids.size and ids.min() < 0:
            self._learn(points[ids < 0])
            ids = self._ids[points]
        return ids

    def _learn(self, points: np.ndarray[tuple[int], np.dtype[np.uint32]]) -> None:
        fresh, first = np.unique(points, return_index=True)
        fresh = fresh[np.argsort(first)]
        if not self.grows:
            raise _unknown(self.kind, chr(fresh[0]), self.size)
        self._ids[fresh] = np.arange(self.size, self.size + fresh.size)
        self._characters.extend(map(chr, fresh.tolist()))

    def freeze(self) -> CharacterTokenizer:
        """The same characters with the vocabulary closed."""
        return CharacterTokenizer(self._characters) if self.grows else self

    def token(self, identifier: int) -> str:
        """The character."""
        return self._characters[identifier]

    def decode(self, ids: Sequence[int]) -> str:
        """The characters in a row."""
        return "".join(self._characters[identifier] for identifier in ids)

    def to_json(self) -> str:
        """The characters."""
        return _json(self.kind, {"vocabulary": self._characters})


class ByteTokenizer(AbstractTokenizer):
    """The 256 bytes of UTF-8; the id of a byte is its value."""

    kind = "byte"

    @property
    def size(self) -> int:
        """Always 256."""
        return 256

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """The bytes of each text."""
        return [np.frombuffer(text.encode(), np.uint8).astype(np.int32) for text in texts]

    def token(self, identifier: int) -> str:
        """The character of a printable ASCII byte, else its value as ``<0x0A>``."""
        return chr(identifier) if 0x20 <= identifier < 0x7F else f"<0x{identifier:02X}>"

    def decode(self, ids: Sequence[int]) -> str:
        """The text, with bytes that are no UTF-8 by themselves shown as U+FFFD."""
        return bytes(ids).decode(errors="replace")

    def to_json(self) -> str:
        """Nothing but the kind."""
        return _json(self.kind, {})


def _json(kind: str, content: dict[str, object]) -> str:
    return json.dumps({"tokengeom_tokenizer": kind, **content}, ensure_ascii=False)


def from_json(kind: str, content: dict[str, list[str]]) -> AbstractTokenizer:
    """Make a tokenizer of this file again from what `to_json` wrote."""
    words = content.get("vocabulary", [])
    if kind in ("word", "character") and "vocabulary" not in content:
        raise TokenizerError(f"A saved {kind} tokenizer must list its vocabulary; this one does not. Is it damaged?")
    match kind:
        case "word":
            return WordTokenizer(words)
        case "character":
            return CharacterTokenizer(words)
        case "byte":
            return ByteTokenizer()
        case _:
            raise TokenizerError(f"There is no tokenizer of the kind '{kind}'. Is the file from a newer version?")


def _unknown(kind: str, token: str, size: int) -> TokenizerError:
    return TokenizerError(
        f"The text has the {kind} {token!r}, which the given {kind} tokenizer of {size:,} tokens does not know. "
        f"Let a new one be learnt with --tokenizer {kind}, or count both texts together."
    )


DEFAULT_BPE_SIZE = 1024
_KINDS: dict[str, type[AbstractTokenizer]] = {
    "word": WordTokenizer,
    "character": CharacterTokenizer,
    "char": CharacterTokenizer,
    "byte": ByteTokenizer,
}


def make_tokenizer(
    wanted: str | Path | AbstractTokenizer, texts: Callable[[], Iterator[str]] | None = None
) -> AbstractTokenizer:
    """Make or load a tokenizer.

    Parameters
    ----------
    wanted
        ``word``, ``character``, ``byte``, ``bpe`` (of 1024 tokens), ``bpe:SIZE``, a path, or a tokenizer.
    texts
        Opens the texts that a BPE is trained on.
    """
    if isinstance(wanted, AbstractTokenizer):
        return wanted
    name = str(wanted)
    if name in _KINDS:
        return _KINDS[name]()
    if name == "bpe" or name.startswith("bpe:"):
        return _train(name, texts)
    if exists(name):
        return load_tokenizer(Path(name))
    raise TokenizerError(
        f"There is no tokenizer '{name}': neither a kind (word, character, byte, bpe, bpe:SIZE) nor an existing path."
    )


def is_kind(wanted: object) -> bool:
    """Whether a tokenizer is named by its kind rather than given or named by a path."""
    return str(wanted) in _KINDS or needs_texts(str(wanted))


def needs_texts(wanted: str | Path | AbstractTokenizer) -> bool:
    """Whether the tokenizer is trained on the texts before they are encoded, so that they are read twice."""
    return str(wanted).split(":")[0] == "bpe"


def _train(name: str, texts: Callable[[], Iterator[str]] | None) -> AbstractTokenizer:
    from tokengeom.corpus.huggingface_tokenizer import train_bpe

    if texts is None:
        raise TokenizerError("A BPE tokenizer is trained on text: give text, or the path of a saved tokenizer.")
    _, _, size = name.partition(":")
    if size and not (size.isascii() and size.isdigit() and len(size) < 10):
        raise TokenizerError(f"The size in '{name}' must be a whole number, such as bpe:4096.")
    return train_bpe(texts(), int(size or DEFAULT_BPE_SIZE))


def load_tokenizer(path: Path) -> AbstractTokenizer:
    """Read a saved tokenizer: ours, inside saved statistics, or Hugging Face's."""
    from tokengeom.corpus.huggingface_tokenizer import load_huggingface

    file = path / "tokenizer.json" if path.is_dir() else path
    if file.is_file():
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise TokenizerError(f"{file} cannot be read as JSON, so it is no saved tokenizer: {error}") from error
        if isinstance(content, dict) and (kind := content.get("tokengeom_tokenizer")):
            return from_json(str(kind), content)
    return load_huggingface(path)
