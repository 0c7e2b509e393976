"""What the studies of networks share: training as a recipe says, and agreement with L_mm before and after.

The recipe of a network holds ``layers``, ``heads`` (of the transformer), ``dim``, ``steps``, ``learning_rate``,
``weight_decay``, ``schedule`` ("papers": times 0.4 after each sixth of the run; or the name of any other), ``device``,
``seed``, and ``draws``: the number of resamples behind each interval and of permutations behind each null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from tokengeom.factors import Factors
from tokengeom.figures.base import Figure, LinePanel
from tokengeom.geometry.agreement import Agreement, assess
from tokengeom.geometry.compare import compare
from tokengeom.geometry.comparison import Comparison
from tokengeom.geometry.probes import feature_probes
from tokengeom.geometry.similarity_numbers import SimilarityNumbers
from tokengeom.models.devices import checked_device
from tokengeom.models.networks.base import import_torch
from tokengeom.progress import AbstractProgress
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.studies.base import Check, Recipe, Table, table_of
from tokengeom.studies.common.feature_runs import over_training, train_like_the_papers
from tokengeom.theory.features import FeaturePrediction
from tokengeom.training.loop import Probe
from tokengeom.training.optimizers.base import paper_steps
from tokengeom.training.run import Run
from tokengeom.training.train import train

REPORTED = {1_000: 4.67e-2, 10_000: 3e-4}
"""``CE - H`` reported for the transformer of [zhao2024] after that many steps, on the authors' simplified stories."""

_SETTINGS = ("dim", "layers", "steps", "learning_rate", "weight_decay", "seed", "device")


@dataclass(frozen=True, eq=False)
class Trained:
    """A model trained on statistics, and its comparison with their prediction."""

    run: Run
    comparison: Comparison

    def before(self, number: str) -> float:
        """A measurement before the first step."""
        return float(self.run.trajectory[number][0])

    def gain(self, number: str) -> float:
        """By how much training raised a measurement."""
        return self.comparison[number].value - self.before(number)


def require_device(recipe: Recipe) -> None:
    """Refuse a recipe whose device does not exist, before any work is done."""
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
    """A network trained with AdamW on the summed loss; ``changes`` are settings of `train` that override the recipe."""
    settings: dict[str, Any] = {"optimizer": "adamw", "reduction": "sum"}
    settings |= {name: recipe[name] for name in _SETTINGS if name not in changes}
    if model == "transformer":
        settings["heads"] = changes.pop("heads", recipe["heads"])
    settings["rate_schedule"] = recipe["schedule"]
    if recipe["schedule"] == "papers":
        settings["rate_schedule"] = paper_steps({**recipe, **changes}["steps"])
    return train(stats, model, probes=probes, progress=progress, **{**settings, **changes})


def train_and_compare(
    stats: NextTokenStatistics,
    prediction: FeaturePrediction,
    recipe: Recipe,
    *,
    model: str = "transformer",
    probes: Mapping[str, Probe] | None = None,
    progress: AbstractProgress,
    **changes: Any,
) -> Trained:
    """A network trained by `train_network` with the probes of the prediction, and compared with it at the end."""
    measured = {**feature_probes(prediction), **(probes or {})}
    run = train_network(stats, recipe, model=model, probes=measured, progress=progress, **changes)
    return compare_run(prediction, run, recipe)


def train_ufm_and_compare(
    stats: NextTokenStatistics, prediction: FeaturePrediction, recipe: Recipe, progress: AbstractProgress
) -> Trained:
    """Unconstrained features trained with the recipe's ``ufm_steps`` and ``ufm_learning_rate``, and compared."""
    settings = {**recipe, "steps": recipe["ufm_steps"], "learning_rate": recipe["ufm_learning_rate"]}
    probes = feature_probes(prediction)
    run = train_like_the_papers(stats, settings, probes=probes, progress=progress, seed=recipe["seed"])
    return compare_run(prediction, run, recipe)


def compare_run(prediction: FeaturePrediction, run: Run, recipe: Recipe) -> Trained:
    """A run and its comparison with a prediction, with the recipe's draws."""
    draws = recipe["draws"]
    return Trained(run, compare(prediction, run, resamples=draws, permutations=draws, seed=recipe["seed"]))


def compare_runs(one: Run, other: Run, recipe: Recipe) -> dict[str, Agreement]:
    """How far the contexts, and the tokens, of two runs agree, with intervals and nulls."""
    draws = recipe["draws"]
    found: dict[str, Agreement] = {}
    a, b = Factors(one.W, one.H), Factors(other.W, other.H)
    for items, run, target in (("contexts", a.H, b.H), ("tokens", a.tokens, b.tokens)):
        numbers = SimilarityNumbers(items, run, {"": target})
        found |= assess(numbers, resamples=draws, permutations=draws, seed=recipe["seed"])
    return found


