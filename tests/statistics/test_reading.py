"""Reading and tokenizing: what is known of a corpus afterwards, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokengeom.core.errors import CorpusError
from tokengeom.core.progress import AbstractProgress, AbstractStage, SilentProgress
from tokengeom.corpus.locate import ReadingSettings, open_corpus
from tokengeom.statistics.reading import TokenizedCorpus, tokenize
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


def test_text_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="Text needs a tokenizer: word, whitespace"):
        tokenize(open_corpus(["a b"], ReadingSettings()), None, None, 1, tmp_path, SilentProgress())


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
