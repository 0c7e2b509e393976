"""``compare --model`` and ``compare --arrays`` as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from typer.testing import CliRunner

from geometry_cases import grouped_counts
from tiny_models import ROWS, build, fit_head, save, sentences
from tokengeom.cli import compare as _command  # noqa: F401 - adds the command
from tokengeom.cli import train as _training  # noqa: F401
from tokengeom.cli.app import app
from tokengeom.comparison.comparison import Comparison
from tokengeom.statistics.count import count
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.predict import predict
from tokengeom.training.train import train

DRAWS = ["--permutations", 20]


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


def test_models_may_be_separate_trainings(work: Path) -> None:
    models = [part for step in (10, 5) for part in ("--model", work / "models" / f"checkpoint-{step}")]
    text = ("--text", work / "text.txt", "--separator", "<end>", "--context", 2, *DRAWS, "--json")
    done = run("compare", *models, "--separate-trainings", *text)
    assert done.exit_code == 0, done.stderr
    data = json.loads(done.stdout)
    assert [one["step"] for one in data["checkpoints"]] == [10, 5], "in the given order"
    assert [one["runs"] for one in data["checkpoints"]] == [2, 2]
    assert data["support_agreement"]["reproducible"] is not None


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


def test_a_model_is_compared_with_and_without_ties(tmp_path: Path) -> None:
    text, model = tmp_path / "text.txt", save(build("llama"), tmp_path / "model")
    text.write_text("<end>".join(sentences()))
    fit_head(model, count(sentences(), context=2, tokenizer=model, vocabulary_size=ROWS))
    given = ("compare", "--model", model, "--text", text, "--separator", "<end>", "--context", 2, *DRAWS)
    done = run(*given, "--ties", "positions", "--tied-contexts", 30, "--out", tmp_path / "out", "--json")
    assert done.exit_code == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["contexts"] == 30
    assert "With ties, 30 of the 36 contexts of the text are used" in done.stderr
    for target in ("tied", "nuclear"):
        for items in ("frequent_context", "rare_context", "token"):
            assert data["numbers"][f"{target}_{items}_agreement"]["value"] is not None
    assert sum("without them" in reason for reason in data["reasons"]) == 3
    assert (tmp_path / "out" / "manifest.json").is_file()


def test_arrays_are_compared_with_a_saved_prediction(tmp_path: Path) -> None:
    supports = np.array([[1, 0, 1, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1], [0, 0, 0, 1]])
    prediction = predict(NextTokenStatistics.from_counts(supports))
    prediction.save(tmp_path / "prediction")
    save_file({"W": 3 * prediction.W, "H": np.ascontiguousarray(prediction.H)}, tmp_path / "W_H.safetensors")
    done = run("compare", tmp_path / "prediction", "--arrays", tmp_path / "W_H.safetensors", "--json", *DRAWS)
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["context_similarity"]["value"] == pytest.approx(1.0, abs=1e-6)


SCALE = {"value", "low", "high", "floor", "reproducible", "attainable", "corrected", "explained"}


def test_several_runs_say_what_is_reproducible_and_explained_and_are_saved(tmp_path: Path) -> None:
    counts = grouped_counts(14, 12, 2, 3, seed=0)
    stats = NextTokenStatistics.from_counts(counts, vocabulary=[f"word{z}" for z in range(len(counts))])
    predict(stats).save(tmp_path / "prediction")
    runs = [tmp_path / f"run-{seed}" for seed in range(3)]
    for seed, folder in enumerate(runs):
        train(stats, "ufm", dim=12, steps=200, learning_rate=0.01, seed=seed).save(folder)
    command = ("compare", tmp_path / "prediction", *runs, "--out", tmp_path / "out")
    done = run(*command, "--json", *DRAWS)
    assert done.exit_code == 0, done.stderr
    data = json.loads(done.stdout)
    assert {"verdict", "reasons", "efficiency", "loss_gap", "in_limit"} <= data.keys()
    names = ("support_agreement", "context_agreement", "token_agreement")
    for numbers in [data[name] for name in names] + [data["in_limit"][name] for name in names]:
        assert all(numbers[name] is not None for name in SCALE)
        assert numbers["explained"] == pytest.approx(max(numbers["corrected"], 0.0) ** 2)
    for name in ("context_similarity", "token_similarity"):
        assert {"value", "low", "high", "null"} <= data[name].keys()
    assert data["runs"] == 3
    assert Comparison.load(tmp_path / "out").verdict == data["verdict"]
    text = run(*command, *DRAWS).stdout
    assert text.startswith(data["reasons"][0]), "the verdict comes first"
    # The prediction alone knows numbers; the statistics beside it know names.
    assert "'token " in text
    assert "'word" not in text
    stats.save(tmp_path / "stats")
    named = run(*command, *DRAWS).stdout
    assert "'word" in named
    assert "'token " not in named
    one = json.loads(
        run("compare", tmp_path / "prediction", tmp_path / "run-0", "--no-at-loss", "--json", *DRAWS).stdout
    )
    assert one["norm"] is None
    for name in names:
        assert {key for key in SCALE if one[name][key] is None} == SCALE - {"value", "low", "high", "floor"}


def test_a_run_on_another_text_is_refused(tmp_path: Path) -> None:
    for name, seed in (("stats", 0), ("other", 1)):
        tokens = np.random.default_rng(seed).integers(0, 5, size=400)
        count([" ".join("abcde"[z] for z in tokens)], context=1).save(tmp_path / name)
    predict(tmp_path / "stats").save(tmp_path / "prediction")
    train(tmp_path / "other", "ufm", dim=5, steps=20).save(tmp_path / "run")
    refused = run("compare", tmp_path / "prediction", tmp_path / "run")
    assert refused.exit_code == 2
    assert "compare-texts" in refused.stderr
    trained = run("train", tmp_path / "other", "--steps", 5, "--prediction", tmp_path / "prediction")
    assert trained.exit_code == 2
    assert "different statistics" in trained.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "Compare needs PREDICTION and RUN"),
        (["prediction"], "Compare needs PREDICTION and RUN"),
        (["prediction", "run", "--arrays", "a.safetensors"], "Compare needs PREDICTION and RUN"),
        (["prediction", "run", "--text", "a.txt"], "needs --model"),
        (["prediction", "run", "--ties", "self"], "--ties needs --model"),
        (["--model", "m", "--text", "a.txt", "--tied-contexts", "9"], "needs ties"),
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
