"""Whether the regularisation path and gradient descent go the same way.

The theory is proven for the path ``L_lambda = argmin CE(L) + lambda ||L||_*``, lambda -> 0 [zhao2024]; practice
descends on W and H with no regularisation at all. Three comparisons:

- gradient descent with ridge lambda on the factors must end at ``L_lambda``, solved in logit space with a duality gap;
- without ridge, its finite part ``P_F(L)`` and its direction are held against ``L_in`` and ``L_mm``, at the same loss
  as the path, since ``CE - H`` is the common clock (``lambda ||L_mm||_*`` on the path, ``1/k`` for descent);
- its logits are held against the path's logits at that loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tokengeom.figures.base import Curve, Figure, LinePanel
from tokengeom.figures.path import path as draw_path
from tokengeom.geometry.similarity import cosine
from tokengeom.numerics import Float, centre_columns
from tokengeom.progress import AbstractProgress
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.studies.base import AbstractStudy, Check, Findings, Recipe
from tokengeom.studies.feature_runs import random_counts
from tokengeom.theory.closed_forms import project_on_F
from tokengeom.theory.features import FeaturePrediction, predict_features
from tokengeom.theory.logit_path import LogitPath, regularisation_path
from tokengeom.training.loop import Probe, State
from tokengeom.training.run import Run
from tokengeom.training.train import train


@dataclass(frozen=True, eq=False)
class PathAndDescent:
    """Path, unregularised descent, and where they are compared.

    ``ridge_distances``
        Relative distance of ridge descent's end from ``L_lambda``, for each ridge.
    ``matched``
        Cosine of descent's logits with the path's, at descent's last loss.
    """

    prediction: FeaturePrediction
    path: LogitPath
    descent: Run
    ridges: Sequence[float]
    ridge_distances: Sequence[float]
    matched: float

    def path_at(self, loss_gap: float, name: str) -> float:
        """A measurement of the path at a given loss, between its points by log loss."""
        order = np.argsort(self.path.column("loss_gap"))
        logs = np.log(self.path.column("loss_gap")[order])
        return float(np.interp(np.log(loss_gap), logs, self.path.column(name)[order]))


class PathVsGd(AbstractStudy):
    """The convex path in logit space against descent on both factors."""

    name: ClassVar[str] = "path-vs-gd"
    question: ClassVar[str] = "Do the regularisation path and gradient descent go the same way?"

    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Follow the path, descend with ridge and without, compare at equal loss."""
        stats = random_counts(recipe["seed"], recipe["V"], recipe["contexts"], recipe["support"], recipe["repeats"])
        prediction = predict_features(stats)
        path = _path_to(stats, prediction, recipe["smallest_lambda"])
        descent = _descend(stats, recipe, progress, probes=_probes(prediction))
        same_loss = _path_to(stats, prediction, descent.loss_gap / prediction.nuclear_norm)
        found = PathAndDescent(
            prediction,
            path,
            descent,
            recipe["ridges"],
            [_ridge_distance(stats, prediction, recipe, lam, progress) for lam in recipe["ridges"]],
            cosine(centre_columns(descent.logits), same_loss.last_logits),
        )
        tables = {"path": _path_table(path), "descent": _descent_table(descent)}
        return Findings(_sentence(found), _checks(found), [_figure(found), draw_path(path)], tables)


def _path_to(stats: NextTokenStatistics, prediction: FeaturePrediction, smallest: float) -> LogitPath:
    points = max(2, round(2 * np.log10(1e-2 / smallest)) + 1)
    lambdas = np.geomspace(max(1e-2, smallest), smallest, points)
    return regularisation_path(stats.P, stats.pi, prediction.L_mm, lambdas=lambdas)


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
        steps=recipe["ridge_steps"] if ridge else recipe["steps"],
        learning_rate=recipe["learning_rate"],
        weight_decay=ridge,
        seed=recipe["seed"],
        probes=probes,
        progress=progress,
    )


