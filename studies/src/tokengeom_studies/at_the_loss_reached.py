"""The geometry at the loss reached, in six kinds of model: prediction, limit, rivals and other seeds at equal loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar

import numpy as np

from tokengeom.extending import AbstractProgress, Curve, Figure, LinePanel
from tokengeom_studies.base import Check, Findings, Recipe, Table, table_of
from tokengeom_studies.common.compared_trainings import (
    Cell,
    Training,
    begin_comparing,
    cells,
    farthest,
    measure_trainings,
    not_reached,
)
from tokengeom_studies.common.measured import (
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
MOST = 0.75
"""Share of the cells in which a statement must hold to be called true; at most 1 - MOST calls it false."""
ITEMS = ("contexts", "tokens")
LEAST = 0.05
"""Agreement of two seeds below which there is nothing to explain."""
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
            "limit": share_ahead(
                measured, lambda c: differences(c.agreement(NORM, "contexts"), c.agreement("limit", "contexts"))
            ),
            "rivals-contexts": share_ahead(measured, lambda c: against_best_rival(c, "contexts")),
            "rivals-tokens": share_ahead(measured, lambda c: against_best_rival(c, "tokens")),
            "ceiling": _near_ceiling(measured),
            "norm": share_ahead(
                measured, lambda c: differences(c.agreement(NORM, "contexts"), c.agreement("nuclear", "contexts"))
            ),
            "split": share_ahead(
                networks,
                lambda c: differences(c.agreement(f"{NORM}, own split", "tokens"), c.agreement(NORM, "tokens")),
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
            "corrected": corrected_table(networks, cells_of_features(measured)),
            "cells": _table(measured),
            "rivals": _rival_table(measured),
            "hypotheses": self.answers(answers),
            **_model_tables(measured),
        }
        missed = not_reached(rows)
        if missed:
            tables["not reached"] = table_of([{"run": name} for name in missed])
        return self.findings(recipe, _sentence(measured, answers), checks, _figures(measured), tables)


def differences(a: Sequence[float], b: Sequence[float]) -> Interval:
    """Interval of the paired difference over seeds."""
    return Interval.of(x - y for x, y in zip(a, b, strict=True))


def against_best_rival(cell: Cell, item: str) -> Interval:
    """The prediction's lead over the best rival of the cell."""
    return differences(cell.agreement(NORM, item), cell.rival(cell.best_rival(item), item))


def share_ahead(cells: Sequence[Cell], lead: object) -> Answer:
    """How many cells have a lead whose interval is above 0; cells with one seed do not count."""
    assert callable(lead)
    leads = [(cell, lead(cell)) for cell in cells if len(cell.runs) > 1]
    ahead = sum(lead_interval.low > 0 for _, lead_interval in leads)
    behind = sum(lead_interval.high < 0 for _, lead_interval in leads)
    share = ahead / len(leads) if leads else float("nan")
    mean = float(np.mean([lead_interval.mean for _, lead_interval in leads])) if leads else float("nan")
    return Answer(
        decided_by_share(share, MOST),
        f"ahead in {ahead} of {len(leads)} cells, behind in {behind}; mean difference {mean:+.3f}",
    )


def _near_ceiling(cells: Sequence[Cell]) -> Answer:
    known = [cell for cell in cells if len(cell.runs) > 1]
    short = [cell.ceiling("contexts") - float(np.mean(cell.agreement(NORM, "contexts"))) for cell in known]
    near = sum(difference <= NEAR for difference in short)
    share = near / len(known) if known else float("nan")
    return Answer(
        decided_by_share(share, MOST),
        f"in {near} of {len(known)} cells; mean distance {float(np.mean(short)):+.3f}",
    )


