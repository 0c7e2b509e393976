"""Tokenizers: text to token ids and back. Words, white space, code, characters, bytes, and how each is named or loaded.

A tokenizer is saved as one JSON text, whose hash identifies it. BPE tokenizers are in `huggingface_tokenizer`.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tokengeom.core.errors import TokenizerError
from tokengeom.core.settings import is_several
from tokengeom.core.system import require_regular
from tokengeom.corpus.documents import BEFORE_WHITE_SPACE, Ids, choose_tokenizer, last_match
from tokengeom.corpus.files import exists, shortened


def as_texts(given: Sequence[str]) -> Sequence[str]:
    """Several texts; a single string is one of them, and not one per character."""
    texts: list[Any] = list(given) if is_several(given) else [given]
    for text in texts:
        if not isinstance(text, str):
            raise TokenizerError(f"A tokenizer encodes one text or several; got {type(text).__name__}.")
    return texts


class AbstractTokenizer(ABC):
    """Turns text into ids and ids into text.

    Some tokenizers learn their vocabulary while they encode (see `grows`). They are frozen before they are saved or
    hashed, and a frozen one refuses text that has an unknown token.
    """

    kind: str
    """``word``, ``whitespace``, ``code``, ``character``, ``byte`` or ``huggingface``."""

    grows: bool = False
    """Whether `encode` adds new tokens to the vocabulary."""

    memory_per_byte: int = 32
    """Bytes of memory that encoding takes, at most, per byte of text."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of tokens V in the vocabulary so far."""

    @property
    def vocabulary_bytes(self) -> int:
        """Memory of a vocabulary that grows, in bytes; 0 for one that does not."""
        return 0

    @abstractmethod
    def split_point(self, text: str) -> int:
        """The last place where a text may be split and its parts encoded separately, with the same ids; 0 if none.

        The place must be one whatever stands before and after the text.
        """

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Ids of each text; a single string is one text."""

    @abstractmethod
    def token(self, identifier: int) -> str:
        """Text of one token."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Text of a sequence of ids."""

    @abstractmethod
    def to_json(self) -> str:
        """Everything needed to load the tokenizer again, as JSON."""

    def freeze(self) -> AbstractTokenizer:
        """The same tokenizer with its vocabulary closed."""
        return self

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 of `to_json`: tokenizers with equal hashes give every text the same ids."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_dict(self) -> dict[str, str]:
        """Kind and hash, which identify the tokenizer in a manifest."""
        return {"kind": self.kind, "hash": self.content_hash}

    def vocabulary(self) -> list[str]:
        """Text of every token, in the order of ids."""
        return [self.token(identifier) for identifier in range(self.size)]


LARGEST_VOCABULARY = 1 << 26
"""More tokens than any tokenizer has."""
_BYTES_PER_TOKEN = 104


class _GrowingIds(dict[str, int]):
    """Gives each new token the next free id, and adds up the memory of the tokens."""

    size_in_bytes = 0

    def __missing__(self, token: str) -> int:
        self[token] = identifier = len(self)
        self.size_in_bytes += sys.getsizeof(token) + _BYTES_PER_TOKEN
        return identifier


