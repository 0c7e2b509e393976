"""tokengeom: the geometry that next-token training gives to tokens and contexts, predicted and measured.

The names below are imported when they are first used, so ``import tokengeom`` is fast.
"""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

if sys.version_info < (3, 11):  # noqa: UP036 - pip refuses older versions, a path to the source does not
    raise ImportError(f"tokengeom needs Python 3.11 or newer; this is Python {sys.version.split()[0]}.")

if TYPE_CHECKING:
    __version__: str

    # isort: off
    from tokengeom.ask.item_report import Explanation as Explanation, ItemReport as ItemReport
    from tokengeom.ask.neighbours import Neighbours as Neighbours
    from tokengeom.ask.place import Placed as Placed
    from tokengeom.ask.verbs import explain as explain, export as export, neighbours as neighbours, place as place
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
    from tokengeom.page.report import Report as Report, estimate as estimate, report as report
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
    from tokengeom.theory.proxy import ProxyPrediction as ProxyPrediction, predict_proxy as predict_proxy
    from tokengeom.theory.tied import TiedPrediction as TiedPrediction
    from tokengeom.training.kernel_features import kernel_features as kernel_features
    from tokengeom.training.run import Run as Run, Trajectory as Trajectory
    from tokengeom.training.settings import TrainingSettings as TrainingSettings
    from tokengeom.training.simulate import simulate as simulate
    from tokengeom.training.simulation import Simulation as Simulation
    from tokengeom.training.train import train as train
    from tokengeom.verification.verify import Verification as Verification, verify as verify


def imports_of(file: str) -> dict[str, str]:
    """Name -> its module, as the imports of a file say that only type checkers follow."""
    nodes = [node for node in ast.walk(ast.parse(Path(file).read_text("utf-8"))) if isinstance(node, ast.ImportFrom)]
    return {
        name.name: node.module
        for node in nodes
        if node.module is not None and node.module.startswith("tokengeom.")
        for name in node.names
    }


_MODULES = imports_of(__file__)
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> object:
    if name == "__version__":
        return version("tokengeom")
    if name not in _MODULES:
        raise AttributeError(f"module 'tokengeom' has no attribute '{name}'")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
