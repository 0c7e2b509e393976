"""Keywords of verbs, as editors and type checkers see them, are the settings that the verbs take.

That a type checker refuses a wrong one is checked where tests give wrong ones: their ``type: ignore`` would be unused.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from dataclasses import fields
from pathlib import Path
from subprocess import run
from types import ModuleType
from typing import Any, get_type_hints

import pytest

import tokengeom as tg
from tokengeom.page.compare_models import model_rivals
from tokengeom.statistics.count import count_pairs

DOCS = Path(__file__).parents[1] / "docs"
VERBS: dict[str, Any] = {
    "CountKeywords": tg.count,
    "CutKeywords": tg.NextTokenStatistics.limited,
    "PairKeywords": count_pairs,
    "PredictKeywords": tg.predict,
    "LossKeywords": tg.FeaturePrediction.at,
    "ProxyKeywords": tg.predict_proxy,
    "TrainKeywords": tg.train,
    "SimulateKeywords": tg.simulate,
    "CompareKeywords": tg.compare,
    "RivalKeywords": tg.rivals,
    "CompareTextsKeywords": tg.compare_texts,
    "CompareModelsKeywords": tg.compare_models,
    "ModelRivalsKeywords": model_rivals,
    "ReportKeywords": tg.report,
    "ExportKeywords": tg.export,
    "AskKeywords": tg.explain,
}


@pytest.fixture(scope="module")
def made() -> ModuleType:
    spec = importlib.util.spec_from_file_location("keyword_types", DOCS / "keyword_types.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_types_are_written_of_the_settings_as_they_are(made: ModuleType) -> None:
    assert made.FILE.read_text(encoding="utf-8") == made.keyword_types(), "run `make map`"


def test_keywords_have_the_names_and_types_of_the_settings(made: ModuleType) -> None:
    typed: dict[str, Any] = {}
    exec(compile(made.keyword_types(), "keywords.pyi", "exec", dont_inherit=True), typed)
    for name, kinds in made.SETTINGS.items():
        types = {field.name: get_type_hints(kind)[field.name] for kind in kinds for field in fields(kind)}
        if name == "TrainKeywords":
            del types["model"]
        assert get_type_hints(typed[name]) == types


def test_every_verb_is_one_of_these(made: ModuleType) -> None:
    assert set(VERBS) == set(made.SETTINGS)


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_takes_its_keywords(name: str) -> None:
    """The signature that a type checker reads, which is not the one that `takes` shows."""
    assert VERBS[name].__annotations__["settings"] == f"Unpack[{name}]"


def test_verbs_with_settings_take_keywords_that_are_known() -> None:
    public = (getattr(tg, name) for name in tg.__all__)
    taking = [verb for verb in public if inspect.isfunction(verb) and "settings" in verb.__annotations__]
    assert [verb.__name__ for verb in taking if "Unpack" not in verb.__annotations__["settings"]] == ["estimate"]


def test_keywords_are_not_imported_at_run_time() -> None:
    code = "import sys, tokengeom.page.report, tokengeom.ask.verbs; print('tokengeom.keywords' in sys.modules)"
    done = run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
