"""Verification of a report: its files and keys, the checks of every stage with the others beside it, and its page.

The stages of a report lie side by side in its folder, so each is checked by the same code as a result of a user
(`tokengeom.results.AbstractResult.checks`). Here is what belongs to the report alone: which stage was made from which,
with which settings, and that the page shows these results.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from tokengeom.comparison.comparison import Comparison
from tokengeom.comparison.probes import feature_probes
from tokengeom.comparison.rival_table import Rivals
from tokengeom.core.checks import is_plain_name
from tokengeom.core.errors import MissingExtraError, TokengeomError
from tokengeom.core.factors import Factors
from tokengeom.page.cache import (
    FORMAT_VERSION,
    UNFINISHED,
    code_hash,
    key_of,
    package_version,
    read_finished,
    read_record,
)
from tokengeom.page.choice import Choice
from tokengeom.page.executor import STATISTICS
from tokengeom.page.read_model import ReadModel
from tokengeom.page.stages import CHOICE, PATH, PREDICTION, READ
from tokengeom.results.contract import AbstractResult, NearbyResults, check_hashes, saved_hash, under
from tokengeom.results.manifests import MANIFEST, file_hash, is_sealed, manifest_head
from tokengeom.results.registry import load
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.predicted_path import PredictedPath
from tokengeom.theory.proxy import ProxyPrediction
from tokengeom.training.loop import State, measure
from tokengeom.training.objective import SoftLabels
from tokengeom.training.run import Run
from tokengeom.verification.checks import RECOMPUTED, check_result, same

Checks = dict[str, bool | None]

KINDS_OF_STAGES: dict[str, tuple[type[AbstractResult], ...]] = {
    CHOICE: (Choice,),
    STATISTICS: (NextTokenStatistics,),
    PREDICTION: (FeaturePrediction, ProxyPrediction),
    PATH: (PredictedPath,),
    "run-": (Run,),
    READ: (ReadModel,),
    "at-loss-": (LossPrediction,),
    "comparison-": (Comparison,),
    "rivals-": (Rivals,),
}
"""Beginning of the names of stages -> what such a stage makes."""
NOT_CHECKED = (
    "the report's title, what it says is missing, versions, machine, seconds, and that the text has the stated hash: "
    "they are as recorded when it was made"
)


def check_report(folder: Path, page_again: Callable[[], bytes]) -> Checks:
    """Everything that verifying a report checks.

    ``page_again``
        Renders the page from the saved stages.
    """
    if not is_sealed(folder):
        return {f"every file has the hash in the manifest ({MANIFEST} was changed)": False}
    try:
        record = read_record(folder)
    except TokengeomError as error:
        return {f"the report can be read ({error})": False}
    stages, page = record["stages"], record["page"]
    checks: Checks = {
        "the report is finished": bool(page) and not (folder / UNFINISHED).exists(),
        "nothing was added to the folder": not _unknown_files(folder, stages),
    }
    for name, entry in stages.items():
        checks |= under(name, _check_files(folder / name, entry)) | _check_origin(name, entry, stages)
    if page:
        checks |= _check_page_file(folder, page, stages)
    if all(checks.values()):
        try:
            read_finished(folder)
        except TokengeomError as error:
            checks[f"the report can be read ({error})"] = False
    if not all(checks.values()):
        return checks | {"what the results claim was not computed again: what was written is not all there": None}
    found = _check_results(folder, stages) | _check_page(page, stages, page_again)
    return checks | _merged(found) | {NOT_CHECKED: None}


def _unknown_files(folder: Path, stages: Mapping[str, Any]) -> list[Path]:
    """Files that belong to no stage; files added inside a stage are found by its own manifest."""
    known = {MANIFEST, UNFINISHED, *stages}
    return [path for path in folder.iterdir() if path.name not in known]


def _check_files(folder: Path, entry: Mapping[str, Any]) -> Checks:
    if not (folder / MANIFEST).is_file():
        return {"the result is there": False}
    try:
        same_manifest = file_hash(folder / MANIFEST, links=False) == entry["manifest"]
        return {"its manifest is the one in the record": same_manifest, **check_hashes(folder)}
    except TokengeomError as error:
        return {f"the result can be read ({error})": False}


def _check_origin(name: str, entry: Mapping[str, Any], stages: Mapping[str, Any]) -> Checks:
    """A stage's key is that of its inputs, and the stages that it was made from are the ones beside it."""
    made_from = entry["inputs"].get("stages", {})
    present = all(one in stages and stages[one]["key"] == key for one, key in made_from.items())
    return {
        f"{name}: its key is that of its inputs": entry["key"] == key_of(name, entry["inputs"]),
        f"{name}: it was made from the results beside it": present,
    }


def _check_page_file(folder: Path, page: Mapping[str, Any], stages: Mapping[str, Any]) -> Checks:
    named = page["name"]
    path = folder.parent / named
    # Only a plain file name is followed, so that a forged manifest cannot make this read files elsewhere.
    known = is_plain_name(named) and path.is_file() and not path.is_symlink()
    return {
        "page: it has the hash in the record": known and file_hash(path, links=False) == page["sha256"],
        **_check_origin("page", page, stages),
    }


