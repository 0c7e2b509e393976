"""The geometry at the loss reached, in six kinds of model: prediction, limit, rivals and other seeds at equal loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar

import numpy as np

from tokengeom.extending import AbstractProgress, Curve, Figure, LinePanel
from tokengeom_studies.base import Check, Findings, Recipe, Table, table_of
from tokengeom_studies.common.compared_trainings import (
    FREE,
    ITEMS,
    Cell,
    Training,
    begin_comparing,
    both,
    cells,
    edge_table,
    farthest,
    measure_trainings,
    not_reached,
)
from tokengeom_studies.common.corrected import LEAST, explained
from tokengeom_studies.common.measured import (
    MOST,
    AbstractMeasuredStudy,
    Answer,
    Hypothesis,
    Interval,
    Row,
    Rows,
    chosen,
    decided_by_share,
)

NORM = "gamma2"
"""Norm of the prediction for AdamW, chosen before the runs."""
NEAR = 0.05
"""Distance from the agreement between seeds that counts as equal to it."""


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
        "seconds": 60,
        "device": "cpu",
        "cache": "",
    }
    paper: ClassVar[Recipe] = {
        **small,
        "text": "texts/tinystories_1000x4000.npz",
        "networks": ["ufm", "mlp", "lstm", "transformer", "mamba", "xlstm"],
        "dim": 256,
        "gaps": [0.2, 0.05, 0.01],
        "learning_rate": 1e-3,
        "seeds": 5,
        "device": "cuda",
        "cache": "predictions",
    }
    hypotheses: ClassVar[Mapping[str, Hypothesis]] = {
        "limit": Hypothesis(
            "Contexts agree better with the prediction at the loss reached (gamma_2 norm) than with the limit.",
            "A cell is a text, a model and a loss gap. The 95% interval (Student's t, over seeds) of the paired "
            f"difference is above 0 in at least {MOST:.0%} of the cells: yes; in at most {1 - MOST:.0%}: no.",
        ),
        "rivals-contexts": Hypothesis(
            "Contexts agree better with the prediction at the loss reached than with every rival, free parameters of "
            "rivals fitted to the run's contexts.",
            "The same rule, against the rival that is best in the cell.",
        ),
        "rivals-tokens": Hypothesis(
            "Tokens agree better with the prediction at the loss reached than with every rival.",
            "The same rule, against the rival that is best for tokens in the cell.",
        ),
        "ceiling": Hypothesis(
            f"For contexts the prediction is within {NEAR} of what another seed of the same training reaches.",
            f"The mean agreement is at least the mean over pairs of seeds less {NEAR} in at least {MOST:.0%} of the "
            f"cells: yes; in at most {1 - MOST:.0%}: no.",
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
        comparer = begin_comparing(recipe, rows)
        rate = {"learning_rate": recipe["learning_rate"], "rate_schedule": "constant"}
        trainings = {model: Training(model, rate) for model in recipe["networks"]}
        seeds = range(recipe["seeds"])
        measure_trainings(comparer, trainings, seeds, rows, progress, seconds=recipe["seconds"])

    def judge(self, recipe: Recipe, rows: Sequence[Row]) -> Findings:
        """Counts of cells in which each statement holds."""
        measured = cells(rows)
        networks = [cell for cell in measured if cell.model != "ufm"]
        answers = {
            "limit": share_ahead(measured, lambda c: c.lead(NORM, "limit", "contexts")),
            "rivals-contexts": share_ahead(measured, lambda c: c.lead(NORM, c.best_rival("contexts"), "contexts")),
            "rivals-tokens": share_ahead(measured, lambda c: c.lead(NORM, c.best_rival("tokens"), "tokens")),
            "ceiling": _near_other_seeds(measured),
            "norm": share_ahead(measured, lambda c: c.lead(NORM, "nuclear", "contexts")),
            "split": share_ahead(
                networks,
                lambda c: c.lead(f"{NORM}, own split", NORM, "tokens"),
            ),
        }
        proofs = [row["relative_gap"] for row in chosen(rows, kind="prediction")]
        runs = chosen(rows, kind="run")
        reached = sum(row["reached"] for row in runs) / len(runs)
        checks = [
            Check("largest relative distance of a loss gap from the one compared at", farthest(measured), high=0.25),
            Check("largest proven relative gap of a prediction", float(max(proofs)), high=0.05),
            Check("share of runs that reached their loss", float(reached), low=0.5),
        ]
        tables = {
            "texts": _text_table(measured),
            **_corrected_tables(measured),
            "edges": edge_table(measured),
            "cells": _table(measured),
            "rivals": _rival_table(measured),
            "hypotheses": self.answers(answers),
        }
        missed = not_reached(rows)
        if missed:
            tables["not reached"] = table_of([{"run": name} for name in missed])
        return self.findings(recipe, _sentence(measured, answers), checks, _figures(measured), tables)


def share_ahead(cells: Sequence[Cell], lead: Callable[[Cell], Interval]) -> Answer:
    """How many cells have a lead whose interval is above 0; cells with one seed do not count."""
    leads = [(cell, lead(cell)) for cell in cells if len(cell.runs) > 1]
    ahead = sum(lead_interval.low > 0 for _, lead_interval in leads)
    behind = sum(lead_interval.high < 0 for _, lead_interval in leads)
    share = ahead / len(leads) if leads else float("nan")
    mean = float(np.mean([lead_interval.mean for _, lead_interval in leads])) if leads else float("nan")
    return Answer(
        decided_by_share(share, MOST),
        f"ahead in {ahead} of {len(leads)} cells, behind in {behind}; mean difference {mean:+.3f}",
    )


def _near_other_seeds(cells: Sequence[Cell]) -> Answer:
    known = [cell for cell in cells if len(cell.runs) > 1]
    short = [cell.reproducible("contexts") - cell.agreed(NORM, "contexts") for cell in known]
    near = sum(difference <= NEAR for difference in short)
    share = near / len(known) if known else float("nan")
    return Answer(
        decided_by_share(share, MOST),
        f"in {near} of {len(known)} cells; mean distance {float(np.mean(short)):+.3f}",
    )


def _table(cells: Sequence[Cell]) -> Table:
    """Mean agreement per cell, contexts / tokens, and what two seeds agree to."""

    def best(cell: Cell) -> str:
        names = {item: cell.best_rival(item) for item in ITEMS}
        return f"{both(lambda item: cell.agreed(names[item], item))} ({' / '.join(names.values())})"

    return table_of(
        [
            {
                "text": cell.text,
                "model": cell.training,
                "loss gap": f"{cell.target:g}",
                "seeds": len(cell.runs),
                "at its loss, gamma_2": both(partial(cell.agreed, "gamma2")),
                "at its loss, nuclear": both(partial(cell.agreed, "nuclear")),
                "limit": both(partial(cell.agreed, "limit")),
                "best rival": best(cell),
                "reproducible": both(cell.reproducible),
                "gamma_2, corrected": both(partial(cell.corrected, "gamma2")),
                "efficiency": f"{cell.mean('efficiency'):.2f}",
                "split exponent": f"{cell.mean('split_exponent'):.2f}",
            }
            for cell in cells
        ]
    )


ONE_TRAINING, FREED, OTHERS = "unconstrained features", "unconstrained features, noise-free", "best other rival"
SHOWN = {"gamma_2": "gamma2", "nuclear": "nuclear", "limit": "limit", ONE_TRAINING: FREE}
"""Explanations in tables -> their names in the rows."""


def _corrected_tables(cells: Sequence[Cell]) -> dict[str, Table]:
    """Corrected agreement of networks: means over the cells of each text, and over texts with the explained share."""
    free = {(cell.text, cell.target): cell for cell in cells if cell.model == "ufm"}
    known = [
        cell
        for cell in cells
        if cell.model != "ufm"
        and (cell.text, cell.target) in free
        and FREE in cell.runs[0]["rivals"]
        # Where two seeds have nothing in common there is nothing to divide by.
        and min(cell.reproducible(item) for item in ITEMS) > LEAST
    ]
    if not known:
        return {}

    def number(label: str, cell: Cell, item: str) -> float:
        if label == OTHERS:
            names = [name for name in cell.runs[0]["rivals"] if name != FREE]
            return max(cell.corrected(name, item).mean for name in names)
        if label == FREED:
            least = free[cell.text, cell.target].least_reliability(item)
            return cell.corrected(FREE, item).mean / float(np.sqrt(least))
        return cell.corrected(SHOWN[label], item).mean

    def mean(label: str, some: Sequence[Cell], item: str) -> float:
        return float(np.mean([number(label, cell, item) for cell in some]))

    texts = {text: [cell for cell in known if cell.text == text] for text in dict.fromkeys(c.text for c in known)}
    labels = [*SHOWN, FREED, OTHERS]
    by_text, over_texts = [], []
    for text, some in texts.items():
        row: dict[str, object] = {"text": text, "cells": len(some)}
        row |= {label: both(partial(mean, label, some)) for label in labels}
        for label in (ONE_TRAINING, FREED):
            ahead = sum(number("gamma_2", cell, "contexts") > number(label, cell, "contexts") for cell in some)
            row[f"gamma_2 ahead of {label}"] = f"{ahead} of {len(some)}"
        by_text.append(row)
    for label in labels:
        row = {"explanation": label}
        for item in ITEMS:
            interval = Interval.of(mean(label, some, item) for some in texts.values())
            row |= {item: str(interval), f"{item}: explained": str(explained(interval))}
        over_texts.append(row)
    return {"corrected": table_of(by_text), "explained": table_of(over_texts)}


def _text_table(cells: Sequence[Cell]) -> Table:
    """For each text: in how many cells each norm is ahead of, or behind, the best rival, and mean leads."""
    rows = []
    for text in dict.fromkeys(cell.text for cell in cells):
        mine = [cell for cell in cells if cell.text == text and len(cell.runs) > 1]
        for norm, label in (("gamma2", "gamma_2"), ("nuclear", "nuclear")):
            row: dict[str, object] = {"text": text, "norm": label, "cells": len(mine)}
            for item in ("contexts", "tokens"):
                leads = [cell.lead(norm, cell.best_rival(item), item) for cell in mine]
                row[f"{item}: ahead / behind"] = f"{sum(x.low > 0 for x in leads)} / {sum(x.high < 0 for x in leads)}"
                row[f"{item}: mean lead"] = f"{float(np.mean([x.mean for x in leads])):+.3f}"
            rows.append(row)
    return table_of(rows)


def common_gaps(cells: Sequence[Cell]) -> dict[str, float]:
    """The largest loss gap that all texts have; where there is none, the smallest of each text."""
    texts = list(dict.fromkeys(cell.text for cell in cells))
    shared = set.intersection(*({cell.target for cell in cells if cell.text == text} for text in texts))
    return {t: max(shared) if shared else min(c.target for c in cells if c.text == t) for t in texts}


def _rival_table(cells: Sequence[Cell]) -> Table:
    """In how many cells each rival is the best one, and its mean agreement over all cells, as it is and corrected."""
    names = list(cells[0].runs[0]["rivals"])
    rows = []
    for name in names:
        row: dict[str, object] = {"rival": name}
        for item in ITEMS:
            known = [cell for cell in cells if name in cell.runs[0]["rivals"]]
            values = [cell.corrected(name, item).mean for cell in known if cell.reproducible(item) >= LEAST]
            row[f"mean, {item}"] = f"{float(np.mean([cell.agreed(name, item) for cell in known])):.3f}"
            row[f"corrected, {item}"] = f"{Interval.of(values).mean:.3f}"
            row[f"best in cells, {item}"] = sum(cell.best_rival(item) == name for cell in known)
        rows.append(row)
    return table_of(rows)


def _figures(cells: Sequence[Cell]) -> list[Figure]:
    """Every model at one loss, one panel per text; one model over training; and its contexts and tokens on one text."""
    texts, gap = list(dict.fromkeys(cell.text for cell in cells)), common_gaps(cells)
    models = [
        _panel(
            f"{text}, loss gap {gap[text]:g}",
            [cell for cell in cells if cell.text == text and cell.target == gap[text]],
            by_model=True,
        )
        for text in texts
    ]
    shown = "transformer" if any(cell.training == "transformer" for cell in cells) else cells[-1].training
    training = [
        _panel(f"{shown}, {text}", mine, by_model=False)
        for text in texts
        if (mine := [cell for cell in cells if cell.text == text and cell.training == shown])
    ]
    one_text = [cell for cell in cells if cell.text == texts[0] and cell.training == shown]
    overview = [
        _panel(f"{item} of the {shown}", one_text, by_model=False, item=item) for item in ("contexts", "tokens")
    ]
    how = (
        "mean over seeds; bands are 95% intervals. The best rival is chosen in each cell, with its free parameters "
        "fitted to the run. Attainable is the root of what two seeds agree to."
    )
    caption = f"Correlation of cosines over pairs of contexts with different supports, {how}"
    return [
        Figure(
            "models",
            "Agreement of contexts with predictions and rivals at equal loss",
            f"{caption} Lines join points of one kind; the order of models has no meaning.",
            models,
        ),
        Figure("training", f"Agreement of contexts over training: {shown}", caption, training),
        Figure(
            "overview",
            f"Agreement over training: {shown}, {texts[0]}",
            f"Correlation of cosines over pairs of contexts with different supports, and of different tokens, {how} "
            "The loss gap falls during training, from right to left.",
            overview,
        ),
    ]


def _panel(title: str, mine: Sequence[Cell], *, by_model: bool, item: str = "contexts") -> LinePanel:
    """Agreement of contexts, or of tokens, with each kind of explanation, against models or against the loss gap."""
    mine = mine if by_model else sorted(mine, key=lambda cell: -cell.target)
    x = np.arange(1.0, len(mine) + 1.0) if by_model else np.array([cell.target for cell in mine])

    def curve(label: str, values: Sequence[Sequence[float]], *, dashed: bool = False) -> Curve:
        intervals = [Interval.of(item_values) for item_values in values]
        y, half = (np.array([getattr(item_values, name) for item_values in intervals]) for name in ("mean", "half"))
        half = np.where(np.isfinite(half), half, 0.0)
        return Curve(label, x, y, low=y - half, high=y + half, dashed=dashed)

    curves = [
        curve("at the loss reached, gamma_2", [cell.agreement("gamma2", item) for cell in mine]),
        curve("at the loss reached, nuclear", [cell.agreement("nuclear", item) for cell in mine]),
        curve("in the limit, L_mm", [cell.agreement("limit", item) for cell in mine]),
        curve("best rival", [cell.agreement(cell.best_rival(item), item) for cell in mine], dashed=True),
    ]
    attainable = np.sqrt([max(cell.reproducible(item), 0.0) for cell in mine])
    if np.isfinite(attainable).any():
        curves.append(Curve("attainable", x, attainable, dotted=True))
    label = f"agreement of {item}"
    if by_model:
        return LinePanel(title, "model", label, curves, x_names=[cell.training for cell in mine])
    return LinePanel(title, "loss gap in nats", label, curves, x_scale="log")


def _sentence(cells: Sequence[Cell], answers: Mapping[str, Answer]) -> str:
    seeds = min(len(cell.runs) for cell in cells)
    parts = [f"{name}: {answer.decision} ({answer.because})" for name, answer in answers.items()]
    return f"{len(cells)} cells with at least {seeds} seeds each. " + "; ".join(parts) + "."