def _table(cells: Sequence[Cell]) -> Table:
    """Mean agreement per cell, contexts / tokens."""

    def both(contexts: float, tokens: float) -> str:
        return f"{contexts:.3f} / {tokens:.3f}"

    def mean(cell: Cell, name: str) -> str:
        return both(*(float(np.mean(cell.agreement(name, item))) for item in ("contexts", "tokens")))

    def best(cell: Cell) -> str:
        names = {item: cell.best_rival(item) for item in ("contexts", "tokens")}
        numbers = [float(np.mean(cell.rival(name, item))) for item, name in names.items()]
        return f"{both(*numbers)} ({' / '.join(names.values())})"

    return table_of(
        [
            {
                "text": cell.text,
                "model": cell.training,
                "loss gap": f"{cell.target:g}",
                "seeds": len(cell.runs),
                "at its loss, gamma_2": mean(cell, "gamma2"),
                "at its loss, nuclear": mean(cell, "nuclear"),
                "limit": mean(cell, "limit"),
                "best rival": best(cell),
                "another seed": both(cell.ceiling("contexts"), cell.ceiling("tokens")),
                "efficiency": f"{cell.mean('efficiency'):.2f}",
                "split exponent": f"{cell.mean('split_exponent'):.2f}",
            }
            for cell in cells
        ]
    )


def cells_of_features(cells: Sequence[Cell]) -> dict[tuple[str, float], Cell]:
    """Text and loss gap -> the cell of unconstrained features, which says how reliable one of their trainings is."""
    return {(cell.text, cell.target): cell for cell in cells if cell.model == "ufm"}


def corrected_table(networks: Sequence[Cell], features: Mapping[tuple[str, float], Cell]) -> Table:
    """For each text, over its networks: agreement divided by the root of what seeds agree to, contexts / tokens.

    Unconstrained features are one training, so their agreement is divided by the root of their own reliability too.
    """

    def mean(cells: Sequence[Cell], values: Callable[[Cell, str], float]) -> str:
        both = [[values(cell, item) / np.sqrt(cell.ceiling(item)) for cell in cells] for item in ITEMS]
        return " / ".join(f"{float(np.mean(of)):.3f}" for of in both)

    def predicted(name: str, cell: Cell, item: str) -> float:
        return float(np.mean(cell.agreement(name, item)))

    def features_of(cell: Cell, item: str) -> float:
        reliability = features[cell.text, cell.target].ceiling(item)
        return float(np.mean(cell.rival("UFM", item)) / np.sqrt(reliability))

    def others(cell: Cell, item: str) -> float:
        names = [name for name in cell.runs[0]["rivals"] if name != "UFM"]
        return max(float(np.mean(cell.rival(name, item))) for name in names)

    rows = []
    for text in dict.fromkeys(cell.text for cell in networks):
        cells = [cell for cell in networks if cell.text == text and len(cell.runs) > 1]
        # Where two seeds have nothing in common there is nothing to divide by.
        trained = [c for c in cells if (text, c.target) in features and "UFM" in c.runs[0]["rivals"]]
        known = [c for c in trained if min(c.ceiling(item) for item in ITEMS) > LEAST]
        if known:
            row: dict[str, object] = {"text": text, "cells": len(known)}
            for label, name in (("gamma_2", "gamma2"), ("nuclear", "nuclear"), ("limit", "limit")):
                row[label] = mean(known, partial(predicted, name))
            row["unconstrained features"], row["best other rival"] = mean(known, features_of), mean(known, others)
            ahead = sum(predicted(NORM, c, ITEMS[0]) > features_of(c, ITEMS[0]) for c in known)
            row["gamma_2 ahead of unconstrained features, contexts"] = f"{ahead} of {len(known)}"
            rows.append(row)
    return table_of(rows) if rows else {"text": [], "cells": []}


