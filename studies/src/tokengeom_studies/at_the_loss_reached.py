"""The geometry at the loss reached, in six kinds of model: prediction, limit, rivals and other seeds at equal loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar

import numpy as np

from tokengeom.extending import AbstractProgress, Figure, LinePanel
from tokengeom_studies.base import Findings, Recipe, Table, table_of
from tokengeom_studies.common.compared_cells import (
    FREE,
    SPLIT,
    Cell,
    both,
    by_text,
    cell_rows,
    cells,
    edge_table,
    first_rows,
    free_table,
    missed_table,
    rank_table,
    run_checks,
    share_ahead,
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
FREED, OTHERS = "unconstrained features", "best other rival"
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
        known = cell_rows(rows)
        measured = cells(known)
        answers = _answers(measured)
        tables = {
            "hypotheses": self.answers(answers),
            "explained": _over_texts(measured),
            "corrected": _text_table(measured),
            "features": free_table(measured),
            "edges": edge_table(measured),
            "cells": _table(measured),
            "rivals": _rival_table(measured),
            "ranks": rank_table(rows, measured),
            "not reached": missed_table(known),
        }
        if before := chosen(rows, kind="run"):
            tables["first"] = self.answers(_answers(cells(first_rows(before))))
        return self.findings(recipe, _sentence(measured, answers), run_checks(rows), _figures(measured), tables)


def _answers(measured: Sequence[Cell]) -> dict[str, Answer]:
    networks = [cell for cell in measured if cell.is_network]

    def rivals(some: Sequence[Cell], item: str) -> Answer:
        return share_ahead(some, lambda cell: cell.lead(NORM, cell.best_rival(item), item))

    def features(item: str) -> Answer:
        return share_ahead(networks, lambda cell: cell.lead(NORM, cell.best_rival(item, is_free), item))

    near = [cell.corrected(NORM, "contexts").mean for cell in measured]
    return {
        "limit": share_ahead(measured, lambda cell: cell.lead(NORM, "limit", "contexts")),
        **{f"rivals-{item}": rivals(measured, item) for item in ITEMS},
        **{f"features-{item}": features(item) for item in ITEMS},
        "ceiling": share_of(x >= 1.0 - NEAR for x in near if np.isfinite(x)),
        "norm": share_ahead(measured, lambda cell: cell.lead(NORM, "nuclear", "contexts")),
        "split": share_ahead(networks, lambda cell: cell.lead(SPLIT, NORM, "tokens")),
    }


def is_free(name: str) -> bool:
    """Whether a rival is a training of unconstrained features."""
    return name.startswith(FREE)


def _is_other(name: str) -> bool:
    return not is_free(name)


def _shown(label: str, cell: Cell, item: str) -> float:
    """Corrected agreement of a cell with what a table calls so."""
    kinds = {FREED: is_free, OTHERS: _is_other}
    name = cell.best_rival(item, kinds[label]) if label in kinds else SHOWN[label]
    return cell.corrected(name, item).mean


def _mean(label: str, some: Sequence[Cell], item: str) -> float:
    values = [_shown(label, cell, item) for cell in some]
    return float(np.mean([x for x in values if np.isfinite(x)] or [np.nan]))


def _networks(measured: Sequence[Cell]) -> dict[str, list[Cell]]:
    """Text -> its cells of networks."""
    return by_text([cell for cell in measured if cell.is_network])


def _over_texts(measured: Sequence[Cell]) -> Table:
    """Corrected agreement of networks and its square, means over texts with intervals over texts."""
    rows = []
    for label in (*SHOWN, FREED, OTHERS):
        row: dict[str, object] = {"explanation": label}
        for item in ITEMS:
            interval = Interval.of(_mean(label, some, item) for some in _networks(measured).values())
            row |= {item: str(interval), f"{item}: explained": str(explained(interval))}
        rows.append(row)
    return table_of(rows or [{"explanation": "-"}])


def _text_table(measured: Sequence[Cell]) -> Table:
    """For each text: mean corrected agreement of networks, and in how many cells gamma_2 is ahead and behind."""
    rows = []
    for text, some in _networks(measured).items():
        row: dict[str, object] = {"text": text, "cells": len(some)}
        row |= {label: both(partial(_mean, label, some)) for label in (*SHOWN, FREED, OTHERS)}
        for label, wanted in ((FREED, is_free), (OTHERS, _is_other)):
            for item in ITEMS:
                leads = [cell.lead(NORM, cell.best_rival(item, wanted), item) for cell in some]
                ahead, behind = sum(lead.low > 0 for lead in leads), sum(lead.high < 0 for lead in leads)
                row[f"gamma_2 ahead of {label} / behind, {item}"] = f"{ahead} / {behind}"
        rows.append(row)
    return table_of(rows or [{"text": "-"}])


def _table(measured: Sequence[Cell]) -> Table:
    """Corrected agreement per cell, contexts / tokens, and what two seeds agree to."""
    return table_of(
        [
            {
                "text": cell.text,
                "model": cell.training,
                "loss gap": f"{cell.target:g}",
                "seeds": len(cell.row["seeds"]),
                **{label: both(partial(cell.corrected, name)) for label, name in SHOWN.items()},
                "best rival": cell.best_rivals(),
                "reproducible": both(cell.reproducible),
                "efficiency": f"{cell.mean('efficiency'):.2f}",
                "split exponent": f"{cell.mean('split_exponent'):.2f}",
            }
            for cell in measured
        ]
    )


def _rival_table(measured: Sequence[Cell]) -> Table:
    """In how many cells each rival is the best one, and its mean corrected agreement over networks."""
    rows = []
    for name in dict.fromkeys(name for cell in measured for name in cell.row["rivals"]):
        row: dict[str, object] = {"rival": name}
        known = [cell for cell in measured if name in cell.row["rivals"] and cell.is_network]
        for item in ITEMS:
            values = [x for cell in known if np.isfinite(x := cell.corrected(name, item).mean)]
            row[f"corrected, {item}"] = f"{float(np.mean(values)):.3f}" if values else "-"
            row[f"best in cells, {item}"] = sum(cell.best_rival(item) == name for cell in known)
        rows.append(row)
    return table_of(rows)


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
            "Rivals are at their best in each cell. Lines join points of one kind; the order of models has no meaning."
        )
        figures.append(Figure(name, f"Agreement of {item} with predictions and rivals at equal loss", caption, panels))
    return figures


def _panel(title: str, mine: Sequence[Cell], item: str) -> LinePanel:
    """Corrected agreement with each kind of explanation, against models."""
    x = np.arange(1.0, len(mine) + 1.0)
    curves = [interval_curve(label, x, [cell.corrected(name, item) for cell in mine]) for label, name in SHOWN.items()]
    for label, wanted in ((FREED, is_free), (OTHERS, _is_other)):
        if label == OTHERS or all(any(map(is_free, cell.row["rivals"])) and cell.is_network for cell in mine):
            values = [cell.corrected(cell.best_rival(item, wanted), item) for cell in mine]
            curves.append(interval_curve(label, x, values, dashed=True))
    names = [cell.training for cell in mine]
    return LinePanel(title, "model", f"corrected agreement of {item}", curves, x_names=names)


def _sentence(measured: Sequence[Cell], answers: Mapping[str, Answer]) -> str:
    seeds = min(len(cell.row["seeds"]) for cell in measured)
    parts = [f"{name}: {answer.decision} ({answer.because})" for name, answer in answers.items()]
    return f"{len(measured)} cells with at least {seeds} seeds each. " + "; ".join(parts) + "."
