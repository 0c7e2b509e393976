"""The verbs `neighbours`, `explain`, `place` and `export`, for a prediction, a run, a model or a saved folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, get_args

from tokengeom.ask.explain import AnswersQuestions, Observed, PlainFactors, measured_by_name
from tokengeom.ask.item_report import ItemReport
from tokengeom.ask.named_vectors import WRITERS, Format, Items, NamedVectors, projector_config
from tokengeom.ask.neighbours import Neighbours, SimilarPairs
from tokengeom.ask.place import Contexts, Placed, PlacesContexts
from tokengeom.comparison.checkpoints import CheckpointCurve
from tokengeom.comparison.comparison import Comparison
from tokengeom.comparison.inputs import is_model, run_of
from tokengeom.comparison.model_states import read_model, states_of
from tokengeom.core.errors import InputError, ProblemError
from tokengeom.core.factors import HasFactors
from tokengeom.core.progress import AbstractProgress, SilentProgress
from tokengeom.core.settings import check_tolerance, make, nearest_hint, option, takes
from tokengeom.models.checkpoint import load_checkpoint
from tokengeom.models.language_model import AbstractLanguageModel
from tokengeom.results.contract import AbstractResult, NearbyResults, saved_folder
from tokengeom.results.folders import atomic_folder, check_target
from tokengeom.results.manifests import MANIFEST, read_kind, write_manifest
from tokengeom.results.registry import EXPORTED, load
from tokengeom.statistics.next_token import NextTokenStatistics, statistics_of
from tokengeom.theory.at_loss import NORMS, LossPrediction, require_norm
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.proxy import ProxyPrediction
from tokengeom.training.run import Run

if TYPE_CHECKING:
    from tokengeom.keywords import AskKeywords, ExportKeywords

Statistics = NextTokenStatistics | str | Path | None
Asked = HasFactors | AbstractLanguageModel | CheckpointCurve | Comparison | tuple[object, object] | str | Path
Runs = Observed | AbstractLanguageModel | str | Path
REPORT = "tokengeom-report"
"""Kind of the folder of a report's results."""
MODEL_CONFIG = "config.json"
ABOUT_NAMES = "A question about names"
JUDGED = (
    "The loss is the one that the model reached: this is the prediction that the verdict on it is about. loss_gap=0 "
    "(--loss-gap 0) asks the limit of training."
)
EXPORT_VERSION = 1
Choice = Literal["both", "tokens", "contexts"]


@dataclass(frozen=True)
class AskSettings:
    """What is asked, and of which geometry."""

    k: int = option(10, "Number of neighbours.", short="k")
    items: Items | None = option(
        None, "Look among tokens or among contexts alone. By default a token is meant where the text names both."
    )
    other_supports: bool = option(
        False, "Leave out neighbours that have exactly the same supports; an explanation always does."
    )
    loss_gap: float | None = option(
        None,
        "Ask the prediction at this loss gap, in nats; 0 is the limit. By default the limit or, where a model is "
        "known (a comparison, a report, --model), its loss.",
    )
    norm: str | None = option(
        None, "Norm of the prediction at that loss gap; nuclear by default.", choices=lambda: tuple(NORMS)
    )
    tolerance: float = option(1e-3, "Proven relative gap of the prediction at that loss gap.")

    def __post_init__(self) -> None:
        if self.norm is not None:
            require_norm(self.norm)
            if not self.loss_gap:
                raise InputError("norm (--norm) is that of the prediction at a loss: give loss_gap (--loss-gap) too.")
        check_tolerance(self.tolerance)


@dataclass(frozen=True)
class ExportSettings:
    """What is exported, and how."""

    format: Format = option(
        "projector",
        "Files to write: projector (TensorBoard's embedding projector), word2vec (text that gensim reads) or numpy "
        "(.npz).",
    )
    items: Choice = option("both", "Which embeddings: tokens, contexts, or both.")

    def __post_init__(self) -> None:
        for name, value, known in (("format", self.format, get_args(Format)), ("items", self.items, get_args(Choice))):
            if value not in known:
                hint = nearest_hint(str(value), known)
                raise InputError(f"{name} must be one of {', '.join(known)}; got {value!r}.{hint}")


