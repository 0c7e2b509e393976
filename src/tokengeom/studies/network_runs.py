"""What the studies of networks share: training as a recipe says, and agreement with L_mm before and after.

A recipe of a network holds ``layers``, ``heads`` (of the transformer), ``dim``, ``steps``, ``learning_rate``,
``weight_decay``, ``schedule`` ("papers": times 0.4 after each sixth of the run; or any other), ``device``, ``seed``,
and ``draws`` behind intervals and null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from tokengeom.factors import Factors
from tokengeom.figures.base import Figure, LinePanel
from tokengeom.geometry.agreement import Agreement, assess
from tokengeom.geometry.compare import Comparison, compare
from tokengeom.geometry.probes import feature_probes
from tokengeom.geometry.similarity_numbers import SimilarityNumbers
from tokengeom.models.devices import checked_device
from tokengeom.models.networks.base import import_torch
from tokengeom.progress import AbstractProgress
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.studies.base import Check, Recipe
from tokengeom.studies.feature_runs import over_training, papers_schedule, train_like_the_papers
from tokengeom.theory.features import FeaturePrediction
from tokengeom.training.loop import Probe
from tokengeom.training.run import Run
from tokengeom.training.train import train

PUBLISHED = {1_000: 4.67e-2, 10_000: 3e-4}
"""``CE - H`` of the papers' transformer after so many steps, on simplified stories of their own [zhao2024]."""

_SETTINGS = ("dim", "layers", "steps", "learning_rate", "weight_decay", "seed", "device")


@dataclass(frozen=True, eq=False)
class Trained:
    """A model trained on statistics, and held against their prediction."""

    run: Run
    comparison: Comparison

    def before(self, number: str) -> float:
        """A measurement before the first step."""
        return float(self.run.trajectory[number][0])

    def gain(self, number: str) -> float:
        """How far training raised a measurement."""
        return self.comparison[number].value - self.before(number)


def require_device(recipe: Recipe) -> None:
    """Refuse a recipe whose device is not there, before any work is done."""
    checked_device(import_torch(), recipe["device"])


def train_network(
    stats: NextTokenStatistics,
    recipe: Recipe,
    *,
    model: str = "transformer",
    probes: Mapping[str, Probe] | None,
    progress: AbstractProgress,
    **changes: Any,
) -> Run:
    """Train a network as the recipe says; ``changes`` are other settings of `train`, in place of the recipe's."""
    settings = {name: recipe[name] for name in _SETTINGS if name not in changes}
    if model == "transformer":
        settings["heads"] = changes.pop("heads", recipe["heads"])
    settings["rate_schedule"] = recipe["schedule"]
    if recipe["schedule"] == "papers":
        settings["rate_schedule"] = papers_schedule({**recipe, **changes}["steps"])
    return train(stats, model, probes=probes, progress=progress, **{**settings, **changes})


def trained_network(
    stats: NextTokenStatistics,
    prediction: FeaturePrediction,
    recipe: Recipe,
    *,
    model: str = "transformer",
    probes: Mapping[str, Probe] | None = None,
    progress: AbstractProgress,
    **changes: Any,
) -> Trained:
    """Train with the probes of the prediction (and others), and compare the end with it."""
    measured = {**feature_probes(prediction), **(probes or {})}
    run = train_network(stats, recipe, model=model, probes=measured, progress=progress, **changes)
    return held_against(prediction, run, recipe)


def trained_ufm(
    stats: NextTokenStatistics, prediction: FeaturePrediction, recipe: Recipe, progress: AbstractProgress
) -> Trained:
    """Train free embeddings beside a network, with the recipe's ``ufm_steps`` and ``ufm_learning_rate``."""
    settings = {**recipe, "steps": recipe["ufm_steps"], "learning_rate": recipe["ufm_learning_rate"]}
    probes = feature_probes(prediction)
    run = train_like_the_papers(stats, settings, probes=probes, progress=progress, seed=recipe["seed"])
    return held_against(prediction, run, recipe)


def held_against(prediction: FeaturePrediction, run: Run, recipe: Recipe) -> Trained:
    """Compare a run with a prediction, with the recipe's draws."""
    draws = recipe["draws"]
    return Trained(run, compare(prediction, run, resamples=draws, permutations=draws, seed=recipe["seed"]))


def runs_agree(one: Run, other: Run, recipe: Recipe) -> dict[str, Agreement]:
    """Numbers that say how alike the contexts, and the tokens, of two runs are, with intervals and null."""
    draws = recipe["draws"]
    found: dict[str, Agreement] = {}
    mine, theirs = Factors(one.W, one.H), Factors(other.W, other.H)
    for items, run, target in (("contexts", mine.H, theirs.H), ("tokens", mine.tokens, theirs.tokens)):
        numbers = SimilarityNumbers(items, run, {"": target})
        found |= assess(numbers, resamples=draws, permutations=draws, seed=recipe["seed"])
    return found


