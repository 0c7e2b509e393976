from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from tokengeom.corpus.huggingface_tokenizer import train_bpe
from tokengeom.corpus.tokenizers import (
    AbstractTokenizer,
    ByteTokenizer,
    CharacterTokenizer,
    WordTokenizer,
    load_tokenizer,
    make_tokenizer,
)
from tokengeom.errors import TokenizerError

TEXTS = ["The cat — don't! — sat.", "Größe: 3,5 m (approx.)", "他们 said \U0001f600"]


def every_tokenizer() -> list[AbstractTokenizer]:
    made = [WordTokenizer(), CharacterTokenizer(), ByteTokenizer(), train_bpe(iter(TEXTS), 300)]
    for tokenizer in made:
        tokenizer.encode(TEXTS)
    return [tokenizer.freeze() for tokenizer in made]


@pytest.mark.parametrize("tokenizer", every_tokenizer(), ids=lambda t: t.kind)
class TestEveryTokenizer:
    """One trial for all."""

    def test_ids_are_below_the_size(self, tokenizer: AbstractTokenizer) -> None:
        for ids in tokenizer.encode(TEXTS):
            assert ids.dtype == np.int32
            assert 0 <= ids.min() <= ids.max() < tokenizer.size

    def test_it_is_saved_and_loaded_by_content(self, tokenizer: AbstractTokenizer, tmp_path: Path) -> None:
        (tmp_path / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
        for path in (tmp_path, tmp_path / "tokenizer.json"):
            again = load_tokenizer(path)
            assert again.content_hash == tokenizer.content_hash
            assert [a.tolist() for a in again.encode(TEXTS)] == [b.tolist() for b in tokenizer.encode(TEXTS)]
            assert again.vocabulary() == tokenizer.vocabulary()

    def test_encoding_together_is_encoding_apart(self, tokenizer: AbstractTokenizer) -> None:
        together = tokenizer.encode(TEXTS)
        assert all((tokenizer.encode([text])[0] == ids).all() for text, ids in zip(TEXTS, together, strict=True))

    def test_a_gap_between_words_is_a_safe_place_to_cut(self, tokenizer: AbstractTokenizer) -> None:
        """Long documents are cut before white space: both sides must give the ids of the whole."""
        for text in TEXTS:
            whole = tokenizer.encode([text])[0].tolist()
            for place in [i for i, c in enumerate(text) if c == " " and text[i - 1] != " "]:
                first, second = tokenizer.encode([text[:place], text[place:]])
                assert first.tolist() + second.tolist() == whole


def test_words_follow_the_stated_rule() -> None:
    tokenizer = WordTokenizer()
    (ids,) = tokenizer.encode(["The cat’s hat: don't -- 3,5 _x_ THE"])  # noqa: RUF001
    words = [tokenizer.token(i) for i in ids]
    assert words == ["the", "cat’s", "hat", ":", "don't", "-", "-", "3", ",", "5", "_x_", "the"]  # noqa: RUF001
    assert tokenizer.decode(ids.tolist()[:3]) == "the cat’s hat"  # noqa: RUF001


@settings(max_examples=50)
@given(st.lists(st.text(max_size=20), max_size=5))
def test_characters_and_bytes_come_back(texts: list[str]) -> None:
    texts = [text.encode("utf-8", "ignore").decode() for text in texts]
    for tokenizer in (CharacterTokenizer(), ByteTokenizer()):
        for text, ids in zip(texts, tokenizer.encode(texts), strict=True):
            assert tokenizer.decode(ids.tolist()) == text
    characters = CharacterTokenizer()
    characters.encode(texts)
    assert characters.vocabulary() == list(dict.fromkeys("".join(texts)))


@pytest.mark.parametrize("kind", [WordTokenizer, CharacterTokenizer])
def test_a_closed_vocabulary_refuses_what_it_cannot_write(kind: type[AbstractTokenizer]) -> None:
    tokenizer = kind()
    tokenizer.encode(["a b"])
    frozen = tokenizer.freeze()
    with pytest.raises(TokenizerError, match="'c', which the given"):
        frozen.encode(["a c"])


def test_bpe_comes_back_and_has_the_size_asked_for() -> None:
    tokenizer = train_bpe(iter(TEXTS * 20), 280)
    assert tokenizer.size == 280
    assert [tokenizer.decode(ids.tolist()) for ids in tokenizer.encode(TEXTS)] == TEXTS
    with pytest.raises(TokenizerError, match="256 or more; got 100"):
        train_bpe(iter(TEXTS), 100)


def test_gpt2s_old_layout_is_read(tmp_path: Path) -> None:
    trained = tokenizers.ByteLevelBPETokenizer()
    trained.train_from_iterator(TEXTS * 10, vocab_size=290, show_progress=False)
    trained.save_model(str(tmp_path))
    loaded = load_tokenizer(tmp_path)
    assert [ids.tolist() for ids in loaded.encode(TEXTS)] == [trained.encode(text).ids for text in TEXTS]


def test_special_tokens_and_padding_of_a_saved_tokenizer_are_not_added(tmp_path: Path) -> None:
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1, "[S]": 2}, unk_token="[S]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing(single="[S] $A", special_tokens=[("[S]", 2)])
    made.enable_padding(length=9)
    made.enable_truncation(2)
    made.save(str(tmp_path / "tokenizer.json"))
    assert load_tokenizer(tmp_path).encode(["a b a", "b"])[0].tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [("nonsense", "neither a kind"), ("bpe:x", "whole number"), ("bpe", "trained on text")],
)
def test_unknown_tokenizers(wanted: str, message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        make_tokenizer(wanted, None if wanted == "bpe" else lambda: iter(TEXTS))


def test_broken_tokenizer_files(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(TokenizerError, match="holds no tokenizer"):
        load_tokenizer(tmp_path)
    path.write_text("{")
    with pytest.raises(TokenizerError, match="cannot be read as JSON"):
        load_tokenizer(path)
    path.write_text(json.dumps({"tokengeom_tokenizer": "future"}))
    with pytest.raises(TokenizerError, match="newer version"):
        load_tokenizer(path)
    path.write_text("{}")
    with pytest.raises(TokenizerError, match="cannot be read as a tokenizer"):
        load_tokenizer(path)
