"""``report --model`` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipeline_cases import plain_page
from tiny_models import build, save, sentences
from tokengeom.cli import report as _command  # noqa: F401 - adds the command
from tokengeom.cli.app import app


def run(*arguments: object) -> Any:
    """The command in this process: one of its own would import torch and transformers each time."""
    return CliRunner().invoke(app, ["report", *(str(argument) for argument in arguments)])


def test_a_page_about_a_model_is_made_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain_page(monkeypatch)
    model = save(build("llama"), tmp_path / "model")
    (tmp_path / "text.txt").write_text("<end>".join(sentences()))
    given = (tmp_path / "text.txt", "--model", model, "--separator", "<end>", "--context", 2, "--no-bos")
    done = run(*given, "--permutations", 20, "--out", tmp_path / "page.html", "--json")
    assert done.exit_code == 0, done.stderr
    data = json.loads(done.stdout)
    assert (data["model"], data["windows"]) == ("model", 40 * 10)
    assert data["chosen"] == {"tokenizer": "the model's own", "context": 2, "contexts": data["contexts"]}
    assert {"verdict", "context_agreement", "token_agreement", "loss_gap"} <= set(data)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--model", "absent"], "Models are never downloaded"),
        (["--model", "absent", "--steps", 60, "--no-transformer"], "leave out steps (--steps), transformer"),
        (["--no-bos"], "is about a trained model"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, given: list[object], message: str) -> None:
    (tmp_path / "text.txt").write_text("w3 w4 w5")
    done = run(tmp_path / "text.txt", *given, "--out", tmp_path / "page.html")
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


@pytest.mark.parametrize("kept", [False, True])
def test_a_report_that_is_stopped_early_names_only_a_folder_that_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    def stop(*given: object, **settings: object) -> None:
        if kept:
            (tmp_path / "page-results").mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr("tokengeom.page.report.report", stop)
    (tmp_path / "text.txt").write_text("w3 w4 w5")
    done = run(tmp_path / "text.txt", "--out", tmp_path / "page.html")
    assert done.exit_code == 130
    assert ("page-results" in done.stderr.replace("\n", "")) == kept
    assert ("nothing was saved" in done.stderr) != kept
