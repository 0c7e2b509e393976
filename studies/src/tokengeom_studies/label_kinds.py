"""The geometry of a transformer at a given loss after soft labels, hard labels, attention dropout, or all prefixes.

A transformer is trained in several ways and read where its loss gap on the counted statistics first falls below each of
a few levels. The loss gap of a network with dropout is measured without it.

soft           the gradient of the loss on all distinct contexts, at a constant rate
hard           batches of windows with one next token each, drawn with replacement; the rate falls to 0 (cosine)
dropout r      as soft, with attention weights dropped at the rate r
prefixes       as soft, on the statistics of contexts of every length up to the longest (autoregressive training)

The first three have the same statistics and can be compared with each other. Prefixes have statistics and a prediction
of their own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tokengeom import NextTokenStatistics, count
from tokengeom.extending import AbstractProgress, Figure, InputError, LinePanel, stories
from tokengeom_studies.base import Check, Findings, Recipe, Table, table_of
from tokengeom_studies.common.corrected import explained, shown
from tokengeom_studies.common.measured import (
    AbstractMeasuredStudy,
    Answer,
    Decision,
    Hypothesis,
    Interval,
    Row,
    Rows,
    chosen,
    decided,
    interval_curve,
)
from tokengeom_studies.common.model_runs import require_device
from tokengeom_studies.common.on_device import PairGeometry
from tokengeom_studies.common.same_geometry import (
    ITEMS,
    NORMS,
    NOT_MEASURED,
    SUPPORTS,
    Cell,
    Compared,
    add_comparisons,
    answer_for_all,
    each_item,
    largest_relative_gap,
    mean_of,
    paired,
    predicted_geometries,
    within,
)
from tokengeom_studies.common.torch_runs import DeviceText, first_below, load_text, training_settings

SOFT, HARD, PREFIXES = "soft", "hard", "prefixes"
SEEDS, PREDICTED, EXPLAINED = 0.02, 0.03, 0.05
"""Differences that count as none: from the lower agreement of seeds, between trainings, of a prediction from seeds."""
LONGEST = 300.0
"""Seconds after which a run is given up."""
PROVEN = 1e-2
"""Largest relative duality gap of a prediction."""
BUILT_IN = "stories"


def _unchanged(what: str) -> Hypothesis:
    return Hypothesis(
        f"{what} gives the geometry of exact soft labels at the same loss.",
        "At every loss gap that all seeds of both reach, for contexts and tokens: agreement across minus the lower "
        f"ceiling, paired by seed, has a 95% interval above -{SEEDS}. No where one interval is below it.",
    )


class LabelKinds(AbstractMeasuredStudy):
    """One transformer trained with soft labels, hard labels, attention dropout, and on all prefixes."""

    question: ClassVar[str] = (
        "Do hard labels, attention dropout or training on all prefixes change the geometry at a given loss?"
    )
    hypotheses: ClassVar[dict[str, Hypothesis]] = {
        HARD: _unchanged("Training on hard labels"),
        "dropout 0.1": _unchanged("Attention dropout at the rate 0.1"),
        "dropout 0.3": _unchanged("Attention dropout at the rate 0.3"),
        "prediction": Hypothesis(
            "The prediction at the loss (gamma_2) agrees with hard labels and dropout as well as with soft labels.",
            "At every loss gap that all seeds of both reach, for contexts and tokens: the difference of the two "
            f"agreements, paired by seed, has a 95% interval within {PREDICTED} of 0. No where one is outside.",
        ),
        PREFIXES: Hypothesis(
            "After training on all prefixes, the prediction at the loss (gamma_2) agrees with a run about as well as "
            "another seed does.",
            "At every loss gap that all seeds reach, for contexts and tokens: agreement with the prediction minus that "
            f"with other seeds, paired by seed, has a 95% interval above -{EXPLAINED}. No where one is below it.",
        ),
    }
    # text and prefix_text are "stories" (built in) or files of counts.
    small: ClassVar[Recipe] = {
        "seed": 0,
        "text": BUILT_IN,
        "prefix_text": BUILT_IN,
        "stories": 600,
        "context": 3,
        "contexts": 80,
        "vocabulary": 40,
        "kinds": [SOFT, HARD, "dropout 0.1", "dropout 0.3", PREFIXES],
        "seeds": [0, 1],
        "loss_gaps": [2e-1, 1e-1],
        "layers": 1,
        "heads": 4,
        "dim": 32,
        "learning_rate": 3e-3,
        "most_steps": 400,
        "batch": 64,
        "hard_steps": 600,
        "device": "cpu",
    }
    paper: ClassVar[Recipe] = {
        **small,
        "text": "texts/tinystories_104x382.npz",
        "prefix_text": "texts/prefixes.npz",
        "stories": 3_000,
        "contexts": 382,
        "vocabulary": 104,
        "seeds": [0, 1, 2, 3, 4],
        "loss_gaps": [1e-1, 3e-2, 1e-2],
        "layers": 4,
        "heads": 8,
        "dim": 128,
        "learning_rate": 1e-3,
        "most_steps": 1_500,
        "batch": 256,
        "hard_steps": 6_000,
        "device": "cuda",
    }

    def measure(self, recipe: Recipe, rows: Rows, progress: AbstractProgress) -> None:
        """Train all seeds of every kind, and compare those on the same statistics; their rows are added together."""
        require_device(recipe)
        together = [kind for kind in recipe["kinds"] if kind != PREFIXES]
        for kinds in (together, [PREFIXES] if PREFIXES in recipe["kinds"] else []):
            if kinds and rows.in_time and not rows.has(kind="compared", kinds=kinds):
                with progress.stage(", ".join(kinds), None):
                    _measure_together(recipe, kinds, rows)

    def judge(self, recipe: Recipe, rows: Sequence[Row]) -> Findings:
        """Agreement across and within kinds and with predictions, at each loss gap."""
        if not chosen(rows, kind="prediction"):
            raise InputError(f"The study '{self.name}' has no comparisons yet; measure its kinds to the end.")
        answers = _answers(rows)
        tables = {"hypotheses": self.answers(answers), "agreement": _agreement_table(rows), "runs": _runs(rows)}
        return self.findings(recipe, _sentence(answers, rows), _checks(rows), [_figure(rows)], tables)


def prefix_statistics(recipe: Recipe) -> NextTokenStatistics:
    """Statistics of contexts of every length up to the recipe's, the most frequent ones."""
    if recipe["prefix_text"] != BUILT_IN:
        return load_text({**recipe, "text": recipe["prefix_text"]})
    texts = islice(stories(recipe["seed"]), recipe["stories"])
    counted = count(texts, context=recipe["context"], windows="prefixes")
    return counted.limited(top_contexts=recipe["contexts"], vocabulary=recipe["vocabulary"])


