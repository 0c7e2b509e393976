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

    from tokengeom.ask.item_report import Explanation as Explanation
    from tokengeom.ask.item_report import ItemReport as ItemReport
    from tokengeom.ask.neighbours import Neighbours as Neighbours
    from tokengeom.ask.place import Placed as Placed
    from tokengeom.ask.verbs import explain as explain
    from tokengeom.ask.verbs import export as export
    from tokengeom.ask.verbs import neighbours as neighbours
    from tokengeom.ask.verbs import place as place
    from tokengeom.comparison.agreement import Agreement as Agreement
    from tokengeom.comparison.checkpoints import CheckpointCurve as CheckpointCurve
    from tokengeom.comparison.compare import compare as compare
    from tokengeom.comparison.compare_texts import compare_texts as compare_texts
    from tokengeom.comparison.comparison import Comparison as Comparison
    from tokengeom.comparison.monitor import Monitor as Monitor
    from tokengeom.comparison.rival_table import Rivals as Rivals
    from tokengeom.comparison.rivals import rivals as rivals
    from tokengeom.comparison.text_comparison import TextComparison as TextComparison
    from tokengeom.core.citation import cite as cite
    from tokengeom.core.errors import TokengeomError as TokengeomError
    from tokengeom.core.factors import Factors as Factors
    from tokengeom.core.resources import Estimate as Estimate
    from tokengeom.corpus.locate import ReadingSettings as ReadingSettings
    from tokengeom.models.checkpoint import load_checkpoint as load_checkpoint
    from tokengeom.models.language_model import language_model as language_model
    from tokengeom.models.saved_arrays import load_arrays as load_arrays
    from tokengeom.page.compare_models import compare_models as compare_models
    from tokengeom.page.report import Report as Report
    from tokengeom.page.report import estimate as estimate
    from tokengeom.page.report import report as report
    from tokengeom.problems.base import Certificate as Certificate
    from tokengeom.results.contract import AbstractResult as AbstractResult
    from tokengeom.results.registry import load as load
    from tokengeom.statistics.context_features import ContextFeatures as ContextFeatures
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
    from tokengeom.theory.tied import TiedPrediction as TiedPrediction
    from tokengeom.training.kernel_features import kernel_features as kernel_features
    from tokengeom.training.run import Run as Run
    from tokengeom.training.run import Trajectory as Trajectory
    from tokengeom.training.settings import TrainingSettings as TrainingSettings
    from tokengeom.training.simulate import simulate as simulate
    from tokengeom.training.simulation import Simulation as Simulation
    from tokengeom.training.train import train as train
    from tokengeom.verification.verify import Verification as Verification
    from tokengeom.verification.verify import verify as verify

_MODULES = {
    "AbstractResult": "results.contract",
    "Agreement": "comparison.agreement",
    "Certificate": "problems.base",
    "CheckpointCurve": "comparison.checkpoints",
    "Comparison": "comparison.comparison",
    "ContextFeatures": "statistics.context_features",
    "CountedPairs": "statistics.pairs",
    "Estimate": "core.resources",
    "Explanation": "ask.item_report",
    "Factors": "core.factors",
    "FeaturePrediction": "theory.features",
    "ItemReport": "ask.item_report",
    "LinearPrediction": "theory.linear",
    "LossPrediction": "theory.at_loss",
    "Monitor": "comparison.monitor",
    "Neighbours": "ask.neighbours",
    "NextTokenStatistics": "statistics.next_token",
    "Placed": "ask.place",
    "PredictedPath": "theory.predicted_path",
    "ProxyPrediction": "theory.proxy",
    "ReadingSettings": "corpus.locate",
    "Report": "page.report",
    "Rivals": "comparison.rival_table",
    "Run": "training.run",
    "Simulation": "training.simulation",
    "TextComparison": "comparison.text_comparison",
    "TiedPrediction": "theory.tied",
    "TokengeomError": "core.errors",
    "TrainingSettings": "training.settings",
    "Trajectory": "training.run",
    "Verification": "verification.verify",
    "cite": "core.citation",
    "compare": "comparison.compare",
    "compare_models": "page.compare_models",
    "compare_texts": "comparison.compare_texts",
    "count": "statistics.count",
    "estimate": "page.report",
    "explain": "ask.verbs",
    "export": "ask.verbs",
    "kernel_features": "training.kernel_features",
    "language_model": "models.language_model",
    "load": "results.registry",
    "load_arrays": "models.saved_arrays",
    "load_checkpoint": "models.checkpoint",
    "neighbours": "ask.verbs",
    "place": "ask.verbs",
    "predict": "theory.predict",
    "predict_proxy": "theory.proxy",
    "report": "page.report",
    "rivals": "comparison.rivals",
    "simulate": "training.simulate",
    "train": "training.train",
    "verify": "verification.verify",
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
