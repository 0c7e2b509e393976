"""Agreement against efficiency: whether one curve holds over models, norms, optimizers, rates and sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from scipy import optimize

from tokengeom.extending import GD, AbstractProgress, Figure, Float, Points, ScatterPanel, Spectral
from tokengeom_studies.base import Check, Findings, Recipe, table_of
from tokengeom_studies.common.compared_cells import (
    NOT_MEASURED,
    Cell,
    by_text,
    cell_rows,
    cells,
    first_rows,
    lead_table,
    over_texts,
    run_checks,
    shared_tables,
    without_rules,
)
from tokengeom_studies.common.compared_trainings import Training, begin_comparing, known_trainings, measure_trainings
from tokengeom_studies.common.measured import AbstractMeasuredStudy, Answer, Hypothesis, Row, Rows, chosen
from tokengeom_studies.common.on_device import ITEMS

NORM = "nuclear"
"""Norm of efficiency, and of the prediction that agreement is with."""
CLOSE = 0.03
"""Error of a curve that counts as one curve."""
STRONG = 0.8
"""Rank correlation that counts as strong."""
NAMED = ("ufm, gd", "ufm, start x 4", "ufm, muon", "mlp, no norm", "mlp, muon")
"""Trainings whose points have a name: those at the ends, and those beside the others."""


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
        "seconds": 120,
        "device": "cpu",
        "cache": "",
    }
    paper: ClassVar[Recipe] = {
        **small,
        "text": "texts/tinystories_1000x4000.npz",
        "trainings": list(TRAININGS),
        "dim": 384,
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
                "Spearman's rank correlation with corrected agreement, over all trainings on a text at equal loss: at "
                f"least {STRONG}: yes; below 0.5: no; otherwise undecided. Over texts: what holds on three quarters of "
                "them.",
            ),
            (
                "one-curve",
                "One increasing curve of agreement against efficiency holds for every kind of model, for {item}.",
                "On a text, an increasing curve of corrected agreement fitted to the other kinds of model predicts "
                f"each kind (ufm, mlp, lstm, transformer) with a mean absolute error of at most {CLOSE}: yes; above "
                f"{2 * CLOSE} for some kind: no; otherwise undecided. Over texts as above.",
            ),
        )
    }

    def measure(self, recipe: Recipe, rows: Rows, progress: AbstractProgress) -> None:
        """Train in every way of the recipe."""
        trainings = known_trainings(recipe["trainings"], TRAININGS)
        measure_trainings(begin_comparing(recipe, rows), trainings, range(recipe["seeds"]), progress)

    def judge(self, recipe: Recipe, rows: Sequence[Row]) -> Findings:
        """Rank correlations, and the error of a curve that has not seen a kind of model."""
        texts = _at_loss(cell_rows(rows), recipe)
        everything = [cell for some in texts.values() for cell in some]
        answers = _answers(texts)
        largest = max(cell.mean("efficiency") for cell in everything)
        checks = run_checks(rows)
        checks.append(Check("largest efficiency, which is proven to be at most 1", largest, low=0.0, high=1.01))
        tables = {
            "hypotheses": self.answers(answers),
            "by text": table_of([_described(text, some, item) for item in ITEMS for text, some in texts.items()]),
            "leads": lead_table(everything, NORM),
            **shared_tables(rows, everything, {NORM: NORM}),
        }
        if before := chosen(rows, kind="run"):
            tables["first"] = without_rules(self.answers(_answers(_at_loss(first_rows(before), recipe))))
        decided = "; ".join(f"{name}: {answer.decision} ({answer.because})" for name, answer in answers.items())
        sentence = f"{len(everything)} trainings on {len(texts)} texts at equal loss. {decided}."
        return self.findings(recipe, sentence, checks, [_figure(texts)], tables)


def _at_loss(known: Sequence[Row], recipe: Recipe) -> dict[str, list[Cell]]:
    """Text -> its cells at the loss gap that decides."""
    return by_text([cell for cell in cells(known) if cell.target == recipe["judged_at"]])


def _answers(texts: Mapping[str, Sequence[Cell]]) -> dict[str, Answer]:
    return {
        f"{name}-{item}": over_texts({text: answer(some, item) for text, some in texts.items()})
        for item in ITEMS
        for name, answer in (("monotone", _monotone), ("one-curve", _one_curve))
    }


def _points(some: Sequence[Cell], item: str) -> tuple[Float, Float, list[str]]:
    """Efficiency, corrected agreement and kind of model of the trainings whose seeds agree to something."""
    found = [(cell.mean("efficiency"), cell.corrected(NORM, item).mean, cell.model) for cell in some]
    known = [one for one in found if np.isfinite(one[1])]
    return np.array([x for x, _, _ in known]), np.array([y for _, y, _ in known]), [model for _, _, model in known]


def _monotone(some: Sequence[Cell], item: str) -> Answer:
    x, y, _ = _points(some, item)
    if x.size < 3:
        return Answer("undecided", NOT_MEASURED)
    # Importing scipy.stats takes half a second, which every list of studies would wait for.
    from scipy.stats import spearmanr

    rank = float(spearmanr(x, y).statistic)
    return Answer("yes" if rank >= STRONG else "no" if rank < 0.5 else "undecided", f"rank correlation {rank:.2f}")


def _one_curve(some: Sequence[Cell], item: str) -> Answer:
    """Mean absolute error on each kind of model of an increasing curve fitted to the others."""
    x, y, models = _points(some, item)
    errors = {}
    for model in dict.fromkeys(models):
        mine = np.array([name == model for name in models])
        if (~mine).sum() >= 3:
            errors[model] = float(np.abs(increasing_curve(x[~mine], y[~mine], x[mine]) - y[mine]).mean())
    if not errors:
        return Answer("undecided", NOT_MEASURED)
    worst = max(errors.values())
    because = ", ".join(f"{model} {error:.3f}" for model, error in errors.items())
    return Answer("yes" if worst <= CLOSE else "no" if worst > 2 * CLOSE else "undecided", f"mean errors: {because}")


def increasing_curve(x: Float, y: Float, at: Float) -> Float:
    """The least-squares increasing curve through points, evaluated elsewhere; constant beyond its ends."""
    order = np.argsort(x)
    fitted = optimize.isotonic_regression(y[order]).x
    return np.asarray(np.interp(at, x[order], fitted))


def _described(text: str, some: Sequence[Cell], item: str) -> dict[str, object]:
    """What the statements say of one text."""
    _, y, _ = _points(some, item)
    return {
        "corrected agreement of": item,
        "text": text,
        "trainings": y.size,
        "lowest and highest": f"{y.min():.3f} and {y.max():.3f}" if y.size else "-",
        "in order": _monotone(some, item).because,
        "one curve": _one_curve(some, item).because,
    }


def _figure(texts: Mapping[str, Sequence[Cell]]) -> Figure:
    """Corrected agreement against efficiency, one colour per kind of model, one panel per text and kind of item."""
    panels = []
    for text, some in texts.items():
        for item in ITEMS:
            points = []
            for model in dict.fromkeys(cell.model for cell in some):
                mine = [cell for cell in some if cell.model == model]
                x = np.array([cell.mean("efficiency") for cell in mine])
                y = np.array([cell.corrected(NORM, item).mean for cell in mine])
                points.append(
                    Points(model, x, y, names=[cell.training if cell.training in NAMED else "" for cell in mine])
                )
            title, label = f"{item.capitalize()}, {text}", f"corrected agreement of {item}"
            panels.append(ScatterPanel(title, "efficiency of the logits", label, points))
    return Figure(
        "efficiency",
        "Agreement with the smallest nuclear norm against efficiency, at equal loss",
        "Each point is a way of training; agreement is corrected for what its seeds agree to, so that 1 is all that is "
        "reproducible. Efficiency is the smallest nuclear norm of any logits with this loss, divided by that of the "
        "model's logits, mean over seeds.",
        panels,
        columns=2,
    )