def _measure_together(recipe: Recipe, kinds: Sequence[str], rows: Rows) -> None:
    of_prefixes = PREFIXES in kinds
    stats = prefix_statistics(recipe) if of_prefixes else load_text(recipe)
    name = Path(recipe["prefix_text" if of_prefixes else "text"]).stem
    text = DeviceText(stats, recipe["device"])
    runs: dict[float, dict[tuple[str, int], PairGeometry]] = {gap: {} for gap in recipe["loss_gaps"]}
    for kind in kinds:
        for seed in recipe["seeds"]:
            for gap, row, geometry in _train(text, recipe, kind, seed):
                rows.add(kind="run", text=name, level=gap, training=kind, seed=seed, **row)
                if geometry is not None:
                    runs[gap][kind, seed] = geometry
    for gap, some in runs.items():
        predicted, facts = predicted_geometries(text, gap)
        cell = {"text": name, "prefixes": of_prefixes, "level": gap}
        rows.add(kind="prediction", **cell, **facts)
        add_comparisons(rows, cell, some, predicted)
    rows.add(kind="compared", kinds=kinds)


def _train(
    text: DeviceText, recipe: Recipe, kind: str, seed: int
) -> Iterator[tuple[float, dict[str, Any], PairGeometry | None]]:
    """A run where its loss gap first falls below each level; no geometry where it does not."""
    steps = recipe["hard_steps" if kind == HARD else "most_steps"]
    rate = float(kind.removeprefix("dropout ")) if kind.startswith("dropout ") else 0.0
    hard: dict[str, Any] = {"rate_schedule": "cosine", "batch": recipe["batch"]} if kind == HARD else {}
    plan = {"steps": steps, "attention_dropout": rate, "rate_schedule": "constant", **hard}
    settings = training_settings(recipe, "transformer", seed, **plan)
    began, run = time.monotonic(), text.begin(settings)
    remaining = sorted(recipe["loss_gaps"], reverse=True)
    for reached in first_below(
        run, text, remaining, every=10 if kind == HARD else 3, most_steps=steps, seconds=LONGEST
    ):
        remaining = [gap for gap in remaining if gap != reached.target]
        row = {"reached": True, "loss_gap": reached.loss_gap, "step": reached.step, "seconds": reached.seconds}
        yield reached.target, row, text.geometry(reached.W, reached.H)
    for gap in remaining:
        yield gap, {"reached": False, "step": run.step, "seconds": time.monotonic() - began}, None


