from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from feature_cases import from_counts, random_counts
from safetensors.numpy import load_file, save_file

from tokengeom.errors import InputError, ResourceError
from tokengeom.folders import MANIFEST
from tokengeom.theory import features as feature_storage
from tokengeom.theory.features import (
    ARRAYS,
    FeaturePrediction,
    load_features,
    predict_features,
    save_features,
    verify_features,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def prediction() -> FeaturePrediction:
    return predict_features(from_counts(random_counts(9, 20, 3, seed=0)))


def test_what_is_saved_comes_back(prediction: FeaturePrediction, tmp_path: Path) -> None:
    back = load_features(save_features(prediction, tmp_path / "p"))
    for name in ("L_mm", "L_in", "W", "H", "singular_values"):
        assert (getattr(back, name) == getattr(prediction, name)).all()
    for name in ("certificate", "entropy", "rank", "proxy_is_exact", "spread", "warnings", "nuclear_norm"):
        assert getattr(back, name) == getattr(prediction, name)
    assert back.summary() == prediction.summary()


def test_a_saved_prediction_is_verified_without_solving(
    prediction: FeaturePrediction, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_features(prediction, tmp_path / "p")
    monkeypatch.setattr("tokengeom.solvers.nuclear_admm.NuclearADMM.__call__", None)
    report = verify_features(folder)
    assert report
    assert len(report.checked) == 8
    assert not verify_features(folder, tolerance=1e-16)


@pytest.mark.parametrize("name", ["L_merged", "dual_merged", "S_red", "P_data"])
def test_tampering_is_found(prediction: FeaturePrediction, tmp_path: Path, name: str) -> None:
    folder = save_features(prediction, tmp_path / "p")
    arrays = load_file(folder / ARRAYS)
    if name == "S_red":
        arrays[name] = 1 - arrays[name]
    elif name == "P_data":
        arrays[name] = np.where(np.arange(arrays[name].size) == 2, 0.0, arrays[name])
    else:
        arrays[name] = arrays[name] * 1.001
    save_file(arrays, folder / ARRAYS)
    failed = verify_features(folder).failed
    assert "every file is the one that was written" in failed
    assert len(failed) > 1, "the proof itself must fail, not only the hash"


def test_a_claim_that_the_arrays_do_not_prove_is_found(prediction: FeaturePrediction, tmp_path: Path) -> None:
    folder = save_features(prediction, tmp_path / "p")
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["certificate"]["value"] *= 0.999
    (folder / MANIFEST).write_text(json.dumps(manifest))
    assert "the nuclear norm is the one claimed" in verify_features(folder).failed


def test_a_failed_save_leaves_the_old_prediction(
    prediction: FeaturePrediction, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_features(prediction, tmp_path / "p")

    def broken(*_: object) -> dict[str, object]:
        raise OSError("disk full")

    monkeypatch.setattr(feature_storage, "_content", broken)
    with pytest.raises(ResourceError, match="disk full"):
        save_features(prediction, folder)
    assert [path.name for path in tmp_path.iterdir()] == ["p"]
    assert verify_features(folder)


def test_saving_twice_replaces(prediction: FeaturePrediction, tmp_path: Path) -> None:
    save_features(prediction, tmp_path / "p")
    save_features(prediction, tmp_path / "p")
    assert [path.name for path in tmp_path.iterdir()] == ["p"]


def test_another_folder_is_refused_in_words(prediction: FeaturePrediction, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=MANIFEST):
        load_features(tmp_path)
    (tmp_path / MANIFEST).write_text('{"format": "tokengeom-run"}')
    with pytest.raises(InputError, match="tokengeom-run"):
        load_features(tmp_path)
    folder = save_features(prediction, tmp_path / "p")
    (folder / ARRAYS).write_bytes(b"short")
    with pytest.raises(InputError, match=ARRAYS):
        load_features(folder)
