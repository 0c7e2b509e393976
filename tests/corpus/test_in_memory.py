"""Documents from Python: lists, streams, arrays, and Hugging Face data sets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tokengeom import NextTokenStatistics, count
from tokengeom.core.errors import CorpusError
from tokengeom.core.progress import SilentProgress
from tokengeom.corpus.documents import AbstractTextSource, AbstractTokenSource
from tokengeom.corpus.in_memory import open_iterable

TEXTS = ["the cat sat on the mat", "the dog sat on the cat", "a mat"]


@pytest.fixture(scope="module")
def expected() -> NextTokenStatistics:
    return count(TEXTS, context=2)


def test_iterables_of_text(expected: NextTokenStatistics) -> None:
    assert count(iter(TEXTS), context=2).equals(expected)
    assert count(tuple(TEXTS), context=2).equals(expected)


@pytest.fixture(scope="module")
def datasets() -> Any:
    return pytest.importorskip("datasets", reason="needs the extra 'huggingface'")


def test_hugging_face_data_sets(tmp_path: Path, expected: NextTokenStatistics, datasets: Any) -> None:
    dataset = datasets.Dataset.from_dict({"body": TEXTS, "n": [1, 2, 3]})
    assert count(dataset, context=2, column="body").equals(expected)
    assert count(dataset.to_iterable_dataset(), context=2, column="body").equals(expected)
    dataset.save_to_disk(str(tmp_path / "saved"))
    saved = count(tmp_path / "saved", context=2, column="body")
    assert saved.equals(expected)
    assert saved.corpus["sources"] == [str(tmp_path / "saved")]
    with pytest.raises(CorpusError, match="has no column 'text'; it has: body, n"):
        count(dataset, context=2)
    with pytest.raises(CorpusError, match="column 'n' must hold strings or lists of integers; it holds int64"):
        count(dataset, context=2, column="n")
    with pytest.raises(CorpusError, match=r"has splits \(train\); choose one, such as dataset\['train'\]"):
        count(datasets.DatasetDict({"train": dataset}), context=2)


def test_streams_are_read_row_by_row(tmp_path: Path, expected: NextTokenStatistics, datasets: Any) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"body": text, "n": 1}) + "\n" for text in TEXTS))
    files = {"data_files": str(tmp_path / "a.jsonl"), "cache_dir": str(tmp_path / "cache"), "streaming": True}
    stream = datasets.load_dataset("json", **files)
    with pytest.raises(CorpusError, match=r"has splits \(train\); choose one"):
        count(stream, context=2, column="body")
    assert count(stream["train"], context=2, column="body").equals(expected)
    mapped = stream["train"].map(lambda row: {"text": row["body"]})
    assert count(mapped, context=2).equals(expected)
    assert count(mapped.with_format("arrow"), context=2).equals(expected)

    def rows() -> Iterator[dict[str, str]]:
        yield from ({"body": text} for text in TEXTS)

    unknown = datasets.IterableDataset.from_generator(rows)
    with pytest.raises(CorpusError, match=r"A row .* has no column 'text'; it has: body\. .*--column body"):
        count(unknown, context=2)


@pytest.mark.parametrize("form", [None, "numpy", "torch", "pandas", "arrow"])
def test_columns_of_ids_in_any_format(datasets: Any, form: str | None) -> None:
    ids = [[0, 1, 2, 3, 0, 4], [], [0, 5, 2, 3, 0, 1], [6, 4]]
    dataset = datasets.Dataset.from_dict({"input_ids": [*ids, None], "attention_mask": [[1]] * 5}).with_format(form)
    assert count(dataset, context=2, column="input_ids").equals(count(ids, context=2))
    with pytest.raises(CorpusError, match="such as column='input_ids', or --column input_ids"):
        count(dataset, context=2)


def test_missing_texts_are_skipped_and_transforms_applied(expected: NextTokenStatistics, datasets: Any) -> None:
    dataset = datasets.Dataset.from_dict({"text": [None, *TEXTS, None]})
    assert count(dataset, context=2).equals(expected)
    assert count(dataset.to_iterable_dataset(), context=2).equals(expected)
    loud = datasets.Dataset.from_dict({"text": [f"! {text}" for text in TEXTS]})
    quiet = loud.with_transform(lambda rows: {"text": [text[2:] for text in rows["text"]]})
    assert count(quiet, context=2).equals(expected)


def test_arrow_files_need_no_library(tmp_path: Path, expected: NextTokenStatistics) -> None:
    table = pa.table({"text": [*TEXTS, None], "ids": [[1, 2, 3]] * 4})
    for name, write in (("stream", pa.ipc.new_stream), ("file", pa.ipc.new_file)):
        with write(str(tmp_path / f"{name}.arrow"), table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
        assert count(tmp_path / f"{name}.arrow", context=2).equals(expected)
        assert count(tmp_path / f"{name}.arrow", context=2, column="ids").n == 4
    with pytest.raises(CorpusError, match=r"stream\.arrow has no column 'body'; it has: text, ids"):
        count(tmp_path / "stream.arrow", context=2, column="body")
    whole = (tmp_path / "file.arrow").read_bytes()
    (tmp_path / "file.arrow").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CorpusError, match=r"file\.arrow cannot be read as Arrow.*damaged or incomplete"):
        count(tmp_path / "file.arrow", context=2)


def test_a_saved_data_set_with_splits_asks_for_one(
    tmp_path: Path, expected: NextTokenStatistics, datasets: Any
) -> None:
    dataset = datasets.Dataset.from_dict({"text": TEXTS})
    datasets.DatasetDict({"train": dataset, "test": dataset}).save_to_disk(str(tmp_path / "both"))
    with pytest.raises(CorpusError, match=r"with splits \(test, train\)\. Name one .*both/test"):
        count(tmp_path / "both", context=2)
    assert count(tmp_path / "both" / "train", context=2).equals(expected)


def test_a_stream_that_breaks_off_says_how_far_it_came(datasets: Any) -> None:
    def rows() -> Iterator[dict[str, str]]:
        yield from ({"text": text} for text in TEXTS)
        raise ConnectionError("reset by peer")

    broken = r"ended with an error, ConnectionError: reset by peer\. Documents read before it: 3\."
    with pytest.raises(CorpusError, match=broken):
        count(datasets.IterableDataset.from_generator(rows), context=2)
    with pytest.raises(CorpusError, match=broken):
        count((row["text"] for row in rows()), context=2)


def test_progress_of_a_stream_has_no_length(expected: NextTokenStatistics) -> None:
    stages: list[tuple[str, float | None]] = []

    class Recorded(SilentProgress):
        def stage(self, title: str, total: float | None) -> Any:
            stages.append((title, total))
            return super().stage(title, total)

    assert count(iter(TEXTS), context=2, progress=Recorded()).equals(expected)
    assert ("Reading", None) in stages


def test_bad_iterables_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="<0 documents> has no document"):
        count([])
    with pytest.raises(CorpusError, match=r"Document 1 of .* must be a string like the first; it is of type int"):
        count(["a b c", 5])
    with pytest.raises(CorpusError, match="must be integers"):
        count([[0.5, 1.0]])
    with pytest.raises(CorpusError, match=r"its shape is \(1, 2\)"):
        count([[[1, 2]]])
    with pytest.raises(CorpusError, match="it is a dict with the keys text"):
        count([{"text": "a b c"}])
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


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("state.json", '{"_data_files": 5}'),
        ("state.json", "[]"),
        ("dataset_info.json", '{"features": 1.5}'),
        ("dataset_info.json", "{"),
        ("data-00000-of-00001.arrow", "ARROW1"),
    ],
)
def test_a_damaged_data_set_is_refused(tmp_path: Path, name: str, content: str) -> None:
    """The library raises errors of any type for what it finds in its files."""
    datasets = pytest.importorskip("datasets", reason="needs the extra 'huggingface'")
    datasets.Dataset.from_dict({"text": TEXTS}).save_to_disk(tmp_path / "d")
    (tmp_path / "d" / name).write_text(content)
    with pytest.raises(CorpusError, match=r"/d cannot be read as a data set; it is damaged .*save_to_disk"):
        count(tmp_path / "d", context=1)