def _cells(rows: Sequence[Row], prefixes: bool) -> list[Cell]:
    """Text and loss gap of every prediction, the largest first."""
    some = chosen(rows, kind="prediction", prefixes=prefixes)
    levels = {(row["text"], row["level"]) for row in some}
    ordered = sorted(levels, key=lambda key: (key[0], -key[1]))
    return [{"text": text, "prefixes": prefixes, "level": level} for text, level in ordered]


def _kinds(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["training"] for row in chosen(rows, kind="run")))


def _complete(rows: Sequence[Row], cell: Cell, *kinds: str) -> bool:
    """Whether every seed of these kinds reached the loss gap."""
    some = [chosen(rows, kind="run", text=cell["text"], level=cell["level"], training=kind) for kind in kinds]
    return all(runs and all(row["reached"] for row in runs) for runs in some)


def _label(cell: Cell, *parts: str) -> str:
    return ", ".join((*parts, f"{cell['level']:g} nats"))


def _answers(rows: Sequence[Row]) -> dict[str, Answer]:
    def across(kind: str) -> Answer:
        cases: dict[str, tuple[Decision, Interval]] = {}
        for cell, item in each_item(_cells(rows, False)):
            if _complete(rows, cell, SOFT, kind):
                difference = Compared(rows, cell).less_than_seeds(kind, SOFT, item)
                cases[_label(cell, item)] = (decided(difference, -SEEDS), difference)
        return answer_for_all(cases, "Agreement across minus the lower ceiling")

    changes: dict[str, tuple[Decision, Interval]] = {}
    for kind in (kind for kind in _kinds(rows) if kind not in (SOFT, PREFIXES)):
        for cell, item in each_item(_cells(rows, False)):
            if _complete(rows, cell, SOFT, kind):
                difference = Compared(rows, cell).prediction_changes(kind, SOFT, "gamma2", item)
                changes[_label(cell, kind, item)] = (within(difference, PREDICTED), difference)
    explained: dict[str, tuple[Decision, Interval]] = {}
    for cell, item in each_item(_cells(rows, True)):
        if _complete(rows, cell, PREFIXES):
            here = Compared(rows, cell)
            difference = paired(here.with_prediction(PREFIXES, "gamma2", item), here.across(PREFIXES, PREFIXES, item))
            explained[_label(cell, item)] = (decided(difference, -EXPLAINED), difference)
    return {
        **{kind: across(kind) for kind in (HARD, "dropout 0.1", "dropout 0.3")},
        "prediction": answer_for_all(changes, "Agreement with the prediction minus that of soft labels"),
        PREFIXES: answer_for_all(explained, "Agreement with the prediction minus that with other seeds"),
    }


def _rows_of_kinds(rows: Sequence[Row]) -> list[tuple[Cell, str]]:
    """Every kind in every cell that it was measured in."""
    return [
        (cell, kind)
        for kind in _kinds(rows)
        for cell in _cells(rows, kind == PREFIXES)
        if chosen(rows, kind="run", text=cell["text"], level=cell["level"], training=kind)
    ]


def _agreement_table(rows: Sequence[Row]) -> Table:
    lines = []
    for cell, kind in _rows_of_kinds(rows):
        here = Compared(rows, cell)
        for item in ITEMS:
            row: dict[str, Any] = {"text": cell["text"], "training": kind, "loss_gap": cell["level"], "item": item}
            row["other seeds"] = mean_of(here.across(kind, kind, item))
            compared = kind not in (SOFT, PREFIXES) and bool(here.across(kind, SOFT, item))
            row["with soft labels"] = f"{mean_of(here.across(kind, SOFT, item)):.4f}" if compared else "-"
            row["minus the lower of other seeds"] = str(here.less_than_seeds(kind, SOFT, item)) if compared else "-"
            row["corrected"] = str(here.corrected(kind, SOFT, item)) if compared else "-"
            row |= {name: mean_of(here.with_prediction(kind, name, item)) for name in (*NORMS, SUPPORTS)}
            predicted = here.corrected_prediction(kind, "gamma2", item)
            row |= {"gamma2 corrected": shown(predicted), "gamma2 explained": shown(explained(predicted))}
            change = here.corrected_change(kind, SOFT, "gamma2", item)
            row["gamma2 corrected, less soft labels"] = shown(change) if compared else "-"
            lines.append(row)
    return table_of(lines)


