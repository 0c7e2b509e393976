"""Keywords of verbs, as editors and type checkers see them, are the settings that the verbs take.

That a type checker refuses a wrong one is checked where tests give wrong ones: their ``type: ignore`` would be unused.
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import fields
from subprocess import run
from typing import Any, get_type_hints

import pytest

import tokengeom as tg
from tokengeom import keywords
from tokengeom.ask.verbs import AskSettings, ExportSettings
from tokengeom.comparison.compare_texts import CompareTextsSettings
from tokengeom.comparison.inputs import CompareSettings
from tokengeom.comparison.rivals import RivalSettings
from tokengeom.corpus.locate import ReadingSettings
from tokengeom.page.compare_models import model_rivals
from tokengeom.page.settings import ModelTextSettings, ReportSettings, SeveralModelsSettings, TiesSettings
from tokengeom.statistics.count import CountSettings, count_pairs
from tokengeom.statistics.cuts import CutSettings
from tokengeom.statistics.engines import EngineSettings
from tokengeom.theory.at_loss import LossSettings
from tokengeom.theory.predict import PredictSettings
from tokengeom.theory.proxy import ProxySettings
from tokengeom.training.settings import TrainingSettings
from tokengeom.training.simulate import SimulationSettings

COUNT = [CountSettings, ReadingSettings, EngineSettings]
MODEL, MODELS = ([kind, ReadingSettings] for kind in (ModelTextSettings, SeveralModelsSettings))
SETTINGS: dict[str, list[type[Any]]] = {
    "ReadingKeywords": [ReadingSettings],
    "CutKeywords": [CutSettings],
    "EngineKeywords": [EngineSettings],
    "PairKeywords": COUNT,
    "CountKeywords": [*COUNT, CutSettings],
    "LossKeywords": [LossSettings],
    "PredictKeywords": [PredictSettings],
    "ProxyKeywords": [ProxySettings],
    "TrainKeywords": [TrainingSettings],
    "SimulateKeywords": [SimulationSettings],
    "CompareKeywords": [CompareSettings],
    "RivalKeywords": [RivalSettings],
    "CompareTextsKeywords": [CompareTextsSettings],
    "ModelTextKeywords": MODEL,
    "SeveralModelsKeywords": MODELS,
    "TiesKeywords": [TiesSettings],
    "CompareModelsKeywords": [*MODELS, TiesSettings, CompareSettings],
    "ModelRivalsKeywords": [*MODELS, RivalSettings],
    "AskKeywords": [AskSettings],
    "ExportKeywords": [ExportSettings],
    "ReportKeywords": [ReportSettings, ReadingSettings],
}
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


@pytest.mark.parametrize("name", SETTINGS)
def test_keywords_have_the_names_and_types_of_the_settings(name: str) -> None:
    types = {
        field.name: get_type_hints(kind, include_extras=True)[field.name]
        for kind in SETTINGS[name]
        for field in fields(kind)
    }
    if name == "TrainKeywords":
        del types["model"]
    assert get_type_hints(getattr(keywords, name)) == types


def test_all_keywords_are_compared() -> None:
    assert {name for name in vars(keywords) if name.endswith("Keywords")} == set(SETTINGS)


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
