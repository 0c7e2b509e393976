"""What the studies of networks share: training as a recipe says, and agreement with the prediction.

The recipe of a network holds ``layers``, ``heads`` (of the transformer), ``dim``, ``steps``, ``learning_rate``,
``weight_decay``, ``schedule`` ("papers": times 0.4 after each sixth of the run; or the name of any other), ``device``,
``seed``, and ``draws``: the number of permutations behind the floors.

A run is compared with the prediction at the loss that it has reached, in the norm that goes with its optimizer, and
with the prediction in the limit, L_mm. Agreement is the correlation of cosines over pairs of contexts with different
supports, or of different tokens; the papers' SIM is kept beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import isfinite, isnan
from typing import Any

import numpy as np

from tokengeom import Agreement, Comparison, Factors, FeaturePrediction, NextTokenStatistics, Run, compare, count, train
from tokengeom.extending import (
    AbstractProgress,
    Curve,
    Float,
    LinePanel,
    Probe,
    Scale,
    State,
    centre_columns,
    checked_device,
    cosine,
    directional_agreement,
    feature_probes,
    import_torch,
    paper_steps,
    stories,
)
from tokengeom_studies.base import Check, Recipe, Table, table_of

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
        number: Agreement = getattr(self.comparison, f"{item}_agreement")
        return number

    def in_limit(self, item: str) -> Agreement:
        """Agreement of "context" or "token" embeddings with L_mm."""
        return self.comparison.in_limit[f"{item}_agreement"]

    def similarity(self, item: str) -> Agreement:
        """The papers' SIM of "context" or "token" embeddings with L_mm."""
        number: Agreement = getattr(self.comparison, f"{item}_similarity")
        return number

    @property
    def compared_with(self) -> str:
        """What `agreement` is with: the prediction at the loss reached and its norm, or the one in the limit."""
        norm = self.comparison.norm
        return "in the limit" if norm is None else f"at the loss reached ({norm.replace('gamma2', 'gamma_2')} norm)"


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


def between_runs(prediction: FeaturePrediction, first: Run, second: Run) -> dict[str, float]:
    """Agreement of the contexts, and of the tokens, of two runs on the same statistics."""
    a, b = Factors.of(first), Factors.of(second)
    groups = np.asarray(prediction.context_groups)
    # A context without a predicted direction (-1) is its own group.
    groups = np.where(groups < 0, groups.max(initial=0) + 1 + np.arange(groups.size), groups)
    return {
        "context": directional_agreement(a.context_directions, b.context_directions, groups),
        "token": directional_agreement(a.token_directions, b.token_directions),
    }


def floor_check(name: str, number: Agreement, *, by: float = 0.0) -> Check:
    """Check that a number is more than chance, by the rule of `Agreement.above_floor`, or above the floor by more."""
    worst, floor = number.value if isnan(number.low) else number.low, number.floor
    return Check(f"{name}, lower end of the interval above the floor", worst - floor, low=max(by, 1e-6 * abs(floor)))


def gain_checks(name: str, trained: Trained, *, loss_gap: float, above: float = 0.0) -> list[Check]:
    """Checks that the loss came near the entropy, and that contexts and tokens agree more than by chance.

    The agreement is that at the loss reached. It must be above its floor by at least ``above``, and above the agreement
    before training by `GAIN`.
    """
    checks = [Check(f"{name}: loss gap", trained.run.loss_gap, high=loss_gap)]
    for item in ITEMS:
        number = trained.agreement(item)
        checks += [
            floor_check(f"{name}: agreement of {item}s", number, by=above),
            Check(f"{name}: agreement of {item}s gained in training", number.value - number.untrained, low=GAIN),
        ]
    return checks


def agreement_checks(
    name: str, trained: Trained, *, contexts: float, tokens: float, loss_gap: float, above: float = 0.0
) -> list[Check]:
    """The same checks, and least values of the papers' SIM with L_mm."""
    return [
        *gain_checks(name, trained, loss_gap=loss_gap, above=above),
        Check(f"{name}: SIM of contexts with L_mm", trained.similarity("context").value, low=contexts),
        Check(f"{name}: SIM of tokens with L_mm", trained.similarity("token").value, low=tokens),
    ]


def outcome(name: str, trained: Trained) -> str:
    """Part of a sentence: loss gap, agreement of contexts and tokens at the loss and in the limit, SIM and collapse."""
    parts = " and ".join(_agreement(item, trained) for item in ITEMS)
    similar = " and ".join(f"{trained.similarity(item).value:.3f} for {item}s" for item in ITEMS)
    spread, first = trained.comparison["collapse"].value, trained.before("collapse")
    collapse = f"; collapse {spread:.2g} (before training {first:.2g})" if isfinite(spread) and isfinite(first) else ""
    return (
        f"{name} (loss gap {trained.run.loss_gap:.1e}): agreement {trained.compared_with} {parts}; SIM with L_mm "
        f"{similar}{collapse}"
    )


