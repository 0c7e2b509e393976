"""A saved prediction loads as it was, proves itself without solving, and shows where it was changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from feature_cases import from_counts, random_counts
from tokengeom import results
from tokengeom.errors import InputError, ResourceError
from tokengeom.folders import MANIFEST, file_hash
from tokengeom.theory.features import ARRAYS, FeaturePrediction
from tokengeom.theory.predict import predict


@pytest.fixture(scope="module")
def prediction() -> FeaturePrediction:
    return predict(from_counts(random_counts(9, 20, 3, seed=0)))


def change_arrays(folder: Path, **changed: Any) -> None:
    """Replace arrays together with the hash of their file."""
    save_file(load_file(folder / ARRAYS) | changed, folder / ARRAYS)
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"][ARRAYS] = file_hash(folder / ARRAYS)
    (folder / MANIFEST).write_text(json.dumps(manifest))


def test_what_is_saved_is_loaded(prediction: FeaturePrediction, tmp_path: Path) -> None:
    back = results.load(prediction.save(tmp_path / "p"))
    assert isinstance(back, FeaturePrediction)
    for name in ("L_mm", "L_in", "W", "H", "singular_values"):
        assert (getattr(back, name) == getattr(prediction, name)).all()
    for name in ("certificate", "entropy", "rank", "proxy_is_exact", "spread", "warnings", "nuclear_norm"):
        assert getattr(back, name) == getattr(prediction, name)
    assert back.summary() == prediction.summary()
    assert back.to_dict() == prediction.to_dict()
    assert back.statistics_hash == prediction.statistics_hash
    assert back.stats is None


def test_a_saved_prediction_is_verified_without_solving(
    prediction: FeaturePrediction, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = prediction.save(tmp_path / "p")
    monkeypatch.setattr("tokengeom.solvers.nuclear_admm.NuclearADMM.__call__", None)
    found = results.verify(folder)
    assert found
    assert len(found.checked) == 8
    assert not all(FeaturePrediction.load(folder).checks(tolerance=1e-16).values())


@pytest.mark.parametrize("name", ["L_merged", "dual_merged", "S_red", "P_data"])
def test_a_changed_array_fails_its_hash_and_with_a_new_hash_its_proof(
    prediction: FeaturePrediction, tmp_path: Path, name: str
) -> None:
    folder = prediction.save(tmp_path / "p")
    array = load_file(folder / ARRAYS)[name]
    changed = {
        "S_red": 1 - array,
        "P_data": np.where(np.arange(array.size) == 2, 0.0, array.ravel()),
    }.get(name, array * 1.001)
    save_file(load_file(folder / ARRAYS) | {name: changed}, folder / ARRAYS)
    assert results.verify(folder).failed == ("every file is the one that was written",)
    change_arrays(folder, **{name: changed})
    assert results.verify(folder).failed


def test_a_claim_that_the_arrays_do_not_prove_is_found(prediction: FeaturePrediction, tmp_path: Path) -> None:
    folder = prediction.save(tmp_path / "p")
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["certificate"]["value"] *= 0.999
    (folder / MANIFEST).write_text(json.dumps(manifest))
    assert "the nuclear norm is the one claimed" in results.verify(folder).failed


@pytest.mark.parametrize("name", ["P_indptr", "P_indices", "row_of", "column_of"])
def test_indices_out_of_range_are_refused_before_they_are_used(
    prediction: FeaturePrediction, tmp_path: Path, name: str
) -> None:
    folder = prediction.save(tmp_path / "p")
    array = load_file(folder / ARRAYS)[name].copy()
    array[1] = 10**9
    change_arrays(folder, **{name: array})
    with pytest.raises(InputError, match="is damaged"):
        FeaturePrediction.load(folder)


def test_a_failed_save_leaves_the_old_prediction(
    prediction: FeaturePrediction, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = prediction.save(tmp_path / "p")

    def broken(*_: object) -> dict[str, object]:
        raise OSError("disk full")

    monkeypatch.setattr(FeaturePrediction, "_arrays", broken)
    with pytest.raises(ResourceError, match="disk full"):
        prediction.save(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["p"]
    assert results.verify(folder)


def test_saving_twice_replaces(prediction: FeaturePrediction, tmp_path: Path) -> None:
    prediction.save(tmp_path / "p")
    prediction.save(tmp_path / "p")
    assert [path.name for path in tmp_path.iterdir()] == ["p"]


def test_a_folder_of_another_kind_or_a_damaged_one_is_refused(prediction: FeaturePrediction, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=MANIFEST):
        FeaturePrediction.load(tmp_path)
    (tmp_path / MANIFEST).write_text('{"format": "tokengeom-run"}')
    with pytest.raises(InputError, match="tokengeom-run"):
        FeaturePrediction.load(tmp_path)
    folder = prediction.save(tmp_path / "p")
    (folder / ARRAYS).write_bytes(b"short")
    with pytest.raises(InputError, match=rf"is damaged: {ARRAYS}"):
        FeaturePrediction.load(folder)