def _probes(prediction: FeaturePrediction) -> dict[str, Probe]:
    L_in, L_mm, S = prediction.L_in, prediction.L_mm, prediction.P.toarray() > 0
    size = float(np.linalg.norm(L_in)) or 1.0

    def finite_distance(state: State) -> float:
        return float(np.linalg.norm(project_on_F(state.L, S) - L_in)) / size

    def direction_cosine(state: State) -> float:
        return cosine(centre_columns(state.L), L_mm)

    return {"finite_distance": finite_distance, "direction_cosine": direction_cosine}


def _ridge_distance(
    stats: NextTokenStatistics, prediction: FeaturePrediction, recipe: Recipe, lam: float, progress: AbstractProgress
) -> float:
    L = _path_to(stats, prediction, lam).last_logits
    run = _descend(stats, recipe, progress, ridge=lam)
    return float(np.linalg.norm(centre_columns(run.logits) - L) / np.linalg.norm(L))


def _rise(values: Float) -> float:
    """What the last third of the records adds."""
    return float(values[-1] - values[-1 - len(values) // 3])


def _checks(found: PathAndDescent) -> list[Check]:
    descent, path = found.descent.trajectory, found.path
    return [
        Check("largest duality gap on the path", float(path.relative_gaps.max()), high=1e-5),
        Check("path: rate of CE - H in lambda", path.loss_rate, low=0.95, high=1.05),
        Check("path: rate of the finite part in lambda", path.finite_rate, low=0.9, high=1.1),
        Check("path: rate of 1 - cos in log 1/lambda", path.direction_rate, low=-3.0, high=-1.5),
        Check("path: last cos(L, L_mm)", float(path.column("direction_cosine")[-1]), low=0.99),
        Check("descent with ridge: largest distance to L_lambda", max(found.ridge_distances), high=1e-2),
        Check("descent: last distance of the finite part", descent.last("finite_distance"), high=1e-3),
        Check("descent: last cos(L, L_mm)", descent.last("direction_cosine"), low=0.95),
        Check("descent: rise of cos(L, L_mm) over the last third", _rise(descent["direction_cosine"]), low=1e-4),
        Check("cos(descent, path) at the same loss", found.matched, low=0.95),
    ]


def _sentence(found: PathAndDescent) -> str:
    run, last = found.descent, found.path.points[-1]
    gap = run.loss_gap
    ends = ", ".join(f"{x:.0e} at {lam:.0e}" for lam, x in zip(found.ridges, found.ridge_distances, strict=True))
    return (
        f"With ridge, gradient descent ends at the path's point (relative distance {ends}). Without, after "
        f"{run.steps:,} steps (CE - H = {gap:.1e}), its finite part is within "
        f"{run.trajectory.last('finite_distance'):.0e} of L_in (path at that loss: "
        f"{found.path_at(gap, 'finite_distance'):.0e}) and its direction has cosine "
        f"{run.trajectory.last('direction_cosine'):.4f} with L_mm (path: "
        f"{found.path_at(gap, 'direction_cosine'):.4f}) and {found.matched:.4f} with the path's logits. At lambda = "
        f"{last.lam:.0e} the path has cosine {last.direction_cosine:.4f}, with 1 - cos falling like "
        f"log(1/lambda)^{found.path.direction_rate:.2f}."
    )


def _path_table(path: LogitPath) -> dict[str, Sequence[float]]:
    rows = path.to_rows()
    return {name: [row[name] for row in rows] for name in rows[0]}


def _descent_table(run: Run) -> dict[str, Sequence[float]]:
    return {name: run.trajectory[name].tolist() for name in run.trajectory.names}


def _figure(found: PathAndDescent) -> Figure:
    trajectory, path = found.descent.trajectory, found.path
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
        "Distance to the predicted limit over the loss above its floor: gradient descent on both factors without "
        "regularisation, and the certified path of the convex problem. Time runs from right to left."
    )
    return Figure("path-vs-gd", "Regularisation path and gradient descent", caption, panels)
