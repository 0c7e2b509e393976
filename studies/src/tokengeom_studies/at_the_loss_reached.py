"""The geometry at the loss reached, in six kinds of model: prediction, limit, rivals and other seeds at equal loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar

import numpy as np

from tokengeom.extending import AbstractProgress, Figure, LinePanel
from tokengeom_studies.base import Findings, Recipe, Table, table_of
from tokengeom_studies.common.compared_cells import (
    RIVALS,
    SPLIT,
    Cell,
    ahead_of_rivals,
    both,
    by_text,
    cell_rows,
    cells,
    first_rows,
    lead_table,
    run_checks,
    share_ahead,
    shared_tables,
    without_rules,
)
from tokengeom_studies.common.compared_trainings import Training, begin_comparing, measure_trainings
from tokengeom_studies.common.corrected import explained
from tokengeom_studies.common.measured import (
    MOST,
    AbstractMeasuredStudy,
    Answer,
    Hypothesis,
    Interval,
    Row,
    Rows,
    chosen,
    interval_curve,
    share_of,
)
from tokengeom_studies.common.on_device import ITEMS

NORM = "gamma2"
"""Norm of the prediction for AdamW, chosen before the first runs."""
NEAR = 0.05
"""How far below 1 a corrected agreement may be that counts as all that is reproducible."""
FEATURES = "unconstrained features"
SHOWN = {"gamma_2": NORM, "nuclear": "nuclear", "limit": "limit"}
"""Predictions in tables -> their names in the rows."""


class AtTheLossReached(AbstractMeasuredStudy):
    """Six kinds of model trained with AdamW, compared at several losses."""

    question = (
        "Does the prediction at the loss reached explain the geometry of trained models better than the limit of "
        "training and every rival explanation do?"
    )
    small: ClassVar[Recipe] = {
        "text": "stories",
        "stories": 200,
        "context": 3,
        "contexts": 60,
        "vocabulary": 40,
        "seed": 0,
        "networks": ["ufm", "mlp", "lstm"],
        "dim": 32,
        "gaps": [0.2, 0.05],
        "learning_rate": 1e-2,
        "seeds": 2,
        "seconds": 120,
        "device": "cpu",
        "cache": "",
    }
    paper: ClassVar[Recipe] = {
        **small,
        "text": "texts/tinystories_1000x4000.npz",
        "networks": ["ufm", "mlp", "lstm", "transformer", "mamba", "xlstm"],
        "dim": 384,
        "gaps": [0.2, 0.05],
        "learning_rate": 1e-3,
        "seeds": 5,
        "device": "cuda",
        "cache": "predictions",
    }
    hypotheses: ClassVar[Mapping[str, Hypothesis]] = {
        "limit": Hypothesis(
            "Contexts agree better with the prediction at the loss reached (gamma_2 norm) than with the limit.",
            "A cell is a text, a model and a loss gap. The 95% interval (jackknife over seeds) of the difference of "
            f"corrected agreements is above 0 in at least {MOST:.0%} of the cells: yes; in at most {1 - MOST:.0%}: no.",
        ),
        "rivals-contexts": Hypothesis(
            "Contexts agree better with the prediction at the loss reached than with every rival at its best.",
            "The same rule, against the rival that is best in the cell. Free parameters are fitted to the cell's runs, "
            "on grids that are widened until the best value lies inside or a wider grid gains less than 1e-4; "
            "unconstrained features are the mean of five trainings, corrected for its reliability.",
        ),
        "rivals-tokens": Hypothesis(
            "Tokens agree better with the prediction at the loss reached than with every rival at its best.",
            "The same rule, against the rival that is best for tokens in the cell, fitted to tokens.",
        ),
        "features-contexts": Hypothesis(
            "Contexts of networks agree better with the prediction at the loss reached than with unconstrained "
            "features that were trained to the same loss.",
            "The same rule, over networks, against the better of two learning rates.",
        ),
        "features-tokens": Hypothesis(
            "Tokens of networks agree better with the prediction than with those unconstrained features.",
            "The same rule, for tokens.",
        ),
        "ceiling": Hypothesis(
            f"For contexts the prediction has all that is reproducible, within {NEAR}.",
            f"The corrected agreement is at least {1 - NEAR:g} in at least {MOST:.0%} of the cells: yes; in at most "
            f"{1 - MOST:.0%}: no. (It was stated first against the agreement of another seed, which is no bound.)",
        ),
        "norm": Hypothesis(
            "Under AdamW contexts agree better with the smallest gamma_2 norm than with the smallest nuclear norm.",
            "The rule of the first hypothesis, for that difference.",
        ),
        "split": Hypothesis(
            "Tokens of networks agree better with the prediction when its logits are shared between tokens and "
            "contexts as the run shares its own (measured split exponent).",
            "The rule of the first hypothesis, for the gain in token agreement, over networks alone.",
        ),
    }

    def measure(self, recipe: Recipe, rows: Rows, progress: AbstractProgress) -> None:
        """Train every model with every seed on the recipe's text."""
        rate = {"learning_rate": recipe["learning_rate"], "rate_schedule": "constant"}
        trainings = {model: Training(model, rate) for model in recipe["networks"]}
        measure_trainings(begin_comparing(recipe, rows), trainings, range(recipe["seeds"]), progress)

    def judge(self, recipe: Recipe, rows: Sequence[Row]) -> Findings:
        """Counts of cells in which each statement holds."""
        measured = cells(cell_rows(rows))
        networks = [cell for cell in measured if cell.is_network]
        answers = _answers(measured)
        tables = {
            "hypotheses": self.answers(answers),
            "explained": _over_texts(networks),
            "corrected": _text_table(networks),
            "leads": lead_table(networks, NORM),
            "rivals": _rival_table(networks),
            **shared_tables(rows, measured, SHOWN),
        }
        if before := chosen(rows, kind="run"):
            tables["first"] = without_rules(self.answers(_answers(cells(first_rows(before)))))
        return self.findings(recipe, _sentence(measured, answers), run_checks(rows), _figures(measured), tables)