def _runs(rows: Sequence[Row]) -> Table:
    """How many runs reached each loss gap, and after how many steps."""
    lines = []
    for cell, kind in _rows_of_kinds(rows):
        some = chosen(rows, kind="run", text=cell["text"], level=cell["level"], training=kind)
        reached = [row for row in some if row["reached"]]
        row = {"text": cell["text"], "training": kind, "loss_gap": cell["level"]}
        row |= {"runs": len(some), "reached": len(reached), "step": Interval.of(run["step"] for run in reached).mean}
        lines.append(row)
    return table_of(lines)


def _checks(rows: Sequence[Row]) -> list[Check]:
    predictions = chosen(rows, kind="prediction")
    exact = [row for row in chosen(rows, kind="run") if row["training"] in (SOFT, PREFIXES)]
    ratios = [row["loss_gap"] / row["level"] for row in chosen(rows, kind="run", reached=True)]
    largest = max((row["level"] for row in predictions), default=float("nan"))
    first = [row["reached"] for row in chosen(rows, kind="run", level=largest)]
    return [
        Check("share of soft-label runs that reached every loss gap", _share(row["reached"] for row in exact), low=1.0),
        Check("share of all runs that reached the largest loss gap", _share(first), low=1.0),
        Check("smallest ratio of the loss gap read to that wanted", min(ratios, default=float("nan")), low=0.8),
        Check("largest relative duality gap of a prediction", largest_relative_gap(rows), high=PROVEN),
    ]


def _share(values: Any) -> float:
    known = list(values)
    return float(np.mean(known)) if known else float("nan")


def _sentence(answers: dict[str, Answer], rows: Sequence[Row]) -> str:
    names = {HARD: "hard labels", "dropout 0.1": "dropout at 0.1", "dropout 0.3": "dropout at 0.3"}
    said = {
        kind: NOT_MEASURED if answer.because == NOT_MEASURED else answer.decision for kind, answer in answers.items()
    }
    decisions = ", ".join(f"{name} {said[kind]}" for kind, name in names.items())
    parts = []
    for kind in _kinds(rows):
        cells = [cell for cell in _cells(rows, kind == PREFIXES) if _complete(rows, cell, kind)]
        if not cells:
            parts.append(f"{kind} reached no loss gap")
            continue
        here, cell = Compared(rows, cells[-1]), cells[-1]
        seeds, predicted = (
            " / ".join(f"{mean_of(values):.3f}" for values in some)
            for some in (
                [here.across(kind, kind, item) for item in ITEMS],
                [here.with_prediction(kind, "gamma2", item) for item in ITEMS],
            )
        )
        parts.append(f"{kind} at {cell['level']:g} nats {predicted} with the prediction and {seeds} with other seeds")
    return (
        f"The same geometry as with soft labels at the same loss: {decisions}. The prediction at the loss agrees with "
        f"all of them equally well: {said['prediction']}; it agrees with training on all prefixes about as "
        f"well as another seed: {said[PREFIXES]}. Agreement of contexts / tokens: {'; '.join(parts)}."
    )


def _figure(rows: Sequence[Row]) -> Figure:
    def panel(item: str) -> LinePanel:
        curves = []
        for place, kind in enumerate(_kinds(rows)):
            cells = [cell for cell in _cells(rows, kind == PREFIXES) if _complete(rows, cell, kind)]
            x, here = [cell["level"] for cell in cells], [Compared(rows, cell) for cell in cells]
            predicted = [compared.corrected_prediction(kind, "gamma2", item) for compared in here]
            curves.append(interval_curve(f"{kind}: gamma_2", x, predicted, dashed=True, colour=place))
            if kind not in (SOFT, PREFIXES):
                soft = [compared.corrected(kind, SOFT, item) for compared in here]
                curves.append(interval_curve(f"{kind}: soft labels", x, soft, colour=place))
        return LinePanel(item.capitalize(), "CE - H (nats)", "corrected agreement", curves, "log")

    caption = (
        "A transformer trained in several ways, read at the same loss gaps: corrected agreement (correlation of "
        "cosines over pairs of contexts with different supports, and of different tokens, without the differences "
        "between seeds) with soft labels (solid) and with the prediction at that loss in the gamma_2 norm (dashed); "
        "bands are 95% intervals over seeds."
    )
    return Figure("kinds", "Agreement by kind of training", caption, [panel(item) for item in ITEMS])
