"""Agreement against efficiency: whether one curve holds over models, norms, optimizers, rates and sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
from scipy import optimize

from tokengeom.extending import GD, AbstractProgress, Figure, Float, Points, ScatterPanel, Spectral
from tokengeom_studies.base import Check, Findings, Recipe, Table, table_of
from tokengeom_studies.common.compared_trainings import (
    ITEMS,
    Cell,
    Training,
    begin_comparing,
    both,
    cells,
    edge_table,
    farthest,
    known_trainings,
    measure_trainings,
    not_reached,
)
from tokengeom_studies.common.corrected import shown
from tokengeom_studies.common.measured import AbstractMeasuredStudy, Answer, Hypothesis, Row, Rows, chosen

CLOSE = 0.03
"""Error of a curve that counts as one curve."""
STRONG = 0.8
"""Rank correlation that counts as strong."""


def _adamw(rate: float = 1e-3, **more: Any) -> dict[str, Any]:
    return {"learning_rate": rate, "rate_schedule": "constant", **more}


def _mean_loss(optimizer: object, rate: float) -> dict[str, Any]:
    return {"optimizer": optimizer, "reduction": "mean", "rate_schedule": "constant", "learning_rate": rate}


_MUON = _mean_loss(Spectral(method="newton-schulz", momentum=0.95, nesterov=True), 5e-3)
TRAININGS: Mapping[str, Training] = {
    "ufm": Training("ufm", _adamw()),
    "ufm, rate 1e-2": Training("ufm", _adamw(1e-2)),
    "ufm, decay 1": Training("ufm", _adamw(weight_decay=1.0)),
    "ufm, start x 4": Training("ufm", _adamw(), 4.0),
    "ufm, gd": Training("ufm", _mean_loss(GD(), 1.0), 0.45, adapted=True),
    "ufm, sign descent": Training("ufm", _mean_loss("signgd", 3e-4)),
    "ufm, muon": Training("ufm", _MUON),
    "mlp": Training("mlp", _adamw()),
    "mlp, no norm": Training("mlp", _adamw(), last_norm="none"),
    "mlp, layer norm": Training("mlp", _adamw(), last_norm="layer"),
    "mlp, rate 3e-4": Training("mlp", _adamw(3e-4)),
    "mlp, rate 1e-2": Training("mlp", _adamw(1e-2)),
    "mlp, cosine": Training("mlp", _adamw(rate_schedule="cosine", steps=1_000)),
    "mlp, decay 1": Training("mlp", _adamw(weight_decay=1.0)),
    "mlp, d = 64": Training("mlp", _adamw(dim=64)),
    "mlp, d = 1024": Training("mlp", _adamw(dim=1024)),
    "mlp, muon": Training("mlp", _MUON),
    "lstm": Training("lstm", _adamw()),
    "lstm, rate 1e-2": Training("lstm", _adamw(1e-2)),
    "transformer": Training("transformer", _adamw()),
    "transformer, rate 3e-4": Training("transformer", _adamw(3e-4)),
    "transformer, d = 128": Training("transformer", _adamw(dim=128)),
}


class Efficiency(AbstractMeasuredStudy):
    """Many trainings at equal loss: efficiency of their logits and agreement with the smallest nuclear norm."""

    question = "Is the agreement of a model with the prediction at its loss a function of the efficiency of its logits?"
    small: ClassVar[Recipe] = {
        "text": "stories",
        "stories": 200,
        "context": 3,
        "contexts": 60,
        "vocabulary": 40,
        "seed": 0,
        "trainings": ["ufm", "ufm, rate 1e-2", "ufm, gd", "mlp", "mlp, no norm", "mlp, layer norm"],
        "dim": 32,
        "gaps": [0.2, 0.05],
        "judged_at": 0.05,
        "seeds": 2,
        "seconds": 60,
        "device": "cpu",
        "cache": "",
    }
    paper: ClassVar[Recipe] = {
        **small,
        "text": "texts/tinystories_1000x4000.npz",
        "trainings": list(TRAININGS),
        "dim": 256,
        "seeds": 5,
        "device": "cuda",
        "cache": "predictions",
    }
    hypotheses: ClassVar[Mapping[str, Hypothesis]] = {
        f"{name}-{item}": Hypothesis(statement.format(item=item), rule)
        for item in ITEMS
        for name, statement, rule in (
            (
                "monotone",
                "Trainings with more efficient logits agree better with the prediction (nuclear norm), for {item}.",
                f"Spearman's rank correlation over all trainings, means over seeds at equal loss: at least {STRONG}: "
                "yes; below 0.5: no; otherwise undecided.",
            ),
            (
                "one-curve",
                "One increasing curve of agreement against efficiency holds for every kind of model, for {item}.",
                "An increasing curve fitted to the other kinds of model predicts each kind (ufm, mlp, lstm, "
                f"transformer) with a mean absolute error of at most {CLOSE}: yes; above {2 * CLOSE} for some kind: "
                "no; otherwise undecided.",
            ),
        )
    }

    def measure(self, recipe: Recipe, rows: Rows, progress: AbstractProgress) -> None:
        """Train in every way of the recipe."""
        trainings = known_trainings(recipe["trainings"], TRAININGS)
        comparer = begin_comparing(recipe, rows)
        measure_trainings(comparer, trainings, range(recipe["seeds"]), rows, progress, seconds=recipe["seconds"])

    def judge(self, recipe: Recipe, rows: Sequence[Row]) -> Findings:
        """Rank correlations, and the error of a curve that has not seen a kind of model."""
        judged_cells = [cell for cell in cells(rows) if cell.target == recipe["judged_at"]]
        x = np.array([cell.mean("efficiency") for cell in judged_cells])
        answers, again = {}, []
        for item in ITEMS:
            y = np.array([cell.agreed("nuclear", item) for cell in judged_cells])
            answers[f"monotone-{item}"] = _monotone(x, y)
            answers[f"one-curve-{item}"] = _one_curve(x, y, [cell.model for cell in judged_cells])
            again.append(_again(judged_cells, item))
        proven = [row["relative_gap"] for row in chosen(rows, kind="prediction")]
        reached = [row["reached"] for row in chosen(rows, kind="run")]
        checks = [
            Check(
                "largest relative distance of a loss gap from the one compared at", farthest(judged_cells), high=0.25
            ),
            Check("largest proven relative gap of a prediction", float(max(proven)), high=0.05),
            Check("largest efficiency, which is proven to be at most 1", float(x.max()), low=0.0, high=1.01),
            Check("share of runs that reached their loss", float(np.mean(reached)), low=0.5),
        ]
        tables = {
            "trainings": _table(judged_cells),
            "corrected": table_of(again),
            "edges": edge_table(judged_cells),
            "hypotheses": self.answers(answers),
        }
        missed = not_reached(rows)
        if missed:
            tables["not reached"] = table_of([{"run": answer} for answer in missed])
        decided = "; ".join(f"{name}: {answer.decision} ({answer.because})" for name, answer in answers.items())
        return self.findings(
            recipe, f"{len(judged_cells)} trainings at equal loss. {decided}.", checks, [_figure(judged_cells)], tables
        )


def _monotone(x: Float, y: Float) -> Answer:
    if x.size < 3:
        return Answer("undecided", f"only {x.size} trainings")
    # Importing scipy.stats takes half a second, which every list of studies would wait for.
    from scipy.stats import spearmanr

    rank = float(spearmanr(x, y).statistic)
    return Answer("yes" if rank >= STRONG else "no" if rank < 0.5 else "undecided", f"rank correlation {rank:.2f}")


def _one_curve(x: Float, y: Float, models: Sequence[str]) -> Answer:
    """Mean absolute error on each kind of model of an increasing curve fitted to the others."""
    errors = {}
    for model in dict.fromkeys(models):
        mine = np.array([name == model for name in models])
        if (~mine).sum() < 3:
            continue
        errors[model] = float(np.abs(increasing_curve(x[~mine], y[~mine], x[mine]) - y[mine]).mean())
    if not errors:
        return Answer("undecided", "too few kinds of model")
    worst = max(errors.values())
    because = ", ".join(f"{model} {error:.3f}" for model, error in errors.items())
    return Answer("yes" if worst <= CLOSE else "no" if worst > 2 * CLOSE else "undecided", f"mean errors: {because}")


def increasing_curve(x: Float, y: Float, at: Float) -> Float:
    """The least-squares increasing curve through points, evaluated elsewhere; constant beyond its ends."""
    order = np.argsort(x)
    fitted = optimize.isotonic_regression(y[order]).x
    return np.asarray(np.interp(at, x[order], fitted))


def _again(cells: Sequence[Cell], item: str) -> dict[str, object]:
    """The statements about corrected agreement, over trainings whose seeds agree to something."""
    y = np.array([cell.corrected("nuclear", item).mean for cell in cells])
    known = np.isfinite(y)
    x, models = np.array([cell.mean("efficiency") for cell in cells]), np.array([cell.model for cell in cells])
    curve = _one_curve(x[known], y[known], list(models[known]))
    return {
        "corrected agreement of": item,
        "trainings": int(known.sum()),
        "lowest and highest": f"{y[known].min():.3f} and {y[known].max():.3f}",
        "in order": _monotone(x[known], y[known]).because,
        "one curve": curve.because,
    }


def _table(cells: Sequence[Cell]) -> Table:
    return table_of(
        [
            {
                "training": cell.training,
                "seeds": len(cell.runs),
                "steps": f"{cell.mean('step'):.0f}",
                "efficiency": f"{cell.mean('efficiency'):.3f}",
                "agreement": both(partial(cell.agreed, "nuclear")),
                "reproducible": both(cell.reproducible),
                "corrected, contexts": shown(cell.corrected("nuclear", "contexts")),
                "corrected, tokens": shown(cell.corrected("nuclear", "tokens")),
                "split exponent": f"{cell.mean('split_exponent'):.2f}",
            }
            for cell in cells
        ]
    )


def _figure(cells: Sequence[Cell]) -> Figure:
    """Agreement against efficiency, one colour per kind of model."""
    panels = []
    for item in ITEMS:
        points = []
        for model in dict.fromkeys(cell.model for cell in cells):
            mine = [cell for cell in cells if cell.model == model]
            points.append(
                Points(
                    model,
                    np.array([cell.mean("efficiency") for cell in mine]),
                    np.array([cell.agreed("nuclear", item) for cell in mine]),
                    names=[cell.training for cell in mine],
                )
            )
        panels.append(ScatterPanel(item.capitalize(), "efficiency of the logits", f"agreement of {item}", points))
    return Figure(
        "efficiency",
        "Agreement with the smallest nuclear norm against efficiency, at equal loss",
        "Each point is a way of training, mean over seeds. Efficiency is the smallest nuclear norm of any logits with "
        "this loss, divided by that of the model's logits.",
        panels,
    )
