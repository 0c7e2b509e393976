"""A tokenizer from what a user writes: a kind, ``bpe:SIZE``, or the path of a saved one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from tokengeom.corpus.opening import exists
from tokengeom.corpus.simple_tokenizers import ByteTokenizer, CharacterTokenizer, WordTokenizer, from_json
from tokengeom.corpus.tokenizer import AbstractTokenizer
from tokengeom.errors import TokenizerError

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
