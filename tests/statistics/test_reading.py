"""Reading and tokenizing: what is known of a corpus afterwards, and what is refused."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tokengeom import NextTokenStatistics, count
from tokengeom.core.errors import CorpusError
from tokengeom.core.progress import AbstractProgress, AbstractStage, SilentProgress
from tokengeom.corpus.locate import ReadingSettings, open_corpus
from tokengeom.statistics.reading import TokenizedCorpus, tokenize
from tokengeom.statistics.supports import warnings_about
from tokengeom.statistics.windows import Windows

TEXT = "a b a\n\nb\n\na b c d"


@pytest.fixture
def read(tmp_path: Path) -> TokenizedCorpus:
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "tokens").mkdir()
    sources = open_corpus(tmp_path / "a.txt", ReadingSettings())
    return tokenize(sources, "word", None, 3, tmp_path / "tokens", SilentProgress())


def test_a_corpus_is_described(read: TokenizedCorpus, tmp_path: Path) -> None:
    assert (read.vocabulary, read.tokenizer.vocabulary() if read.tokenizer else []) == (4, ["a", "b", "c", "d"])
    assert read.describe(Windows(2)) == {
        "sources": [str(tmp_path / "a.txt")],
        "separators": ["blank"],
        "likely_separators": [],
        "documents": 3,
        "tokens": 8,
        "replaced_bytes": 0,
        "short_documents": 1,
    }


@pytest.mark.parametrize(
    ("windows", "short"),
    [
        (Windows(1), 1),
        (Windows(3), 2),
        (Windows(4), 3),
        (Windows(4, pad=True), 0),
        (Windows(4, "prefixes"), 1),
        (Windows(4, "prefixes", pad=True), 0),
    ],
)
def test_documents_without_a_window_are_counted(read: TokenizedCorpus, windows: Windows, short: int) -> None:
    assert read.short_documents(windows) == short
    assert read.has(windows) == (short < 3)
    if short == 3:
        with pytest.raises(
            CorpusError, match="3 documents with 8 tokens in all, and a window needs 5 tokens in one document"
        ):
            read.require(windows)


def prose(number: int, comma: str = ", ", stop: str = ". ", rare: str = "Ann") -> str:
    random = Random(5)
    words = ["the", "cat", "dog", "well-known", "ran", "home", "to"]
    said = [(*random.choices(words, k=3), rare if at % 4 == 0 else "it") for at in range(number)]
    return "".join(f"{a} {b}{comma}{c} {d}{stop}" for a, b, c, d in said)


CODE = "x = [\n    y(a)\n  , z(b)\n  , w(c_d)\n    ]\n" * 30


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (prose(60, " , ", " . "), "whitespace"),
        (prose(200, " @-@ ", "\n", "<unk>"), "whitespace"),
        (prose(60), "word"),
        (prose(60, " ; ", " ! ", "<b>"), "word"),
        (prose(3, " , ", " . "), "word"),
        (CODE, "word"),
    ],
)
def test_text_without_a_tokenizer_is_words_or_what_it_is_split_into(text: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(text)
    given = count([text], context=1, tokenizer=kind)
    # Also where the documents can be read only once, as those of standard input.
    for found in (count([text], context=1), count(iter([text]), context=1), count(tmp_path / "a.txt", context=1)):
        assert found.tokenizer is not None
        assert (found.tokenizer.kind, found.hash) == (kind, given.hash)
        said = [one for one in warnings_about(found) if "--tokenizer word" in one]
        assert len(said) == (kind == "whitespace")
        assert all("split into tokens already" in one for one in said)
    assert not [one for one in warnings_about(given) if "--tokenizer" in one]
    assert ("<unk>" in given.vocabulary) == ("<unk>" in text)


def test_all_documents_have_the_tokens_that_the_first_ones_are_split_into(tmp_path: Path) -> None:
    texts = [prose(60, " , ", " . "), *["Well-known words and more"] * 2000]
    found = count(texts, context=1)
    assert found.hash == count(texts, context=1, tokenizer="whitespace").hash
    assert count(texts[::-1], context=1).hash == count(texts[::-1], context=1, tokenizer="word").hash
    again = NextTokenStatistics.load(found.save(tmp_path / "stats"))
    assert warnings_about(again) == warnings_about(found)


class Notes(AbstractProgress, AbstractStage):
    """A progress that remembers its notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def stage(self, title: str, total: float | None) -> Notes:
        return self

    def __enter__(self) -> Notes:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def advance(self, amount: float, note: str = "") -> None:
        self.notes.append(note)


def test_the_speed_of_reading_is_reported(tmp_path: Path) -> None:
    notes = Notes()
    tokenize(open_corpus(["a b", "c d e"], ReadingSettings()), "word", None, 1, tmp_path, notes)
    assert notes.notes[-1].startswith("5 tokens, ")
    assert notes.notes[-1].endswith(" per second")
