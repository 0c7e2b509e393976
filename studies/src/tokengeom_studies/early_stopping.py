"""Geometry, margin and held-out loss over training: what has been reached where one would stop.

The predicted geometry is the limit ``CE -> H`` on the training text, in which every margin grows without bound. A text
is a sample: some tokens that can follow a context have not followed it yet. On other windows of the same contexts such
a zero costs as much as the margin is large. So held-out loss falls, reaches a minimum and grows, while the direction
still converges to L_mm. Documents are split into a training part and a held-out part; held-out windows are evaluated
where training has their context and token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tokengeom import FeaturePrediction, NextTokenStatistics, predict
from tokengeom.extending import AbstractProgress, Curve, Figure, InputError, LinePanel
from tokengeom_studies.base import AbstractStudy, Check, Findings, Recipe, Table
from tokengeom_studies.common.feature_runs import over_training
from tokengeom_studies.common.held_out import HeldOut, split_text
from tokengeom_studies.common.network_runs import (
    Trained,
    agreement_table,
    gain_checks,
    require_device,
    train_and_compare,
)

TRANSFORMER, UFM = "transformer", "UFM"
LOSS, KNOWN, NEW = "held_out.loss", "held_out.known", "held_out.new"
MOVED = 0.02
"""Increase of SIM after the minimum of the held-out loss above which the geometry is said to converge further."""
NEAR = 1.3
"""Held-out losses up to this multiple of the minimum are drawn."""


@dataclass(frozen=True, eq=False)
class Stopped:
    """A trained model, and the record at which its held-out loss is lowest."""

    trained: Trained

    @property
    def best(self) -> int:
        """Index of that record."""
        return int(np.argmin(self.trained.run.trajectory[LOSS]))

    @property
    def best_step(self) -> int:
        """Step of that record."""
        return int(self.trained.run.trajectory.steps[self.best])

    @property
    def past_minimum(self) -> bool:
        """Whether the held-out loss is lowest before the last record."""
        return self.best < len(self.trained.run.trajectory) - 1

    def at_best(self, column: str) -> float:
        """A measurement at that record."""
        return float(self.trained.run.trajectory[column][self.best])

    def at_end(self, column: str) -> float:
        """A measurement at the last record."""
        return self.trained.run.trajectory.last(column)

    def gained(self, column: str) -> float:
        """By how much a measurement rose from that record to the last."""
        return self.at_end(column) - self.at_best(column)


@dataclass(frozen=True, eq=False)
class EarlyStopping:
    """Both parts of the text, the prediction from the training part, and the models."""

    text: str
    stats: NextTokenStatistics
    held_out: HeldOut
    prediction: FeaturePrediction
    models: Mapping[str, Stopped]


class EarlyStoppingStudy(AbstractStudy):
    """The minimum of the held-out loss, and the geometry and the margin there and after."""

    question: ClassVar[str] = "Has the predicted geometry been reached when the held-out loss is lowest?"
    # text is the path of a text, with separator between its documents; if it is empty, the built-in stories are used. A
    # share held_out of the documents is not trained on. There are few stories, so that training does not see every
    # token that can follow a context.
    small: ClassVar[Recipe] = {
        "seed": 0,
        "text": "",
        "separator": "auto",
        "stories": 200,
        "held_out": 0.5,
        "context": 4,
        "contexts": 200,
        "vocabulary": 60,
        "layers": 2,
        "heads": 4,
        "dim": 64,
        "steps": 1_000,
        "learning_rate": 2e-3,
        "weight_decay": 1e-6,
        "schedule": "cosine",
        "ufm_steps": 4_000,
        "ufm_learning_rate": 3e-3,
        "records_per_decade": 20,
        "device": "cpu",
        "draws": 100,
    }
    paper: ClassVar[Recipe] = {
        "seed": 0,
        "text": "",
        "separator": "auto",
        "stories": 400,
        "held_out": 0.5,
        "context": 4,
        "contexts": 400,
        "vocabulary": 104,
        "layers": 4,
        "heads": 6,
        "dim": 128,
        "steps": 30_000,
        "learning_rate": 1e-4,
        "weight_decay": 1e-6,
        "schedule": "papers",
        "ufm_steps": 30_000,
        "ufm_learning_rate": 1e-4,
        "records_per_decade": 20,
        "device": "cuda",
        "draws": 1000,
    }

    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Split the text, count, predict and train on one part, and evaluate on the other."""
        require_device(recipe)
        stats, held_out = split_text(recipe, progress)
        prediction = predict(stats, progress=progress)
        if prediction.rank == 0:
            raise InputError(
                f"A geometry is predicted only where some token never follows a context; here all {stats.V} tokens "
                f"follow each of the {stats.m} contexts. Use a longer context or a larger vocabulary."
            )
        models = {
            name: Stopped(_trained(stats, prediction, held_out, recipe, name, progress)) for name in (TRANSFORMER, UFM)
        }
        found = EarlyStopping(recipe["text"], stats, held_out, prediction, models)
        trained = {name: one.trained for name, one in models.items()}
        tables = {"minimum": _minimum_table(found), "agreement": agreement_table(trained)}
        return self.findings(recipe, _sentence(found), _checks(found), [_figure(found)], tables)


