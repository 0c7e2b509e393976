"""Tokenizers of the Hugging Face library: trained here, or saved by other software."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import tokenizers

from tokengeom import count
from tokengeom.core.errors import TokenizerError
from tokengeom.corpus.huggingface_tokenizer import HuggingFaceTokenizer, load_huggingface, train_bpe
from tokengeom.corpus.tokenizers import load_tokenizer

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


def damaged(path: Path, **changes: object) -> Path:
    """A saved tokenizer of words with some of its entries changed."""
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    path.write_text(json.dumps({**json.loads(made.to_str()), **changes}))
    return path


def split(pattern: str) -> dict[str, object]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def words(vocabulary: dict[str, object]) -> dict[str, object]:
    return {"type": "WordLevel", "vocab": vocabulary, "unk_token": "?"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pre_tokenizer": split("(a")}, "unmatched parenthesis"),
        ({"pre_tokenizer": split("(a+)+$")}, "retry-limit-in-match over"),
        ({"pre_tokenizer": {"type": "FixedLength", "length": 0}}, "chunk size must be non-zero"),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": ""}}, "Cannot parse precompiled_charsmap"),
        ({"decoder": {"type": "Strip", "content": "a", "start": 2**40, "stop": 2**40}}, "index out of bounds"),
        ({"model": words({"a": 0, "b": 0, "?": 2})}, "several tokens have the id 0"),
        ({"model": words({"a": 0, "b": 2**31, "?": 2})}, "the largest of 3 is 2,147,483,648"),
        ({"model": words({"a": 0, "b": -1, "?": 2})}, "cannot be read as a tokenizer"),
        ({"model": words({"a": 0, "b": 1})}, "Missing .* token from the vocabulary"),
        ({"model": {"type": "BPE", "vocab": {"a": 0, "b": 5}, "merges": ["a b"]}}, "out of range|out of vocabulary"),
        ({"model": None}, "cannot be read as a tokenizer"),
        ({"added_tokens": 5}, "cannot be read as a tokenizer"),
        ({"model": words({"a": 0, "b": "x" * 5000})}, r"cannot be read as a tokenizer: .{,310}[^.]\. Save"),
    ],
)
def test_damaged_tokenizers_are_refused(
    tmp_path: Path, changes: dict[str, object], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Some of them make the library panic; that is not an `Exception`, and it prints to the standard error."""
    path = damaged(tmp_path / "tokenizer.json", **changes)
    with pytest.raises(TokenizerError, match=rf"tokenizer\.json.*({message})"):
        count(["a b " + "a" * 40 + "c"], context=1, tokenizer=path).vocabulary.index("a")
    assert "panicked" not in capfd.readouterr().err


def test_deep_json_and_huge_files_are_not_tokenizers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text('{"model": ' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(TokenizerError, match=r"tokenizer\.json is not a saved tokenizer: .* recursion"):
        load_tokenizer(path)
    monkeypatch.setattr("tokengeom.corpus.tokenizers._LARGEST_FILE", 1000)
    with pytest.raises(TokenizerError, match="has 200,011 bytes, and at most 1,000 are read"):
        load_tokenizer(path)


def test_random_merges_are_switched_off(tmp_path: Path) -> None:
    made = json.loads(train_bpe(iter(TEXTS * 20), 300).to_json())
    made["model"]["dropout"] = 0.9
    (tmp_path / "tokenizer.json").write_text(json.dumps(made))
    tokenizer = load_tokenizer(tmp_path)
    first = tokenizer.encode(TEXTS)
    for _ in range(5):
        assert [ids.tolist() for ids in tokenizer.encode(TEXTS)] == [ids.tolist() for ids in first]


def test_an_interruption_of_training_is_not_an_error_of_the_tokenizer() -> None:
    def texts() -> Iterator[str]:
        yield "a b"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_bpe(texts(), 260)