@takes(AskSettings)
def neighbours(
    result: Asked,
    text: str,
    *,
    stats: Statistics = None,
    tokenizer: object = None,
    progress: AbstractProgress | None = None,
    **settings: Unpack[AskKeywords],
) -> Neighbours:
    """The tokens or contexts that are nearest to one, with cosines and the supports that they share.

    Parameters
    ----------
    result
        A prediction (in the limit, at a loss, or the proxy), a run, compared checkpoints (the last one is asked), a
        comparison (the prediction that its verdict is about is asked), anything with W (V x d) and H (d x m), a model
        in memory; or the folder of a saved result, of a report's results (the prediction that the verdict on its model
        is about is asked) or of a Hugging Face causal language model.
    text
        Name of the token or context; accents and case are forgiven, and a unique beginning is completed. Where contexts
        are tied, a text that none has is placed, as in `place`: the answer says that it was not counted.
    stats
        The statistics, or their folder, that name tokens and contexts. Predictions that were made in this session have
        them; for a saved result they are looked for beside it.
    tokenizer
        Tokenizer of a model in memory.
    """
    chosen = make(AskSettings, settings, "neighbours")
    asked, known, notes = _asked(result, stats, chosen, tokenizer, progress or SilentProgress())
    found = asked.neighbours(text, chosen.k, chosen.items, known, other_supports=chosen.other_supports)
    return replace(found, notes=(*found.notes, *notes))


@takes(AskSettings)
def similar_pairs(
    result: Asked,
    *,
    stats: Statistics = None,
    tokenizer: object = None,
    progress: AbstractProgress | None = None,
    **settings: Unpack[AskKeywords],
) -> SimilarPairs:
    """The most similar pairs of contexts, or of tokens, among those with different supports; as in `neighbours`."""
    chosen = make(AskSettings, settings, "neighbours")
    asked, known, _ = _asked(result, stats, chosen, tokenizer, progress or SilentProgress())
    return asked.pairs(chosen.k, chosen.items or "contexts", known)


@takes(AskSettings)
def explain(
    result: Asked,
    text: str,
    *,
    stats: Statistics = None,
    measured: Runs | Sequence[Runs] | Mapping[str, Runs] | None = None,
    tokenizer: object = None,
    progress: AbstractProgress | None = None,
    **settings: Unpack[AskKeywords],
) -> ItemReport:
    """What the text says about a token or context, where it lies, and what pulls it there.

    Parameters
    ----------
    result, text, stats, tokenizer
        As in `neighbours`.
    measured
        Runs or trained models on the same statistics, pairs (W, H), or folders of saved runs, to show the same item in:
        one, several, or several by name.
    """
    chosen = make(AskSettings, settings, "explain")
    shown = progress or SilentProgress()
    asked, known, notes = _asked(result, stats, chosen, tokenizer, shown)
    runs = {
        name: states_of(run, known, tokenizer, shown) if is_model(run) else run_of(run)
        for name, run in measured_by_name(measured).items()
    }
    report = asked.explain(text, chosen.k, chosen.items, known, measured=runs)
    return replace(report, notes=(*report.notes, *notes))


def place(result: PlacesContexts | Run | str | Path, texts: Contexts, *, stats: Statistics = None) -> Placed:
    """Where contexts lie that the text may not have, and which tokens are predicted to follow them.

    Parameters
    ----------
    result
        A prediction that was made with ties, a simulation, a run of the tied model, or the folder of a saved one.
    texts
        Contexts, of which the last tokens count; or token ids, one context per row.
    stats
        As in `neighbours`.
    """
    place = Path(result) if isinstance(result, str | Path) else None
    given: Any = result if place is None else load(place)
    if not isinstance(given, PlacesContexts) and not (isinstance(given, Run) and given.is_tied):
        how = (
            "Predict with ties: tg.predict(stats, loss_gap=0.5, ties='positions+suffixes+self'), or on the command "
            "line: tokengeom predict STATS --loss-gap 0.5 --ties positions+suffixes+self --out tied"
        )
        if isinstance(given, Run):
            how = (
                "Simulate its training: tg.simulate(stats, like=run), or on the command line: tokengeom simulate STATS "
                "--like RUN --out simulation. Only a run of the tied model has places for others"
            )
        raise InputError(
            "Contexts that the text does not have are placed by predictions with ties, simulations and runs of the "
            f"tied model; got a {type(given).__name__}. {how}"
        )
    known = _statistics(given, place, stats, "place")
    if known is None:
        raise _no_statistics(f"the {type(given).__name__}", "Name its statistics: ")
    placed: Placed = given.place(texts, stats=known)
    return placed


