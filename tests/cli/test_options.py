"""Options come from settings dataclasses: the command line and Python have the same settings and defaults."""

from __future__ import annotations

import inspect
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pytest
import typer

import tokengeom as tg
from command_line import all_commands, assert_one_paragraph, run, say
from geometry_cases import grouped_counts
from tokengeom.ask.verbs import AskSettings, ExportSettings, explain, neighbours
from tokengeom.cli import app as cli
from tokengeom.cli.options import expanded, gathered, keywords
from tokengeom.comparison.compare_texts import compare_texts
from tokengeom.comparison.inputs import CompareSettings
from tokengeom.comparison.rivals import RivalSettings
from tokengeom.comparison.text_comparison import CompareTextsSettings
from tokengeom.core.settings import default_of, option, options_of
from tokengeom.corpus.locate import ReadingSettings
from tokengeom.page.settings import ReportSettings, SeveralModelsSettings
from tokengeom.statistics.count import CountSettings
from tokengeom.statistics.cuts import CutSettings
from tokengeom.statistics.engines import EngineSettings
from tokengeom.theory.predict import PredictSettings
from tokengeom.training.settings import TrainingSettings
from tokengeom.training.simulate import SimulationSettings

VERBS: dict[str, tuple[Any, list[type]]] = {
    "compare": (tg.compare, [CompareSettings]),
    "compare-texts": (compare_texts, [CompareTextsSettings]),
    "count": (tg.count, [CountSettings, ReadingSettings, CutSettings, EngineSettings]),
    "explain": (explain, [AskSettings]),
    "export": (tg.export, [ExportSettings]),
    "neighbours": (neighbours, [AskSettings]),
    "predict": (tg.predict, [PredictSettings]),
    "report": (tg.report, [ReportSettings, ReadingSettings]),
    "rivals": (tg.rivals, [RivalSettings]),
    "simulate": (tg.simulate, [SimulationSettings]),
    "train": (tg.train, [TrainingSettings]),
}
WITHOUT_SETTINGS = {"cite", "place", "stories", "study", "verify"}


@dataclass(frozen=True)
class Pair:
    left: int = option(1, "The first.", short="l")
    right: Literal["a", "b"] = option("b", "The second.")
    weight: float | None = option(None, "The third.")
    fast: bool = option(False, "The fourth.")
    sure: bool | None = option(None, "The fifth.")
    names: tuple[str, ...] | None = option(None, "The sixth.", choices=lambda: ["x", "y"])
    size: int | str = option("3", "The seventh.", parse=int)
    hidden: object = option(None, "The eighth.", python_only=True)


def command(name: str, *, pair: Pair, last: bool = False) -> None:
    """Stand-in of a command."""


def test_fields_replace_their_settings_with_types_and_defaults() -> None:
    flat, groups = expanded(inspect.signature(command, eval_str=True).parameters.values())
    assert [p.name for p in flat] == ["name", "left", "right", "weight", "fast", "sure", "names", "size", "last"]
    assert groups == {"pair": Pair}
    kinds = {p.name: get_args(p.annotation)[0] for p in flat[1:-1]}
    assert kinds["left"] is int
    assert kinds["right"] == Literal["a", "b"]
    assert kinds["weight"] == float | None
    assert kinds["names"] == list[str] | None
    assert get_args(flat[6].annotation)[1].help == "The sixth. Names: x, y."
    assert kinds["size"] is str
    options = {p.name: get_args(p.annotation)[1] for p in flat[1:-1]}
    # Typer takes the first name of an annotated option where a default would be.
    declared = {name: (option.default, *option.param_decls) for name, option in options.items()}
    assert declared["left"] == ("--left", "-l")
    assert declared["fast"] == ("--fast",)
    assert declared["sure"] == ("--sure/--no-sure",)


def test_values_become_the_settings_again() -> None:
    values = {"left": 5, "right": "a", "weight": None, "fast": True, "sure": None, "names": ["x"], "size": "7"}
    found = gathered({"name": "n", **values, "last": True}, {"pair": Pair})
    assert found == {"name": "n", "pair": Pair(5, "a", None, True, None, ("x",), 7), "last": True}
    assert keywords(Pair())["size"] == "3"


def test_every_command_with_settings_is_compared_with_python() -> None:
    assert set(all_commands()) == set(VERBS) | WITHOUT_SETTINGS


@pytest.mark.parametrize("name", VERBS)
def test_defaults_and_help_are_those_of_python(name: str) -> None:
    verb, kinds = VERBS[name]
    all_commands()
    parameters = {p.name: p for p in typer.main.get_command(cli.app).commands[name].params}  # type: ignore[attr-defined]
    python = inspect.signature(verb).parameters
    for kind in kinds:
        for field in options_of(kind).values():
            assert python[field.name].default == default_of(field), "the same default in Python"
            if not field.metadata["python_only"]:
                shown = parameters[field.name]
                assert shown.default == default_of(field), "the same default on the command line"
                assert shown.help.startswith(field.metadata["help"])