class AbstractSplitter(AbstractTokenizer):
    """A tokenizer that splits text by a rule; ids are given in the order in which tokens first appear."""

    RULE: str
    """The rule, as a saved tokenizer states it."""

    def __init__(self, tokens: Sequence[str] | None = None) -> None:
        self.grows = tokens is None
        known = {token: identifier for identifier, token in enumerate(tokens or ())}
        self._ids = _GrowingIds() if tokens is None else known
        self._tokens: list[str] = list(tokens or ())

    @staticmethod
    @abstractmethod
    def split(text: str) -> list[str]:
        """The tokens of a text."""

    @property
    def size(self) -> int:
        return len(self._ids)

    @property
    def vocabulary_bytes(self) -> int:
        return self._ids.size_in_bytes if isinstance(self._ids, _GrowingIds) else 0

    def split_point(self, text: str) -> int:
        return last_match(BEFORE_WHITE_SPACE, text)

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        return [self._ids_of(self.split(text)) for text in as_texts(texts)]

    def _ids_of(self, tokens: list[str]) -> Ids:
        try:
            return np.fromiter(map(self._ids.__getitem__, tokens), np.int32, len(tokens))
        except KeyError as error:
            raise _unknown(self.kind, str(error.args[0]), self.size) from None

    def freeze(self) -> AbstractSplitter:
        return type(self)(list(self._ids)) if self.grows else self

    def token(self, identifier: int) -> str:
        if len(self._tokens) != len(self._ids):
            self._tokens = list(self._ids)
        try:
            return self._tokens[identifier]
        except (IndexError, TypeError):
            raise TokenizerError(f"A token is a number from 0 to {self.size - 1}; got {identifier!r}.") from None

    def decode(self, ids: Sequence[int]) -> str:
        """The tokens with a space between them; the original spacing is not kept."""
        return " ".join(self.token(identifier) for identifier in ids)

    def to_json(self) -> str:
        return _json(self.kind, {"rule": self.RULE, "vocabulary": list(self._ids)})


class WordTokenizer(AbstractSplitter):
    """Words in lower case.

    The text is put in lower case. A token is then either a run of letters, digits and underscores with the marks that
    belong to them (accents, vowel signs), which may have single apostrophes inside (``don't``), or one character of
    punctuation. White space separates tokens and is not part of any.
    """

    kind = "word"
    RULE = "lower case; runs of letters, digits, marks and underscores with inner apostrophes; other characters alone"

    @staticmethod
    def split(text: str) -> list[str]:
        lower = text.lower()
        found = "" if lower.isascii() else "".join(sorted(_marks() & set(lower)))
        return (_words_with(found) if found else _PLAIN_WORDS).findall(lower)


class WhitespaceTokenizer(AbstractSplitter):
    """Runs of characters between white space, unchanged: ``<unk>`` and ``@-@`` are one token each, and so is ``end.``.

    For texts that are tokenized already, such as WikiText.
    """

    kind = "whitespace"
    RULE = "runs of characters between white space, unchanged"

    @staticmethod
    def split(text: str) -> list[str]:
        return text.split()


class UnchosenTokenizer(WordTokenizer):
    """Words or, where the texts that it encodes first are split into tokens already, what is between white space."""

    reason = ""
    """Why the texts count as split, in a sentence; empty for words."""
    _chosen: type[AbstractSplitter] | None = None

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        if self._chosen is None:
            kind, why = choose_tokenizer(as_texts(texts))
            self._chosen, self.reason = (WhitespaceTokenizer, why) if kind == "whitespace" else (WordTokenizer, "")
        return [self._ids_of(self._chosen.split(text)) for text in as_texts(texts)]

    def freeze(self) -> AbstractSplitter:
        return (self._chosen or WordTokenizer)(list(self._ids))


class CodeTokenizer(AbstractSplitter):
    """Tokens of program code, in its own case.

    A token is a run of letters, digits and underscores, an operator of two or three characters (``==``, ``->``,
    ``**=``), a line break with the indentation of the next line, or one other character. Blank lines and white space
    inside a line are not part of any token.
    """

    kind = "code"
    RULE = "runs of letters, digits and underscores; operators; line breaks with indentation; other characters alone"

    @staticmethod
    def split(text: str) -> list[str]:
        return [f"\n{line}" if mark else token for mark, line, token in _CODE.findall(text)]

    def decode(self, ids: Sequence[int]) -> str:
        """The tokens with a space between two on the same line; the original spacing inside a line is not kept."""
        tokens = [self.token(identifier) for identifier in ids]
        pairs = zip(tokens, ["\n", *tokens], strict=False)
        return "".join(token if token[0] == "\n" or before[0] == "\n" else f" {token}" for token, before in pairs)


