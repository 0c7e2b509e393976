"""What the studies of networks share: training as a recipe says, and agreement with the prediction.

The recipe of a network holds ``layers``, ``heads`` (of the transformer), ``dim``, ``steps``, ``learning_rate``,
``weight_decay``, ``schedule`` ("papers": times 0.4 after each sixth of the run; or the name of any other), ``device``,
``seed``, and ``draws``: the number of permutations behind the floors.

A run is compared with the prediction at the loss that it has reached, in the norm that goes with its optimizer, and
with the prediction in the limit, L_mm. Agreement is the correlation of cosines over pairs of contexts with different
supports, or of different tokens; the papers' SIM is kept beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, isnan
from typing import Any

from tokengeom.comparison.agreement import TIE, Agreement, assess, with_reference
from tokengeom.comparison.compare import compare, support_groups
from tokengeom.comparison.comparison import Comparison
from tokengeom.comparison.probes import feature_probes
from tokengeom.comparison.similarity_numbers import SimilarityNumbers
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import Int
from tokengeom.core.progress import AbstractProgress
from tokengeom.figures.base import Figure, LinePanel
from tokengeom.models.networks.base import checked_device, import_torch
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.at_loss import NORMS
from tokengeom.theory.features import FeaturePrediction
from tokengeom.training.loop import Probe
from tokengeom.training.optimizers.base import paper_steps
from tokengeom.training.run import Run
from tokengeom.training.train import train
from tokengeom_studies.base import Check, Recipe, Table, table_of
from tokengeom_studies.common.feature_runs import over_training, train_like_the_papers

REPORTED = {1_000: 4.67e-2, 10_000: 3e-4}
"""``CE - H`` reported for the transformer of [zhao2024] after that many steps, on the authors' simplified stories."""

ITEMS = ("context", "token")
GAIN = 0.2
"""Smallest gain of agreement in training: one step gained up to 0.09, runs of the small sizes at least 0.55."""
_SETTINGS = ("dim", "layers", "steps", "learning_rate", "weight_decay", "seed", "device")


@dataclass(frozen=True, eq=False)
class Trained:
    """A model trained on statistics, and its comparison with their prediction."""

    run: Run
    comparison: Comparison

    def before(self, column: str) -> float:
        """A measurement before the first step."""
        return float(self.run.trajectory[column][0])

    def agreement(self, item: str) -> Agreement:
        """Agreement of "context" or "token" embeddings at the loss reached; in the limit where there is no other."""
        return self.comparison[f"{self.comparison.prefix}{item}_agreement"]

    def in_limit(self, item: str) -> Agreement:
        """Agreement of "context" or "token" embeddings with L_mm."""
        return self.comparison[f"limit_{item}_agreement"]

    def similarity(self, item: str) -> Agreement:
        """The papers' SIM of "context" or "token" embeddings with L_mm."""
        return self.comparison[f"limit_{item}_similarity"]

    @property
    def compared_with(self) -> str:
        """What `agreement` is with: the prediction at the loss reached and its norm, or the one in the limit."""
        norm = self.comparison.norm
        return "in the limit" if norm is None else f"at the loss reached ({NORMS[norm]})"


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
    return Trained(run, compare(prediction, run, permutations=recipe["draws"], seed=recipe["seed"]))


def compare_runs(prediction: FeaturePrediction, one: Run, other: Run, recipe: Recipe) -> dict[str, Agreement]:
    """How far the contexts, and the tokens, of two runs on the same statistics agree, with intervals and floors.

    The number before training is the larger of those between the start of either run and the end of the other.
    """
    a, b = Factors.of(one), Factors.of(other)
    pairs = [(start, end) for start, end in ((one.start, b), (other.start, a)) if start is not None]
    found: dict[str, Agreement] = {}
    for items, factor, groups in (("contexts", "H", support_groups(prediction)), ("tokens", "tokens", None)):
        numbers = _numbers(items, factor, a, b, groups)
        assessed = assess(numbers, permutations=recipe["draws"], seed=recipe["seed"]).agreements()
        starts = [_numbers(items, factor, start, end, groups).values() for start, end in pairs]
        highest = {name: max(values[name] for values in starts) for name in assessed} if starts else {}
        found |= with_reference(assessed, "untrained", highest)
    return found


def _numbers(items: str, factor: str, run: Factors, target: Factors, groups: Int | None) -> SimilarityNumbers:
    return SimilarityNumbers.of(items, getattr(run, factor), {"": getattr(target, factor)}, groups)


