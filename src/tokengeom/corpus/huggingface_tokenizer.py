"""Tokenizers of the Hugging Face `tokenizers` library: BPE trained here, and any saved one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import tokenizers

from tokengeom.corpus.documents import Ids
from tokengeom.corpus.tokenizers import TOKENIZERS, AbstractTokenizer
from tokengeom.errors import TokenizerError


class HuggingFaceTokenizer(AbstractTokenizer):
    """Any fast tokenizer. No special tokens are added: only the text itself is counted."""

    kind = "huggingface"

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer
        # Saved files may ask for padding or truncation, which would add or lose tokens.
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        # Counted once: the library builds a new dictionary of the whole vocabulary for every call.
        self._size = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    @property
    def size(self) -> int:
        """Largest id plus one, added tokens included: ids may have gaps."""
        return self._size

    @property
    def splits_at_white_space(self) -> bool:
        """Whether text may be split before white space: true of plain byte-level tokenizers, unknown of others."""
        settings = json.loads(self._tokenizer.to_str())
        before = settings["pre_tokenizer"] or {}
        plain = before.get("type") == "ByteLevel" and not before.get("add_prefix_space")
        return plain and settings["normalizer"] is None

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Ids of each text, encoded on all cores."""
        try:
            encoded = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        # The library raises a bare Exception, for example where an unknown token has no replacement.
        except Exception as error:
            raise TokenizerError(f"The tokenizer cannot encode the text: {error}") from error
        return [np.asarray(one.ids, dtype=np.int32) for one in encoded]

    def token(self, identifier: int) -> str:
        """Text of one token; its stored form where it is only part of a character."""
        text = str(self._tokenizer.decode([identifier], skip_special_tokens=False))
        stored = self._tokenizer.id_to_token(identifier)
        # SentencePiece marks a space in this way, and decoders drop the space that a text begins with.
        if stored is not None and stored.startswith("\u2581") and not text.startswith(" "):
            text = f" {text}"
        return text if text and "\ufffd" not in text else str(stored if stored is not None else f"<{identifier}>")

    def id_of(self, token: str) -> int | None:
        """Id of a token in its stored form; None if there is no such token."""
        found = self._tokenizer.token_to_id(token)
        return None if found is None else int(found)

    def decode(self, ids: Sequence[int]) -> str:
        """The text, special tokens included."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def to_json(self) -> str:
        """The ``tokenizer.json`` of the library."""
        return str(self._tokenizer.to_str())


def copy_of(given: object) -> HuggingFaceTokenizer:
    """A copy of a tokenizer in memory: of the ``tokenizers`` library, or a fast one of ``transformers``."""
    backend = getattr(given, "backend_tokenizer", given)
    if not isinstance(backend, tokenizers.Tokenizer):
        raise TokenizerError(
            f"A tokenizer must be a kind ({', '.join(TOKENIZERS)}), the path of a saved one, or a fast tokenizer of "
            f"Hugging Face; got {type(given).__name__}. Save it with save_pretrained and pass the folder."
        )
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
        vocab_size=size,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return HuggingFaceTokenizer(tokenizer)


def load_huggingface(path: Path) -> HuggingFaceTokenizer:
    """Load a ``tokenizer.json``, a folder with one, or a folder with GPT-2's ``vocab.json`` and ``merges.txt``."""
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        if file.is_file():
            return HuggingFaceTokenizer(tokenizers.Tokenizer.from_file(str(file)))
        if (path / "vocab.json").is_file() and (path / "merges.txt").is_file():
            return _byte_level_bpe(path)
    # The library raises a bare Exception for whatever it cannot parse.
    except Exception as error:
        raise TokenizerError(f"{path} cannot be read as a tokenizer: {error}") from error
    raise TokenizerError(
        f"{path} holds no tokenizer: it has neither tokenizer.json nor vocab.json with merges.txt. "
        f"Save one with PreTrainedTokenizerFast.save_pretrained, or name a kind: {', '.join(TOKENIZERS)}."
    )


def _byte_level_bpe(folder: Path) -> HuggingFaceTokenizer:
    model = tokenizers.models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return HuggingFaceTokenizer(tokenizer)