def gain_checks(name: str, found: Trained, *, loss_gap: float) -> list[Check]:
    """The loss came near its floor, and both geometries beat chance and the untrained network."""
    checks = [Check(f"{name}: CE - H", found.run.loss_gap, high=loss_gap)]
    for items in ("context", "word"):
        number = found.comparison[f"{items}_similarity"]
        checks += [
            Check(f"{name}: SIM of {items}s, low end above chance", number.low - number.null, low=0.0),
            Check(f"{name}: SIM of {items}s gained in training", found.gain(f"{items}_similarity"), low=0.05),
        ]
    return checks


def agreement_checks(name: str, found: Trained, *, contexts: float, tokens: float, loss_gap: float) -> list[Check]:
    """The same, and both similarities with L_mm are at least so large."""
    return [
        *gain_checks(name, found, loss_gap=loss_gap),
        Check(f"{name}: SIM of contexts", found.comparison.context_similarity.value, low=contexts),
        Check(f"{name}: SIM of tokens", found.comparison.token_similarity.value, low=tokens),
    ]


def ending(name: str, found: Trained) -> str:
    """How a run ended, in words: loss, agreement of contexts and tokens with what it was before, collapse."""
    contexts, tokens = found.comparison.context_similarity, found.comparison.token_similarity
    spread, first = found.comparison["collapse"].value, found.before("collapse")
    collapse = f", collapse {spread:.2g}, before {first:.2g}" if isfinite(spread) and isfinite(first) else ""
    return (
        f"{name} (CE - H = {found.run.loss_gap:.1e}): SIM with L_mm {_in_words(contexts)} for contexts, before "
        f"training {found.before('context_similarity'):.2f}, {_in_words(tokens)} for tokens, before "
        f"{found.before('token_similarity'):.2f}{collapse}"
    )


def _in_words(number: Agreement) -> str:
    return f"{number.value:.3f} [{number.low:.3f}, {number.high:.3f}] (chance {number.null:.2f})"


def agreement_table(found: Mapping[str, Trained], key: str = "model") -> dict[str, Sequence[Any]]:
    """Every number of every run, with interval, null, and its value before training where it was measured."""
    rows = [
        {key: name, "number": number, **agreement.to_dict(), "before": _before(trained, number)}
        for name, trained in found.items()
        for number, agreement in trained.comparison.agreements.items()
    ]
    return {column: [row[column] for row in rows] for column in rows[0]}


def _before(trained: Trained, number: str) -> float:
    return trained.before(number) if number in trained.run.trajectory.names else float("nan")


def against_published(run: Run) -> list[Check]:
    """Loss at the steps of which the papers report one; none where the run is shorter.

    Their stories are not ours, so that ten times their number is allowed.
    """
    steps, gaps = run.trajectory.steps, run.trajectory["loss_gap"]
    return [
        Check(f"CE - H at step {step:,} (published {gap:.0e})", float(gaps[steps == step][0]), high=10 * gap)
        for step, gap in PUBLISHED.items()
        if (steps == step).any()
    ]


def training_curves(found: Mapping[str, Trained], what: str) -> Figure:
    """Loss, similarity of contexts and of tokens with L_mm, and collapse over the steps of several runs.

    ``what`` says in the caption what the runs are.
    """
    runs = {name: one.run for name, one in found.items()}
    panels = [
        over_training("Loss above the entropy", "CE - H, nats", runs, ["loss_gap"], y_scale="log"),
        _similarity_panel("Contexts: SIM of cos(H, H) with L_mm", found, "context_similarity"),
        _similarity_panel("Tokens: SIM of cos(W, W) with L_mm", found, "token_similarity"),
        over_training("Collapse: spread in support groups", "within / between", runs, ["collapse"], y_scale="log"),
    ]
    caption = (
        f"{what} SIM is the structural similarity of two cosine matrices, 1 where they agree; chance is what one "
        "permutation in twenty reaches, drawn for the run where it is highest. Collapse is the spread of the "
        "directions of contexts that share a support, against the spread over all; 0 is full collapse."
    )
    return Figure("training", "Training, against the prediction", caption, panels)


def _similarity_panel(title: str, found: Mapping[str, Trained], number: str) -> LinePanel:
    nulls = [one.comparison[number].null for one in found.values()]
    levels = [("equal geometry", 1.0), *([("highest chance", max(nulls))] if all(map(isfinite, nulls)) else [])]
    return over_training(title, "SIM", {name: one.run for name, one in found.items()}, [number], levels=levels)
