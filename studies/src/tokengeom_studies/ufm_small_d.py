"""Unconstrained features with fewer dimensions than the predicted rank.

With ridge ``lambda`` the objective of the factored problem in d dimensions is at least that of the convex one,

``CE(W H) - H + (lambda/2)(||W||^2 + ||H||^2)  >=  min_L CE(L) - H + lambda ||L||_*``,

with equal minima if ``d >= rank L_lambda``. So the relative excess of a trained objective over the certified convex
optimum measures what a small d loses, and cannot be below 0. That ``d >= rank L_mm`` is enough as ``lambda -> 0`` is a
conjecture: the study shows separately where loss, geometry and collapse deteriorate. A second run without ridge shows
the smallest d at which the loss can reach the entropy at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tokengeom import FeaturePrediction, NextTokenStatistics, Run, predict, train
from tokengeom.extending import (
    AbstractProgress,
    Bool,
    Curve,
    Figure,
    Float,
    LinePanel,
    Scale,
    feature_probes,
    paper_steps,
)
from tokengeom_studies.base import AbstractStudy, Check, Findings, Recipe, Table
from tokengeom_studies.common.logit_path import PathPoint, regularisation_path
from tokengeom_studies.common.random_data import random_supports, with_random_repeats

LOST_NOTHING = 1e-4
"""Relative excess up to which nothing is lost: training itself stops about 1e-6 above the optimum."""
AT_FLOOR = 1e-3
"""``CE - H`` in nats up to which a run without ridge is said to be at the entropy floor."""
LABELS = ("with ridge", "without ridge")


@dataclass(frozen=True, eq=False)
class SmallD:
    """Runs with ridge and without ridge for each dimension d, in increasing order."""

    prediction: FeaturePrediction
    optimum: PathPoint
    dims: Sequence[int]
    ridge: Sequence[Run]
    free: Sequence[Run]

    @property
    def excess(self) -> Float:
        """Relative excess of each trained objective over the certified convex optimum."""
        lam = self.optimum.lam
        least = self.optimum.loss_gap + lam * self.optimum.nuclear_norm
        sizes = [np.linalg.norm(run.W) ** 2 + np.linalg.norm(run.H) ** 2 for run in self.ridge]
        gaps = [run.loss_gap for run in self.ridge]
        return np.asarray((np.array(gaps) + 0.5 * lam * np.array(sizes)) / least - 1.0)

    @property
    def enough(self) -> int | None:
        """Smallest d such that it and all larger ones lose nothing; None if the largest d loses something."""
        return _smallest_with_all_larger(self.dims, self.excess <= LOST_NOTHING)

    @property
    def floor(self) -> int | None:
        """The same for runs without ridge that are at the entropy floor."""
        return _smallest_with_all_larger(self.dims, np.array([run.loss_gap <= AT_FLOOR for run in self.free]))

    def last(self, name: str, *, free: bool = False) -> Float:
        """One measurement at the end of each run."""
        return np.array([run.trajectory.last(name) for run in (self.free if free else self.ridge)])


class UfmSmallD(AbstractStudy):
    """Loss, geometry and collapse for d below and above the predicted rank."""

    question: ClassVar[str] = "What is lost when embeddings have fewer dimensions than the predicted rank?"
    # Random supports, each shared by several contexts with counts of their own. Paper is larger.
    small: ClassVar[Recipe] = {
        "seed": 0,
        "V": 24,
        "supports": 16,
        "copies": 4,
        "support": 3,
        "repeats": 4,
        "dims": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20, 24, 32, 64],
        "ridge": 1e-4,
        "steps": 10_000,
        "learning_rate": 1e-2,
    }
    paper: ClassVar[Recipe] = {
        **small,
        "V": 104,
        "supports": 40,
        "copies": 10,
        "support": 5,
        "dims": [1, 2, 3, 4, 6, 8, 12, 20, 28, 34, 37, 38, 39, 40, 64, 128],
    }

    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Solve the convex problem once; train each d with ridge and without."""
        stats = _statistics(recipe)
        prediction = predict(stats)
        lambdas = np.geomspace(max(1e-2, recipe["ridge"]), recipe["ridge"], 5)
        optimum = regularisation_path(stats, prediction.L_mm, lambdas).points[-1]
        dims = sorted(recipe["dims"])
        train_at = _trainer(stats, recipe, prediction)
        ridge, free = [], []
        with progress.stage("Dimensions", float(len(dims))) as stage:
            for d in dims:
                ridge.append(train_at(d, True))
                free.append(train_at(d, False))
                stage.advance(1.0, f"d={d}")
        sweep = SmallD(prediction, optimum, dims, ridge, free)
        tables = {"dimensions": _table(sweep)}
        return self.findings(recipe, _sentence(sweep), _checks(sweep), [_figure(sweep)], tables)


def _statistics(recipe: Recipe) -> NextTokenStatistics:
    rng = np.random.default_rng(recipe["seed"])
    S = random_supports(rng, recipe["V"], recipe["supports"], recipe["support"])
    return with_random_repeats(rng, np.repeat(S, recipe["copies"], axis=1), recipe["repeats"])


def _trainer(stats: NextTokenStatistics, recipe: Recipe, prediction: FeaturePrediction) -> Callable[[int, bool], Run]:
    probes = feature_probes(prediction)

    def train_at(d: int, ridge: bool) -> Run:
        return train(
            stats,
            "ufm",
            dim=d,
            optimizer="adam",
            reduction="mean",
            steps=recipe["steps"],
            learning_rate=recipe["learning_rate"],
            weight_decay=recipe["ridge"] if ridge else 0.0,
            rate_schedule="cosine" if ridge else paper_steps(recipe["steps"]),
            seed=recipe["seed"],
            records_per_decade=1,
            probes=probes,
        )

    return train_at


