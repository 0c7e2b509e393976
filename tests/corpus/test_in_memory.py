"""Documents from Python: lists, streams, arrays, and Hugging Face data sets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokengeom import NextTokenStatistics, count
from tokengeom.corpus.documents import AbstractTextSource, AbstractTokenSource
from tokengeom.corpus.in_memory import open_iterable
from tokengeom.errors import CorpusError

TEXTS = ["the cat sat on the mat", "the dog sat on the cat", "a mat"]


@pytest.fixture(scope="module")
def expected() -> NextTokenStatistics:
    return count(TEXTS, context=2)


def test_iterables_of_text(expected: NextTokenStatistics) -> None:
    assert count(iter(TEXTS), context=2).equals(expected)
    assert count(tuple(TEXTS), context=2).equals(expected)


def test_hugging_face_data_sets(tmp_path: Path, expected: NextTokenStatistics) -> None:
    datasets = pytest.importorskip("datasets", reason="needs the extra 'huggingface'")
    dataset = datasets.Dataset.from_dict({"body": TEXTS, "n": [1, 2, 3]})
    assert count(dataset, context=2, column="body").equals(expected)
    assert count(dataset.to_iterable_dataset(), context=2, column="body").equals(expected)
    dataset.save_to_disk(str(tmp_path / "saved"))
    assert count(tmp_path / "saved", context=2, column="body").equals(expected)
    with pytest.raises(CorpusError, match="has no column 'text'; it has: body, n"):
        count(dataset, context=2)
    with pytest.raises(CorpusError, match=r"has splits \(train\); choose one"):
        count(datasets.DatasetDict({"train": dataset}), context=2)


def test_bad_iterables_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="yielded no document"):
        count([])
    with pytest.raises(CorpusError, match=r"Document 1 of .* must be a string like the first; it is of type int"):
        count(["a b c", 5])
    with pytest.raises(CorpusError, match="must be integers"):
        count([[0.5, 1.0]])
    with pytest.raises(CorpusError, match=r"its shape is \(1, 2\)"):
        count([[[1, 2]]])
    with pytest.raises(CorpusError, match="no file, folder or match for 'missing"):
        count(["missing.txt"])
    with pytest.raises(CorpusError, match="no file, folder or match"):
        count(tmp_path / "missing")
    with pytest.raises(CorpusError, match="has no text file in UTF-8, and no file that ends in"):
        count(tmp_path)


def test_the_first_document_decides_between_text_and_ids() -> None:
    text, ids = open_iterable(iter(["a b", "c"])), open_iterable([[1, 2], [3]])
    assert isinstance(text, AbstractTextSource)
    assert isinstance(ids, AbstractTokenSource)
    assert (text.name, text.repeatable) == ("<a stream of documents>", False)
    assert (ids.name, ids.repeatable) == ("<2 documents>", True)
    assert [piece.text for piece in text.pieces()] == ["a b", "c"]
    assert [batch.tokens.tolist() for batch in ids.batches()] == [[1, 2, 3]]