# A line break takes the blank lines after it; its indentation is that of the next line with something on it.
_CODE = re.compile(
    r"(\n)(?:[^\S\n]*\n)*([^\S\n]*)(?=\S)"
    r"|(\w+|\*\*=|//=|<<=|>>=|===|!==|\.\.\.|[-+*/%&|^=!<>:@]=|->|=>|\*\*|//|<<|>>|&&|\|\||::|\+\+|--|[^\w\s])"
)
_PLAIN_WORDS = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")  # noqa: RUF001 - the typographic apostrophe is meant


@cache
def _marks() -> frozenset[str]:
    """Marks that belong to the letters before them, which Python's class of word characters does not have."""
    points = (chr(point) for point in range(0x300, 0x1F000))
    return frozenset("\u200c\u200d").union(point for point in points if unicodedata.category(point)[0] == "M")


@lru_cache(maxsize=64)
def _words_with(marks: str) -> re.Pattern[str]:
    """Words with the marks that a text has: a class of all two thousand would be searched one by one."""
    word = rf"[\w{marks}]+"
    return re.compile(rf"{word}(?:['’]{word})*|[^\s]")  # noqa: RUF001 - as above


_SURROGATE = re.compile("[\ud800-\udfff]")


class CharacterTokenizer(AbstractSplitter):
    """Unicode code points; ids are given in the order in which they first appear."""

    kind = "character"

    @staticmethod
    def split(text: str) -> list[str]:
        return list(text)

    def split_point(self, text: str) -> int:
        return len(text)

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(self.token, ids))

    def to_json(self) -> str:
        return _json(self.kind, {"vocabulary": list(self._ids)})


class ByteTokenizer(AbstractTokenizer):
    """The 256 bytes of UTF-8; the id of a byte is its value."""

    kind = "byte"

    @property
    def size(self) -> int:
        return 256

    def split_point(self, text: str) -> int:
        return len(text)

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        return [np.frombuffer(text.encode(), np.uint8).astype(np.int32) for text in as_texts(texts)]

    def token(self, identifier: int) -> str:
        """The character of a printable ASCII byte, else its value as ``<0x0A>``."""
        return chr(identifier) if 0x20 <= identifier < 0x7F else f"<0x{identifier:02X}>"

    def decode(self, ids: Sequence[int]) -> str:
        """The text; bytes that are not valid UTF-8 by themselves become U+FFFD."""
        return bytes(ids).decode(errors="replace")

    def to_json(self) -> str:
        return _json(self.kind, {})


def _json(kind: str, content: dict[str, object]) -> str:
    return json.dumps({"tokengeom_tokenizer": kind, **content}, ensure_ascii=False)


def _from_json(kind: str, content: dict[str, object], file: Path) -> AbstractTokenizer:
    """A tokenizer from what `to_json` wrote."""
    if kind == ByteTokenizer.kind:
        return ByteTokenizer()
    if kind not in _LEARNING_KINDS:
        raise TokenizerError(f"{file} holds a tokenizer of the unknown kind '{kind}'. Likely a newer version wrote it.")
    tokens = content.get("vocabulary")
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise _damaged(file, kind, "must list the texts of its tokens")
    if any(map(_SURROGATE.search, tokens)):
        raise _damaged(file, kind, "must list texts without half characters")
    if len(set(tokens)) < len(tokens):
        raise _damaged(file, kind, "must list each token once")
    if kind == CharacterTokenizer.kind and any(len(token) != 1 for token in tokens):
        raise _damaged(file, kind, "must list single characters")
    return _LEARNING_KINDS[kind](tokens)


def _damaged(file: Path, kind: str, rule: str) -> TokenizerError:
    return TokenizerError(
        f"{file} is damaged: a saved {kind} tokenizer {rule}. Save it again, or learn a new one with "
        f"--tokenizer {kind}."
    )


def _unknown(kind: str, token: str, size: int) -> TokenizerError:
    return TokenizerError(
        f"The text has the token {token!r}, which the given {kind} tokenizer of {size:,} tokens does not know. "
        f"Learn a new vocabulary with --tokenizer {kind}, or count both texts together."
    )


