"""Every stage names the code that runs in it, and its key follows that code."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import tokengeom as tg
from code_that_runs import code_that_runs, files_of
from pipeline_cases import plain_page, quick, write_text
from tiny_models import ROWS, build, fit_head, save, sentences
from tokengeom.page import cache, executor
from tokengeom.page.executor import Executor, Stage
from tokengeom.page.report import Report, report
from tokengeom.results.contract import AbstractResult


def named_in_keys(file: Path) -> str:
    """What a stage names for a file of the package: its package, or the module itself where that is of the page."""
    package, *rest = file.with_suffix("").parts
    return f"page.{rest[0]}" if package == "page" else package


@pytest.fixture(autouse=True)
def _plain_page(monkeypatch: pytest.MonkeyPatch) -> None:
    plain_page(monkeypatch, every_rival=True)


@pytest.fixture
def undeclared(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """Stage -> packages, and modules of the page, that ran in it and that it does not name."""
    missing: dict[str, set[str]] = {}

    def traced(self: Executor, stage: Stage) -> AbstractResult | None:
        with code_that_runs() as ran:
            result = stage.make(self)
        missing[stage.name] = set(map(named_in_keys, files_of(ran))) - set(stage.code)
        return result

    monkeypatch.setattr(Executor, "_make", traced)
    return missing


@pytest.mark.parametrize("transformer", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_stage_names_all_code_that_runs_in_it(
    text: Path, tmp_path: Path, undeclared: dict[str, set[str]], transformer: bool
) -> None:
    quick(text, tmp_path / "page.html", transformer=transformer, steps=12, seeds=1)
    assert {"choice", "statistics", "run-ufm", "rivals-ufm"} <= set(undeclared)
    assert {name: packages for name, packages in undeclared.items() if packages} == {}


def test_the_stages_of_unseen_contexts_name_all_code_that_runs_in_them(
    tmp_path: Path, undeclared: dict[str, set[str]]
) -> None:
    quick(write_text(tmp_path / "stories.txt", 200), tmp_path / "page.html", steps=12, seeds=1, unseen=True)
    found = {name: packages for name, packages in undeclared.items() if name.startswith("unseen")}
    assert found == {"unseen-cut": set(), "unseen-counted": set(), "unseen": set()}


def test_a_stage_of_a_model_names_all_code_that_runs_in_it(tmp_path: Path, undeclared: dict[str, set[str]]) -> None:
    saved = save(build("llama"), tmp_path / "model")
    fit_head(saved, tg.count(sentences(), context=2, tokenizer=saved, vocabulary_size=ROWS), 0.5)
    report(sentences(), tmp_path / "page.html", model=saved, context=2, permutations=20)
    assert {"statistics", "model-1", "comparison-model-1", "rivals-model-1"} <= set(undeclared)
    assert {name: packages for name, packages in undeclared.items() if packages} == {}


@pytest.mark.parametrize(
    ("changed", "made_again"), [("comparison", "comparison-ufm"), ("theory", "prediction"), ("figures", None)]
)
def test_a_change_of_code_makes_what_depends_on_it_again(
    text: Path, finished: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str, made_again: str | None
) -> None:
    shutil.copytree(finished.page.parent, tmp_path, dirs_exist_ok=True)

    def code_hash(names: tuple[str, ...] = ()) -> Any:
        return 64 * "0" if changed in names else cache.code_hash(names)

    monkeypatch.setattr(executor, "code_hash", code_hash)
    made = quick(text, tmp_path / "page.html").made
    assert made_again in made if made_again else made == ()
    assert "statistics" not in made