def _trained(
    stats: NextTokenStatistics,
    prediction: FeaturePrediction,
    held_out: HeldOut,
    recipe: Recipe,
    name: str,
    progress: AbstractProgress,
) -> Trained:
    changes: dict[str, Any] = {"records_per_decade": recipe["records_per_decade"]}
    if name == UFM:
        changes |= {"steps": recipe["ufm_steps"], "learning_rate": recipe["ufm_learning_rate"]}
        changes |= {"layers": None, "device": "cpu"}
    return train_and_compare(
        stats, prediction, recipe, model=name.lower(), probes=held_out.probe(), progress=progress, **changes
    )


def _checks(found: EarlyStopping) -> list[Check]:
    limit = found.held_out.known_limit(found.stats)
    checks = [
        Check("relative gap of L_mm", found.prediction.certificate.relative_gap, high=1e-6),
        Check("held-out windows whose pair training never saw", float(found.held_out.n_new), low=1),
    ]
    for name, one in found.models.items():
        checks += gain_checks(name, one.trained, loss_gap=5e-2)
        away = abs(one.at_end(KNOWN) - limit) if KNOWN in one.trained.run.trajectory.names else float("nan")
        checks += [
            Check(f"{name}: increase of the held-out loss after its minimum", one.gained(LOSS), low=1e-3),
            Check(f"{name}: increase of the margin after it", one.gained("margin"), low=0.0),
            Check(f"{name}: loss of known pairs, distance from its limit", away, high=0.1),
        ]
    return checks


def _sentence(found: EarlyStopping) -> str:
    held, stats = found.held_out, found.stats
    ends = " ".join(_outcome(name, one) for name, one in found.models.items())
    return (
        f"{_verdict(found.models)} Of {held.all_windows:,} held-out windows of {_source(found.text)}, {held.n:,} have "
        f"one of the {stats.m} contexts and {stats.V} tokens of training, and {held.n_new:,} of these "
        f"({held.n_new / held.n:.1%}) are pairs of context and token that training never saw, whose loss has no bound. "
        f"{ends}"
    )


def _verdict(models: Mapping[str, Stopped]) -> str:
    if not all(one.past_minimum for one in models.values()):
        still = ", ".join(name for name, one in models.items() if not one.past_minimum)
        return f"Held-out loss was still falling at the last step ({still})."
    moving = [name for name, one in models.items() if one.gained("context_similarity") > MOVED]
    if len(moving) == len(models):
        return "Not fully: after the minimum of the held-out loss, the geometry still moves towards L_mm."
    if not moving:
        return "Yes, as far as training reached it: after the minimum of the held-out loss, SIM with L_mm hardly rises."
    return f"It depends: after the minimum of the held-out loss, only {', '.join(moving)} still moves towards L_mm."


def _source(text: str) -> str:
    return Path(text).name if text else "the built-in stories"


