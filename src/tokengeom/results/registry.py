"""The registry of kinds of results, and `load`, which reads any of them.

`load` and `tokengeom.verification` read a folder's manifest and take the class from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from tokengeom.core.errors import InputError, MissingExtraError
from tokengeom.core.settings import takes
from tokengeom.results.contract import AbstractResult, saved_folder
from tokengeom.results.manifests import read_kind

KINDS = {
    "tokengeom-statistics": "tokengeom.statistics.next_token.NextTokenStatistics",
    "tokengeom-pairs": "tokengeom.statistics.pairs.CountedPairs",
    "tokengeom-features": "tokengeom.theory.features.FeaturePrediction",
    "tokengeom-at-loss": "tokengeom.theory.at_loss.LossPrediction",
    "tokengeom-tied": "tokengeom.theory.tied.TiedPrediction",
    "tokengeom-path": "tokengeom.theory.predicted_path.PredictedPath",
    "tokengeom-linear": "tokengeom.theory.linear.LinearPrediction",
    "tokengeom-proxy": "tokengeom.theory.proxy.ProxyPrediction",
    "tokengeom-run": "tokengeom.training.run.Run",
    "tokengeom-simulation": "tokengeom.training.simulation.Simulation",
    "tokengeom-model": "tokengeom.page.read_model.ReadModel",
    "tokengeom-comparison": "tokengeom.comparison.comparison.Comparison",
    "tokengeom-checkpoints": "tokengeom.comparison.checkpoints.CheckpointCurve",
    "tokengeom-rivals": "tokengeom.comparison.rival_table.Rivals",
    "tokengeom-texts": "tokengeom.comparison.text_comparison.TextComparison",
    "tokengeom-choice": "tokengeom.page.chosen_settings.Choice",
    "tokengeom-report": "tokengeom.page.report.Report",
}
"""Kind of a saved folder -> the class that reads it. Classes are imported when they are needed."""
GROUP = "tokengeom.kinds"
"""Group of entry points by which other distributions add kinds of results."""
ELSEWHERE = {"tokengeom-findings": "tokengeom-studies"}
"""Kinds that another distribution reads, and its name."""

EXPORTED = "tokengeom-export"
"""Kind of a folder of exported embeddings, which are files for other programs: its hashes are checked, nothing else."""


@takes()
def load(folder: str | Path) -> AbstractResult:
    """Read any saved result: statistics, counted pairs, predictions, runs, comparisons, rivals, findings, reports.

    The class is the one that was saved: ``tg.load("run")`` is a `Run`. Every file is compared with its hash first.

    Parameters
    ----------
    folder
        The folder that ``save`` wrote.
    """
    path = saved_folder(folder)
    return result_class(read_kind(path)).load(path)


def result_class(kind: str) -> type[AbstractResult]:
    """The class of a kind of saved folder."""
    if kind == EXPORTED:
        raise InputError(
            "This folder is an export, which is made for other programs. Use the result that it was made from; "
            "tokengeom.load_arrays reads its numbers."
        )
    known: type[AbstractResult] | None = registered(kind, KINDS, GROUP)
    if known is not None:
        return known
    if kind in ELSEWHERE:
        raise MissingExtraError(
            f"Results of the kind '{kind}' are read by the distribution {ELSEWHERE[kind]}, which is not installed. "
            "In a checkout of tokengeom: pip install ./studies"
        )
    raise InputError(
        f"There is no kind of result called '{kind}'; tokengeom knows {', '.join(sorted([*KINDS, *ELSEWHERE]))}. "
        "Likely it was saved by a newer version or by other software."
    )


def registered(kind: str, names: Mapping[str, str], group: str) -> Any:
    """What belongs to a kind: the object with its dotted name, or the entry point of another distribution, or None."""
    if kind in names:
        module, _, name = names[kind].rpartition(".")
        return getattr(import_module(module), name)
    return next((point.load() for point in entry_points(group=group, name=kind)), None)