def test_models_compared_with_a_text_have_the_same_settings_too() -> None:
    all_commands()
    parameters = {p.name: p for p in typer.main.get_command(cli.app).commands["compare"].params}  # type: ignore[attr-defined]
    python = inspect.signature(tg.compare_models).parameters
    for field in options_of(SeveralModelsSettings).values():
        assert python[field.name].default == parameters[field.name].default == default_of(field)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("same")
    stats = tg.NextTokenStatistics.from_counts(grouped_counts(12, 8, 3, 3, seed=0))
    stats.save(folder / "stats")
    tg.predict(stats).save(folder / "prediction")
    tg.train(stats, "ufm", dim=6, steps=30).save(folder / "run")
    (folder / "text.txt").write_text("a b a b c a b d a c b a b c d a b")
    np.save(folder / "H.npy", np.random.default_rng(0).normal(size=(30, stats.m)))
    return folder


def saved(capsys: pytest.CaptureFixture[str], *arguments: object) -> None:
    done = say(capsys, *arguments, "--quiet")
    assert done.code == 0, done.err


@pytest.mark.parametrize("model", ["ufm", "linear"])
def test_training_is_the_same_to_the_last_bit(model: str, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = {"embeddings": np.load(work / "H.npy")} if model == "linear" else {}
    mine = tg.train(work / "stats", model=model, steps=40, **given)
    shown = ["--embeddings", work / "H.npy"] if model == "linear" else []
    out = work / f"run-{model}"
    saved(capsys, "train", work / "stats", "--model", model, "--steps", 40, *shown, "--out", out)
    theirs = tg.Run.load(out)
    assert np.array_equal(mine.W, theirs.W)
    assert np.array_equal(mine.H, theirs.H)
    assert mine.settings == theirs.settings


def test_counting_is_the_same(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved(capsys, "count", work / "text.txt", "--context", 1, "--out", work / "counted")
    assert tg.count(work / "text.txt", context=1).hash == tg.NextTokenStatistics.load(work / "counted").hash


def test_predicting_is_the_same_to_the_last_bit(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved(capsys, "predict", work / "stats", "--out", work / "predicted")
    theirs = tg.FeaturePrediction.load(work / "predicted")
    assert np.array_equal(tg.predict(work / "stats").L_merged, theirs.L_merged)


def test_comparing_and_rivals_are_the_same(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved(capsys, "compare", work / "prediction", work / "run", "--out", work / "comparison")
    # NaN differs from itself; its text does not.
    assert str(tg.load(work / "comparison").to_dict()) == str(tg.compare(work / "prediction", work / "run").to_dict())
    saved(capsys, "rivals", work / "stats", work / "run", "--out", work / "rivals")
    assert tg.load(work / "rivals").summary() == tg.rivals(work / "stats", work / "run").summary()


MEMBERS = {
    "train --model": ("tokengeom.models.networks", "train"),
    "train --optimizer": ("tokengeom.training.optimizers", "train"),
    "rivals": ("tokengeom.comparison.explanations", "rivals"),
    "study": ("tokengeom_studies", "study"),
}


@pytest.mark.parametrize("place", MEMBERS)
def test_a_new_file_is_a_new_name_in_the_help(place: str, tmp_path: Path) -> None:
    package, name = MEMBERS[place]
    (tmp_path / "newcomer.py").write_text('"""A member that was added as one file."""\n')
    code = f"import {package} as p; p.__path__.append({str(tmp_path)!r}); from tokengeom.cli import main; main()"
    wide = {**os.environ, "COLUMNS": "200"}
    with_it = run(name, "--help", code=code, env=wide)
    assert with_it.returncode == 0, with_it.stderr
    assert "newcomer" in with_it.stdout
    assert "newcomer" not in run(name, "--help", env=wide).stdout


@pytest.mark.parametrize("option", ["--words", "--seed"])
def test_a_number_beyond_64_bits_is_refused(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = say(capsys, "stories", tmp_path / "a.txt", option, 10**30)
    assert_one_paragraph(done)
    assert f"{option} must be a whole number of at most 9,223,372,036,854,775,807; got one of 31 digits." in done.err


def test_more_words_than_the_disk_holds_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = say(capsys, "stories", tmp_path / "a.txt", "--words", 10**18)
    assert_one_paragraph(done)
    assert "take more than 4,000,000,000 GB" in done.err
    assert list(tmp_path.iterdir()) == []


ALSO_IN_PYTHON: dict[tuple[str, str], tuple[Any, str]] = {
    ("verify", "--with"): (tg.verify, "beside"),
    ("cite", "--format"): (tg.cite, "style"),
    ("explain", "--run"): (explain, "measured"),
}


@pytest.mark.parametrize(("command", "option_name"), ALSO_IN_PYTHON)
def test_an_option_with_a_name_of_its_own_also_has_that_of_python(command: str, option_name: str) -> None:
    verb, keyword = ALSO_IN_PYTHON[command, option_name]
    assert keyword in inspect.signature(verb).parameters
    (names,) = (parameter.opts for parameter in cli._command(command).params if option_name in parameter.opts)
    assert names == [option_name, f"--{keyword}"]


def test_what_is_echoed_has_the_first_name_of_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(say(capsys, "cite", "--style", "text", "--json").out)["settings"] == {"format": "text"}