def _outcome(name: str, one: Stopped) -> str:
    def both(column: str, form: str) -> str:
        return f"{one.at_best(column):{form}} there and {one.at_end(column):{form}} at the end"

    new = f" (new pairs: {both(NEW, '.2f')})" if NEW in one.trained.run.trajectory.names else ""
    return (
        f"The {name}'s held-out loss is lowest at step {one.best_step:,} of {one.trained.run.steps:,}: "
        f"{both(LOSS, '.3f')}, in nats{new}; SIM with L_mm {both('context_similarity', '.3f')} for contexts and "
        f"{both('token_similarity', '.3f')} for tokens; smallest margin {both('margin', '.1f')}; loss gap "
        f"{both('loss_gap', '.1e')}."
    )


def _minimum_table(found: EarlyStopping) -> Table:
    columns = (LOSS, KNOWN, NEW, "loss_gap", "margin", "context_similarity", "token_similarity", "collapse")
    table: dict[str, list[Any]] = {"model": [], "where": [], "step": []}
    for name, one in found.models.items():
        for where, step in (("lowest held-out loss", one.best_step), ("end", one.trained.run.steps)):
            table["model"].append(name)
            table["where"].append(where)
            table["step"].append(step)
            for column in columns:
                if column in one.trained.run.trajectory.names:
                    value = one.at_end(column) if where == "end" else one.at_best(column)
                    table.setdefault(column.replace(".", "_"), []).append(value)
    return table


def _figure(found: EarlyStopping) -> Figure:
    runs = {name: one.trained.run for name, one in found.models.items()}
    marks = [(f"lowest: {name}", float(max(one.best_step, 1))) for name, one in found.models.items()]
    limit = found.held_out.known_limit(found.stats)
    new = [column for column in (KNOWN, NEW) if all(column in run.trajectory.names for run in runs.values())]
    panels = [
        _minimum_panel(found, marks),
        _parts_panel(found, new, [("known pairs, limit", limit)] if KNOWN in new else []),
        _marked(
            over_training("Loss gap on the training text", "CE - H (nats)", runs, ["loss_gap"], y_scale="log"), marks
        ),
        _marked(over_training("Smallest margin", "logits", runs, ["margin"]), marks),
        _marked(over_training("Contexts: SIM with L_mm", "SIM", runs, ["context_similarity"]), marks),
        _marked(over_training("Tokens: SIM with L_mm", "SIM", runs, ["token_similarity"]), marks),
    ]
    caption = (
        "Training on one part of the documents, evaluated on the others: held-out loss, and its two parts (known: "
        "pairs of context and token that training saw, whose limit is the loss of the training frequencies; new: "
        "pairs that it never saw, whose loss grows with the margin); loss above the entropy of the training text; "
        "smallest in-support minus largest off-support logit; structural similarity of cosines with those of L_mm. "
        "Vertical lines: where the held-out loss is lowest."
    )
    return Figure("early-stopping", "Held-out loss and geometry over training", caption, panels)


def _marked(panel: LinePanel, marks: Sequence[tuple[str, float]]) -> LinePanel:
    return replace(panel, marks=marks)


def _minimum_panel(found: EarlyStopping, marks: Sequence[tuple[str, float]]) -> LinePanel:
    """Held-out loss near its minimum; the much larger losses at the start are left out."""
    curves = []
    for name, one in found.models.items():
        steps, loss = one.trained.run.trajectory["step"], one.trained.run.trajectory[LOSS]
        near = (steps > 0) & (loss <= NEAR * one.at_best(LOSS))
        curves.append(Curve(name, steps[near], loss[near]))
    return LinePanel("Held-out loss near its minimum", "step", "nats", curves, "log", "linear", (), marks)


def _parts_panel(found: EarlyStopping, columns: Sequence[str], levels: Sequence[tuple[str, float]]) -> LinePanel:
    curves = []
    for place, (name, one) in enumerate(found.models.items()):
        steps = one.trained.run.trajectory["step"]
        for column in columns:
            y, part = one.trained.run.trajectory[column], column.removeprefix("held_out.")
            dotted = column == NEW
            curves.append(Curve(f"{name}, {part}", steps[steps > 0], y[steps > 0], dotted=dotted, colour=place))
    return LinePanel("Held-out loss of known and of new pairs", "step", "nats", curves, "log", "linear", levels)
