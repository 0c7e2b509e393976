"""tokengeom: the geometry that next-token training gives to tokens and contexts, predicted and measured.

The names below are imported when they are first used, so ``import tokengeom`` is fast.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

if sys.version_info < (3, 11):  # noqa: UP036 - pip refuses older versions, a path to the source does not
    raise ImportError(f"tokengeom needs Python 3.11 or newer; this is Python {sys.version.split()[0]}.")

if TYPE_CHECKING:
    __version__: str

    from tokengeom.citation import cite as cite
    from tokengeom.corpus.locate import ReadingSettings as ReadingSettings
    from tokengeom.errors import TokengeomError as TokengeomError
    from tokengeom.explanation import Explanation as Explanation
    from tokengeom.factors import Factors as Factors
    from tokengeom.geometry.ask import explain as explain
    from tokengeom.geometry.ask import neighbours as neighbours
    from tokengeom.geometry.compare import compare as compare
    from tokengeom.geometry.compare_texts import compare_texts as compare_texts
    from tokengeom.geometry.comparison import Comparison as Comparison
    from tokengeom.geometry.export import export as export
    from tokengeom.geometry.monitor import Monitor as Monitor
    from tokengeom.geometry.rival_table import Rivals as Rivals
    from tokengeom.geometry.rivals import rivals as rivals
    from tokengeom.geometry.text_comparison import TextComparison as TextComparison
    from tokengeom.models.checkpoint import load_checkpoint as load_checkpoint
    from tokengeom.models.language_model import language_model as language_model
    from tokengeom.models.saved_arrays import load_arrays as load_arrays
    from tokengeom.nearest import Neighbours as Neighbours
    from tokengeom.page.compare_models import compare_models as compare_models
    from tokengeom.page.estimate import estimate as estimate
    from tokengeom.page.report import Report as Report
    from tokengeom.page.report import report as report
    from tokengeom.results import load as load
    from tokengeom.results import verify as verify
    from tokengeom.statistics.count import count as count
    from tokengeom.statistics.next_token import NextTokenStatistics as NextTokenStatistics
    from tokengeom.statistics.pairs import CountedPairs as CountedPairs
    from tokengeom.theory.at_loss import LossPrediction as LossPrediction
    from tokengeom.theory.features import FeaturePrediction as FeaturePrediction
    from tokengeom.theory.linear import LinearPrediction as LinearPrediction
    from tokengeom.theory.predict import predict as predict
    from tokengeom.theory.predicted_path import PredictedPath as PredictedPath
    from tokengeom.theory.proxy import ProxyPrediction as ProxyPrediction
    from tokengeom.theory.proxy import predict_proxy as predict_proxy
    from tokengeom.training.run import Run as Run
    from tokengeom.training.settings import TrainingSettings as TrainingSettings
    from tokengeom.training.train import train as train

_MODULES = {
    "Comparison": "geometry.comparison",
    "CountedPairs": "statistics.pairs",
    "Explanation": "explanation",
    "Factors": "factors",
    "FeaturePrediction": "theory.features",
    "LinearPrediction": "theory.linear",
    "LossPrediction": "theory.at_loss",
    "Monitor": "geometry.monitor",
    "Neighbours": "nearest",
    "NextTokenStatistics": "statistics.next_token",
    "PredictedPath": "theory.predicted_path",
    "ProxyPrediction": "theory.proxy",
    "ReadingSettings": "corpus.locate",
    "Report": "page.report",
    "Rivals": "geometry.rival_table",
    "Run": "training.run",
    "TextComparison": "geometry.text_comparison",
    "TokengeomError": "errors",
    "TrainingSettings": "training.settings",
    "cite": "citation",
    "compare": "geometry.compare",
    "compare_models": "page.compare_models",
    "compare_texts": "geometry.compare_texts",
    "count": "statistics.count",
    "explain": "geometry.ask",
    "export": "geometry.export",
    "language_model": "models.language_model",
    "estimate": "page.estimate",
    "load": "results",
    "load_arrays": "models.saved_arrays",
    "load_checkpoint": "models.checkpoint",
    "neighbours": "geometry.ask",
    "predict": "theory.predict",
    "predict_proxy": "theory.proxy",
    "report": "page.report",
    "rivals": "geometry.rivals",
    "train": "training.train",
    "verify": "results",
}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> object:
    if name == "__version__":
        return version("tokengeom")
    if name not in _MODULES:
        raise AttributeError(f"module 'tokengeom' has no attribute '{name}'")
    return getattr(import_module(f"tokengeom.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
