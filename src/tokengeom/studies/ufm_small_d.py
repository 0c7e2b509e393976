"""What is lost when embeddings have fewer dimensions than the predicted rank.

With ridge ``lambda`` the factored problem in d dimensions can never beat the convex one,

``CE(W H) - H + (lambda/2)(||W||^2 + ||H||^2)  >=  min_L CE(L) - H + lambda ||L||_*``,

and equals it if ``d >= rank L_lambda``. So the relative excess of a trained objective over the certified convex optimum
is a measure of what d loses, with 0 as its floor. That ``d >= rank L_mm`` is enough as ``lambda -> 0`` is conjectured,
not known: the study shows where loss, geometry and collapse break, each for itself. A second run without ridge shows
from which d on the entropy floor is within reach at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tokengeom.figures.base import Curve, Figure, LinePanel, Scale
from tokengeom.geometry.probes import feature_probes
from tokengeom.numerics import Float
from tokengeom.progress import AbstractProgress
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.studies.base import AbstractStudy, Check, Findings, Recipe
from tokengeom.studies.feature_runs import papers_schedule, random_supports, with_random_repeats
from tokengeom.theory.features import FeaturePrediction, predict_features
from tokengeom.theory.logit_path import PathPoint, regularisation_path
from tokengeom.training.run import Run
from tokengeom.training.train import train

LOST_NOTHING = 1e-4
"""Relative excess up to which d is said to lose nothing: training itself stops about 1e-6 above the optimum."""
AT_FLOOR = 1e-3
"""``CE - H`` in nats below which a run without ridge is said to be at the entropy floor."""


@dataclass(frozen=True, eq=False)
class SmallD:
    """Dimensions d (rising), with the runs of each: with ridge, and without."""

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
        """Smallest d from which on nothing is lost; None if something is at the largest d."""
        return _from_which_on(self.dims, self.excess <= LOST_NOTHING)

    @property
    def floor(self) -> int | None:
        """Smallest d from which on the run without ridge is at the entropy floor; None if it is at no such d."""
        return _from_which_on(self.dims, np.array([run.loss_gap <= AT_FLOOR for run in self.free]))

    def last(self, name: str, *, free: bool = False) -> Float:
        """One measurement at the end of each run."""
        return np.array([run.trajectory.last(name) for run in (self.free if free else self.ridge)])


class UfmSmallD(AbstractStudy):
    """Loss, geometry and collapse as d falls below the predicted rank."""

    name: ClassVar[str] = "ufm-small-d"
    question: ClassVar[str] = "What is lost when embeddings have fewer dimensions than the predicted rank?"

    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Solve the convex problem once; train each d with ridge and without."""
        stats = _statistics(recipe)
        prediction = predict_features(stats)
        lambdas = np.geomspace(max(1e-2, recipe["ridge"]), recipe["ridge"], 5)
        optimum = regularisation_path(stats.P, stats.pi, prediction.L_mm, lambdas=lambdas).points[-1]
        dims = sorted(recipe["dims"])
        train_at = _trainer(stats, recipe, prediction)
        ridge, free = [], []
        with progress.stage("dimensions", float(len(dims))) as stage:
            for d in dims:
                ridge.append(train_at(d, True))
                free.append(train_at(d, False))
                stage.advance(1.0, f"d={d}")
        found = SmallD(prediction, optimum, dims, ridge, free)
        return Findings(_sentence(found), _checks(found), [_figure(found)], {"dimensions": _table(found)})


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
            steps=recipe["steps"],
            learning_rate=recipe["learning_rate"],
            weight_decay=recipe["ridge"] if ridge else 0.0,
            rate_schedule="cosine" if ridge else papers_schedule(recipe["steps"]),
            seed=recipe["seed"],
            records_per_decade=1,
            probes=probes,
        )

    return train_at


def _from_which_on(dims: Sequence[int], holds: NDArray[np.bool_]) -> int | None:
    fails = np.flatnonzero(~holds)
    first = int(fails[-1]) + 1 if fails.size else 0
    return dims[first] if first < len(dims) else None


