"""Tokenizers: ids, hashes, saving and loading, and the rule of each kind."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokengeom import count
from tokengeom.core.errors import TokenizerError
from tokengeom.corpus.huggingface_tokenizer import train_bpe
from tokengeom.corpus.tokenizers import (
    AbstractTokenizer,
    ByteTokenizer,
    CharacterTokenizer,
    CodeTokenizer,
    WhitespaceTokenizer,
    WordTokenizer,
    load_tokenizer,
    make_tokenizer,
)

TEXTS = ["The cat — don't! — sat.", "Größe: 3,5 m (approx.)", "他们 said \U0001f600"]


def every_tokenizer() -> list[AbstractTokenizer]:
    made: list[AbstractTokenizer] = [WordTokenizer(), WhitespaceTokenizer(), CodeTokenizer()]
    made += [CharacterTokenizer(), ByteTokenizer()]
    made.append(train_bpe(iter(TEXTS), 300))
    for tokenizer in made:
        tokenizer.encode(TEXTS)
    return [tokenizer.freeze() for tokenizer in made]


@pytest.mark.parametrize("tokenizer", every_tokenizer(), ids=lambda t: t.kind)
class TestEveryTokenizer:
    """What holds for every tokenizer."""

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

    def test_texts_are_encoded_independently(self, tokenizer: AbstractTokenizer) -> None:
        together = tokenizer.encode(TEXTS)
        assert all((tokenizer.encode([text])[0] == ids).all() for text, ids in zip(TEXTS, together, strict=True))

    def test_text_may_be_split_before_white_space(self, tokenizer: AbstractTokenizer) -> None:
        """Long documents are split before white space: the parts must give the ids of the whole."""
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


def test_marks_belong_to_the_letters_before_them() -> None:
    words = [f"a{chr(mark)}b" for mark in (0x301, 0x94D, 0x200D, 0x1D165)] + ["é", "“"]
    assert all(WordTokenizer.split(word) == [word] for word in words)
    assert WordTokenizer.split(" ".join(words)) == words


def test_white_space_alone_separates_tokens() -> None:
    tokenizer = WhitespaceTokenizer()
    (ids,) = tokenizer.encode(["The <unk> of\u00a0state @-@ owned\n firms , The end."])
    tokens = [tokenizer.token(i) for i in ids]
    assert tokens == ["The", "<unk>", "of", "state", "@-@", "owned", "firms", ",", "The", "end."]
    assert ids.tolist()[0] == ids.tolist()[8]
    assert tokenizer.decode(ids.tolist()[:2]) == "The <unk>"
    words = WordTokenizer()
    (apart,) = words.encode(["<unk> @-@"])
    assert [words.token(i) for i in apart] == ["<", "unk", ">", "@", "-", "@"], "the word tokenizer splits them"


def test_white_space_is_a_tokenizer_of_count(tmp_path: Path) -> None:
    statistics = count(["the <unk> sat @-@ The <unk>"], context=1, tokenizer="whitespace")
    assert statistics.vocabulary == ("the", "<unk>", "sat", "@-@", "The")
    assert statistics.tokenizer_name == "whitespace"


@settings(max_examples=50)
@given(st.lists(st.text(max_size=20), max_size=5))
def test_decoding_characters_and_bytes_gives_the_text(texts: list[str]) -> None:
    texts = [text.encode("utf-8", "ignore").decode() for text in texts]
    for tokenizer in (CharacterTokenizer(), ByteTokenizer()):
        for text, ids in zip(texts, tokenizer.encode(texts), strict=True):
            assert tokenizer.decode(ids.tolist()) == text
    characters = CharacterTokenizer()
    characters.encode(texts)
    assert characters.vocabulary() == list(dict.fromkeys("".join(texts)))


@pytest.mark.parametrize("kind", [WordTokenizer, WhitespaceTokenizer, CharacterTokenizer])
def test_a_closed_vocabulary_refuses_unknown_tokens(kind: type[AbstractTokenizer]) -> None:
    tokenizer = kind()
    tokenizer.encode(["a b"])
    frozen = tokenizer.freeze()
    with pytest.raises(TokenizerError, match="'c', which the given"):
        frozen.encode(["a c"])


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("nonsense", r"neither a kind \(word, whitespace, code, character, byte, bpe, bpe:SIZE\)"),
        ("bpe:x", "whole number"),
        ("bpe:99999999999", "number of tokens in 'bpe:99999999999' must be .* at most 10,000,000"),
        ("bpe:999999999", "at most 10,000,000"),
        ("bpe", "trained on text"),
    ],
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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"tokengeom_tokenizer": "word"}, "a saved word tokenizer must list the texts"),
        ({"tokengeom_tokenizer": "word", "vocabulary": "ab"}, "must list the texts"),
        ({"tokengeom_tokenizer": "word", "vocabulary": ["a", 5]}, "must list the texts"),
        ({"tokengeom_tokenizer": "code", "vocabulary": ["a", "b", "a"]}, "must list each token once"),
        ({"tokengeom_tokenizer": "word", "vocabulary": ["a", "\ud800"]}, "without half characters"),
        ({"tokengeom_tokenizer": "character", "vocabulary": ["a", "bc"]}, "must list single characters"),
        ({"tokengeom_tokenizer": ["word"], "vocabulary": []}, "of the unknown kind"),
    ],
)
def test_damaged_tokenizers_of_our_own_are_refused(tmp_path: Path, content: object, message: str) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(TokenizerError, match=rf"tokenizer\.json.*{message}"):
        load_tokenizer(tmp_path)


CODE = """class Parser(Base):
    def read(self, Path=None):
        if x == 1 and y != 2:

            return self._data->next **= 3
    z = 'a b'"""


def test_code_keeps_its_case_its_operators_and_its_indentation() -> None:
    tokenizer = CodeTokenizer()
    tokens = tokenizer.split(CODE)
    assert tokens[:7] == ["class", "Parser", "(", "Base", ")", ":", "\n    "]
    assert {"==", "!=", "->", "**=", "_data", "Path", "\n            ", "'"} <= set(tokens)
    # A blank line is no token, and an indentation belongs to the line break before it.
    assert all(token.strip() or token[0] == "\n" for token in tokens)
    assert sum(token[0] == "\n" for token in tokens) == 4
    shown = tokenizer.decode(tokenizer.encode([CODE])[0].tolist())
    assert shown.splitlines()[2] == "        if x == 1 and y != 2 :"
    assert shown.startswith("class Parser ( Base ) :\n    def read (")
    assert tokenizer.split("a\n\n") == ["a"]


def test_code_may_be_split_before_white_space() -> None:
    whole = CodeTokenizer.split(CODE)
    for cut in (CODE.index("\n        if"), CODE.index(" and"), CODE.index("\n\n")):
        assert CodeTokenizer.split(CODE[:cut]) + CodeTokenizer.split(CODE[cut:]) == whole


def test_code_loses_nothing_but_white_space() -> None:
    assert "".join("".join(CodeTokenizer.split(CODE)).split()) == "".join(CODE.split())


def test_marked_tokens_of_a_tokenized_text_stay_whole() -> None:
    text = "the <unk> cat @-@ like , 3 @,@ 000"
    assert WhitespaceTokenizer.split(text) == text.split(" ")
    stats = count([text], context=1, tokenizer="whitespace")
    assert {"<unk>", "@-@", "@,@"} <= set(stats.vocabulary)


@pytest.mark.parametrize("what", [3, b"a b", [1], np.array(3), np.ma.masked_array(3, mask=True)], ids=repr)
def test_what_is_no_text_is_refused(what: object) -> None:
    with pytest.raises(TokenizerError, match="one text or several"):
        WordTokenizer().encode(what)  # type: ignore[arg-type]
