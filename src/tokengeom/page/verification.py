"""Verification of a report: files, keys, and every number that connects one stage to another, recomputed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tokengeom.errors import InputError, TokengeomError
from tokengeom.folders import MANIFEST, as_json, file_hash
from tokengeom.geometry.compare import compare
from tokengeom.geometry.comparison import NORM_PREFIX, Comparison
from tokengeom.geometry.model_states import ModelStates
from tokengeom.page.cache import UNFINISHED, key_of, read_record, sealed
from tokengeom.page.pipeline import PREDICTION, READ, STATISTICS, diverged
from tokengeom.page.read_model import ReadModel
from tokengeom.results import AbstractResult, Verification, close, load, verify
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.proxy import ProxyPrediction
from tokengeom.training.objective import SoftLabels
from tokengeom.training.run import Run

RECOMPUTED = 1e-6
"""Relative difference within which agreement numbers are recomputed: sums in another order, on another machine."""
LOSS_RECOMPUTED = 1e-5
"""The same for the loss of a trained model, whose logits are products in float32."""


def check_report(folder: Path) -> dict[str, bool]:
    """Everything that `Report.verify` checks: sentence -> whether it holds."""
    record = read_record(folder)
    stages = record["stages"]
    checks = {
        "the report's manifest is the one that was written": _is_as_written(folder, record),
        "the report is finished": bool(record["page"]) and not (folder / UNFINISHED).exists(),
        "nothing was added to the folder": not _unknown_files(folder, stages),
    }
    for name, entry in stages.items():
        checks |= _check_stage(folder / name, entry).under(name) | _check_origin(name, entry, stages)
    checks |= _check_page(folder, record["page"], stages)
    try:
        checks |= _check_across(folder, stages)
    except TokengeomError as error:
        checks[f"the results can be compared with each other ({error})"] = False
    return checks


def _is_as_written(folder: Path, record: Mapping[str, Any]) -> bool:
    """Whether the manifest is, byte for byte, what its content and seal give."""
    return (folder / MANIFEST).read_bytes() == as_json(sealed(record))


def _unknown_files(folder: Path, stages: Mapping[str, Any]) -> list[Path]:
    """Files that belong to no stage; files added inside a stage are found by its own manifest."""
    known = {MANIFEST, UNFINISHED, *stages}
    return [path for path in folder.iterdir() if path.name not in known]


def _check_stage(folder: Path, entry: Mapping[str, Any]) -> Verification:
    if not (folder / MANIFEST).is_file():
        return Verification.of({"the result is there": False})
    same = {"the manifest is the one that was written": file_hash(folder / MANIFEST) == entry["manifest"]}
    try:
        found = verify(folder)
    except (TokengeomError, KeyError, TypeError, ValueError) as error:
        return Verification.of({**same, f"the result can be read ({error})": False})
    return Verification.of({**same, **{sentence: sentence not in found.failed for sentence in found.checked}})


def _check_origin(name: str, entry: Mapping[str, Any], stages: Mapping[str, Any]) -> dict[str, bool]:
    """A stage's key is that of its inputs, and the stages that it was made from are the ones beside it."""
    made_from = entry["inputs"].get("stages", {})
    present = all(one in stages and stages[one]["key"] == key for one, key in made_from.items())
    return {
        f"{name}: its key is that of its inputs": entry["key"] == key_of(name, entry["inputs"]),
        f"{name}: it was made from the results beside it": present,
    }


def _check_page(folder: Path, page: Mapping[str, Any], stages: Mapping[str, Any]) -> dict[str, bool]:
    if not page:
        return {}
    named = str(page.get("name"))
    path = folder.parent / named
    # Only a plain file name is followed, so that a forged manifest cannot make this read files elsewhere.
    plain = re.fullmatch(r"[^/\\]+", named) is not None
    return {
        "page: it is the one that was written": plain and path.is_file() and file_hash(path) == page.get("sha256"),
        **_check_origin("page", page, stages),
    }


