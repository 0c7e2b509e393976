"""The regularisation path and gradient descent, compared at equal loss.

The theory is proven for the path ``L_lambda = argmin CE(L) + lambda ||L||_*``, lambda -> 0 [zhao2024]; in practice one
descends on W and H without regularisation. Three comparisons:

- gradient descent with ridge lambda on the factors must converge to ``L_lambda``, solved in logit space with a duality
  gap;
- without ridge, its finite part ``P_F(L)`` and its direction are compared with ``L_in`` and ``L_mm``, at the same loss
  as the path; ``CE - H`` is ``lambda ||L_mm||_*`` on the path and falls like ``1/k`` in descent;
- its logits are compared with the path's logits at that loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tokengeom import FeaturePrediction, NextTokenStatistics, Run, predict, train
from tokengeom.extending import (
    AbstractProgress,
    Curve,
    Figure,
    Float,
    LinePanel,
    Probe,
    State,
    centre_columns,
    cosine,
    project_on_F,
)
from tokengeom.extending import path as draw_path
from tokengeom_studies.base import AbstractStudy, Check, Findings, Recipe, Table, table_of
from tokengeom_studies.common.logit_path import LogitPath, regularisation_path
from tokengeom_studies.common.model_runs import direction_probe
from tokengeom_studies.common.random_data import random_counts


@dataclass(frozen=True, eq=False)
class PathAndDescent:
    """The path, descent without ridge, and their comparisons.

    ``ridge_distances``
        Relative distance of the end of descent with ridge from ``L_lambda``, for each ridge.
    ``matched``
        Cosine of the logits at the end of descent with the path's logits at the same loss.
    """

    prediction: FeaturePrediction
    path: LogitPath
    descent: Run
    ridges: Sequence[float]
    ridge_distances: Sequence[float]
    matched: float

    def path_at(self, loss_gap: float, name: str) -> float:
        """A measurement of the path at a given loss, interpolated between its points over the log of the loss."""
        order = np.argsort(self.path.column("loss_gap"))
        logs = np.log(self.path.column("loss_gap")[order])
        return float(np.interp(np.log(loss_gap), logs, self.path.column(name)[order]))


class PathVsGd(AbstractStudy):
    """The convex path in logit space compared with descent on both factors."""

    question: ClassVar[str] = "Does gradient descent follow the regularisation path?"
    # Small has fewer steps and contexts than paper.
    small: ClassVar[Recipe] = {
        "seed": 0,
        "V": 12,
        "contexts": 20,
        "support": 3,
        "repeats": 4,
        "dim": 48,
        "steps": 300_000,
        "learning_rate": 1.0,
        "smallest_lambda": 1e-12,
        "ridges": [1e-2, 1e-3],
        "ridge_steps": 50_000,
    }
    paper: ClassVar[Recipe] = {
        **small,
        "V": 30,
        "contexts": 60,
        "support": 4,
        "dim": 128,
        "steps": 3_000_000,
        "ridges": [1e-2, 1e-3, 1e-4],
        "ridge_steps": 500_000,
    }

    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Follow the path, descend with ridge and without, compare at equal loss."""
        stats = random_counts(recipe["seed"], recipe["V"], recipe["contexts"], recipe["support"], recipe["repeats"])
        prediction = predict(stats)
        path = _path_to(stats, prediction, recipe["smallest_lambda"])
        descent = _descend(stats, recipe, progress, probes=_probes(prediction))
        same_loss = _path_to(stats, prediction, descent.loss_gap / prediction.nuclear_norm)
        both = PathAndDescent(
            prediction,
            path,
            descent,
            recipe["ridges"],
            [_ridge_distance(stats, prediction, recipe, lam, progress) for lam in recipe["ridges"]],
            cosine(centre_columns(descent.logits), same_loss.last_logits),
        )
        tables = {"path": table_of(path.to_rows()), "descent": _descent_table(descent)}
        return self.findings(recipe, _sentence(both), _checks(both), [_figure(both), draw_path(path.columns())], tables)


def _path_to(stats: NextTokenStatistics, prediction: FeaturePrediction, smallest: float) -> LogitPath:
    points = max(2, round(2 * np.log10(1e-2 / smallest)) + 1)
    lambdas = np.geomspace(max(1e-2, smallest), smallest, points)
    return regularisation_path(stats, prediction.L_mm, lambdas)


def _descend(
    stats: NextTokenStatistics,
    recipe: Recipe,
    progress: AbstractProgress,
    *,
    ridge: float = 0.0,
    probes: dict[str, Probe] | None = None,
) -> Run:
    return train(
        stats,
        "ufm",
        dim=recipe["dim"],
        optimizer="gd",
        reduction="mean",
        steps=recipe["ridge_steps"] if ridge else recipe["steps"],
        learning_rate=recipe["learning_rate"],
        weight_decay=ridge,
        seed=recipe["seed"],
        probes=probes,
        progress=progress,
    )