def _answers(measured: Sequence[Cell]) -> dict[str, Answer]:
    networks = [cell for cell in measured if cell.is_network]

    near = [cell.corrected(NORM, "contexts").mean for cell in measured]
    return {
        "limit": share_ahead(measured, lambda cell: cell.lead(NORM, "limit", "contexts")),
        **{f"rivals-{item}": ahead_of_rivals(measured, NORM, item) for item in ITEMS},
        **{f"features-{item}": ahead_of_rivals(networks, NORM, item, FEATURES) for item in ITEMS},
        "ceiling": share_of(x >= 1.0 - NEAR for x in near if np.isfinite(x)),
        "norm": share_ahead(measured, lambda cell: cell.lead(NORM, "nuclear", "contexts")),
        "split": share_ahead(networks, lambda cell: cell.lead(SPLIT, NORM, "tokens")),
    }


def _name(label: str, cell: Cell, item: str) -> str:
    """What a table calls so is this explanation in a cell."""
    return cell.best_rival(item, label) if label in RIVALS else SHOWN[label]


def _mean(label: str, some: Sequence[Cell], item: str) -> float:
    values = [cell.corrected(_name(label, cell, item), item).mean for cell in some]
    return float(np.mean([x for x in values if np.isfinite(x)] or [np.nan]))


def _over_texts(networks: Sequence[Cell]) -> Table:
    """Corrected agreement and its square, means over texts with intervals over texts."""
    rows = []
    for label in (*SHOWN, *RIVALS):
        row: dict[str, object] = {"explanation": label}
        for item in ITEMS:
            interval = Interval.of(_mean(label, some, item) for some in by_text(networks).values())
            row |= {item: str(interval), f"{item}: explained": str(explained(interval))}
        rows.append(row)
    return table_of(rows)


def _text_table(networks: Sequence[Cell]) -> Table:
    """Mean corrected agreement for each text."""
    return table_of(
        [
            {"text": text, "cells": len(some)} | {x: both(partial(_mean, x, some)) for x in (*SHOWN, *RIVALS)}
            for text, some in by_text(networks).items()
        ]
        or [{"text": "-"}]
    )


def _rival_table(networks: Sequence[Cell]) -> Table:
    """In how many cells each rival is the best one, and its mean corrected agreement."""
    rows = []
    for name in dict.fromkeys(name for cell in networks for name in cell.row["rivals"]):
        row: dict[str, object] = {"rival": name}
        for item in ITEMS:
            values = [cell.corrected(name, item).mean for cell in networks]
            row[f"corrected, {item}"] = f"{float(np.mean([x for x in values if np.isfinite(x)])):.3f}"
            row[f"best in cells, {item}"] = sum(cell.best_rival(item) == name for cell in networks)
        rows.append(row)
    return table_of(rows or [{"rival": "-"}])


def common_gaps(measured: Sequence[Cell]) -> dict[str, float]:
    """The largest loss gap that all texts have; where there is none, the smallest of each text."""
    texts = by_text(measured)
    shared = set.intersection(*({cell.target for cell in some} for some in texts.values()))
    return {text: max(shared) if shared else min(cell.target for cell in some) for text, some in texts.items()}


def _figures(measured: Sequence[Cell]) -> list[Figure]:
    """Every model at one loss, one panel per text and kind of item."""
    gaps = common_gaps(measured)
    figures = []
    for item, name in zip(ITEMS, ("models", "tokens"), strict=True):
        panels = [
            _panel(f"{text}, loss gap {gaps[text]:g}", [cell for cell in some if cell.target == gaps[text]], item)
            for text, some in by_text(measured).items()
        ]
        caption = (
            f"Corrected agreement of {item}, 1 is all that is reproducible; bands are 95% intervals over seeds. "
            "Rivals are at their best in each cell. A model has no point where two seeds agree to less than 0.05. "
            "Lines join points of one kind; the order of models has no meaning."
        )
        figures.append(Figure(name, f"Agreement of {item} with predictions and rivals at equal loss", caption, panels))
    return figures


def _panel(title: str, mine: Sequence[Cell], item: str) -> LinePanel:
    """Corrected agreement with each kind of explanation, against models."""
    x = np.arange(1.0, len(mine) + 1.0)
    curves = []
    for label in (*SHOWN, "unconstrained features", "other rivals"):
        values = [cell.corrected(_name(label, cell, item), item) for cell in mine]
        curves.append(interval_curve(label, x, values, dashed=label in RIVALS))
    names = [cell.training for cell in mine]
    return LinePanel(title, "model", f"corrected agreement of {item}", curves, x_names=names)


def _sentence(measured: Sequence[Cell], answers: Mapping[str, Answer]) -> str:
    seeds = min(len(cell.row["seeds"]) for cell in measured)
    parts = [f"{name}: {answer.decision} ({answer.because})" for name, answer in answers.items()]
    return f"{len(measured)} cells with at least {seeds} seeds each. " + "; ".join(parts) + "."
