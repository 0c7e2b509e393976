"""Title, hash and sample of a text."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_cases import write_text
from tokengeom.core.errors import CorpusError
from tokengeom.corpus.locate import ReadingSettings
from tokengeom.page import source_text as text_module
from tokengeom.page.source_text import find_text

READING = ReadingSettings()


def test_the_hash_is_of_the_content_and_not_of_the_location(tmp_path: Path) -> None:
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
    ("source", "message"),
    [
        ("-", "Save it to a file"),
        ("hdfs://far/away", "Count it"),
        ([], "got list"),
        ([1, 2], "got list of int"),
        (b"bytes", "got bytes"),
        (7, "got int"),
        ({"a b": "c d"}, "got dict"),
        ([[1, 2], [3]], r"got list of list. Count anything else first: stats = tg.count"),
    ],
)
def test_what_is_not_a_text_or_cannot_be_read_several_times_is_refused(source: object, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        find_text(source, READING)


def test_a_sample_is_the_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one two\n\nthree four\n\nfive six")
    sample = find_text(path, READING).sample()
    assert sample is not None
    assert sample.documents == ("one two", "three four", "five six")
    assert sample.complete
    monkeypatch.setattr(text_module, "SAMPLE_CHARACTERS", 12)
    short = find_text(path, READING).sample()
    assert short is not None
    assert short.documents == ("one two", "three")
    assert not short.complete


def test_the_usual_marker_is_found_unless_another_separator_is_given(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one two\n\nthree<|endoftext|>four five")
    found, given = (find_text(path, reading).sample() for reading in (READING, ReadingSettings(separator="blank")))
    assert found is not None
    assert given is not None
    assert found.marker_found
    assert len(found.documents) == 2
    assert not given.marker_found


def test_token_ids_have_no_sample(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(bytes(range(16)))
    assert find_text(tmp_path / "a.bin", READING).sample() is None
