"""Checks of a report, of the settings that it chose for a text, and of the models that it read.

The stages of a report lie side by side, so each is checked as a result of a user is. Here is what belongs to the report
alone: which stage was made from which, with which settings, and that the page, rendered again, shows these results.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tokengeom.comparison.comparison import Comparison
from tokengeom.comparison.monitor import feature_probes
from tokengeom.comparison.rival_table import Rivals
from tokengeom.core.errors import MissingExtraError, TokengeomError
from tokengeom.core.factors import Factors
from tokengeom.core.progress import SilentProgress
from tokengeom.core.system import file_hash
from tokengeom.page import report as page_report
from tokengeom.page import tied_stages
from tokengeom.page.cache import FORMAT_VERSION, UNFINISHED, code_hash, key_of, page_bytes, read_finished, read_record
from tokengeom.page.chosen_settings import Candidate, Choice, best_candidate
from tokengeom.page.executor import STATISTICS
from tokengeom.page.read_model import ReadModel
from tokengeom.page.stages import CHOICE, PATH, PREDICTION, READ
from tokengeom.page.unseen import COUNTED, CUT, DRAWN, HOW, UNSEEN, is_part
from tokengeom.results.contract import AbstractResult, NearbyResults, saved_hash
from tokengeom.results.manifests import MANIFEST, is_sealed, manifest_head, package_version
from tokengeom.results.registry import load
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.features import FeaturePrediction
from tokengeom.training.loop import State, measure
from tokengeom.training.objective import SoftLabels
from tokengeom.training.run import Run
from tokengeom.training.settings import TrainingSettings
from tokengeom.training.simulation import Simulation
from tokengeom.verification.verify import Checks, check_hashes, check_result, same, under, with_statistics

STAGES_OF_KINDS = {
    "choice": (CHOICE,),
    "statistics": (STATISTICS, CUT, COUNTED, tied_stages.COUNTED),
    "features": (PREDICTION,),
    "proxy": (PREDICTION,),
    "path": (PATH,),
    "run": ("run-",),
    "model": (READ, tied_stages.MODEL),
    "at-loss": ("at-loss-", tied_stages.UNTIED),
    "comparison": ("comparison-", tied_stages.COMPARISON, tied_stages.SIMULATED_COMPARISON),
    "rivals": ("rivals-",),
    "tied": (tied_stages.TIED,),
    "simulation": (UNSEEN, tied_stages.SIMULATED),
}
"""Kind of a result -> the stages that make such a result; a name that ends in a hyphen is the beginning of several."""
OTHER_STATISTICS = {UNSEEN: COUNTED} | dict.fromkeys(
    (tied_stages.MODEL, tied_stages.TIED, tied_stages.UNTIED, tied_stages.COMPARISON), tied_stages.COUNTED
)
"""Stages that are about a cut of their own -> the stage that made it, where there is one."""
NOT_CHECKED = (
    "the report's title, what it says is missing, commands, versions, machine, seconds, also of its stages, and that "
    "the text has the stated hash: they are as recorded when it was made"
)


LOSS_RECOMPUTED = 1e-5
"""Relative difference within which the loss of a model is equal when computed again: its logits are in float32."""


def check_report(folder: Path, nearby: NearbyResults) -> Checks:
    """Check everything behind a report, and its page.

    Every file is compared with its hash. Each stage must have been made from the results beside it, and is checked with
    them: certificates, losses, and every number of a comparison and of its rivals are computed again. Then the page is
    rendered again and must be the same. Nothing is trained.
    """
    if not is_sealed(folder):
        return {f"every file has the hash in the manifest ({MANIFEST} was changed)": False}
    try:
        record = read_record(folder)
    except TokengeomError as error:
        return {f"the report can be read ({error})": False}
    stages, page = record["stages"], record["page"]
    # What was added inside the folder of a stage is found by the manifest of that stage.
    inside = {path.name for path in folder.iterdir()}
    checks: Checks = {
        "the report is finished": bool(page) and UNFINISHED not in inside,
        "nothing was added to the folder": inside <= {MANIFEST, UNFINISHED, *stages},
    }
    for name, entry in stages.items():
        checks |= under(name, _check_files(folder / name, entry)) | _check_origin(name, entry, stages)
    if page:
        path = folder.parent / page["name"]
        is_file = path.is_file() and not path.is_symlink()
        checks["page: it has the hash in the record"] = is_file and file_hash(path, links=False) == page["sha256"]
        checks |= _check_origin("page", page, stages)
    if all(checks.values()):
        try:
            read_finished(folder)
        except TokengeomError as error:
            checks[f"the report can be read ({error})"] = False
    if not all(checks.values()):
        return checks | {"what the results claim was not computed again: what was written is not all there": None}
    again = _check_results(folder, stages) | _check_page(folder, page, stages)
    return checks | _merged(again) | {NOT_CHECKED: None}


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
    present = all(other in stages and stages[other]["key"] == key for other, key in made_from.items())
    return {
        f"{name}: its key is that of its inputs": entry["key"] == key_of(name, entry["inputs"]),
        f"{name}: it was made from the results beside it": present,
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
            checks[f"{name}: its kind is that of such a stage"] = _has_kind(name, results[name])
    stats = results.get(STATISTICS)
    if not all(checks.values()) or not isinstance(stats, NextTokenStatistics):
        return checks
    nearby = NearbyResults(folder / STATISTICS)
    for name, result in results.items():
        inputs = stages[name]["inputs"]
        shown = check_choice(result, nearby, stats) if isinstance(result, Choice) else check_result(result, nearby)
        about = results.get(OTHER_STATISTICS.get(name, STATISTICS), stats)
        if hasattr(result, "statistics_hash"):
            is_same = isinstance(about, NextTokenStatistics) and result.statistics_hash == about.hash
            shown["it is about these statistics"] = is_same
        shown |= _check_settings(result, inputs)
        if isinstance(result, Comparison | Rivals):
            shown |= _check_sources(result, inputs, results, about)
        if isinstance(result, Run) and not result.diverged:
            shown |= _check_probes(result, results.get(PREDICTION), stats)
        if name == COUNTED and isinstance(result, NextTokenStatistics):
            cut = results.get(CUT)
            shown["its windows are some of the larger cut"] = isinstance(cut, NextTokenStatistics) and is_part(
                result, cut
            )
            if result.effects[-1].cut != DRAWN:
                shown["that they are those of the documents that were not held out: the text is not saved"] = None
        checks |= under(name, shown)
    return checks


def _has_kind(stage: str, result: AbstractResult) -> bool:
    names = STAGES_OF_KINDS.get(result.kind.removeprefix("tokengeom-"), ())
    return any(stage == name or (name.endswith("-") and stage.startswith(name)) for name in names)


def _check_settings(result: AbstractResult, inputs: Mapping[str, Any]) -> Checks:
    """Whether a result has the settings that the record says it was made with."""
    if isinstance(result, Simulation):
        known: dict[str, Any] = {name: inputs.get(name) for name in (*HOW, "batch", "seed", "device")}
        asked = inputs["training"] if "training" in inputs else TrainingSettings(**known).to_dict()
        used = result.settings
    elif isinstance(result, Run):
        asked = {name: value for name, value in inputs.get("training", {}).items() if name != "dim"}
        used = {name: result.settings.get(name) for name in asked}
    elif isinstance(result, Comparison | Rivals):
        asked = {name: inputs.get(name) for name in ("permutations", "seed")}
        used = {name: getattr(result, name) for name in asked}
    else:
        return {}
    return {"its settings are those in the record": same(used, asked)}


def _check_sources(
    result: Comparison | Rivals,
    inputs: Mapping[str, Any],
    results: Mapping[str, AbstractResult],
    stats: AbstractResult | None,
) -> Checks:
    """Whether the results that a comparison names are the stages that the record says it was made from."""
    origin, allowed = result.made_from, {saved_hash(results[name]) for name in inputs.get("stages", {})}
    if origin is None or not isinstance(stats, NextTokenStatistics):
        return {"the results that it names are those beside it": False}
    named = origin.prediction is not None and bool(origin.runs)
    known = set(origin.hashes) <= allowed and origin.statistics == stats.hash
    return {"the results that it names are those beside it": named and known}


def _check_probes(run: Run, prediction: AbstractResult | None, stats: NextTokenStatistics) -> Checks:
    """Whether the last record has the agreement of W and H with the prediction in the limit, where it was measured."""
    if not isinstance(prediction, FeaturePrediction):
        return {}
    probes = feature_probes(prediction, at_loss=False)
    recorded = {name: probe for name, probe in probes.items() if name in run.trajectory.names}
    if not recorded or run.trajectory.steps[-1] != run.steps:
        return {}
    state = State(run.steps, Factors(run.W, run.H), SoftLabels.from_statistics(stats))
    again, claimed = measure(state, recorded), {name: float(run.trajectory.last(name)) for name in recorded}
    is_same = same(claimed, {name: again[name] for name in recorded})
    return {"its last record has the agreement of W and H with the prediction in the limit": is_same}


def _check_page(folder: Path, page: Mapping[str, Any], stages: Mapping[str, Any]) -> Checks:
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
    if page["inputs"].get("code") != code_hash():
        return checks | {"page: it was not rendered again, because another version of tokengeom wrote it": None}
    packages = page["inputs"].get("packages", {})
    others = [name for name in packages if package_version(name) != packages[name]]
    if others:
        return checks | {f"page: it was not rendered again, because it was written with another {others[0]}": None}
    try:
        contents = page_report.Report.load(folder).contents
        rendered = page_report.render_page(contents, SilentProgress())
        again = hashlib.sha256(page_bytes(rendered)).hexdigest()
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
    decided: Checks = {sentence: holds for sentence, holds in checks.items() if holds is not None}
    names: dict[str, list[str]] = {}
    for sentence in (sentence for sentence, holds in checks.items() if holds is None):
        name, _, said = sentence.partition(": ")
        names.setdefault(said, []).append(name)
    return decided | {f"{', '.join(several)}: {said}": None for said, several in names.items()}


def check_choice(choice: Choice, nearby: NearbyResults, stats: NextTokenStatistics | None = None) -> Checks:
    """Whether the chosen settings are the best of the candidates, with the numbers of the statistics.

    ``stats``
        The statistics that were counted with these settings; a choice does not name them.
    """
    checks: Checks = {"the sentences on the choice and on how documents were read: the text is not saved": None}
    try:
        return checks | _check_candidates(choice, stats)
    except (TokengeomError, TypeError, KeyError, ValueError, ArithmeticError) as error:
        return checks | {f"the candidates can be read ({type(error).__name__})": False}


def _check_candidates(choice: Choice, stats: NextTokenStatistics | None) -> Checks:
    """What the candidates say of the choice, and the statistics, which were counted with it, of the chosen one."""
    settings, checks = choice.settings, dict[str, bool | None]()
    rows = [Candidate(**{key: x for key, x in row.items() if key != "chosen"}) for row in choice.candidates]
    best = best_candidate(rows) if rows else None
    if best is not None:
        marked = [row for row, stored in zip(rows, choice.candidates, strict=True) if stored["chosen"] is True]
        claimed = settings["context"], settings["top_contexts"], settings["vocabulary"]
        is_best = marked == [best] and claimed == (best.context, *best.size)
        checks["the settings are those of the best candidate"] = is_best
    if stats is None or not stats.has_counts or choice.from_sample:
        checks["the numbers of the candidates: they are of a part of the text, or its statistics are not here"] = None
    elif best is not None:
        measured = Candidate.of(stats, settings["context"], settings["top_contexts"], settings["vocabulary"])
        # Choices of older versions have no gain.
        known = choice.candidates[0].keys() & asdict(best).keys()
        stored, again = ({key: asdict(one)[key] for key in known} for one in (best, measured))
        is_same = same(stored, again)
        checks["the numbers of the chosen candidate are those of the statistics"] = is_same
    if len(rows) > 1:
        checks["the numbers of the candidates that were not chosen: only counting again would show them"] = None
    return checks


def check_model(model: ReadModel, nearby: NearbyResults) -> Checks:
    """Whether loss and entropy are those of the statistics beside the model."""

    def compare(stats: NextTokenStatistics) -> Checks:
        checks: Checks = {"the entropy floor is that of the statistics": same(model.entropy, stats.entropy)}
        again = model.loss_again(SoftLabels.from_statistics(stats))
        if again is None:
            return checks | {"the loss was not computed again: rows of the head that are not saved count in it": None}
        return checks | {"the loss gap is that of W and H": same(model.loss_gap, again, LOSS_RECOMPUTED)}

    sizes, seal = (model.W.shape[0], model.H.shape[1]), model.states.statistics_hash
    return {
        "W, H and the choice of the BOS token: only reading the model again would show them": None,
        "name, step, architecture, parameters and device: they are those of the model, which is not saved": None,
        **with_statistics(seal, nearby, "loss and entropy, computed again", compare, sizes),
    }