def _check_across(folder: Path, stages: Mapping[str, Any]) -> dict[str, bool]:
    """Numbers that connect one stage to another, recomputed."""
    checks: dict[str, bool] = {}
    if not {STATISTICS, PREDICTION} <= set(stages):
        return checks
    stats = NextTokenStatistics.load(folder / STATISTICS)
    prediction, about = _prediction_about(folder / PREDICTION, stats)
    checks["prediction: it is about these statistics"] = about
    labels = SoftLabels.from_statistics(stats)
    runs = {name: load(folder / name) for name in stages if name.startswith(("run-", READ))}
    at = {name: LossPrediction.load(folder / name) for name in stages if name.startswith("at-loss-")}
    for name, one in at.items():
        checks[f"{name}: it is about these statistics"] = one.statistics_hash == stats.hash
    for name, run in runs.items():
        assert isinstance(run, Run | ReadModel), "loaded by the name of its stage"
        fits = run.W.shape[0] == stats.V and run.H.shape[1] == stats.m
        checks[f"{name}: its loss is the one claimed"] = fits and _same_loss(labels, run)
    for name in (name for name in stages if name.startswith("comparison-")):
        made_from = sorted(stages[name]["inputs"]["stages"])
        claimed = Comparison.load(folder / name)
        again = compare(
            prediction,
            [_observed(runs[one]) for one in made_from if one in runs and not _diverged(runs[one])],
            at=[at[one] for norm in NORM_PREFIX for one in made_from if one in at and at[one].norm == norm] or None,
            at_loss=False,
            permutations=claimed.permutations,
            seed=claimed.seed,
        )
        checks[f"{name}: its numbers are the ones claimed"] = _same_numbers(claimed, again)
        judged = (claimed.verdict, claimed.reasons, claimed.better_explanation)
        checks[f"{name}: its verdict is the one claimed"] = judged == (
            again.verdict,
            again.reasons,
            again.better_explanation,
        )
    return checks


def _same_numbers(claimed: Comparison, again: Comparison) -> bool:
    """Whether values, intervals, floors, ceilings, efficiency and split are equal within rounding."""
    mine, theirs = (_numbers(one) for one in (claimed, again))
    return set(mine) == set(theirs) and all(_same(mine[name], theirs[name]) for name in mine)


def _numbers(comparison: Comparison) -> dict[str, float]:
    """All numbers of a comparison by a dotted name."""
    content = comparison.to_json()
    parts = {name: content[name] for name in ("agreements", "rows", "disagreement", "loss_gap")}
    return {name: math.nan if value is None else value for name, value in _leaves(parts) if not isinstance(value, str)}


def _leaves(content: object, path: str = "") -> Iterator[tuple[str, Any]]:
    """Numbers and strings of nested plain data, by a dotted name."""
    if isinstance(content, dict | list):
        items = content.items() if isinstance(content, dict) else enumerate(content)
        for key, value in items:
            yield from _leaves(value, f"{path}.{key}")
    else:
        yield path, content


def _prediction_about(folder: Path, stats: NextTokenStatistics) -> tuple[FeaturePrediction | ProxyPrediction, bool]:
    """A saved prediction with its statistics, and whether it was made from them."""
    prediction = load(folder)
    if isinstance(prediction, ProxyPrediction):
        return replace(prediction, stats=stats), prediction.statistics_hash == stats.hash
    if not isinstance(prediction, FeaturePrediction):
        raise InputError(f"{folder} must hold a prediction of learned features; it holds {type(prediction).__name__}.")
    same = prediction.P.shape == stats.P.shape and abs(prediction.P - stats.P).max() <= 1e-12
    return replace(prediction, stats=stats), bool(same)


def _observed(run: AbstractResult) -> Run | ModelStates:
    """What was compared: a run, or the states of a model."""
    assert isinstance(run, Run | ReadModel), "loaded by the name of its stage"
    return run.states if isinstance(run, ReadModel) else run


def _diverged(run: AbstractResult) -> bool:
    return isinstance(run, Run) and diverged(run)


def _same_loss(labels: SoftLabels, run: Run | ReadModel) -> bool:
    if isinstance(run, ReadModel):
        again = run.loss_again(labels)
        return again is None or abs(again - run.loss_gap) <= LOSS_RECOMPUTED * max(1.0, abs(again))
    if not np.isfinite(run.logits).all():
        return not math.isfinite(run.loss_gap)
    return close(labels.loss_gap(run.logits), run.loss_gap)


def _same(a: float, b: float) -> bool:
    if not (math.isfinite(a) and math.isfinite(b)):
        return math.isfinite(a) == math.isfinite(b)
    return abs(a - b) <= RECOMPUTED * max(abs(a), abs(b), 1.0)