def _agreement(item: str, trained: Trained) -> str:
    limit = "" if trained.comparison.norm is None else f"; in the limit {trained.in_limit(item).value:.2f}"
    return f"{with_interval(trained.agreement(item))} for {item}s (floor {trained.agreement(item).floor:.2f}{limit})"


def with_interval(number: Agreement) -> str:
    """The value with three digits, and its interval where it has one."""
    return f"{number.value:.3f}" + (f" [{number.low:.3f}, {number.high:.3f}]" if isfinite(number.low) else "")


def agreement_table(models: Mapping[str, Trained], key: str = "model") -> Table:
    """Every number of every run, with its interval and floors, and its value before training where it is known."""
    return table_of(
        [
            {key: name, "number": number, **agreement.to_dict(), "before": _before(trained, number)}
            for name, trained in models.items()
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


def count_stories(recipe: Recipe, progress: AbstractProgress) -> NextTokenStatistics:
    """Statistics of the built-in stories, limited to the recipe's numbers of contexts and tokens."""
    counted = count_all_stories(recipe, progress)
    return counted.limited(top_contexts=recipe["contexts"], vocabulary=recipe["vocabulary"])


def count_all_stories(recipe: Recipe, progress: AbstractProgress) -> NextTokenStatistics:
    """Statistics of the recipe's number of built-in stories, with every context and token."""
    texts = islice(stories(recipe["seed"]), recipe["stories"])
    return count(texts, context=recipe["context"], progress=progress)


def with_probabilities_of(stats: NextTokenStatistics, prediction: FeaturePrediction) -> FeaturePrediction:
    """The prediction for statistics that have the same supports as those it was made for, without solving again.

    The direction L_mm depends on supports alone; the finite part L_in, the entropy and the predictions at a loss depend
    on probabilities and on the shares of contexts.
    """
    return replace(
        prediction,
        P=stats.P,
        pi=stats.pi,
        entropy=stats.entropy,
        statistics_hash=stats.hash,
        windows=stats.n if stats.has_counts else None,
        stats=stats,
    )


def train_like_the_papers(
    stats: NextTokenStatistics,
    recipe: Recipe,
    *,
    probes: Mapping[str, Probe] | None,
    progress: AbstractProgress,
    dim: int | None = None,
    seed: int = 0,
) -> Run:
    """Unconstrained features trained with AdamW on the summed loss; steps, rate, decay and d are the recipe's."""
    return train(
        stats,
        "ufm",
        dim=recipe["dim"] if dim is None else dim,
        optimizer="adamw",
        steps=recipe["steps"],
        learning_rate=recipe["learning_rate"],
        weight_decay=recipe["weight_decay"],
        rate_schedule=paper_steps(recipe["steps"]),
        reduction="sum",
        seed=seed,
        probes=probes,
        progress=progress,
    )


def direction_probe(prediction: FeaturePrediction) -> dict[str, Probe]:
    """Record ``cos(L, L_mm)`` of the centred logits as ``direction_cosine``."""
    L_mm = prediction.L_mm

    def direction_cosine(state: State) -> float:
        return cosine(centre_columns(state.L), L_mm)

    return {"direction_cosine": direction_cosine}


def over_training(
    title: str,
    y_label: str,
    runs: Mapping[str, Run],
    columns: Sequence[str],
    *,
    y_scale: Scale = "linear",
    levels: Sequence[tuple[str, float]] = (),
) -> LinePanel:
    """One measurement, or several, of each run over its steps (from 1 on, on a log axis)."""
    curves = []
    for name, run in runs.items():
        steps = run.trajectory.steps
        for column in columns:
            label = name if len(columns) == 1 else f"{name}, {column.replace('_', ' ')}"
            curves.append(Curve(label, steps[steps > 0].astype(np.float64), run.trajectory[column][steps > 0]))
    return LinePanel(title, "step", y_label, curves, "log", y_scale, levels)


def rank_correlation(a: Float, b: Float) -> float:
    """Spearman correlation of two lists of numbers; ties get their mean rank, NaN where nothing varies."""
    from scipy.stats import rankdata

    x, y = rankdata(a), rankdata(b)
    if x.size < 2 or x.std() == 0 or y.std() == 0:
        return float("nan")
    return float(np.corrcoef(x, y)[0, 1])


class Snapshots:
    """A probe that keeps W and H at the first record at or after each given step; it adds no measurement.

    ``train(..., probes={**others, "snapshots": snapshots})``, then ``evolution(snapshots.taken, prediction)``.
    """

    def __init__(self, steps: Iterable[int]) -> None:
        self._pending = sorted({int(step) for step in steps})
        self.taken: dict[int, Factors] = {}

    def __call__(self, state: State) -> Mapping[str, float]:
        """Keep the state if one of the steps has been reached."""
        due = [step for step in self._pending if step <= state.step]
        if due:
            self.taken[state.step] = Factors(state.W.copy(), state.H.copy())
            self._pending = self._pending[len(due) :]
        return {}
