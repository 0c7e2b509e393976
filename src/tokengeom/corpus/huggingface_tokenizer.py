"""Tokenizers of the Hugging Face `tokenizers` library: BPE trained here, and any saved one."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import tokenizers

from tokengeom.core.errors import TokengeomError, TokenizerError
from tokengeom.corpus.documents import BEFORE_WHITE_SPACE, Ids, last_match
from tokengeom.corpus.files import shortened
from tokengeom.corpus.tokenizers import LARGEST_VOCABULARY, TOKENIZERS, AbstractTokenizer, as_texts

_LARGEST_GAP = 1 << 16
_DECODED = 16


@contextmanager
def _errors_of_library(what: str) -> Iterator[None]:
    """Turn whatever the library raises into an error about the tokenizer: bare exceptions, and panics of its Rust code.

    A panic is not an `Exception`, as little as the end of the program, which is let through.
    """
    try:
        yield
    except (TokengeomError, MemoryError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise TokenizerError(f"{what}: {shortened(error)}. Save or download the tokenizer again.") from error


@contextmanager
def _quiet_panics() -> Iterator[None]:
    """Drop what Rust prints to the standard error when it panics."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


class HuggingFaceTokenizer(AbstractTokenizer):
    """Any fast tokenizer. No special tokens are added: only the text itself is counted."""

    kind = "huggingface"
    memory_per_byte = 192

    def __init__(self, tokenizer: tokenizers.Tokenizer, name: str = "The tokenizer") -> None:
        self._tokenizer, self._name, self._quiet = tokenizer, name, True
        # Saved files may ask for padding or truncation, which would add or lose tokens, and for random merges.
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        if getattr(tokenizer.model, "dropout", None) is not None:
            tokenizer.model.dropout = None
        # Counted once: the library builds a new dictionary of the whole vocabulary for every call.
        ids = tokenizer.get_vocab(with_added_tokens=True).values()
        self._size = max(ids, default=-1) + 1
        if self._size > min(4 * len(ids) + _LARGEST_GAP, LARGEST_VOCABULARY):
            raise TokenizerError(
                f"{name} has ids with large gaps: the largest of {len(ids):,} is {self._size - 1:,}, and every table "
                "has a row for each. It is probably damaged: save or download it again."
            )

    @property
    def size(self) -> int:
        """Largest id plus one, added tokens included: ids may have gaps."""
        return self._size

    @cached_property
    def _splits_at_white_space(self) -> bool:
        """Whether a text may be split before white space, as is known of plain byte-level tokenizers."""
        settings = json.loads(self._tokenizer.to_str())
        before = settings["pre_tokenizer"] or {}
        plain = before.get("type") == "ByteLevel" and not before.get("add_prefix_space") and before.get("use_regex")
        added = settings["added_tokens"] or []
        # Added tokens are found in the text before it is split, so that none of them may be cut.
        are_cut = any(x["lstrip"] or x["rstrip"] or last_match(BEFORE_WHITE_SPACE, x["content"]) for x in added)
        return bool(plain) and settings["normalizer"] is None and not are_cut

    def split_point(self, text: str) -> int:
        """The last place before white space; 0 for tokenizers that need documents whole."""
        return last_match(BEFORE_WHITE_SPACE, text) if self._splits_at_white_space else 0

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Ids of each text, encoded on all cores."""
        # Damage that is found in encoding is mostly found at once; later, progress is shown on the standard error.
        quiet, self._quiet = self._quiet, False
        with _errors_of_library(f"{self._name} cannot encode the text"), _quiet_panics() if quiet else nullcontext():
            encoded = self._tokenizer.encode_batch_fast(list(as_texts(texts)), add_special_tokens=False)
        return [np.asarray(text.ids, dtype=np.int32) for text in encoded]

    def token(self, identifier: int) -> str:
        """Text of one token; its stored form where it is only part of a character."""
        text = self.decode([identifier])
        stored = self._tokenizer.id_to_token(identifier)
        # SentencePiece marks a space in this way, and decoders drop the space that a text begins with.
        if stored is not None and stored.startswith("\u2581") and not text.startswith(" "):
            text = f" {text}"
        return text if text and "\ufffd" not in text else str(stored if stored is not None else f"<{identifier}>")

    def vocabulary(self) -> list[str]:
        with _quiet_panics():
            return super().vocabulary()

    def id_of(self, token: str) -> int | None:
        """Id of a token in its stored form; None if there is no such token."""
        identifier = self._tokenizer.token_to_id(token)
        return None if identifier is None else int(identifier)

    def decode(self, ids: Sequence[int]) -> str:
        """The text, special tokens included."""
        with _errors_of_library(f"{self._name} cannot decode ids"):
            return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def to_json(self) -> str:
        return str(self._tokenizer.to_str())


def copy_of(given: object) -> HuggingFaceTokenizer:
    """A copy of a tokenizer in memory: of the ``tokenizers`` library, or a fast one of ``transformers``."""
    backend = getattr(given, "backend_tokenizer", given)
    if not isinstance(backend, tokenizers.Tokenizer):
        raise TokenizerError(
            f"A tokenizer must be a kind ({', '.join(TOKENIZERS)}), the path of a saved one, or a fast tokenizer of "
            f"Hugging Face; got {type(given).__name__}. Save it with save_pretrained and pass the folder."
        )
    with _errors_of_library("The tokenizer cannot be copied"):
        return HuggingFaceTokenizer(tokenizers.Tokenizer.from_str(backend.to_str()))


def train_bpe(texts: Iterator[str], size: int) -> HuggingFaceTokenizer:
    """Byte-level byte-pair encoding with at most ``size`` tokens, learned on the texts.

    All 256 bytes are tokens, so no text is unknown, and 256 is the smallest size.
    """
    if size < 256:
        raise TokenizerError(f"A byte-level BPE starts from 256 bytes: its size must be 256 or more; got {size}.")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    with _errors_of_library("The BPE tokenizer could not be trained"):
        tokenizer.train_from_iterator(texts, trainer)
    return HuggingFaceTokenizer(tokenizer)


def load_huggingface(path: Path) -> HuggingFaceTokenizer:
    """Load a ``tokenizer.json``, a folder with one, or a folder with GPT-2's ``vocab.json`` and ``merges.txt``."""
    file = path / "tokenizer.json" if path.is_dir() else path
    with _errors_of_library(f"{path} cannot be read as a tokenizer"), _quiet_panics():
        if file.is_file():
            return _checked(tokenizers.Tokenizer.from_file(str(file)), file)
        if (path / "vocab.json").is_file() and (path / "merges.txt").is_file():
            return _checked(_byte_level_bpe(path), path)
    raise TokenizerError(
        f"{path} holds no tokenizer: it has neither tokenizer.json nor vocab.json with merges.txt. "
        f"Save one with PreTrainedTokenizerFast.save_pretrained, or name a kind: {', '.join(TOKENIZERS)}."
    )


def _checked(tokenizer: tokenizers.Tokenizer, path: Path) -> HuggingFaceTokenizer:
    """The tokenizer, after a check that no two tokens have the same id, and that some can be decoded."""
    ids = sorted(tokenizer.get_vocab(with_added_tokens=False).values())
    twice = next((before for before, after in pairwise(ids) if before == after), None)
    if twice is not None:
        raise TokenizerError(f"{path} is damaged: several tokens have the id {twice}. Save or download it again.")
    made = HuggingFaceTokenizer(tokenizer, str(path))
    for identifier in ids[:_DECODED]:
        made.decode([identifier])
    return made


def _byte_level_bpe(folder: Path) -> tokenizers.Tokenizer:
    model = tokenizers.models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return tokenizer
