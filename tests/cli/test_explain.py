"""``tokengeom explain``: what is printed about a token and a context, and its JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import assert_one_paragraph, say
from geometry_cases import grouped_counts
from tiny_models import build, save, sentences
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.predict import predict
from tokengeom.training.train import train


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explain")
    stats = NextTokenStatistics.from_counts(grouped_counts(10, 6, 2, 3, seed=0))
    stats.save(folder / "stats")
    predict(stats).save(folder / "prediction")
    for seed in (0, 1):
        train(stats, "ufm", dim=4, steps=20, seed=seed).save(folder / f"run{seed}")
    return folder


def test_a_context_as_text(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = say(capsys, "explain", work / "prediction", "context 4", "--run", work / "run0", "--run", work / "run1")
    assert done.code == 0, done.err
    for said in (
        "The context “context 4”, predicted in the limit.",
        "3 tokens may follow it",
        "1 other context has the same next tokens (cosine 1.000): “context 5”.",
        "Nearest contexts with another support",
        "Contributions of tokens to its own direction",
        "In run1 the nearest contexts are",
        "residual",
    ):
        assert said in done.out
    header = next(line for line in done.out.splitlines() if line.startswith("next token"))
    assert header.split() == ["next", "token", "text", "finite", "direction", "run0", "run1"]


def test_the_promised_keys(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(say(capsys, "explain", work / "prediction", "context 4", "--run", work / "run0", "--json").out)
    assert {"support", "group", "logits", "neighbours", "pulled", "measured", "settings"} <= set(data)
    for one in data["pulled"]:
        total = sum(pull["contribution"] for pull in one["pulls"]) + one["others"] + one["mean"] + one["residual"]
        assert total == pytest.approx(one["cosine"], abs=1e-9)
        assert abs(one["residual"]) < 1e-3
    at = json.loads(say(capsys, "explain", work / "prediction", "context 4", "--loss-gap", 0.05, "--json").out)
    assert {"logit", "probability"} <= set(at["logits"][0])
    token = json.loads(say(capsys, "explain", work / "prediction", "token 2", "--json").out)
    assert {"support", "group", "companions", "neighbours"} <= set(token)


def test_a_token_and_a_run_as_text(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = say(capsys, "explain", work / "prediction", "token 5").out
    assert "Contributions of contexts to its own direction" in token
    run = say(capsys, "explain", work / "run0", "context 4").out
    assert "nats above its entropy" in run
    assert "Only predictions have optimality conditions" in run


def test_a_model_stands_beside_the_prediction_for_its_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save(build("llama"), tmp_path / "model")
    (tmp_path / "text.txt").write_text("\n".join(sentences()))
    given = ["--model", folder, "--text", tmp_path / "text.txt", "--context", 2, "--top-contexts", 20]
    done = say(capsys, "explain", *given, sentences()[0].split()[3], "--json")
    assert done.code == 0, done.err
    data = json.loads(done.out)
    assert data["source"] == "predicted in the limit"
    assert list(data["measured"]) == ["model"]
    assert_one_paragraph(say(capsys, "explain", *given, "x", "--run", tmp_path))
