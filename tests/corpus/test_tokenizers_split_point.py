"""A text that is split where its tokenizer allows it has the same tokens as the whole text."""

from __future__ import annotations

from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from tokengeom.core.progress import SilentProgress
from tokengeom.corpus import documents
from tokengeom.corpus.documents import BEFORE_WHITE_SPACE, last_match, pieces_of
from tokengeom.corpus.huggingface_tokenizer import HuggingFaceTokenizer, train_bpe
from tokengeom.corpus.locate import ReadingSettings, open_corpus
from tokengeom.corpus.tokenizers import (
    AbstractTokenizer,
    ByteTokenizer,
    CharacterTokenizer,
    CodeTokenizer,
    WhitespaceTokenizer,
    WordTokenizer,
)
from tokengeom.statistics import reading

# Letters whose case depends on their neighbours, marks, apostrophes, parts of operators, several kinds of white space.
ALPHABET = "abΣΑ.,:;'’-^`=*/>&(\n \t\u3000_1é\u0301\u200d中。！😀İ<|e|>"  # noqa: RUF001 - confusable on purpose
TEXT = "Σ's \n\n x =-> y**=2, ΑΣ.Α don't 中文。“ok” <|e|>"  # noqa: RUF001 - as above


def added(content: str, **flags: bool) -> HuggingFaceTokenizer:
    tokenizer = tokenizers.Tokenizer.from_str(train_bpe(iter([TEXT * 20]), 280).to_json())
    tokenizer.add_tokens([tokenizers.AddedToken(content, normalized=False, **flags)])
    return HuggingFaceTokenizer(tokenizer)


def with_normalizer() -> HuggingFaceTokenizer:
    tokenizer = tokenizers.Tokenizer.from_str(train_bpe(iter([TEXT * 20]), 280).to_json())
    tokenizer.normalizer = tokenizers.normalizers.Prepend("_")
    return HuggingFaceTokenizer(tokenizer)


TOKENIZERS = {
    "word": WordTokenizer(),
    "whitespace": WhitespaceTokenizer(),
    "code": CodeTokenizer(),
    "character": CharacterTokenizer(),
    "byte": ByteTokenizer(),
    "bpe": train_bpe(iter([TEXT * 20]), 300),
    "added token": added("<|e|>"),
    "added token with a space": added("e a"),
    "added token with white space around it": added("<|e|>", rstrip=True),
    "normalizer": with_normalizer(),
}


def ids(tokenizer: AbstractTokenizer, text: str) -> list[int]:
    return [int(one) for one in tokenizer.encode([text])[0]]


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=60, deadline=None)
@given(text=st.text(alphabet=ALPHABET, max_size=40), end=st.integers(0, 40))
def test_the_parts_of_a_text_have_its_tokens(name: str, text: str, end: int) -> None:
    """The place is chosen with a view of the beginning only, and holds whatever follows."""
    tokenizer = TOKENIZERS[name]
    place = tokenizer.split_point(text[:end])
    assert 0 <= place <= len(text[:end])
    assert ids(tokenizer, text[:place]) + ids(tokenizer, text[place:]) == ids(tokenizer, text)


def test_texts_are_split_before_white_space() -> None:
    for name in ("word", "whitespace", "code", "bpe", "added token"):
        assert TOKENIZERS[name].split_point("ab,cd;ef gh") == 8
        assert TOKENIZERS[name].split_point("ab,cd;ef") == 0
    for name in ("added token with a space", "added token with white space around it", "normalizer"):
        assert TOKENIZERS[name].split_point("ab, cd; ef") == 0
    for name in ("character", "byte"):
        assert TOKENIZERS[name].split_point("abc") == 3


def test_the_last_place_may_be_far_from_the_end() -> None:
    assert last_match(BEFORE_WHITE_SPACE, "a b" + "c" * 10_000) == 1
    assert last_match(BEFORE_WHITE_SPACE, "a b" * 5_000) == 14_998


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_document_in_pieces_has_the_tokens_of_the_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [TEXT * 3, "ab", "Σ" + "a" * 50, TEXT]
    expected = [ids(TOKENIZERS[name], text) for text in texts]
    sources = open_corpus(texts, ReadingSettings())
    for size in (1, 3, 10, 1000):
        monkeypatch.setattr(documents, "PIECE_CHARACTERS", size)
        monkeypatch.setattr(reading, "PIECE_CHARACTERS", size)
        found: list[list[int]] = []
        for _, batch in reading.token_batches(sources, TOKENIZERS[name], SilentProgress()):
            begin = 0
            for number, length in enumerate(batch.lengths.tolist()):
                if number or not batch.continues:
                    found.append([])
                found[-1] += batch.tokens[begin : begin + length].tolist()
                begin += length
        assert found == expected


def test_pieces_of_a_document_are_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "PIECE_CHARACTERS", 4)
    pieces = list(pieces_of("one two three"))
    assert "".join(piece.text for piece in pieces) == "one two three"
    assert [piece.starts for piece in pieces] == [True, False, False, False]
    assert not list(pieces_of(" \n"))
    assert not list(pieces_of(""))


def test_a_bpe_is_trained_on_whole_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "alpha beta gamma " * 50
    (tmp_path / "a.txt").write_text(text)
    whole = train_bpe(iter([text.strip()]), 270).to_json()
    monkeypatch.setattr(documents, "PIECE_CHARACTERS", 7)
    monkeypatch.setattr("tokengeom.corpus.files._CHUNK_BYTES", 11)
    from tokengeom import count

    statistics = count(tmp_path / "a.txt", context=1, tokenizer="bpe:270")
    assert statistics.tokenizer is not None
    assert statistics.tokenizer.to_json() == whole