def _checks(found: SmallD) -> list[Check]:
    dims, excess, rank = np.array(found.dims), found.excess, found.optimum.rank
    wide, narrow = excess[dims >= rank], excess[dims < 0.75 * rank]
    similarity = found.last("context_similarity")
    widest = float(similarity[-1])
    return [
        Check("relative gap of the convex optimum", found.optimum.certificate.relative_gap, high=1e-5),
        Check("smallest excess over the convex optimum (cannot be below 0)", float(excess.min()), low=-1e-5),
        Check("largest excess at d >= rank L_lambda", _or_nan(wide.max, wide), high=LOST_NOTHING),
        Check("smallest excess at d < 3/4 rank L_lambda", _or_nan(narrow.min, narrow), low=LOST_NOTHING),
        Check("CE - H without ridge at the smallest d", found.free[0].loss_gap, low=0.1),
        Check("CE - H without ridge at the largest d", found.free[-1].loss_gap, high=AT_FLOOR),
        Check("SIM of contexts at the largest d", widest, low=0.9),
        Check("SIM of contexts lost at the smallest d", widest - float(similarity[0]), low=0.2),
    ]


def _or_nan(extreme: Callable[[], Any], values: Float) -> float:
    """An extreme of values, or NaN, which no check accepts, where a recipe has no such d."""
    return float(extreme()) if values.size else float("nan")


def _sentence(found: SmallD) -> str:
    dims, excess, collapse = found.dims, found.excess, found.last("collapse")
    similarity = dict(zip(dims, found.last("context_similarity", free=True), strict=True))
    first, last = dims[0], dims[-1]
    shown = dict.fromkeys([first, found.floor or last, last])
    similar = ", ".join(f"{similarity[d]:.2f} at d={d}" for d in shown)
    below = [(d, x) for d, x in zip(dims, excess, strict=True) if d < (found.enough or last + 1)]
    lost = f"; d={below[-1][0]} ends {below[-1][1]:.1%} above it" if below else ""
    early = found.floor is not None and found.enough is not None and found.floor < found.enough
    fewer = ": the loss needs fewer dimensions than the geometry" if early else ""
    return (
        f"With ridge {found.optimum.lam:.0e} embeddings of {_dims(found.enough, last)} the certified convex optimum "
        f"(its rank is {found.optimum.rank}, that of L_mm {found.prediction.rank}){lost}, d={first} at "
        f"{excess[0] + 1:.2g} times it. Without ridge those of {_dims(found.floor, last)} the entropy floor, with SIM "
        f"of contexts {similar}. With ridge the spread of contexts of one support is {collapse[0]:.2g} times that of "
        f"the groups at d={first} and at most {max(collapse[1:], default=collapse[0]):.2g} times "
        f"beyond{fewer}."
    )


def _dims(start: int | None, last: int) -> str:
    return f"no d up to {last} reach" if start is None else f"d >= {start} reach"


def _table(found: SmallD) -> dict[str, Sequence[float]]:
    names = ("context_similarity", "token_similarity", "collapse", "finite_distance", "norm_logits")
    return {
        "d": list(found.dims),
        "excess": found.excess.tolist(),
        "loss_gap": found.last("loss_gap").tolist(),
        **{name: found.last(name).tolist() for name in names},
        "loss_gap_without_ridge": found.last("loss_gap", free=True).tolist(),
        "context_similarity_without_ridge": found.last("context_similarity", free=True).tolist(),
        "collapse_without_ridge": found.last("collapse", free=True).tolist(),
    }


def _figure(found: SmallD) -> Figure:
    x = np.array(found.dims, np.float64)
    marks = [("rank of L_lambda", float(found.optimum.rank)), ("rank of L^mm", float(found.prediction.rank))]

    def panel(title: str, y_label: str, curves: Mapping[str, Float], y_scale: Scale = "log") -> LinePanel:
        drawn = [Curve(name, x, y) for name, y in curves.items()]
        return LinePanel(title, "dimension d", y_label, drawn, "log", y_scale, (), marks)

    both = {name: (found.last(name), found.last(name, free=True)) for name in ("loss_gap", "collapse")}
    panels = [
        panel("Excess over the convex optimum", "relative excess", {"with ridge": np.maximum(found.excess, 1e-12)}),
        panel("Loss above its floor", "CE - H (nats)", dict(zip(_LABELS, both["loss_gap"], strict=True))),
        panel(
            "Similarity with L_mm, with ridge",
            "SIM",
            {"contexts": found.last("context_similarity"), "tokens": found.last("token_similarity")},
            "linear",
        ),
        panel("Collapse by support group", "within / between", dict(zip(_LABELS, both["collapse"], strict=True))),
    ]
    caption = (
        f"Embeddings of d dimensions, trained with ridge {found.optimum.lam:.0e} and without. L_lambda has rank "
        f"{found.optimum.rank}, L_mm rank {found.prediction.rank}. The excess is over the certified optimum of the "
        "convex problem, which no d can beat."
    )
    return Figure("ufm-small-d", "Fewer dimensions than the rank", caption, panels)


_LABELS = ("with ridge", "without")
