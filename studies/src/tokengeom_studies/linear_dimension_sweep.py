"""The linear model with fewer dimensions than contexts: which conditions hold, and where the loss ends.

The statistics are those of docs/theory.md 6.1; the embeddings are the first d coordinates of Gaussian ones. For
``d >= m`` both conditions must hold. Below, compatibility fails when the ``m (k-1)`` equations of supports of k tokens
outnumber the ``d (V-1)`` unknowns, and separability fails earlier, since it needs further degrees of freedom. At each d
gradient descent is compared with the predicted infimum of the loss, which lies above the entropy once a condition
fails. The loss falls to it like ``1 / (margin^2 k)`` over steps k, so training is slow near the threshold of
separability, where the margin is almost 0; those draws are shown but not checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from tokengeom import LinearPrediction, Run, predict
from tokengeom.extending import AbstractProgress, Curve, Figure, Float, LinePanel, blas_threads_for
from tokengeom_studies.base import AbstractStudy, Check, Findings, Recipe, Table
from tokengeom_studies.common.linear_runs import LinearSetting, descend, random_setting

SLOW = 0.1
"""Margin of the effective supports below which the loss needs more steps than the study makes."""


@dataclass(frozen=True, eq=False)
class Point:
    """Prediction and run of one seed at one dimension."""

    d: int
    seed: int
    prediction: LinearPrediction
    run: Run

    @property
    def excess(self) -> float:
        """Predicted infimum of the loss above the entropy, in nats; 0 when both conditions hold."""
        return 0.0 if self.prediction.reaches_entropy else self.prediction.loss_floor - self.prediction.entropy

    @property
    def above_floor(self) -> float:
        """Loss after training above its predicted infimum, in nats."""
        return self.run.loss_gap - self.excess

    @property
    def cosine(self) -> float:
        """``cos(W - W*, W^mm)`` after training; NaN when nothing diverges."""
        return self.run.trajectory.last("cosine_without_finite")


class LinearDimensionSweep(AbstractStudy):
    """Conditions, loss floor and alignment over d."""

    question: ClassVar[str] = "What is lost when embeddings have fewer dimensions than there are contexts?"
    small: ClassVar[Recipe] = {
        "seeds": 3,
        "V": 10,
        "m": 50,
        "support_size": 6,
        "n": 5000,
        "ratios": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.5, 2.0],
        "steps": 30_000,
        "close": 1e-2,
    }
    paper: ClassVar[Recipe] = {
        "seeds": 5,
        "V": 10,
        "m": 50,
        "support_size": 6,
        "n": 5000,
        "ratios": [0.1, 0.2, 0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.2, 1.5, 2.0],
        "steps": 300_000,
        "close": 2e-3,
    }

    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Predict and train at each dimension, for each seed."""
        m, points = recipe["m"], []
        dimensions = sorted({max(1, round(ratio * m)) for ratio in recipe["ratios"]})
        setting = {name: recipe[name] for name in ("V", "m", "support_size", "n")}
        parts = float(len(dimensions) * recipe["seeds"])
        with blas_threads_for(m, max(dimensions)), progress.stage("Dimensions", parts) as stage:
            for seed in range(recipe["seeds"]):
                full = random_setting(seed, d=max(dimensions), **setting)
                for d in dimensions:
                    points.append(_point(LinearSetting(full.stats, full.H[:d]), seed, recipe["steps"]))
                    stage.advance(1.0, f"d={d}, seed {seed}")
        rows = [[p for p in points if p.d == d] for d in dimensions]
        tables = {"dimensions": _table(rows, m)}
        return self.findings(recipe, _sentence(rows, m), _checks(rows, recipe), [_figure(rows, m)], tables)


def _point(setting: LinearSetting, seed: int, steps: int) -> Point:
    prediction = predict(setting.stats, embeddings=setting.H)
    return Point(setting.H.shape[0], seed, prediction, descend(setting, prediction, steps))


def _checks(rows: Sequence[Sequence[Point]], recipe: Recipe) -> list[Check]:
    points = [p for row in rows for p in row]
    enough = [p for p in points if p.d >= recipe["m"]]
    few = [p for p in points if p.d < recipe["m"]]
    held = float(np.mean([p.prediction.reaches_entropy for p in enough])) if enough else 1.0
    excess = [float(np.mean([p.excess for p in row])) for row in rows]
    falls = [a - b for a, b in pairwise(excess)]
    paced = [p.above_floor for p in points if p.prediction.effective_margin >= SLOW]
    aligned = [p.cosine for p in points if p.d >= 2 * recipe["m"]]
    checks = [
        Check("share of draws with d >= m where both conditions hold", held, low=1.0),
        Check("smallest decrease of the floor from one d to the next, in nats", min(falls, default=0.0), low=-1e-9),
        Check(
            f"largest CE - infimum after training with a margin of at least {SLOW}, in nats",
            max(paced, default=0.0),
            high=recipe["close"],
        ),
        Check("largest infimum - CE after training, in nats", max(-p.above_floor for p in points), high=1e-9),
    ]
    if few:
        failing = max(p.excess for p in few)
        checks.append(Check("largest predicted excess over the entropy with d < m, in nats", failing, low=0.01))
    if aligned:
        checks.append(Check("smallest cos(W - W*, W^mm) with d >= 2m", min(aligned), low=0.9))
    return checks


