"""`Contents`: everything that a page shows, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tokengeom.errors import InputError
from tokengeom.geometry.comparison import Comparison
from tokengeom.geometry.rival_table import Rivals
from tokengeom.page.choice import Choice
from tokengeom.page.settings import MODEL_NAMES
from tokengeom.page.text import joined_names
from tokengeom.results import AbstractResult
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.concepts import Concepts
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.proxy import ProxyPrediction
from tokengeom.training.run import Run

R = TypeVar("R", bound=AbstractResult)


@dataclass(frozen=True, eq=False)
class Contents:
    """What a page is made from.

    ``title``
        Name of the text.
    ``runs``, ``comparisons``, ``rivals``
        Trained models, their agreement with the prediction and rival explanations of their geometry, each by the name
        that the page uses ("unconstrained features", "transformer").
    ``repeats``, ``at_loss``
        Other runs of the same trainings with other seeds, and predictions at the losses that the runs reached, by the
        same names.
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
    runs: Mapping[str, Run]
    comparisons: Mapping[str, Comparison]
    rivals: Mapping[str, Rivals] = field(default_factory=dict)
    repeats: Mapping[str, Sequence[Run]] = field(default_factory=dict)
    at_loss: Mapping[str, Sequence[LossPrediction]] = field(default_factory=dict)
    missing: Sequence[str] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)

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
    ) -> Contents:
        """Contents from the results of the stages, by their names (see `tokengeom.page.pipeline`)."""
        stats, prediction, choice = results["statistics"], results["prediction"], results.get("choice")
        if not isinstance(stats, NextTokenStatistics) or not isinstance(prediction, FeaturePrediction):
            raise InputError(
                "A report needs statistics and a prediction of learned features; got "
                f"{type(stats).__name__} and {type(prediction).__name__}. Make the report again."
            )
        return Contents(
            title=title,
            stats=stats,
            choice=choice if isinstance(choice, Choice) else Choice.given(stats),
            prediction=prediction,
            concepts=Concepts.of(prediction.L_mm),
            runs=_by_model(results, "run-", Run),
            comparisons=_by_model(results, "comparison-", Comparison),
            rivals=_by_model(results, "rivals-", Rivals),
            repeats=_several_by_model(results, "run-", Run),
            at_loss=_several_by_model(results, "at-loss-", LossPrediction),
            missing=tuple(missing),
            provenance=provenance or {},
        )

    @staticmethod
    def from_comparison(comparison: Comparison) -> Contents:
        """Contents of a page about one comparison, whose prediction and run must be in memory."""
        prediction, run = comparison.compared or (None, None)
        stats = getattr(prediction, "stats", None)
        if not isinstance(prediction, FeaturePrediction) or not isinstance(run, Run) or stats is None:
            raise InputError(
                "A page about a comparison needs its statistics, prediction and run in memory: "
                "compare(predict(stats), train(stats, ...)) with learned features, in the same session. For saved "
                "results use `tokengeom report STATS`."
            )
        name = MODEL_NAMES.get(run.settings["model"], run.settings["model"])
        return Contents(
            title=title_of(stats),
            stats=stats,
            choice=Choice.given(stats),
            prediction=prediction,
            concepts=Concepts.of(prediction.L_mm),
            runs={name: run},
            comparisons={name: comparison},
            at_loss={name: comparison.at},
            provenance={"settings": {"training": {name: run.settings}}, "seeds": {"seed": run.settings["seed"]}},
        )


def title_of(stats: NextTokenStatistics) -> str:
    """Names of the files that statistics were counted from, as far as they are known."""
    return joined_names(stats.corpus.get("sources", [])) or "given statistics"


def _by_model(results: Mapping[str, AbstractResult], prefix: str, kind: type[R]) -> dict[str, R]:
    """Results of one kind of stage by the name of their model; the stage is named ``{prefix}{model}``."""
    found = {name: results.get(f"{prefix}{model}") for model, name in MODEL_NAMES.items()}
    return {name: result for name, result in found.items() if isinstance(result, kind)}


def _several_by_model(results: Mapping[str, AbstractResult], prefix: str, kind: type[R]) -> dict[str, tuple[R, ...]]:
    """The same where a model has several such stages, named ``{prefix}{model}-...``."""
    found = {
        name: tuple(r for stage, r in results.items() if stage.startswith(f"{prefix}{model}-") and isinstance(r, kind))
        for model, name in MODEL_NAMES.items()
    }
    return {name: several for name, several in found.items() if several}