DEFAULT_BPE_SIZE = 1024
_LEARNING_KINDS: dict[str, type[AbstractSplitter]] = {
    "word": WordTokenizer,
    "whitespace": WhitespaceTokenizer,
    "code": CodeTokenizer,
    "character": CharacterTokenizer,
}
_KINDS: dict[str, type[AbstractTokenizer]] = {**_LEARNING_KINDS, "char": CharacterTokenizer, "byte": ByteTokenizer}
TOKENIZERS = ("word", "whitespace", "code", "character", "byte", "bpe", "bpe:SIZE")
"""Names of the kinds, as messages list them."""
SUGGESTED_TOKENIZERS = (*TOKENIZERS[:-1], "bpe:4096")
"""Names that the command line completes."""


def make_tokenizer(wanted: object, texts: Callable[[], Iterator[str]] | None = None) -> AbstractTokenizer:
    """Make or load a tokenizer.

    ``wanted``  ``word``, ``whitespace``, ``code``, ``character``, ``byte``, ``bpe`` (of 1024 tokens), ``bpe:SIZE``, the
                path of a saved tokenizer, or a tokenizer: one of these, or one of Hugging Face's libraries.
    ``texts``   Opens the texts that a BPE is trained on.
    """
    if isinstance(wanted, AbstractTokenizer):
        return wanted
    if not isinstance(wanted, str | Path):
        from tokengeom.corpus.huggingface_tokenizer import copy_of

        return copy_of(wanted)
    name = str(wanted)
    if name in _KINDS:
        return _KINDS[name]()
    if name == "bpe" or name.startswith("bpe:"):
        return _train(name, texts)
    if exists(name):
        return load_tokenizer(Path(name))
    raise TokenizerError(
        f"There is no tokenizer '{name}': it is neither a kind ({', '.join(TOKENIZERS)}) nor an existing path."
    )


def is_kind(wanted: object) -> bool:
    """Whether a tokenizer is named by its kind, rather than given or named by a path."""
    return isinstance(wanted, str | Path) and (str(wanted) in _KINDS or needs_texts(wanted))


def needs_texts(wanted: object) -> bool:
    """Whether the tokenizer is trained on the texts before it encodes them, so they are read twice."""
    return isinstance(wanted, str | Path) and str(wanted).split(":")[0] == "bpe"


def _train(name: str, texts: Callable[[], Iterator[str]] | None) -> AbstractTokenizer:
    from tokengeom.corpus.huggingface_tokenizer import train_bpe

    if texts is None:
        raise TokenizerError("A BPE tokenizer is trained on text: pass text, or the path of a saved tokenizer.")
    _, _, size = name.partition(":")
    # The library reserves memory for as many tokens as are asked for, and ends the process where there is too little.
    if size and not (size.isascii() and size.isdigit() and len(size) < 10 and int(size) <= _LARGEST_BPE):
        raise TokenizerError(
            f"The number of tokens in '{name}' must be a whole number of at most {_LARGEST_BPE:,}, such as bpe:4096."
        )
    return train_bpe(texts(), int(size or DEFAULT_BPE_SIZE))


def load_tokenizer(path: Path) -> AbstractTokenizer:
    """Load a saved tokenizer: one of tokengeom's own, also from saved statistics, or one of Hugging Face."""
    from tokengeom.corpus.huggingface_tokenizer import load_huggingface

    file = path / "tokenizer.json" if path.is_dir() else path
    if file.is_file():
        content = _read_json(file)
        if isinstance(content, dict) and (kind := content.get("tokengeom_tokenizer")):
            return _from_json(str(kind), content, file)
    return load_huggingface(path)


def _read_json(file: Path) -> object:
    require_regular(file)
    try:
        size = file.stat().st_size
        if size > _LARGEST_FILE:
            raise TokenizerError(
                f"{file} is not a saved tokenizer: it has {size:,} bytes, and at most {_LARGEST_FILE:,} are read. "
                "Check the path."
            )
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, TokenizerError):
            raise
        raise TokenizerError(
            f"{file} is not a saved tokenizer: it cannot be read as JSON: {shortened(error)}. Save it again."
        ) from error


_LARGEST_FILE = 1 << 30
_LARGEST_BPE = 10**7
