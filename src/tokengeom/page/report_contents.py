"""`ReportContents`: everything that a page shows, as data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from tokengeom.comparison.checkpoints import CheckpointCurve
from tokengeom.comparison.comparison import Comparison
from tokengeom.comparison.model_states import ModelStates
from tokengeom.comparison.rival_table import Rivals
from tokengeom.core.errors import InputError
from tokengeom.page import tied_stages
from tokengeom.page.chosen_settings import Choice
from tokengeom.page.compare_models import ModelText, TextStates
from tokengeom.page.formatting import listed
from tokengeom.page.read_model import ReadModel
from tokengeom.page.settings import MODEL_NAMES
from tokengeom.page.source_text import joined_names
from tokengeom.page.tied_stages import TiedContexts
from tokengeom.page.unseen import COUNTED, CUT, UNSEEN, UnseenContexts
from tokengeom.results.contract import AbstractResult
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.at_loss import NORMS, LossPrediction
from tokengeom.theory.concepts import Concepts
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.predicted_path import PathPrediction, PredictedPath
from tokengeom.theory.proxy import ProxyPrediction
from tokengeom.theory.tied import TiedPrediction
from tokengeom.training.run import Run
from tokengeom.training.simulation import Simulation

R = TypeVar("R", bound=AbstractResult)


TOO_LARGE = (
    "the statistics are too large; take fewer contexts, or run tokengeom predict --loss-gap, which takes minutes"
)


@dataclass(frozen=True, eq=False)
class ReportContents:
    """What a page is made from.

    ``title``
        Name of the text.
    ``runs``, ``comparisons``, ``rivals``
        What was trained here, or the trained model that was read, agreement with the prediction and rival explanations
        of the geometry, each by the name that the page uses ("unconstrained features", "transformer", the name of a
        checkpoint).
    ``repeats``, ``at_loss``
        Other runs of the same trainings with other seeds, and predictions at the losses that the runs reached, by the
        same names.
    ``path``
        Predictions along the loss, from the largest loss gap to the smallest.
    ``models``
        Trained models that were read, in the order of training; empty where models were trained. The last one is in
        ``runs``, and all are in ``comparisons``.
    ``unseen``
        Features trained to place contexts that the text does not have, and their test; None where none were.
    ``ties``
        The network that was trained, or on more contexts the last model that was read, compared with a prediction with
        ties; None where there is none.
    ``missing``
        Sentences: what was left out, why, and what to do about it.
    ``provenance``
        ``versions``, ``machine``, ``seeds``, ``settings``, ``hashes`` and ``seconds`` per stage, as plain data.
    """

    title: str
    stats: NextTokenStatistics
    choice: Choice
    prediction: FeaturePrediction | ProxyPrediction
    concepts: Concepts
    runs: Mapping[str, Run | ReadModel]
    comparisons: Mapping[str, Comparison]
    rivals: Mapping[str, Rivals] = field(default_factory=dict)
    repeats: Mapping[str, Sequence[Run]] = field(default_factory=dict)
    at_loss: Mapping[str, Sequence[LossPrediction]] = field(default_factory=dict)
    path: Sequence[PathPrediction] = ()
    models: Mapping[str, ReadModel] = field(default_factory=dict)
    unseen: UnseenContexts | None = None
    ties: TiedContexts | None = None
    missing: Sequence[str] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def trained(self) -> dict[str, Run]:
        """The models that were trained here."""
        return {name: run for name, run in self.runs.items() if isinstance(run, Run)}

    @property
    def curve(self) -> CheckpointCurve | None:
        """The comparisons of several checkpoints; None where fewer than two were compared."""
        compared = {name: model for name, model in self.models.items() if name in self.comparisons}
        if len(compared) < 2:
            return None
        text = ModelText(self.stats, self.stats, self.prediction)
        points = [
            text.checkpoint(TextStates(model.states, model.states), self.comparisons[name])
            for name, model in compared.items()
        ]
        return CheckpointCurve(tuple(points))

    @property
    def noun(self) -> str:
        """What sentences call that which was compared: nothing was run where a trained model was read."""
        return "model" if self.models else "run"

    def reasons(self, name: str) -> Sequence[str]:
        """The verdict on a model as sentences, the first of which says it all."""
        return self.comparisons[name].reasons_about(self.noun)

    @property
    def compared_models(self) -> list[str]:
        """Models with a comparison, the last one trained first: a network before the unconstrained features."""
        return [name for name in reversed(list(self.runs)) if name in self.comparisons]

    @property
    def main_comparison(self) -> str | None:
        """The model whose verdict stands at the head of the page."""
        return next(iter(self.compared_models), None)

    @staticmethod
    def from_stages(
        results: Mapping[str, AbstractResult],
        title: str,
        missing: Sequence[str] = (),
        provenance: Mapping[str, Any] | None = None,
    ) -> ReportContents:
        """Contents from the results of the stages, by their names (see `tokengeom.page.stages`)."""
        stats, prediction, choice = results["statistics"], results["prediction"], results.get("choice")
        if not isinstance(stats, NextTokenStatistics) or not isinstance(
            prediction, FeaturePrediction | ProxyPrediction
        ):
            raise InputError(
                "A report needs statistics and a prediction of learned features; got "
                f"{type(stats).__name__} and {type(prediction).__name__}. Make the report again."
            )
        if prediction.stats is None:
            prediction = replace(prediction, stats=stats)
        names, path = _names(results), results.get("path")
        runs: dict[str, Run | ReadModel] = dict(_by_model(results, "run-", Run, names))
        models = {model.name: model for model in _read(results).values()}
        models = {name: models[name] for name in names.values() if name in models}
        runs |= dict(list(models.items())[-1:])
        known = Choice.for_model if models else Choice.given
        return ReportContents(
            title=title,
            stats=stats,
            choice=choice if isinstance(choice, Choice) else known(stats),
            prediction=prediction,
            concepts=concepts_of(prediction),
            runs=runs,
            comparisons=_by_model(results, "comparison-", Comparison, names),
            rivals=_by_model(results, "rivals-", Rivals, names),
            repeats=_several_by_model(results, "run-", Run, names),
            at_loss=_several_by_model(results, "at-loss-", LossPrediction, names),
            path=path.points if isinstance(path, PredictedPath) else (),
            models=models,
            unseen=_unseen(results),
            ties=_ties(results),
            missing=tuple(missing),
            provenance=provenance or {},
        )

    @staticmethod
    def from_comparison(comparison: Comparison) -> ReportContents:
        """Contents of a page about one comparison, whose prediction and run, or model, must be in memory."""
        prediction, run = comparison.compared or (None, None)
        stats = getattr(prediction, "stats", None)
        kinds = FeaturePrediction | ProxyPrediction if isinstance(run, ModelStates) else FeaturePrediction
        if stats is None or not isinstance(prediction, kinds) or not isinstance(run, Run | ModelStates):
            raise InputError(
                "A page about a comparison needs its statistics, prediction and run in memory: "
                "compare(predict(stats), train(stats, ...)) with learned features, or compare(predict(stats), model), "
                "in the same session. For saved results use `tokengeom report STATS`."
            )
        about = partial(ReportContents, stats=stats, prediction=prediction, concepts=concepts_of(prediction))
        if isinstance(run, Run):
            name = MODEL_NAMES.get(run.settings["model"], run.settings["model"])
            made = {"settings": {"training": {name: run.settings}}, "seeds": {"seed": run.settings["seed"]}}
            about = partial(about, title_of(stats), choice=Choice.given(stats), runs={name: run}, provenance=made)
        else:
            name, models = run.name, {run.name: ReadModel.of(run, stats.entropy)}
            title = f"{name} on {title_of(stats)}"
            about = partial(about, title, choice=Choice.for_model(stats), runs=models, models=models)
        return about(comparisons={name: comparison}, at_loss={name: comparison.at})


def missing_sentences(contents: ReportContents, trainings: int) -> tuple[str, ...]:
    """A sentence for every run that could not be compared, was trained once, or has no prediction at its loss.

    ``trainings``  Number of trainings of every model that were asked for.
    """
    sentences, without = list[str](), dict[str, list[str]]()
    for name, model in {**contents.runs, **contents.models}.items():
        if isinstance(model, Run):
            compared = [run for run in (model, *contents.repeats.get(name, ())) if not run.diverged]
            if model.diverged:
                sentences.append(f"The model '{name}' could not be compared: its run {model.status}.")
                continue
            if len(compared) == 1:
                why = "its second run diverged" if trainings > 1 else "it was trained once (--seeds 2)"
                sentences.append(f"How much of the geometry of the model '{name}' is reproducible is not known: {why}.")
        made = {at.norm for at in contents.at_loss.get(name, ())}
        if left_out := [NORMS[norm] for norm in NORMS if made and norm not in made]:
            sentences.append(f"No prediction in the {left_out[0]} was made at the loss of '{name}': {TOO_LARGE}.")
        if name not in contents.at_loss:
            without.setdefault(_why_no_loss(contents, model.loss_gap), []).append(f"'{name}'")
    for why, names in without.items():
        which = f"model {names[0]}" if len(names) == 1 else f"models {listed(names)}"
        sentences.append(f"No prediction was made at the loss of the {which}: {why}.")
    return tuple(sentences)


def _why_no_loss(contents: ReportContents, loss_gap: float) -> str:
    prediction, stats = contents.prediction, contents.stats
    if isinstance(prediction, FeaturePrediction) and prediction.rank == 0:
        return "no direction is predicted"
    if not loss_gap < math.log(stats.V) - stats.entropy:
        return "it is not below that of a uniform guess"
    return f"{TOO_LARGE}, or the solver did not reach it"


def title_of(stats: NextTokenStatistics) -> str:
    """Names of the files that statistics were counted from, as far as they are known."""
    return joined_names(stats.corpus.get("sources", [])) or "given statistics"


def concepts_of(prediction: FeaturePrediction | ProxyPrediction) -> Concepts:
    """Concepts from the singular triplets of a prediction: its V x m matrix may be too large to decompose again."""
    if isinstance(prediction, ProxyPrediction):
        return Concepts.from_svd(prediction.U, prediction.singular_values, prediction.Vt)
    strengths = prediction.singular_values
    root = np.sqrt(strengths)
    return Concepts.from_svd(prediction.W / root, strengths, prediction.H / root[:, None])


def _unseen(results: Mapping[str, AbstractResult]) -> UnseenContexts | None:
    """The training with ties, with its statistics, which a loaded one does not have."""
    cut, counted, tied = (results.get(name) for name in (CUT, COUNTED, UNSEEN))
    if not isinstance(tied, Simulation):
        return None
    if not isinstance(cut, NextTokenStatistics) or not isinstance(counted, NextTokenStatistics):
        raise InputError("A training with ties needs its statistics beside it. Make the report again.")
    return UnseenContexts(cut, replace(tied, stats=counted))


def _ties(results: Mapping[str, AbstractResult]) -> TiedContexts | None:
    """What the stages with ties made; None where they compared nothing."""
    counted, tied = results.get(tied_stages.COUNTED, results["statistics"]), results.get(tied_stages.TIED)
    comparison, simulated = (
        found if isinstance(found := results.get(name), Comparison) else None
        for name in (tied_stages.COMPARISON, tied_stages.SIMULATED_COMPARISON)
    )
    if comparison is None and simulated is None:
        return None
    assert isinstance(counted, NextTokenStatistics), "both stages make these"
    return TiedContexts(counted, tied if isinstance(tied, TiedPrediction) else None, comparison, simulated)


def _read(results: Mapping[str, AbstractResult]) -> dict[str, ReadModel]:
    """Models on the contexts of the page, by their stages."""
    read = {stage: model for stage, model in results.items() if isinstance(model, ReadModel)}
    return {stage: model for stage, model in read.items() if stage != tied_stages.MODEL}


def _names(results: Mapping[str, AbstractResult]) -> dict[str, str]:
    """Names on the page by the name that the stages of a model have; models that were read in their order."""
    read = {stage: model.name for stage, model in _read(results).items()}
    return {**MODEL_NAMES, **dict(sorted(read.items(), key=lambda item: int(item[0].rpartition("-")[2])))}


def _by_model(
    results: Mapping[str, AbstractResult], prefix: str, kind: type[R], names: Mapping[str, str]
) -> dict[str, R]:
    """Results of one kind of stage by the name of their model; the stage is named ``{prefix}{model}``."""
    by_name = {name: results.get(f"{prefix}{model}") for model, name in names.items()}
    return {name: result for name, result in by_name.items() if isinstance(result, kind)}


def _several_by_model(
    results: Mapping[str, AbstractResult], prefix: str, kind: type[R], names: Mapping[str, str]
) -> dict[str, tuple[R, ...]]:
    """The same where a model has several such stages, named ``{prefix}{model}-...``."""
    by_name = {
        name: tuple(r for stage, r in results.items() if stage.startswith(f"{prefix}{model}-") and isinstance(r, kind))
        for model, name in names.items()
    }
    return {name: several for name, several in by_name.items() if several}
