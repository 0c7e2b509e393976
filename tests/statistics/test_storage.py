from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file
from scipy import sparse

from tokengeom import NextTokenStatistics, count
from tokengeom.errors import InputError, ResourceError
from tokengeom.statistics import storage


@pytest.mark.parametrize("windows", ["sliding", "prefixes"])
@pytest.mark.parametrize("tokenizer", ["word", "character", "byte", "bpe:300"])
def test_what_is_saved_is_what_is_loaded(tmp_path: Path, tokenizer: str, windows: str) -> None:
    before = count(["the cat sat on the mat .", "der Bär saß"] * 3, context=3, tokenizer=tokenizer, windows=windows)
    cut = before.limited(contexts=5)
    cut.save(tmp_path / "stats")
    after = NextTokenStatistics.load(tmp_path / "stats")
    assert after.equals(cut)
    assert (after.windows, after.effects, after.corpus) == (cut.windows, cut.effects, cut.corpus)
    assert after.tokenizer is not None
    assert before.tokenizer is not None
    assert after.tokenizer.content_hash == before.tokenizer.content_hash
    assert [after.context_text(j) for j in range(cut.m)] == [cut.context_text(j) for j in range(cut.m)]


def test_probabilities_and_labels_survive(tmp_path: Path) -> None:
    before = NextTokenStatistics.from_probabilities([[0.5, 1], [0.5, 0]], [0.3, 0.7], ["x", "y"], ["a", "b"])
    before.save(tmp_path / "stats")
    assert NextTokenStatistics.load(tmp_path / "stats").equals(before)


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


def test_a_future_version_is_refused(tmp_path: Path) -> None:
    NextTokenStatistics.from_counts([[1]]).save(tmp_path / "s")
    path = tmp_path / "s/manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(manifest | {"format_version": 99, "tokengeom": "9.9"}))
    with pytest.raises(InputError, match=r"version 99 .* by tokengeom 9\.9; this one reads up to version 1"):
        NextTokenStatistics.load(tmp_path / "s")


@pytest.mark.parametrize("content", [None, "{", "[]", '{"format": "something"}'])
def test_what_is_no_result_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(InputError, match=r"no saved result|cannot be read|not 'tokengeom-statistics'"):
        NextTokenStatistics.load(tmp_path)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    NextTokenStatistics.from_counts([[1]]).save(tmp_path / "s")
    (tmp_path / "s/arrays.safetensors").write_bytes(b"nonsense")
    with pytest.raises(InputError, match="incomplete or damaged"):
        NextTokenStatistics.load(tmp_path / "s")


def test_a_failed_save_leaves_the_old_result_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = NextTokenStatistics.from_counts([[1, 2]])
    old.save(tmp_path / "s")

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage, "write_manifest", full)
    with pytest.raises(ResourceError, match="No space left"):
        NextTokenStatistics.from_counts([[3]]).save(tmp_path / "s")
    assert [path.name for path in tmp_path.iterdir()] == ["s"]
    assert NextTokenStatistics.load(tmp_path / "s").equals(old)


def test_a_folder_of_someone_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("do not lose me")
    with pytest.raises(InputError, match=r"such as precious\.txt"):
        NextTokenStatistics.from_counts([[1]]).save(tmp_path)
    assert (tmp_path / "precious.txt").read_text() == "do not lose me"


def test_saving_again_replaces(tmp_path: Path) -> None:
    NextTokenStatistics.from_counts([[1]]).save(tmp_path / "s")
    NextTokenStatistics.from_counts([[1, 2]]).save(tmp_path / "s")
    assert NextTokenStatistics.load(tmp_path / "s").m == 2
    assert np.array_equal(NextTokenStatistics.load(tmp_path / "s").context_counts, [1, 2])