def _check_results(folder: Path, stages: Mapping[str, Any]) -> Checks:
    """The checks of every stage, and whether the stages belong together."""
    results: dict[str, AbstractResult] = {}
    checks: Checks = {}
    for name in stages:
        try:
            results[name] = load(folder / name)
        except TokengeomError as error:
            checks[f"{name}: the result can be read ({error})"] = False
        else:
            checks[f"{name}: its kind is that of such a stage"] = isinstance(results[name], _kinds(name))
    stats = results.get(STATISTICS)
    if not all(checks.values()) or not isinstance(stats, NextTokenStatistics):
        return checks
    beside = NearbyResults(folder / STATISTICS)
    for name, result in results.items():
        checks |= under(name, result.checks_with(stats) if isinstance(result, Choice) else check_result(result, beside))
        if hasattr(result, "statistics_hash"):
            checks[f"{name}: it is about these statistics"] = result.statistics_hash == stats.hash
        checks |= under(name, _check_settings(result, stages[name]["inputs"]))
        if isinstance(result, Comparison | Rivals):
            checks |= under(name, _check_sources(result, stages[name]["inputs"], results, stats))
    prediction = results.get(PREDICTION)
    if isinstance(prediction, FeaturePrediction):
        for name, result in results.items():
            if isinstance(result, Run) and not result.diverged:
                checks |= under(name, _check_probes(result, prediction, stats))
    return checks


def _checks(result: AbstractResult, beside: NearbyResults) -> Checks:
    # By name: checks of all kinds are made by a package that imports this one.
    checks: Checks = import_module("tokengeom.verification.checks").check_result(result, beside)
    return checks


def _kinds(stage: str) -> tuple[type[AbstractResult], ...]:
    return next((kinds for begin, kinds in KINDS_OF_STAGES.items() if stage.startswith(begin)), ())


def _check_settings(result: AbstractResult, inputs: Mapping[str, Any]) -> Checks:
    """Whether a result has the settings that the record says it was made with."""
    if isinstance(result, Run):
        asked = {name: value for name, value in inputs.get("training", {}).items() if name != "dim"}
        used = {name: result.settings.get(name) for name in asked}
        return {"its settings are those in the record": same(used, asked)}
    if isinstance(result, Comparison | Rivals):
        drawn = {name: getattr(result, name) for name in ("permutations", "seed")}
        return {"its settings are those in the record": drawn == {name: inputs.get(name) for name in drawn}}
    return {}


def _check_sources(
    result: Comparison | Rivals,
    inputs: Mapping[str, Any],
    results: Mapping[str, AbstractResult],
    stats: NextTokenStatistics,
) -> Checks:
    """Whether the results that a comparison names are the stages that the record says it was made from."""
    origin, allowed = result.made_from, {saved_hash(results[name]) for name in inputs.get("stages", {})}
    named = origin is not None and origin.prediction is not None and bool(origin.runs)
    known = origin is not None and set(origin.hashes) <= allowed and origin.statistics == stats.hash
    return {"the results that it names are those beside it": named and known}


def _check_probes(run: Run, prediction: FeaturePrediction, stats: NextTokenStatistics) -> Checks:
    """Whether the last record has the agreement of W and H with the prediction in the limit, where it was measured."""
    probes = feature_probes(prediction, at_loss=False)
    recorded = {name: probe for name, probe in probes.items() if name in run.trajectory.names}
    if not recorded or run.trajectory.steps[-1] != run.steps:
        return {}
    state = State(run.steps, Factors(run.W, run.H), SoftLabels.from_statistics(stats))
    again = measure(state, recorded)
    claimed = {name: float(run.trajectory.last(name)) for name in recorded}
    return {
        "its last record has the agreement of W and H with the prediction in the limit": same(
            claimed, {name: again[name] for name in recorded}, RECOMPUTED
        )
    }


def _check_page(page: Mapping[str, Any], stages: Mapping[str, Any], page_again: Callable[[], bytes]) -> Checks:
    """Whether the page is the one that the saved stages give, and its provenance that of the record."""
    used, provenance = page["inputs"]["stages"], page["provenance"]
    hashes, seconds = provenance.get("hashes", {}), provenance.get("seconds", {})
    texts = {stages[name]["inputs"].get("text") for name in used} - {None}
    checks: Checks = {
        "page: the hashes and seconds that it states are those of the stages": all(
            hashes.get(name) == key and seconds.get(name) == stages[name]["seconds"] for name, key in used.items()
        ),
        "page: the text's hash that it states is that of the stages": {hashes.get("text")} - {None} == texts,
    }
    if page["inputs"].get("code") != code_hash(everything=True):
        return checks | {"page: it was not rendered again, because another version of tokengeom wrote it": None}
    others = [name for name, known in page["inputs"].get("packages", {}).items() if package_version(name) != known]
    if others:
        return checks | {f"page: it was not rendered again, because it was written with another {others[0]}": None}
    try:
        again = hashlib.sha256(page_again()).hexdigest()
    except MissingExtraError as error:
        return checks | {f"page: it was not rendered again ({error})": None}
    except TokengeomError as error:
        return checks | {f"page: it can be rendered again ({error})": False}
    if again != page["sha256"] and provenance.get("machine") != manifest_head("", FORMAT_VERSION)["machine"]:
        # Figures depend on the last digits of sums, which another machine or library may round differently.
        return checks | {
            "page: it differs from the one rendered here, which may be because it was made on another machine": None
        }
    return checks | {"page: rendered again from the results, it is the same": again == page["sha256"]}


def _merged(checks: Checks) -> Checks:
    """The same checks, with one sentence for what was not checked in several stages."""
    found: Checks = {sentence: holds for sentence, holds in checks.items() if holds is not None}
    names: dict[str, list[str]] = {}
    for sentence in (sentence for sentence, holds in checks.items() if holds is None):
        name, _, said = sentence.partition(": ")
        names.setdefault(said, []).append(name)
    return found | {f"{', '.join(several)}: {said}": None for said, several in names.items()}
