"""Tokenizers of the Hugging Face library: trained here, or saved by other software."""

from __future__ import annotations

from pathlib import Path

import pytest
import tokenizers

from tokengeom.corpus.huggingface_tokenizer import HuggingFaceTokenizer, load_huggingface, train_bpe
from tokengeom.corpus.tokenizers import load_tokenizer
from tokengeom.errors import TokenizerError

TEXTS = ["The cat — don't! — sat.", "Größe: 3,5 m (approx.)", "他们 said \U0001f600"]


def test_decoding_bpe_gives_the_text_and_the_size_is_the_one_asked_for() -> None:
    tokenizer = train_bpe(iter(TEXTS * 20), 280)
    assert tokenizer.size == 280
    assert [tokenizer.decode(ids.tolist()) for ids in tokenizer.encode(TEXTS)] == TEXTS
    with pytest.raises(TokenizerError, match="256 or more; got 100"):
        train_bpe(iter(TEXTS), 100)


def test_the_old_layout_of_gpt2_is_read(tmp_path: Path) -> None:
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


def test_the_size_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library builds the whole vocabulary for every call, which naming V tokens would do V times."""

    class Counted:
        calls = 0

        def __init__(self, wrapped: tokenizers.Tokenizer) -> None:
            self._wrapped = wrapped

        def __getattr__(self, name: str) -> object:
            return getattr(self._wrapped, name)

        def get_vocab(self, with_added_tokens: bool) -> dict[str, int]:
            Counted.calls += 1
            return dict(self._wrapped.get_vocab(with_added_tokens=with_added_tokens))

    tokenizer = HuggingFaceTokenizer(Counted(train_bpe(iter(TEXTS), 270)._tokenizer))  # type: ignore[arg-type]
    assert len(tokenizer.vocabulary()) == tokenizer.size == 270
    assert Counted.calls == 1


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"neither tokenizer\.json nor vocab\.json.* name a kind: word, "):
        load_huggingface(tmp_path)