def _smallest_with_all_larger(dims: Sequence[int], holds: Bool) -> int | None:
    fails = np.flatnonzero(~holds)
    first = int(fails[-1]) + 1 if fails.size else 0
    return dims[first] if first < len(dims) else None


def _checks(sweep: SmallD) -> list[Check]:
    dims, excess, rank = np.array(sweep.dims), sweep.excess, sweep.optimum.rank
    wide, narrow = excess[dims >= rank], excess[dims < 0.75 * rank]
    similarity = sweep.last("context_similarity")
    widest = float(similarity[-1])
    return [
        Check("relative gap of the convex optimum", sweep.optimum.certificate.relative_gap, high=1e-5),
        Check("smallest excess over the convex optimum (at least 0 in theory)", float(excess.min()), low=-1e-5),
        Check("largest excess at d >= rank L_lambda", _or_nan(wide.max, wide), high=LOST_NOTHING),
        Check("smallest excess at d < 3/4 rank L_lambda", _or_nan(narrow.min, narrow), low=LOST_NOTHING),
        Check("loss gap without ridge at the smallest d", sweep.free[0].loss_gap, low=0.1),
        Check("loss gap without ridge at the largest d", sweep.free[-1].loss_gap, high=AT_FLOOR),
        Check("SIM of contexts at the largest d", widest, low=0.9),
        Check("SIM of contexts lost at the smallest d", widest - float(similarity[0]), low=0.2),
    ]


def _or_nan(extreme: Callable[[], float], values: Float) -> float:
    """The extreme of some values; NaN, which fails every check, where the recipe has no such d."""
    return float(extreme()) if values.size else float("nan")


def _sentence(sweep: SmallD) -> str:
    dims, excess, collapse = sweep.dims, sweep.excess, sweep.last("collapse")
    similarity = dict(zip(dims, sweep.last("context_similarity", free=True), strict=True))
    first, last = dims[0], dims[-1]
    shown = dict.fromkeys([first, sweep.floor or last, last])
    similar = ", ".join(f"{similarity[d]:.2f} at d={d}" for d in shown)
    below = [(d, x) for d, x in zip(dims, excess, strict=True) if d < (sweep.enough or last + 1)]
    lost = f"d={below[-1][0]} ends {below[-1][1]:.1%} above it, and " if below else ""
    early = sweep.floor is not None and sweep.enough is not None and sweep.floor < sweep.enough
    fewer = " The loss needs fewer dimensions than the geometry." if early else ""
    return (
        f"With ridge {sweep.optimum.lam:.0e}, {_dims(sweep.enough, last)} the certified convex optimum, whose rank is "
        f"{sweep.optimum.rank} (rank of L_mm: {sweep.prediction.rank}); {lost}d={first} at {excess[0] + 1:.2g} times "
        f"it. Without ridge, {_dims(sweep.floor, last)} the entropy floor, with SIM of contexts {similar}. With ridge, "
        f"the spread of contexts with the same support is {collapse[0]:.2g} times that between groups at d={first} and "
        f"at most {max(collapse[1:], default=collapse[0]):.2g} times at larger d.{fewer}"
    )


def _dims(start: int | None, last: int) -> str:
    return f"no d up to {last} reaches" if start is None else f"embeddings with d >= {start} reach"


def _table(sweep: SmallD) -> Table:
    names = ("context_similarity", "token_similarity", "collapse", "finite_distance", "norm_logits")
    return {
        "d": list(sweep.dims),
        "excess": sweep.excess.tolist(),
        "loss_gap": sweep.last("loss_gap").tolist(),
        **{name: sweep.last(name).tolist() for name in names},
        "loss_gap_without_ridge": sweep.last("loss_gap", free=True).tolist(),
        "context_similarity_without_ridge": sweep.last("context_similarity", free=True).tolist(),
        "collapse_without_ridge": sweep.last("collapse", free=True).tolist(),
    }


def _figure(sweep: SmallD) -> Figure:
    x = np.array(sweep.dims, np.float64)
    marks = [("rank of L_lambda", float(sweep.optimum.rank)), ("rank of L_mm", float(sweep.prediction.rank))]

    def panel(title: str, y_label: str, curves: Mapping[str, Float], y_scale: Scale = "log") -> LinePanel:
        drawn = [Curve(name, x, y) for name, y in curves.items()]
        return LinePanel(title, "dimension d", y_label, drawn, "log", y_scale, (), marks)

    both = {name: (sweep.last(name), sweep.last(name, free=True)) for name in ("loss_gap", "collapse")}
    panels = [
        panel("Excess over the convex optimum", "relative excess", {"with ridge": np.maximum(sweep.excess, 1e-12)}),
        panel("Loss gap", "CE - H (nats)", dict(zip(LABELS, both["loss_gap"], strict=True))),
        panel(
            "Similarity with L_mm, with ridge",
            "SIM",
            {"contexts": sweep.last("context_similarity"), "tokens": sweep.last("token_similarity")},
            "linear",
        ),
        panel("Collapse by support group", "within / between", dict(zip(LABELS, both["collapse"], strict=True))),
    ]
    caption = (
        f"Embeddings of d dimensions, trained with ridge {sweep.optimum.lam:.0e} and without. L_lambda has rank "
        f"{sweep.optimum.rank}, L_mm rank {sweep.prediction.rank}. The excess is relative to the certified optimum of "
        "the convex problem, which is a lower bound for every d."
    )
    return Figure("ufm-small-d", "Fewer dimensions than the rank", caption, panels)