def floor_check(name: str, number: Agreement, *, by: float = 0.0) -> Check:
    """Check that a number is more than chance, by the rule of `Agreement.above_floor`, or above the floor by more."""
    worst, floor = number.value if isnan(number.low) else number.low, number.floor
    return Check(f"{name}, lower end of the interval above the floor", worst - floor - TIE * abs(floor), low=by)


def gain_checks(name: str, found: Trained, *, loss_gap: float, above: float = 0.0) -> list[Check]:
    """Checks that the loss came near the entropy, and that contexts and tokens agree more than by chance.

    The agreement is that at the loss reached. It must be above its floor by at least ``above``, and above the agreement
    before training by `GAIN`.
    """
    checks = [Check(f"{name}: loss gap", found.run.loss_gap, high=loss_gap)]
    for item in ITEMS:
        number = found.agreement(item)
        checks += [
            floor_check(f"{name}: agreement of {item}s", number, by=above),
            Check(f"{name}: agreement of {item}s gained in training", number.value - number.untrained, low=GAIN),
        ]
    return checks


def agreement_checks(
    name: str, found: Trained, *, contexts: float, tokens: float, loss_gap: float, above: float = 0.0
) -> list[Check]:
    """The same checks, and least values of the papers' SIM with L_mm."""
    return [
        *gain_checks(name, found, loss_gap=loss_gap, above=above),
        Check(f"{name}: SIM of contexts with L_mm", found.similarity("context").value, low=contexts),
        Check(f"{name}: SIM of tokens with L_mm", found.similarity("token").value, low=tokens),
    ]


def outcome(name: str, found: Trained) -> str:
    """Part of a sentence: loss gap, agreement of contexts and tokens at the loss and in the limit, SIM and collapse."""
    parts = " and ".join(_agreement(item, found) for item in ITEMS)
    similar = " and ".join(f"{found.similarity(item).value:.3f} for {item}s" for item in ITEMS)
    spread, first = found.comparison["collapse"].value, found.before("collapse")
    collapse = f"; collapse {spread:.2g} (before training {first:.2g})" if isfinite(spread) and isfinite(first) else ""
    return (
        f"{name} (loss gap {found.run.loss_gap:.1e}): agreement {found.compared_with} {parts}; SIM with L_mm "
        f"{similar}{collapse}"
    )


def _agreement(item: str, found: Trained) -> str:
    limit = "" if found.comparison.norm is None else f"; in the limit {found.in_limit(item).value:.2f}"
    return f"{with_interval(found.agreement(item))} for {item}s (floor {found.agreement(item).floor:.2f}{limit})"


def with_interval(number: Agreement) -> str:
    """The value with three digits, and its interval where it has one."""
    return f"{number.value:.3f}" + (f" [{number.low:.3f}, {number.high:.3f}]" if isfinite(number.low) else "")


def agreement_table(found: Mapping[str, Trained], key: str = "model") -> Table:
    """Every number of every run, with its interval and floors, and its value before training where it is known."""
    return table_of(
        [
            {key: name, "number": number, **agreement.to_dict(), "before": _before(trained, number)}
            for name, trained in found.items()
            for number, agreement in trained.comparison.agreements.items()
        ]
    )


def _before(trained: Trained, number: str) -> float:
    recorded = number in trained.run.trajectory.names
    return trained.before(number) if recorded else trained.comparison[number].untrained


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
        _similarity_panel("Contexts: SIM of cos(H, H) with L_mm", found, "context"),
        _similarity_panel("Tokens: SIM of cos(W, W) with L_mm", found, "token"),
        over_training("Collapse: spread in support groups", "within / between", runs, ["collapse"], y_scale="log"),
    ]
    caption = (
        f"{runs_are} SIM is the structural similarity of two cosine matrices, 1 where they agree. The floor is the "
        "largest of the 95th percentile when support groups (or tokens) are permuted, that of Gaussian embeddings, and "
        "the model before training, drawn for the run where it is highest. Collapse is the spread of the directions of "
        "contexts that share a support, relative to the spread over all contexts; 0 is full collapse."
    )
    return Figure("training", "Training compared with the prediction", caption, panels)


def _similarity_panel(title: str, found: Mapping[str, Trained], item: str) -> LinePanel:
    floors = [one.similarity(item).floor for one in found.values()]
    levels = [("equal geometry", 1.0), *([("highest floor", max(floors))] if all(map(isfinite, floors)) else [])]
    runs = {name: one.run for name, one in found.items()}
    return over_training(title, "SIM", runs, [f"{item}_similarity"], levels=levels)
