"""A text's name, hash and sample."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_cases import write_text
from tokengeom.corpus.locate import ReadingOptions
from tokengeom.errors import CorpusError
from tokengeom.page import text as text_module
from tokengeom.page.text import find_text

READING = ReadingOptions()


def test_the_hash_is_of_the_content_and_not_of_the_place(tmp_path: Path) -> None:
    here = write_text(tmp_path / "a.txt")
    (tmp_path / "deep").mkdir()
    there = write_text(tmp_path / "deep/b.txt")
    other = write_text(tmp_path / "c.txt", seed=1)
    assert find_text(here, READING).digest == find_text(there, READING).digest != find_text(other, READING).digest
    # The suffix decides how the bytes are read.
    assert find_text(here.rename(tmp_path / "a.jsonl"), READING).digest != find_text(there, READING).digest


def test_strings_are_documents_unless_they_name_files(tmp_path: Path) -> None:
    path = write_text(tmp_path / "a.txt")
    assert find_text([str(path)], READING).corpus == [path]
    assert find_text(["one two", "three"], READING).title == "2 documents"
    assert find_text(None, READING).corpus is None


@pytest.mark.parametrize(
    ("source", "tokens"),
    [("-", "Save it in a file"), ("hdfs://far/away", "Count it"), ([], "got neither"), ([1, 2], "got neither")],
)
def test_what_cannot_be_read_several_times_is_refused(source: object, tokens: str) -> None:
    with pytest.raises(CorpusError, match=tokens):
        find_text(source, READING)  # type: ignore[arg-type]


def test_a_sample_is_the_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one two\n\nthree four\n\nfive six")
    sample = find_text(path, READING).sample()
    assert sample is not None
    assert sample.documents == ("one two", "three four", "five six")
    assert sample.whole
    monkeypatch.setattr(text_module, "SAMPLE_CHARACTERS", 12)
    short = find_text(path, READING).sample()
    assert short is not None
    assert short.documents == ("one two", "three")
    assert not short.whole


def test_the_usual_marker_is_found_unless_another_separator_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one two\n\nthree<|endoftext|>four five")
    found, told = (find_text(path, reading).sample() for reading in (READING, ReadingOptions(separator="blank")))
    assert found is not None
    assert told is not None
    assert found.marker_found
    assert len(found.documents) == 2
    assert not told.marker_found


def test_token_ids_have_no_sample(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(bytes(range(16)))
    assert find_text(tmp_path / "a.bin", READING).sample() is None