@takes(ExportSettings)
def export(
    result: HasFactors | CheckpointCurve | tuple[object, object] | str | Path,
    folder: str | Path,
    *,
    stats: Statistics = None,
    **settings: Unpack[ExportKeywords],
) -> Path:
    """Write the embeddings of a prediction, a run or a trained model with their names; returns the folder.

    Vectors are rows of W with their mean removed, and columns of H; `tokengeom.load_arrays` reads them back. The folder
    has a manifest with the hash of every file. It appears complete or not at all. An older export under that name is
    replaced, anything else refused.

    Parameters
    ----------
    result
        A prediction (in the limit, at a loss, or the proxy), a run, compared checkpoints (the last one is exported),
        anything with W (V x d) and H (d x m), or the folder of a saved result.
    folder
        Folder to write.
    stats
        As in `neighbours`.
    """
    chosen = make(ExportSettings, settings, "export")
    target = Path(folder)
    check_target(target, EXPORTED)
    place = Path(result) if isinstance(result, str | Path) else None
    given: Any = result if place is None else load(place)
    source = _answering(given, place)
    names = _statistics(given, place, stats, "export")
    # A run that was trained on labels has no statistics, and no names.
    if names is None and isinstance(given, AbstractResult) and getattr(given, "statistics_hash", "") is not None:
        raise InputError(
            f"This {type(given).__name__} has no names of tokens and contexts: pass the statistics that it is for, "
            "export(result, folder, stats=...), or on the command line --stats FOLDER."
        )
    kinds: tuple[Items, ...] = ("tokens", "contexts") if chosen.items == "both" else (chosen.items,)
    tables = [NamedVectors.of(source, items, names) for items in kinds]
    with atomic_folder(target, EXPORTED) as work:
        for table in tables:
            WRITERS[chosen.format](work, table, getattr(source, "bias", None))
        if chosen.format == "projector":
            (work / "projector_config.pbtxt").write_text(projector_config(kinds), encoding="utf-8")
        described = {"files_for": chosen.format, "items": list(kinds), "dimension": int(source.W.shape[1])}
        hashed = {"statistics_hash": None if names is None else names.hash}
        write_manifest(work, EXPORTED, EXPORT_VERSION, described | hashed)
    return target


def _asked(
    result: Asked, stats: Statistics, chosen: AskSettings, tokenizer: object, progress: AbstractProgress
) -> tuple[AnswersQuestions, NextTokenStatistics, tuple[str, ...]]:
    """What answers, the statistics that name its tokens and contexts, and a sentence where it was chosen here."""
    place = Path(result) if isinstance(result, str | Path) else None
    if place is not None and (place / MODEL_CONFIG).is_file() and not (place / MANIFEST).is_file():
        if stats is None:
            raise _no_statistics(f"the model in {place}", "Count a text with the model's tokenizer: ")
        counted = statistics_of(stats, ABOUT_NAMES)
        return read_model(load_checkpoint(place), counted, progress=progress), counted, ()
    place = None if place is None else _place(place, judged=chosen.loss_gap is None)
    given: Any = result if place is None else load(place)
    notes: tuple[str, ...] = ()
    if isinstance(given, Comparison):
        given = _judged_prediction(given, place, in_limit=chosen.loss_gap is not None)
        notes = (JUDGED,) if isinstance(given, LossPrediction) else ()
    known = _statistics(given, place, stats, ABOUT_NAMES)
    states = states_of(given, known, tokenizer, progress) if is_model(given) else None
    asked = states if states is not None else _answering(given, place)
    if known is None:
        what = f"the {type(given).__name__}" if place is None else f"{place}"
        raise _no_statistics(what, "Name its statistics: ")
    if not chosen.loss_gap:
        return asked, known, notes
    if not isinstance(asked, FeaturePrediction):
        raise ProblemError(
            f"A loss gap can be chosen for the prediction in the limit alone; got a {type(asked).__name__}. Leave out "
            "loss_gap (--loss-gap), or give the folder that `tokengeom predict --out` wrote."
        )
    return asked.at(chosen.loss_gap, norm=chosen.norm or "nuclear", tolerance=chosen.tolerance), known, notes


