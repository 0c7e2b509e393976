"""A saved linear prediction proves itself again, and a changed one does not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tokengeom import NextTokenStatistics
from tokengeom.corpus.synthetic import random_soft_labels
from tokengeom.errors import InputError
from tokengeom.folders import file_hash
from tokengeom.numerics import Float
from tokengeom.results import load, verify
from tokengeom.theory.linear import ARRAYS, LinearPrediction
from tokengeom.theory.predict import predict


def statistics() -> NextTokenStatistics:
    truth = random_soft_labels(V=6, m=12, k=3, seed=1).truth
    return NextTokenStatistics.from_probabilities(truth.P, truth.pi)


def embeddings(d: int) -> Float:
    return np.random.default_rng(2).normal(size=(d, 12))


CASES = {"both hold": 14, "neither holds": 4, "one dimension": 1}


@pytest.mark.parametrize("d", CASES.values(), ids=list(CASES))
def test_a_linear_prediction_is_loaded_as_it_was_and_proves_itself(tmp_path: Path, d: int) -> None:
    before = predict(statistics(), embeddings=embeddings(d))
    before.save(tmp_path / "p")
    after = load(tmp_path / "p")
    assert isinstance(after, LinearPrediction)
    assert after.summary() == before.summary()
    assert after.to_dict() == before.to_dict()
    assert after.statistics_hash == before.statistics_hash
    assert after.stats is None
    for name in ("W_star", "W_mm", "effective_support", "multipliers"):
        assert np.array_equal(getattr(after, name), getattr(before, name))
    found = verify(tmp_path / "p")
    assert found.ok, found.failed
    assert len(found.checked) >= 9


def change_array(folder: Path, name: str, change: float) -> None:
    """Change an array together with the hash of its file: only the proof can show it."""
    arrays = load_file(folder / ARRAYS)
    arrays[name] = arrays[name] + change * np.random.default_rng(0).normal(size=arrays[name].shape)
    save_file(arrays, folder / ARRAYS)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][ARRAYS] = file_hash(folder / ARRAYS)
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("name", ["W_mm", "W_star", "multipliers", "H"])
def test_a_changed_array_fails_its_proof_even_with_a_new_hash(tmp_path: Path, name: str) -> None:
    predict(statistics(), embeddings=embeddings(14)).save(tmp_path / "p")
    change_array(tmp_path / "p", name, 1e-3)
    assert not verify(tmp_path / "p").ok


@pytest.mark.parametrize("name", ["compatible", "separable", "blocking", "W_star"])
def test_a_changed_refutation_fails_its_proof(tmp_path: Path, name: str) -> None:
    predict(statistics(), embeddings=embeddings(4)).save(tmp_path / "p")
    change_array(tmp_path / "p", name, 1e-2)
    assert not verify(tmp_path / "p").ok


def test_a_changed_number_in_the_manifest_is_found(tmp_path: Path) -> None:
    predict(statistics(), embeddings=embeddings(14)).save(tmp_path / "p")
    path = tmp_path / "p/manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(manifest | {"margin": 2 * manifest["margin"]}))
    assert verify(tmp_path / "p").failed == ("the margin is the one claimed",)


def test_a_damaged_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    predict(statistics(), embeddings=embeddings(4)).save(tmp_path / "p")
    with (tmp_path / "p" / ARRAYS).open("ab") as file:
        file.write(b"!")
    with pytest.raises(InputError, match=rf"is damaged: {ARRAYS}"):
        load(tmp_path / "p")
    assert verify(tmp_path / "p").failed == ("every file is the one that was written",)


def test_a_new_file_in_the_folder_is_found(tmp_path: Path) -> None:
    predict(statistics()).save(tmp_path / "f")
    assert verify(tmp_path / "f").ok
    (tmp_path / "f/extra.txt").write_text("a new file")
    assert not verify(tmp_path / "f").ok


def test_a_folder_without_a_result_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no saved result"):
        verify(tmp_path)
    with pytest.raises(InputError, match="no saved result"):
        load(tmp_path)
