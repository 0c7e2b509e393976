"""The effect of unequal context frequencies on the geometry and on the speed of training.

Shares are ``pi_j ~ j^-a``: equal at ``a = 0``, Zipf's law at ``a = 1``. ``L_mm`` depends on supports alone, so the
limit must be the same for every a; only the trajectory can differ. The limit is measured on the certified
regularisation path, where lambda can be taken to 1e-12. The speed is measured with gradient descent on both factors,
from the same start for every a, as the number of steps until ``cos(L, L_mm)`` passes a level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from tokengeom import FeaturePrediction, NextTokenStatistics, Run, predict, train
from tokengeom.extending import AbstractProgress, Curve, Figure, Float, LinePanel, cosine
from tokengeom_studies.base import AbstractStudy, Check, Findings, Recipe, Table
from tokengeom_studies.common.logit_path import LogitPath, regularisation_path
from tokengeom_studies.common.model_runs import direction_probe, over_training
from tokengeom_studies.common.random_data import random_counts


@dataclass(frozen=True, eq=False)
class Imbalance:
    """One exponent: its paths to a middle and to the smallest lambda, and its run of gradient descent."""

    exponent: float
    middle: LogitPath
    path: LogitPath
    run: Run

    @property
    def path_cosine(self) -> float:
        """``cos(L, L_mm)`` at the smallest lambda."""
        return self.path.points[-1].direction_cosine

    def steps_to(self, level: float) -> float:
        """Steps until ``cos(L, L_mm)`` stays above the level, interpolated over log steps; inf if it never does."""
        values, steps = self.run.trajectory["direction_cosine"], self.run.trajectory["step"]
        below = np.flatnonzero(values < level)
        if below.size == 0 or below[-1] + 1 == values.size:
            return 0.0 if below.size == 0 else float("inf")
        i = int(below[-1])
        part = (level - values[i]) / (values[i + 1] - values[i])
        logs = np.log(np.maximum(steps[i : i + 2], 1.0))
        return float(np.exp(logs[0] + part * (logs[1] - logs[0])))


class ZipfImbalance(AbstractStudy):
    """Equally frequent contexts compared with contexts that follow Zipf's law."""

    question: ClassVar[str] = "Does imbalance of contexts change the limit of training, or only slow it down?"
    # The same supports and probabilities; context shares fall like rank^-exponent. Paper has more contexts and
    # exponents (at exponent 2 the level is not reached within these steps).
    small: ClassVar[Recipe] = {
        "seed": 0,
        "V": 20,
        "contexts": 30,
        "support": 3,
        "repeats": 4,
        "exponents": [0.0, 0.5, 1.0, 1.5],
        "dim": 64,
        "steps": 300_000,
        "learning_rate": 0.2,
        "level": 0.9,
        "middle_lambda": 1e-4,
        "smallest_lambda": 1e-12,
    }
    paper: ClassVar[Recipe] = {
        **small,
        "V": 40,
        "contexts": 80,
        "support": 4,
        "exponents": [0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5],
    }

    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Follow path and descent for each exponent."""
        base = random_counts(recipe["seed"], recipe["V"], recipe["contexts"], recipe["support"], recipe["repeats"])
        prediction = predict(base)
        cases = [_imbalance(base, prediction, recipe, a, progress) for a in recipe["exponents"]]
        apart = [_apart(cases, ends) for ends in ("middle", "path")]
        tables = {"exponents": _table(cases, apart, recipe["level"])}
        checks = _checks(cases, apart, recipe)
        return self.findings(recipe, _sentence(cases, apart, recipe), checks, [_figure(cases, recipe)], tables)


def _imbalance(
    base: NextTokenStatistics,
    prediction: FeaturePrediction,
    recipe: Recipe,
    exponent: float,
    progress: AbstractProgress,
) -> Imbalance:
    share = np.arange(1, base.m + 1) ** -float(exponent)
    stats = NextTokenStatistics.from_probabilities(base.P, share / share.sum())
    run = train(
        stats,
        "ufm",
        dim=recipe["dim"],
        optimizer="gd",
        reduction="mean",
        steps=recipe["steps"],
        learning_rate=recipe["learning_rate"],
        seed=recipe["seed"],
        probes=direction_probe(prediction),
        progress=progress,
    )
    middle, path = (_path_to(stats, prediction, recipe[name]) for name in ("middle_lambda", "smallest_lambda"))
    return Imbalance(exponent, middle, path, run)


def _path_to(stats: NextTokenStatistics, prediction: FeaturePrediction, smallest: float) -> LogitPath:
    lambdas = np.geomspace(1e-2, smallest, round(np.log10(1e-2 / smallest)) + 1)
    return regularisation_path(stats, prediction.L_mm, lambdas)


def _apart(cases: Sequence[Imbalance], end: str) -> Float:
    """``1 - cos`` between the logits of each exponent and of the first at the end of a path."""
    logits = [getattr(f, end).last_logits for f in cases]
    return np.array([1.0 - cosine(L, logits[0]) for L in logits])


def _checks(cases: Sequence[Imbalance], apart: Sequence[Float], recipe: Recipe) -> list[Check]:
    steps = [f.steps_to(recipe["level"]) for f in cases]
    slower = min((b / a for a, b in pairwise(steps) if a > 0), default=float("nan"))
    gaps = max(float(f.path.relative_gaps.max()) for f in cases)
    shrink = max(float(end / middle) for middle, end in zip(apart[0][1:], apart[1][1:], strict=True))
    return [
        Check("largest duality gap on the paths", gaps, high=1e-5),
        Check("smallest cos(L, L_mm) at the end of a path", min(f.path_cosine for f in cases), low=0.99),
        Check("1 - cos between exponents, smallest over middle lambda", shrink, high=0.5),
        Check("descent: smallest cos(L, L_mm) of an exponent", min(_last(f) for f in cases), low=recipe["level"]),
        Check("smallest ratio of steps from one exponent to the next", slower, low=1.0),
    ]


def _last(imbalance: Imbalance) -> float:
    return imbalance.run.trajectory.last("direction_cosine")


def _sentence(cases: Sequence[Imbalance], apart: Sequence[Float], recipe: Recipe) -> str:
    level, first, last = recipe["level"], cases[0], cases[-1]
    steps = ", ".join(f"{_number(f.steps_to(level), recipe['steps'])} steps at a={f.exponent:g}" for f in cases)
    equal, skewed = first.steps_to(level), last.steps_to(level)
    verdict = "slows" if skewed > equal else "does not slow" if equal < float("inf") else "may slow"
    ratio = f" ({skewed / max(equal, 1.0):.1f} times as many at a={last.exponent:g} as at a={first.exponent:g})"
    more = ratio if skewed < float("inf") and equal < float("inf") else ""
    same = "does not change" if apart[1][-1] < 0.5 * apart[0][-1] else "may change"
    return (
        f"Imbalance {verdict} convergence of the geometry down and {same} its limit: gradient descent reaches "
        f"cos(L, L_mm) = {level:g} after {steps}{more}. At the end of the path, lambda = "
        f"{recipe['smallest_lambda']:.0e}, the cosine with L_mm is {first.path_cosine:.4f} at a={first.exponent:g} and "
        f"{last.path_cosine:.4f} at a={last.exponent:g}, and the two directions differ by 1 - cos = "
        f"{apart[1][-1]:.1e}; at lambda = {recipe['middle_lambda']:.0e} they differ by {apart[0][-1]:.1e}."
    )


def _number(steps: float, last: int) -> str:
    return f"{steps:,.0f}" if steps < float("inf") else f"more than {last:,}"


def _table(cases: Sequence[Imbalance], apart: Sequence[Float], level: float) -> Table:
    return {
        "exponent": [f.exponent for f in cases],
        "steps_to_level": [f.steps_to(level) for f in cases],
        "descent_loss_gap": [f.run.loss_gap for f in cases],
        "descent_cosine": [_last(f) for f in cases],
        "path_cosine": [f.path_cosine for f in cases],
        "path_direction_rate": [f.path.direction_rate for f in cases],
        "apart_at_middle_lambda": apart[0].tolist(),
        "apart_at_smallest_lambda": apart[1].tolist(),
    }


def _figure(cases: Sequence[Imbalance], recipe: Recipe) -> Figure:
    runs = {f"a = {f.exponent:g}": f.run for f in cases}
    paths = [
        Curve(f"a = {f.exponent:g}", 1.0 / f.path.column("lam"), 1.0 - f.path.column("direction_cosine")) for f in cases
    ]
    panels = [
        over_training("Loss gap", "CE - H (nats)", runs, ["loss_gap"], y_scale="log"),
        over_training("Direction, gradient descent", "cos(L, L_mm)", runs, ["direction_cosine"],
                      levels=[(f"{recipe['level']:g}", recipe["level"])]),
        LinePanel("Direction, regularisation path", "1 / lambda", "1 - cos(L, L_mm)", paths, "log", "log"),
    ]  # fmt: skip
    caption = (
        "Contexts whose shares fall like rank^-a, on the same supports and probabilities: loss and direction of "
        "gradient descent, and the direction on the regularisation path, whose limit is L_mm for every a."
    )
    return Figure("zipf-imbalance", "Training with unequal contexts", caption, panels)