def _probes(prediction: FeaturePrediction) -> dict[str, Probe]:
    L_in, S = prediction.L_in, prediction.P.toarray() > 0
    size = float(np.linalg.norm(L_in)) or 1.0

    def finite_distance(state: State) -> float:
        return float(np.linalg.norm(project_on_F(state.L, S) - L_in)) / size

    return {"finite_distance": finite_distance, **direction_probe(prediction)}


def _ridge_distance(
    stats: NextTokenStatistics, prediction: FeaturePrediction, recipe: Recipe, lam: float, progress: AbstractProgress
) -> float:
    L = _path_to(stats, prediction, lam).last_logits
    run = _descend(stats, recipe, progress, ridge=lam)
    return float(np.linalg.norm(centre_columns(run.logits) - L) / np.linalg.norm(L))


def _rise(values: Float) -> float:
    """Increase over the last third of the records."""
    return float(values[-1] - values[-1 - len(values) // 3])


def _checks(both: PathAndDescent) -> list[Check]:
    descent, path = both.descent.trajectory, both.path
    return [
        Check("largest duality gap on the path", float(path.relative_gaps.max()), high=1e-5),
        Check("path: rate of the loss gap in lambda", path.loss_rate, low=0.95, high=1.05),
        Check("path: rate of the finite part in lambda", path.finite_rate, low=0.9, high=1.1),
        Check("path: rate of 1 - cos in log 1/lambda", path.direction_rate, low=-3.0, high=-1.5),
        Check("path: last cos(L, L_mm)", float(path.column("direction_cosine")[-1]), low=0.99),
        Check("descent with ridge: largest distance to L_lambda", max(both.ridge_distances), high=1e-2),
        Check("descent: last distance of the finite part", descent.last("finite_distance"), high=1e-3),
        Check("descent: last cos(L, L_mm)", descent.last("direction_cosine"), low=0.95),
        Check("descent: increase of cos(L, L_mm) over the last third", _rise(descent["direction_cosine"]), low=1e-4),
        Check("cos(descent, path) at the same loss", both.matched, low=0.95),
    ]


def _sentence(both: PathAndDescent) -> str:
    run, last = both.descent, both.path.points[-1]
    gap = run.loss_gap
    ends = ", ".join(f"{x:.0e} at {lam:.0e}" for lam, x in zip(both.ridges, both.ridge_distances, strict=True))
    return (
        f"With ridge, gradient descent ends at a relative distance of {ends} from the path's point. Without ridge, "
        f"after {run.steps:,} steps (loss gap {gap:.1e}), its finite part is within "
        f"{run.trajectory.last('finite_distance'):.0e} of L_in (path at that loss: "
        f"{both.path_at(gap, 'finite_distance'):.0e}) and its direction has cosine "
        f"{run.trajectory.last('direction_cosine'):.4f} with L_mm (path: "
        f"{both.path_at(gap, 'direction_cosine'):.4f}) and {both.matched:.4f} with the path's logits. At lambda = "
        f"{last.lam:.0e} the path has cosine {last.direction_cosine:.4f}, with 1 - cos falling like "
        f"log(1/lambda)^{both.path.direction_rate:.2f}."
    )


def _descent_table(run: Run) -> Table:
    return {name: run.trajectory[name].tolist() for name in run.trajectory.names}


def _figure(both: PathAndDescent) -> Figure:
    trajectory, path = both.descent.trajectory, both.path
    kept = trajectory["loss_gap"] < path.column("loss_gap")[0]

    def curves(name: str) -> list[Curve]:
        return [
            Curve("gradient descent", trajectory["loss_gap"][kept], trajectory[name][kept]),
            Curve("regularisation path", path.column("loss_gap"), path.column(name), dashed=True),
        ]

    away = [Curve(c.label, c.x, 1.0 - c.y, dashed=c.dashed) for c in curves("direction_cosine")]
    panels = [
        LinePanel("Finite part", "CE - H (nats)", "||P_F(L) - L_in|| / ||L_in||", curves("finite_distance"),
                  "log", "log"),
        LinePanel("Direction", "CE - H (nats)", "1 - cos(L, L_mm)", away, "log", "log"),
    ]  # fmt: skip
    caption = (
        "Distance from the prediction in the limit, against the loss above its floor: gradient descent on both factors "
        "without regularisation, and the certified path of the convex problem. Training proceeds from right to left."
    )
    return Figure("path-vs-gd", "Regularisation path and gradient descent", caption, panels)