def _text_table(cells: Sequence[Cell]) -> Table:
    """For each text: in how many cells each norm is ahead of, or behind, the best rival, and mean leads."""
    rows = []
    for text in dict.fromkeys(cell.text for cell in cells):
        mine = [cell for cell in cells if cell.text == text and len(cell.runs) > 1]
        for norm, label in (("gamma2", "gamma_2"), ("nuclear", "nuclear")):
            row: dict[str, object] = {"text": text, "norm": label, "cells": len(mine)}
            for item in ("contexts", "tokens"):
                leads = [
                    differences(cell.agreement(norm, item), cell.rival(cell.best_rival(item), item)) for cell in mine
                ]
                row[f"{item}: ahead / behind"] = f"{sum(x.low > 0 for x in leads)} / {sum(x.high < 0 for x in leads)}"
                row[f"{item}: mean lead"] = f"{float(np.mean([x.mean for x in leads])):+.3f}"
                short = [float(np.mean(cell.agreement(norm, item))) - cell.ceiling(item) for cell in mine]
                row[f"{item}: less another seed"] = f"{float(np.mean(short)):+.3f}"
            rows.append(row)
    return table_of(rows)


def _model_tables(cells: Sequence[Cell]) -> dict[str, Table]:
    """For each text at the loss that all texts have, a column per model: agreement of contexts / tokens."""
    texts = list(dict.fromkeys(cell.text for cell in cells))
    gaps = common_gaps(cells)

    def both(values: Mapping[str, float]) -> str:
        return " / ".join(f"{values[item]:.3f}" for item in ("contexts", "tokens"))

    def table(text: str) -> Table:
        mine = [cell for cell in cells if cell.text == text and cell.target == gaps[text]]
        items = ("contexts", "tokens")
        rows: dict[str, list[str]] = {
            label: [both({i: float(np.mean(c.agreement(name, i))) for i in items}) for c in mine]
            for label, name in (
                ("prediction at the loss reached, gamma_2 norm", "gamma2"),
                ("prediction at the loss reached, nuclear norm", "nuclear"),
                ("prediction in the limit", "limit"),
            )
        }
        rows["best rival"] = [both({i: float(np.mean(c.rival(c.best_rival(i), i))) for i in items}) for c in mine]
        rows["another seed of the same training"] = [both({i: c.ceiling(i) for i in items}) for c in mine]
        names = [cell.training for cell in mine]
        return table_of(
            [{"agreement": label, **dict(zip(names, values, strict=True))} for label, values in rows.items()]
        )

    return {f"models, {text}": table(text) for text in texts}


def common_gaps(cells: Sequence[Cell]) -> dict[str, float]:
    """The largest loss gap that all texts have; where there is none, the smallest of each text."""
    texts = list(dict.fromkeys(cell.text for cell in cells))
    shared = set.intersection(*({cell.target for cell in cells if cell.text == text} for text in texts))
    return {t: max(shared) if shared else min(c.target for c in cells if c.text == t) for t in texts}


def _rival_table(cells: Sequence[Cell]) -> Table:
    """In how many cells each rival is the best one, and its mean agreement over all cells."""
    names = list(cells[0].runs[0]["rivals"])
    rows = []
    for name in names:
        row: dict[str, object] = {"rival": name}
        for item in ("contexts", "tokens"):
            known = [cell for cell in cells if name in cell.runs[0]["rivals"]]
            row[f"mean, {item}"] = f"{float(np.mean([np.mean(cell.rival(name, item)) for cell in known])):.3f}"
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
        "fitted to the run."
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
        curve("best rival", [cell.rival(cell.best_rival(item), item) for cell in mine], dashed=True),
    ]
    ceiling = np.array([cell.ceiling(item) for cell in mine])
    if np.isfinite(ceiling).any():
        curves.append(Curve("another seed", x, ceiling, dotted=True))
    label = f"agreement of {item}"
    if by_model:
        return LinePanel(title, "model", label, curves, x_names=[cell.training for cell in mine])
    return LinePanel(title, "loss gap in nats", label, curves, x_scale="log")


def _sentence(cells: Sequence[Cell], answers: Mapping[str, Answer]) -> str:
    seeds = min(len(cell.runs) for cell in cells)
    parts = [f"{name}: {answer.decision} ({answer.because})" for name, answer in answers.items()]
    return f"{len(cells)} cells with at least {seeds} seeds each. " + "; ".join(parts) + "."