def _place(folder: Path, *, judged: bool = True) -> Path:
    """The folder of the result to ask: of a report its comparison, or the prediction in the limit."""
    if not folder.exists():
        raise InputError(f"{folder} does not exist. Check the path.")
    path = saved_folder(folder)
    if (path / MANIFEST).is_file() and read_kind(path) != REPORT:
        return folder
    inside = sorted(path.parent.name for path in folder.glob(f"*/{MANIFEST}")) if folder.is_dir() else []
    if "prediction" in inside and (folder / MANIFEST).is_file():
        # The verdict at the head of a page is about its last model, and that of unconstrained features comes first.
        models = [name for name in inside if name.startswith("comparison-")]
        last = max(models, key=lambda name: (name != "comparison-ufm", len(name), name), default=None)
        return folder / (last if judged and last is not None else "prediction")
    if inside:
        raise InputError(f"{folder} holds {', '.join(inside)}: name one of them, such as {folder / inside[0]}.")
    raise InputError(
        f"{folder} holds no saved result. Give the folder that `tokengeom predict --out` or `tokengeom train --out` "
        "wrote, or that of a Hugging Face causal language model."
    )


def _judged_prediction(comparison: Comparison, place: Path | None, *, in_limit: bool) -> Any:
    """The prediction that a verdict is about: at the loss that the model reached, or the limit where there is none."""
    at = comparison.at
    prediction: Any = None if comparison.compared is None else comparison.compared[0]
    if place is not None and comparison.made_from is not None:
        nearby = NearbyResults(place)
        found = (nearby.find(LossPrediction, seal=seal) for seal in comparison.made_from.at)
        at = tuple(one for one in found if one is not None)
        kinds = (FeaturePrediction, ProxyPrediction)
        known = (nearby.find(kind, seal=comparison.made_from.prediction) for kind in kinds)
        prediction = next((one for one in known if one is not None), None)
    judged = None if in_limit else next((one for one in at if one.norm == comparison.norm), None)
    if judged is None and prediction is None:
        raise InputError(
            "A comparison has no vectors of its own, and the prediction that it was made from is not beside it: give "
            "the folder of the prediction or of the run."
        )
    if judged is not None or in_limit or comparison.norm is None or comparison.loss_gap is None:
        return prediction if judged is None else judged
    return prediction.at(comparison.loss_gap, norm=comparison.norm)


def _answering(given: Any, place: Path | None) -> AnswersQuestions:
    """What was given, if it has vectors."""
    if isinstance(given, AnswersQuestions):
        return given
    if isinstance(given, NextTokenStatistics):
        named = "stats" if place is None else str(place)
        raise InputError(
            f"Statistics have no vectors of tokens and contexts; a prediction from them has: tg.predict(stats), or "
            f"tokengeom predict {named} --out prediction."
        )
    if isinstance(given, CheckpointCurve):
        last = given.points[-1]
        return PlainFactors(last, f"in {last.model}")
    if isinstance(given, tuple | list) or (hasattr(given, "W") and hasattr(given, "H")):
        name = getattr(given, "name", None)
        return PlainFactors(given, "as measured" if name is None else f"in {name}")
    at = "" if place is None else f" in {place}"
    raise InputError(
        f"A {type(given).__name__}{at} has no vectors of tokens and contexts. Ask a prediction, a run or a pair (W, H)."
    )


def statistics_beside(result: str | Path | None, stats: str | Path | None = None) -> NextTokenStatistics | None:
    """The statistics that name the tokens and contexts of a saved result: given, or beside it; None where unknown."""
    if stats is not None or result is None:
        return _statistics(None, None, stats, ABOUT_NAMES)
    place = _place(Path(result), judged=False)
    return _statistics(load(place), place, None, ABOUT_NAMES)


def _statistics(given: object, place: Path | None, stats: Statistics, verb: str) -> NextTokenStatistics | None:
    """The statistics that were named; or those that a result has, or that lie in the folder in which it was saved."""
    if stats is not None:
        return statistics_of(stats, verb)
    own: NextTokenStatistics | None = getattr(given, "stats", None)
    known = getattr(given, "statistics_hash", None)
    if own is not None or place is None or known is None:
        return own
    return NearbyResults(place).find(NextTokenStatistics, hash=known)


def _no_statistics(what: str, advice: str) -> InputError:
    return InputError(
        f"Names of tokens and contexts come from statistics, and none are known for {what}. {advice}stats=..., or on "
        "the command line --stats FOLDER."
    )
