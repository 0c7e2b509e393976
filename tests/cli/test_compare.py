"""``compare --model`` and ``compare --arrays`` as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from typer.testing import CliRunner

from tiny_models import build, save
from tokengeom.cli import compare as _command  # noqa: F401 - adds the command
from tokengeom.cli.app import app
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.predict import predict

DRAWS = ["--resamples", 20, "--permutations", 20]


def run(*arguments: object) -> Any:
    """The command in this process: one of its own would import torch and transformers each time."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two checkpoints of a model, and a text whose documents lie between markers."""
    folder = tmp_path_factory.mktemp("work")
    for step in (5, 10):
        save(build("llama", seed=step), folder / "models" / f"checkpoint-{step}")
    tokens = np.random.default_rng(0).integers(3, 9, size=(20, 15))
    (folder / "text.txt").write_text("<end>".join(" ".join(f"w{z}" for z in row) for row in tokens))
    return folder


def test_checkpoints_are_compared_and_drawn(work: Path, tmp_path: Path) -> None:
    done = run(
        *("compare", "--model", work / "models", "--text", work / "text.txt", "--separator", "<end>", "--context", 1),
        *("--figure", tmp_path / "training.html", *DRAWS, "--json"),
    )
    assert done.exit_code == 0, done.stderr
    data = json.loads(done.stdout)
    assert [one["step"] for one in data["checkpoints"]] == [5, 10]
    for name in ("context_similarity", "token_similarity"):
        assert {"value", "low", "high", "null"} <= set(data[name])
    assert data["windows"] == 20 * 14, "no window crosses from one document into the next"
    assert data["loss_gap"] > 0
    assert data["entropy"] == pytest.approx(np.log(6), abs=0.2)
    assert "Geometry over training" in (tmp_path / "training.html").read_text()


def test_one_model_is_summarised_with_its_convention_and_drawn_as_heat_maps(work: Path, tmp_path: Path) -> None:
    done = run(
        *("compare", "--model", work / "models" / "checkpoint-5", "--text", work / "text.txt", "--separator", "<end>"),
        *("--context", 2, "--top-contexts", 20, "--no-bos", "--figure", tmp_path / "maps.png", *DRAWS),
    )
    assert done.exit_code == 0, done.stderr
    assert "W: the 40 rows of the head of LlamaForCausalLM" in done.stdout
    assert "the contexts alone, without its BOS token." in done.stdout
    assert "above the text's entropy floor" in done.stdout
    assert (tmp_path / "maps.png").read_bytes().startswith(b"\x89PNG")


def test_arrays_are_compared_with_a_saved_prediction(tmp_path: Path) -> None:
    supports = np.array([[1, 0, 1, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1], [0, 0, 0, 1]])
    prediction = predict(NextTokenStatistics.from_counts(supports))
    prediction.save(tmp_path / "prediction")
    save_file({"W": 3 * prediction.W, "H": np.ascontiguousarray(prediction.H)}, tmp_path / "W_H.safetensors")
    done = run("compare", tmp_path / "prediction", "--arrays", tmp_path / "W_H.safetensors", "--json", *DRAWS)
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["context_similarity"]["value"] == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "Compare needs PREDICTION and RUN"),
        (["prediction"], "Compare needs PREDICTION and RUN"),
        (["prediction", "run", "--arrays", "a.safetensors"], "Compare needs PREDICTION and RUN"),
        (["prediction", "run", "--text", "a.txt"], "need --model"),
        (["--model", "m"], "needs --text"),
        (["prediction", "--model", "m", "--text", "a.txt"], "leave out PREDICTION"),
        (["--model", "m", "--text", "a.txt", "--figure", "a.gif"], "must end in .html"),
        (["--model", "absent", "--text", "a.txt"], "Models are never downloaded"),
    ],
)
def test_commands_that_make_no_sense_are_refused(arguments: list[str], reason: str) -> None:
    done = run("compare", *arguments)
    assert done.exit_code == 2
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
