"""Saved statistics are loaded unchanged, and damage is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from scipy import sparse

from forging import forge, forge_array, forge_entry
from tokengeom import NextTokenStatistics, count, load, verify
from tokengeom.core.errors import InputError, ResourceError
from tokengeom.results import contract
from tokengeom.statistics.saved_statistics import contexts_fault, in_order, saved_fault
from tokengeom.statistics.windows import WindowKind, Windows


@pytest.mark.parametrize("windows", ["sliding", "prefixes"])
@pytest.mark.parametrize("tokenizer", ["word", "whitespace", "character", "byte", "bpe:300"])
def test_saved_statistics_are_loaded_unchanged(tmp_path: Path, tokenizer: str, windows: WindowKind) -> None:
    before = count(["the cat sat on the mat .", "der Bär saß"] * 3, context=3, tokenizer=tokenizer, windows=windows)
    cut = before.limited(top_contexts=5)
    cut.save(tmp_path / "stats")
    after = NextTokenStatistics.load(tmp_path / "stats")
    assert after.equals(cut)
    assert after.to_dict() == cut.to_dict()
    assert (after.windows, after.effects, after.corpus) == (cut.windows, cut.effects, cut.corpus)
    assert after.tokenizer is not None
    assert before.tokenizer is not None
    assert after.tokenizer.content_hash == before.tokenizer.content_hash
    assert [after.context_text(j) for j in range(cut.m)] == [cut.context_text(j) for j in range(cut.m)]


def test_probabilities_and_labels_are_saved(tmp_path: Path) -> None:
    before = NextTokenStatistics.from_probabilities([[0.5, 1], [0.5, 0]], [0.3, 0.7], ["x", "y"], ["a", "b"])
    assert before.save(tmp_path / "stats") == tmp_path / "stats"
    after = load(tmp_path / "stats")
    assert isinstance(after, NextTokenStatistics)
    assert after.equals(before)
    assert verify(tmp_path / "stats").ok


def test_the_folder_is_readable_without_the_package(tmp_path: Path) -> None:
    statistics = count([[0, 1, 0, 2, 0, 1]], context=1, vocabulary_size=3)
    statistics.save(tmp_path / "s")
    manifest = json.loads((tmp_path / "s/manifest.json").read_text())
    arrays = load_file(tmp_path / "s/arrays.safetensors")
    counts = sparse.csc_array(
        (arrays["data"], arrays["indices"], arrays["indptr"]), shape=(manifest["vocabulary"], manifest["contexts"])
    )
    assert counts.toarray().tolist() == [[0, 1, 1], [2, 0, 0], [1, 0, 0]]
    assert arrays["contexts"].tolist() == [[0], [1], [2]]
    assert pq.read_table(tmp_path / "s/vocabulary.parquet")["text"].to_pylist() == ["token 0", "token 1", "token 2"]
    assert manifest["entropy_nats"] == pytest.approx(statistics.entropy)
    assert (manifest["windows"], manifest["hash"]) == (5, statistics.hash)
    assert manifest["window"] == {"context": 1, "kind": "sliding", "pad": False}


def test_a_future_version_is_refused(tmp_path: Path) -> None:
    NextTokenStatistics.from_counts([[1]]).save(tmp_path / "s")
    path = tmp_path / "s/manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(manifest | {"format_version": 99, "tokengeom": "9.9"}))
    with pytest.raises(InputError, match=r"version 99 .* by tokengeom 9\.9; this tokengeom reads up to version 1"):
        NextTokenStatistics.load(tmp_path / "s")


@pytest.mark.parametrize("content", [None, "{", "[]", '{"format": "something"}'])
def test_a_folder_that_is_not_a_result_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(InputError, match=r"no saved result|cannot be read|not 'tokengeom-statistics'"):
        NextTokenStatistics.load(tmp_path)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    NextTokenStatistics.from_counts([[1]]).save(tmp_path / "s")
    (tmp_path / "s/arrays.safetensors").write_bytes(b"nonsense")
    with pytest.raises(InputError, match=r"is damaged: arrays\.safetensors"):
        NextTokenStatistics.load(tmp_path / "s")
    assert not verify(tmp_path / "s")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("indices", lambda a: a + 100),
        ("indices", lambda a: a - 100),
        ("indices", lambda a: a[::-1].copy()),
        ("indices", lambda a: a[:-1]),
        ("indptr", lambda a: a + 2**20),
        ("indptr", lambda a: a[::-1].copy()),
        ("indptr", lambda a: a[:0]),
        ("data", lambda a: -a),
        ("data", lambda a: a.astype(np.float64) / 2),
        ("data", lambda a: a[:1]),
        ("data", lambda a: np.where(np.arange(a.size) == 0, 2**62, a)),
        ("data", lambda a: a.astype(np.int32)),
        ("contexts", lambda a: a[:1]),
        ("contexts", lambda a: a.ravel()),
        ("contexts", lambda a: a.astype(np.int64)),
        ("contexts", lambda a: 0 * a),
        ("contexts", lambda a: a + 1),
        ("contexts", lambda a: a - 1),
        ("contexts", lambda a: np.hstack([a, a])),
    ],
)
def test_arrays_that_make_no_table_are_refused_before_they_are_used(
    tmp_path: Path, name: str, change: Callable[[NDArray[Any]], NDArray[Any]]
) -> None:
    folder = count([[0, 1, 0, 2, 0, 1]], context=1, vocabulary_size=3).save(tmp_path / "s")
    forge_array(folder, "arrays.safetensors", name, change)
    with pytest.raises(InputError, match=rf"{folder} is damaged: (?!.*hash).*Make the result again"):
        NextTokenStatistics.load(folder)


@pytest.mark.parametrize("name", ["data", "indices", "indptr"])
def test_a_missing_array_is_named(tmp_path: Path, name: str) -> None:
    folder = NextTokenStatistics.from_counts([[1, 2]]).save(tmp_path / "s")
    arrays = load_file(folder / "arrays.safetensors")
    arrays.pop(name)
    save_file(arrays, folder / "arrays.safetensors")
    with pytest.raises(InputError, match=f"has no array {name}"):
        NextTokenStatistics.load(forge(folder))


@pytest.mark.parametrize(
    ("name", "change"),
    [("pi", lambda a: 2 * a), ("pi", lambda a: -a), ("data", lambda a: 7 * a), ("data", lambda a: np.nan * a)],
)
def test_probabilities_that_cannot_be_are_refused(
    tmp_path: Path, name: str, change: Callable[[NDArray[Any]], NDArray[Any]]
) -> None:
    folder = NextTokenStatistics.from_probabilities([[0.5, 1], [0.5, 0]], [0.3, 0.7]).save(tmp_path / "s")
    with pytest.raises(InputError, match=rf"{folder} is damaged: (?!.*hash)"):
        NextTokenStatistics.load(forge_array(folder, "arrays.safetensors", name, change))


def cut_to(n: int) -> dict[str, Any]:
    sizes = {"n": 9, "m": 3, "V": 3, "entropy": 1.0}
    return {"cut": "some", "before": sizes, "after": sizes | {"n": n}}


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("window", [1]),
        ("window", {"context": 0, "kind": "sliding", "pad": False}),
        ("window", {"context": 2, "kind": "sliding", "pad": False}),
        ("window", {"context": 1, "kind": "rolling", "pad": False}),
        ("cuts", [{"cut": "some"}]),
        ("cuts", [cut_to(10)]),
        ("cuts", [cut_to(0)]),
        ("corpus", {"documents": "many"}),
        ("corpus", {"sources": [1]}),
        ("corpus", {"likely_separators": ["a"]}),
        ("corpus", []),
        ("hash", None),
    ],
)
def test_entries_that_cannot_be_are_refused(tmp_path: Path, entry: str, value: object) -> None:
    folder = count([[0, 1, 0, 2, 0, 1]], context=1, vocabulary_size=3).save(tmp_path / "s")
    with pytest.raises(InputError, match=rf"{folder} is damaged: .*Make the result again"):
        NextTokenStatistics.load(forge_entry(folder, entry, lambda _: value))


@pytest.mark.parametrize("names", [[1, 2, 3], ["a", None, "c"], ["a", "b"]])
def test_names_that_cannot_be_are_refused(tmp_path: Path, names: list[Any]) -> None:
    folder = count([[0, 1, 0, 2, 0, 1]], context=1, vocabulary_size=3).save(tmp_path / "s")
    pq.write_table(pa.table({"text": names}), folder / "vocabulary.parquet")
    with pytest.raises(InputError, match=rf"{folder} is damaged: (?!.*hash)"):
        NextTokenStatistics.load(forge(folder))


def test_an_array_file_of_other_software_is_refused(tmp_path: Path) -> None:
    NextTokenStatistics.from_counts([[1]]).save(tmp_path / "s")
    (tmp_path / "s/arrays.safetensors").write_bytes(b"nonsense")
    forge(tmp_path / "s")
    with pytest.raises(InputError, match=r"is damaged: arrays\.safetensors cannot be read"):
        NextTokenStatistics.load(tmp_path / "s")


def test_a_failed_save_leaves_the_old_result_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = NextTokenStatistics.from_counts([[1, 2]])
    old.save(tmp_path / "s")

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(contract, "write_manifest", full)
    with pytest.raises(ResourceError, match="No space left"):
        NextTokenStatistics.from_counts([[3]]).save(tmp_path / "s")
    assert [path.name for path in tmp_path.iterdir()] == ["s"]
    assert NextTokenStatistics.load(tmp_path / "s").equals(old)


def test_a_folder_of_other_files_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("do not lose me")
    with pytest.raises(InputError, match=r"such as precious\.txt"):
        NextTokenStatistics.from_counts([[1]]).save(tmp_path)
    assert (tmp_path / "precious.txt").read_text() == "do not lose me"


def test_saving_again_replaces(tmp_path: Path) -> None:
    NextTokenStatistics.from_counts([[1]]).save(tmp_path / "s")
    NextTokenStatistics.from_counts([[1, 2]]).save(tmp_path / "s")
    assert NextTokenStatistics.load(tmp_path / "s").m == 2
    assert np.array_equal(NextTokenStatistics.load(tmp_path / "s").context_counts, [1, 2])


def test_contexts_are_in_order_when_they_are_sorted_and_distinct() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        rows = rng.integers(-2, 3, (rng.integers(1, 5), 2)).astype(np.int32)
        tuples = [tuple(row) for row in rows.tolist()]
        assert in_order(rows) == (tuples == sorted(set(tuples)))


@pytest.mark.parametrize(
    ("contexts", "windows", "fault"),
    [
        ([[0, 1], [2, 0]], Windows(2), None),
        ([[2, 0], [0, 1]], Windows(2), None),
        ([[-1, 0], [0, 1]], Windows(2, pad=True), None),
        ([[-2, 0], [0, 1]], Windows(2, "prefixes"), None),
        ([[9, 9], [9, 9]], None, None),
        ([[-3, 0], [0, 1]], None, "at least -2"),
        ([[-1, 0], [0, 1]], Windows(2), "must lie in 0..2"),
        ([[-2, 0], [0, 1]], Windows(2, pad=True), "must lie in -1..2"),
        ([[0, 3], [0, 1]], Windows(2), "they lie in 0..3"),
        ([[0, 1], [1, 1], [0, 1]], Windows(2), "one occurs twice"),
        ([[0], [1]], Windows(2), "must have 2 tokens"),
    ],
)
def test_contexts_that_no_text_has_are_described(
    contexts: list[list[int]], windows: Windows | None, fault: str | None
) -> None:
    found = contexts_fault(np.array(contexts, np.int32), windows, 3)
    assert found is None if fault is None else found is not None and fault in found


def test_statistics_of_a_text_have_no_fault() -> None:
    assert saved_fault(count(["the cat sat on the mat .", "the dog sat"], context=2)) is None


def test_coverage_and_what_was_left_out_are_saved(tmp_path: Path) -> None:
    statistics = count(["a b a c a d a b c d a b"], context=1, vocabulary=2)
    again = NextTokenStatistics.load(statistics.save(tmp_path / "s"))
    assert again.coverage == statistics.coverage
    assert statistics.text_counts is not None
    assert again.text_counts is not None
    assert again.text_counts.tolist() == statistics.text_counts.tolist()