def _share(row: Sequence[Point], name: str) -> float:
    return float(np.mean([bool(getattr(p.prediction, name)) for p in row]))


def _sentence(rows: Sequence[Sequence[Point]], m: int) -> str:
    both = [row[0].d for row in rows if all(p.prediction.reaches_entropy for p in row)]
    compatible = [row[0].d for row in rows if _share(row, "compatible") == 1.0]
    low, high = rows[0], rows[-1]
    points = [p for row in rows for p in row]
    worst = max(p.above_floor for p in points if p.prediction.effective_margin >= SLOW)
    slow = max((p.above_floor for p in points if p.prediction.effective_margin < SLOW), default=0.0)
    return (
        f"With m={m} contexts both conditions hold in every draw from d={min(both, default=0)} upwards "
        f"(d/m = {min(both, default=0) / m:.2f}), and compatibility alone from d={min(compatible, default=0)} upwards; "
        f"at d={low[0].d} the loss cannot go below H + {np.mean([p.excess for p in low]):.3f} nats. After "
        f"{low[0].run.steps:,} steps of gradient descent every run with a margin of at least {SLOW} is within "
        f"{worst:.1e} nats of its predicted infimum (within {slow:.1e} for smaller margins), and cos(W - W*, W^mm) is "
        f"{_mean_cosine(high):.3f} at d={high[0].d}."
    )


def _mean_cosine(row: Sequence[Point]) -> float:
    known = [p.cosine for p in row if np.isfinite(p.cosine)]
    return float(np.mean(known)) if known else float("nan")


def _table(rows: Sequence[Sequence[Point]], m: int) -> Table:
    return {
        "d": [row[0].d for row in rows],
        "d_over_m": [row[0].d / m for row in rows],
        "compatible": [_share(row, "compatible") for row in rows],
        "separable": [_share(row, "separable") for row in rows],
        "predicted_excess": [float(np.mean([p.excess for p in row])) for row in rows],
        "loss_gap": [float(np.mean([p.run.loss_gap for p in row])) for row in rows],
        "above_floor": [float(np.mean([p.above_floor for p in row])) for row in rows],
        "margin": [float(np.mean([p.prediction.margin for p in row])) for row in rows],
        "cosine_without_finite": [_mean_cosine(row) for row in rows],
        "finite_error": [float(np.mean([p.run.trajectory.last("finite_error") for p in row])) for row in rows],
    }


def _figure(rows: Sequence[Sequence[Point]], m: int) -> Figure:
    d = np.array([row[0].d / m for row in rows])

    def curve(label: str, values: Sequence[float] | Float, dashed: bool = False) -> Curve:
        return Curve(label, d, np.asarray(values, np.float64), dashed=dashed)

    table = _table(rows, m)
    conditions = [curve("compatible", table["compatible"]), curve("separable", table["separable"])]
    loss = [
        curve("after training", table["loss_gap"]),
        curve("predicted infimum", _drawable(table["predicted_excess"]), dashed=True),
    ]
    direction = [curve("cos(W - W*, W^mm)", table["cosine_without_finite"])]
    finite = [curve("relative error on F", table["finite_error"])]
    caption = (
        f"Gradient descent on {m} contexts with Gaussian embeddings of d dimensions, mean over {len(rows[0])} draws: "
        "share of draws in which each condition holds; loss above the entropy and its predicted infimum (not drawn "
        "where it is the entropy itself); cosine of the direction with W^mm; distance of the finite part from W*."
    )
    panels = [
        LinePanel("Conditions", "d / m", "share of draws", conditions),
        LinePanel("Loss gap", "d / m", "nats", loss, y_scale="log"),
        LinePanel("Direction", "d / m", "cosine", direction, levels=[("predicted limit", 1.0)]),
        LinePanel("Finite part", "d / m", "||P_F(W) - W*|| / ||W*||", finite, y_scale="log"),
    ]
    return Figure("dimension-sweep", "Fewer dimensions than contexts", caption, panels)


def _drawable(values: Sequence[float]) -> Float:
    """Values for a logarithmic axis: NaN instead of 0."""
    array = np.asarray(values, np.float64)
    return np.where(array > 0, array, np.nan)
