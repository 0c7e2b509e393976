"""Saved statistics are loaded unchanged, damage is refused, and `verify` recomputes what the manifest states."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from scipy import sparse

from tokengeom import NextTokenStatistics, count, load, results, verify
from tokengeom.errors import InputError, ResourceError
from tokengeom.folders import file_hash


@pytest.mark.parametrize("windows", ["sliding", "prefixes"])
@pytest.mark.parametrize("tokenizer", ["word", "whitespace", "character", "byte", "bpe:300"])
def test_saved_statistics_are_loaded_unchanged(tmp_path: Path, tokenizer: str, windows: str) -> None:
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


def forge(folder: Path, name: str = "", changes: Mapping[str, object] = MappingProxyType({})) -> None:
    """Change the manifest and write the hash of a changed file anew: only what is recomputed can notice."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text()) | dict(changes)
    if name:
        manifest["files"][name] = file_hash(folder / name)
    path.write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("changes", "failed"),
    [
        ({"windows": 8}, "the sizes are the ones claimed"),
        ({"vocabulary": 4}, "the sizes are the ones claimed"),
        ({"contexts": "many"}, "the sizes are the ones claimed"),
        ({"entropy_nats": 0.1}, "the entropy floor is the one claimed"),
        ({"entropy_nats": None}, "the entropy floor is the one claimed"),
        ({"one_hot_share": 0.5}, "the supports are the ones claimed"),
        ({"distinct_supports": 1}, "the supports are the ones claimed"),
        ({"hash": "0" * 64}, "counts, contexts and vocabulary have the hash claimed"),
    ],
)
def test_verify_recomputes_what_the_manifest_claims(tmp_path: Path, changes: dict[str, object], failed: str) -> None:
    count([[0, 1, 0, 2, 0, 1]], context=1, vocabulary_size=3).save(tmp_path / "s")
    found = verify(tmp_path / "s")
    assert (found.ok, len(found.checked)) == (True, 7)
    forge(tmp_path / "s", changes=changes)
    assert verify(tmp_path / "s").failed == (failed,)


def test_verify_notices_swapped_tokens_and_contexts_and_another_tokenizer(tmp_path: Path) -> None:
    statistics = count(["a b a c a b"], context=1)
    statistics.save(tmp_path / "vocabulary")
    pq.write_table(pa.table({"text": ["b", "a", "c"]}), tmp_path / "vocabulary/vocabulary.parquet")
    forge(tmp_path / "vocabulary", "vocabulary.parquet")
    statistics.save(tmp_path / "contexts")
    arrays = load_file(tmp_path / "contexts/arrays.safetensors")
    arrays["contexts"] = np.ascontiguousarray(arrays["contexts"][::-1])
    save_file(arrays, tmp_path / "contexts/arrays.safetensors")
    forge(tmp_path / "contexts", "arrays.safetensors")
    for name in ("vocabulary", "contexts"):
        assert verify(tmp_path / name).failed == ("counts, contexts and vocabulary have the hash claimed",)
    statistics.save(tmp_path / "tokenizer")
    file = tmp_path / "tokenizer/tokenizer.json"
    file.write_text(file.read_text().replace('"b"', '"z"'))
    forge(tmp_path / "tokenizer", "tokenizer.json")
    assert verify(tmp_path / "tokenizer").failed == ("the tokenizer is the one claimed",)


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
        ("contexts", lambda a: a[:1]),
        ("contexts", lambda a: a.ravel()),
    ],
)
def test_arrays_that_make_no_table_are_refused_before_they_are_used(
    tmp_path: Path, name: str, change: Callable[[NDArray[Any]], NDArray[Any]]
) -> None:
    count([[0, 1, 0, 2, 0, 1]], context=1, vocabulary_size=3).save(tmp_path / "s")
    arrays = load_file(tmp_path / "s/arrays.safetensors")
    save_file({**arrays, name: change(arrays[name])}, tmp_path / "s/arrays.safetensors")
    forge(tmp_path / "s", "arrays.safetensors")
    with pytest.raises(InputError):
        NextTokenStatistics.load(tmp_path / "s")


def test_an_array_file_of_other_software_is_refused(tmp_path: Path) -> None:
    NextTokenStatistics.from_counts([[1]]).save(tmp_path / "s")
    (tmp_path / "s/arrays.safetensors").write_bytes(b"nonsense")
    forge(tmp_path / "s", "arrays.safetensors")
    with pytest.raises(InputError, match="is damaged"):
        NextTokenStatistics.load(tmp_path / "s")


def test_a_failed_save_leaves_the_old_result_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = NextTokenStatistics.from_counts([[1, 2]])
    old.save(tmp_path / "s")

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(results, "write_manifest", full)
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


def test_coverage_and_what_was_left_out_are_saved(tmp_path: Path) -> None:
    statistics = count(["a b a c a d a b c d a b"], context=1, vocabulary=2)
    again = NextTokenStatistics.load(statistics.save(tmp_path / "s"))
    assert again.coverage == statistics.coverage
    assert statistics.text_counts is not None
    assert again.text_counts is not None
    assert again.text_counts.tolist() == statistics.text_counts.tolist()
    assert verify(tmp_path / "s").ok
    manifest = json.loads((tmp_path / "s/manifest.json").read_text())
    manifest["cuts"][0]["after"]["n"] += 1
    forge(tmp_path / "s", changes={"cuts": manifest["cuts"]})
    assert verify(tmp_path / "s").failed == ("the cuts lead to these sizes",)