def gain_checks(name: str, found: Trained, *, loss_gap: float) -> list[Check]:
    """Checks that the loss came near its floor, and that both geometries beat chance and the untrained model."""
    checks = [Check(f"{name}: loss gap", found.run.loss_gap, high=loss_gap)]
    for items in ("context", "token"):
        number = found.comparison[f"{items}_similarity"]
        checks += [
            Check(
                f"{name}: SIM of {items}s, lower end of the interval above chance", number.low - number.null, low=0.0
            ),
            Check(f"{name}: SIM of {items}s gained in training", found.gain(f"{items}_similarity"), low=0.05),
        ]
    return checks


def agreement_checks(name: str, found: Trained, *, contexts: float, tokens: float, loss_gap: float) -> list[Check]:
    """The same checks, and least values of both similarities with L_mm."""
    return [
        *gain_checks(name, found, loss_gap=loss_gap),
        Check(f"{name}: SIM of contexts", found.comparison.context_similarity.value, low=contexts),
        Check(f"{name}: SIM of tokens", found.comparison.token_similarity.value, low=tokens),
    ]


def outcome(name: str, found: Trained) -> str:
    """Part of a sentence: loss gap, agreement of contexts and tokens, and collapse, after and before training."""
    parts = ", ".join(_similarity(items, found) for items in ("context", "token"))
    spread, first = found.comparison["collapse"].value, found.before("collapse")
    collapse = f", collapse {spread:.2g} (before training {first:.2g})" if isfinite(spread) and isfinite(first) else ""
    return f"{name} (loss gap {found.run.loss_gap:.1e}): SIM with L_mm {parts}{collapse}"


def _similarity(items: str, found: Trained) -> str:
    number = found.comparison[f"{items}_similarity"]
    return (
        f"{number.value:.3f} [{number.low:.3f}, {number.high:.3f}] for {items}s (chance {number.null:.2f}, before "
        f"training {found.before(f'{items}_similarity'):.2f})"
    )


def agreement_table(found: Mapping[str, Trained], key: str = "model") -> Table:
    """Every number of every run, with interval, null, and its value before training where it was measured."""
    return table_of(
        [
            {key: name, "number": number, **agreement.to_dict(), "before": _before(trained, number)}
            for name, trained in found.items()
            for number, agreement in trained.comparison.agreements.items()
        ]
    )


def _before(trained: Trained, number: str) -> float:
    return trained.before(number) if number in trained.run.trajectory.names else float("nan")


def reported_loss_checks(run: Run) -> list[Check]:
    """Checks of the loss at the steps in `REPORTED`; none at steps that a short run does not reach.

    The authors' stories are not the built-in ones, so ten times their number is allowed.
    """
    steps, gaps = run.trajectory.steps, run.trajectory["loss_gap"]
    return [
        Check(f"loss gap at step {step:,} (reported {gap:.0e})", float(gaps[steps == step][0]), high=10 * gap)
        for step, gap in REPORTED.items()
        if (steps == step).any()
    ]


def training_curves(found: Mapping[str, Trained], runs_are: str) -> Figure:
    """Loss, similarity of contexts and of tokens with L_mm, and collapse over the steps of several runs.

    ``runs_are`` is the sentence of the caption that says what the runs are.
    """
    runs = {name: one.run for name, one in found.items()}
    panels = [
        over_training("Loss gap", "CE - H (nats)", runs, ["loss_gap"], y_scale="log"),
        _similarity_panel("Contexts: SIM of cos(H, H) with L_mm", found, "context_similarity"),
        _similarity_panel("Tokens: SIM of cos(W, W) with L_mm", found, "token_similarity"),
        over_training("Collapse: spread in support groups", "within / between", runs, ["collapse"], y_scale="log"),
    ]
    caption = (
        f"{runs_are} SIM is the structural similarity of two cosine matrices, 1 where they agree. Chance is the 95th "
        "percentile under permutation, drawn for the run where it is highest. Collapse is the spread of the directions "
        "of contexts that share a support, relative to the spread over all contexts; 0 is full collapse."
    )
    return Figure("training", "Training compared with the prediction", caption, panels)


def _similarity_panel(title: str, found: Mapping[str, Trained], number: str) -> LinePanel:
    nulls = [one.comparison[number].null for one in found.values()]
    levels = [("equal geometry", 1.0), *([("highest chance", max(nulls))] if all(map(isfinite, nulls)) else [])]
    return over_training(title, "SIM", {name: one.run for name, one in found.items()}, [number], levels=levels)
