"""The commands after `count`, as a user chains them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command_line import run_here

SIZE = ["--top-contexts", 40, "--vocabulary", 30]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Statistics, a prediction and a run of the built-in corpus."""
    folder = tmp_path_factory.mktemp("work")
    for arguments in (
        ["count", *SIZE, "--out", folder / "stats"],
        ["predict", folder / "stats", "--out", folder / "prediction"],
        ["train", folder / "stats", "--dim", 32, "--steps", 300, "--learning-rate", 0.01, "--out", folder / "run"],
    ):
        done = run_here(*arguments, "--quiet")
        assert done.code == 0, done.err
    return folder


def result(*arguments: object) -> dict[str, Any]:
    done = run_here(*arguments, "--json")
    assert done.code == 0, done.err
    data: dict[str, Any] = json.loads(done.out)
    return data


def test_features_are_predicted_with_their_promised_numbers(work: Path) -> None:
    data = result("predict", work / "stats")
    assert {"nuclear_norm", "lower_bound", "relative_gap", "rank", "proxy_nuclear_norm", "proxy_is_exact"} <= set(data)
    assert data["relative_gap"] <= 1e-6
    assert "proven within" in run_here("predict", work / "stats").out


def test_the_linear_model_is_predicted_trained_and_measured(work: Path, tmp_path: Path) -> None:
    m = json.loads((work / "stats/manifest.json").read_text())["contexts"]
    np.save(tmp_path / "H.npy", np.random.default_rng(0).normal(size=(m + 5, m)))
    data = result("predict", work / "stats", "--embeddings", tmp_path / "H.npy", "--out", tmp_path / "linear")
    assert data["compatible"] is True
    assert data["separable"] is True
    assert {"margin", "loss_floor", "relative_gap"} <= set(data)
    linear = ["--model", "linear", "--embeddings", tmp_path / "H.npy", "--prediction", tmp_path / "linear"]
    trained = result("train", work / "stats", *linear, "--steps", 200, "--out", tmp_path / "run")
    assert trained["final"]["cosine_without_finite"] > 0.1
    compared = result("compare", tmp_path / "linear", tmp_path / "run")
    assert "cosine" in json.dumps(compared)
    wrong = run_here("predict", work / "stats", "--embeddings", work / "prediction/features.safetensors")
    assert wrong.code == 2
    assert "must hold a tensor called H" in wrong.err


def test_a_run_prints_loss_steps_and_seconds(work: Path) -> None:
    data = result("train", work / "stats", "--dim", 8, "--steps", 20)
    assert {"loss_gap", "steps", "seconds"} <= set(data)
    assert data["steps"] == 20


def test_a_run_that_learned_nothing_says_so(work: Path) -> None:
    for rate, said in (("1e12", True), ("1e-2", False)):
        shown = run_here("train", work / "stats", "--dim", 4, "--steps", 200, "--learning-rate", rate)
        assert shown.code == 0
        assert ("no better than a uniform guess" in shown.out.replace("\n", " ")) == said


def test_a_run_is_resumed_and_never_overwritten(work: Path) -> None:
    again = ["train", work / "stats", "--dim", 32, "--learning-rate", 0.01, "--out", work / "run"]
    refused = run_here(*again, "--steps", 300)
    assert refused.code == 2
    assert "already holds a run" in refused.err
    assert result(*again, "--steps", 310, "--resume")["steps"] == 310


def test_agreement_comes_with_interval_and_null(work: Path) -> None:
    data = result("compare", work / "prediction", work / "run", "--permutations", 20)
    for name in ("context_similarity", "token_similarity"):
        agreement = data[name]
        assert {"value", "low", "high", "null"} <= set(agreement)
    assert data["context_similarity"]["value"] > data["context_similarity"]["null"]


def test_a_failed_verification_is_exit_code_1(work: Path) -> None:
    assert result("verify", work / "prediction")["ok"] is True
    with (work / "stats/vocabulary.parquet").open("ab") as file:
        file.write(b"!")
    broken = run_here("verify", work / "stats", "--json")
    assert broken.code == 1
    assert json.loads(broken.out)["ok"] is False


def test_studies_are_listed_run_and_saved(tmp_path: Path) -> None:
    listed = result("study", "--list")["studies"]
    assert {"linear-2d", "ufm-symmetric"} <= set(listed)
    data = result("study", "linear-2d", "--out", tmp_path / "s")
    assert data["passed"] is True
    assert data["sentence"]
    names = {path.suffix for path in (tmp_path / "s").iterdir()}
    assert {".png", ".svg", ".html", ".json"} <= names
    assert result("verify", tmp_path / "s")["ok"] is True
    assert "There is no study 'nonsense'" in run_here("study", "nonsense").err
    assert "has no setting 'x'" in run_here("study", "linear-2d", "--set", "x=1").err
