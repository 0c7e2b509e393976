"""Figures of the study of regularisation schedules: measurements over training, and against the path.

Whether the low-rank direction L_mm emerges in the logits as regularisation falls, in free embeddings and a network.

``L_lambda = argmin CE(L) + lambda ||L||_*``,  ``L_lambda ~ L_in + R(lambda) L_mm``,  R -> inf as lambda -> 0 [zhao2024]

The strength is large throughout, small throughout, or falls from one to the other, in plateaus or as half a cosine.
Free embeddings (UFM) are trained with Adam, where weight decay lambda is the ridge itself, so that the end of each
plateau must be the path's point at its lambda. The transformer is trained with AdamW, as networks are: its decay is
decoupled (``x <- (1 - rate decay) x``), the ridge of no loss, and its strengths are not those of the path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tokengeom.errors import InputError
from tokengeom.figures.base import Curve, Figure, LinePanel, Scale
from tokengeom.geometry.probes import feature_probes
from tokengeom.geometry.similarity import cosine
from tokengeom.numerics import Float, centre_columns
from tokengeom.progress import AbstractProgress
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.studies.base import AbstractStudy, Check, Findings, Recipe
from tokengeom.studies.feature_runs import count_stories
from tokengeom.studies.network_runs import (
    Trained,
    agreement_table,
    gain_checks,
    held_against,
    require_device,
    trained_network,
)
from tokengeom.theory.features import FeaturePrediction, predict_features
from tokengeom.theory.logit_path import LogitPath, regularisation_path
from tokengeom.training.loop import Probe, State
from tokengeom.training.optimizers.base import AbstractSchedule, Constant, Cosine, Steps
from tokengeom.training.run import Run
from tokengeom.training.train import train

Strengths = Mapping[str, tuple[float, AbstractSchedule]]
FIRST_PART = 0.02
"""Share of the steps that is not drawn: measurements jump there, and leave no room for what comes after."""
_ROWS: Sequence[tuple[str, str, str, Scale]] = (
    ("loss_gap", "loss above the entropy", "CE - H, nats", "log"),
    ("logits.cosine", "direction of the logits", "cos(L, L_mm)", "linear"),
    ("context_similarity", "contexts", "SIM with L_mm", "linear"),
    ("logits.rank", "numerical rank of the logits", "rank", "linear"),
)


def over_schedules(models: Mapping[str, tuple[Strengths, Mapping[str, Run]]], rank: int) -> Figure:
    """Strength, loss, direction, similarity and rank over the steps of each run; one column a model."""
    panels = [_strength_panel(model, *given) for model, given in models.items()]
    for column, title, label, scale in _ROWS:
        levels = [("rank of L_mm", float(rank))] if column == "logits.rank" else []
        for model, (_, runs) in models.items():
            curves = [Curve(name, *_after_start(run, column)) for name, run in runs.items()]
            panels.append(LinePanel(f"{model}: {title}", "step", label, curves, "linear", scale, levels))
    caption = (
        "Free embeddings (UFM, left) and a transformer (right) whose weight decay is large, small, or falls from one "
        "to the other. From above: the decay (the ridge of the loss for the UFM, decoupled for the transformer); the "
        "loss above its floor; cosine of the centred logits with the predicted direction L_mm; structural similarity "
        "of the cosines between contexts with those of L_mm; singular values of the logits above 1% of the largest. "
        "The first 2% of the steps are left out."
    )
    return Figure("schedules", "Regularisation that falls", caption, panels, columns=len(models))


def _after_start(run: Run, column: str) -> tuple[Any, Any]:
    kept = run.trajectory.steps > run.steps * FIRST_PART
    return run.trajectory["step"][kept], run.trajectory[column][kept]


def _strength_panel(model: str, strengths: Strengths, runs: Mapping[str, Run]) -> LinePanel:
    curves = []
    for name, (first, schedule) in strengths.items():
        last = runs[name].steps
        steps = np.unique(np.linspace(0, max(last - 1, 0), 400).astype(np.int64)).astype(np.float64)
        curves.append(Curve(name, steps, first * schedule.factors(steps, last)))
    return LinePanel(f"{model}: strength", "step", "weight decay", curves, "linear", "log")


def against_path(plateaus: Mapping[str, Sequence[Any]]) -> Figure:
    """Ends of the plateaus beside the path's points at the same strengths."""
    lam = np.asarray(plateaus["lam"], np.float64)

    def panel(title: str, label: str, column: str, scale: Scale) -> LinePanel:
        curves = [
            Curve("UFM, end of plateau", lam, np.asarray(plateaus[column], np.float64)),
            Curve("path, certified", lam, np.asarray(plateaus[f"path_{column}"], np.float64), dashed=True),
        ]
        return LinePanel(title, "ridge lambda", label, curves, "log", scale)

    panels = [
        panel("Loss above the entropy", "CE - H, nats", "loss_gap", "log"),
        panel("Direction", "cos(L, L_mm)", "cosine", "linear"),
        panel("Size", "||L||_* / ||L_mm||_*", "nuclear", "linear"),
    ]
    caption = (
        "Free embeddings at the end of each plateau of the ridge lambda, trained on from one plateau to the next, and "
        "the minimiser of CE + lambda ||L||_* at the same lambda, solved in logit space with a duality gap. As lambda "
        "falls (to the left) the logits grow, and turn to L_mm."
    )
    return Figure("plateaus", "Training at the points of the path", caption, panels, columns=3)


LARGE, SMALL, PLATEAUS, COSINE = "large decay", "small decay", "decay falling in plateaus", "decay falling as a cosine"
NUMERICAL = 1e-2
"""Singular values below this share of the largest are not counted in the numerical rank of a trained model."""


@dataclass(frozen=True)
class Decay:
    """Strengths of regularisation, from the largest to the smallest, and how a run goes from one to the other."""

    large: float
    small: float
    plateaus: int

    @property
    def strengths(self) -> Float:
        """Strength of each plateau, falling by one factor."""
        return np.geomspace(self.large, self.small, self.plateaus)

    def milestones(self, steps: int) -> list[int]:
        """Step at which each plateau ends; the last one ends with the run."""
        return [steps * i // self.plateaus for i in range(1, self.plateaus + 1)]

    def schedules(self, steps: int) -> dict[str, tuple[float, AbstractSchedule]]:
        """Strength at the first step, and the schedule that multiplies it, by name."""
        factor = (self.small / self.large) ** (1 / (self.plateaus - 1))
        return {
            LARGE: (self.large, Constant()),
            SMALL: (self.small, Constant()),
            PLATEAUS: (self.large, Steps(tuple(self.milestones(steps)[:-1]), factor)),
            COSINE: (self.large, Cosine(floor=self.small / self.large)),
        }


@dataclass(frozen=True, eq=False)
class Schedules:
    """Both models under each schedule, and the path at the strengths of the plateaus."""

    stats: NextTokenStatistics
    prediction: FeaturePrediction
    ridge: Decay
    path: LogitPath
    ufm: Mapping[str, Trained]
    network: Mapping[str, Trained]

    def plateau_ends(self, column: str) -> Float:
        """A measurement of the UFM at the last record of each plateau."""
        run = self.ufm[PLATEAUS].run
        ends = [np.flatnonzero(run.trajectory.steps <= step)[-1] for step in self.ridge.milestones(run.steps)]
        return run.trajectory[column][ends]

    @property
    def loss_error(self) -> float:
        """Largest relative distance of ``CE - H`` from the path's, over the ends of the plateaus."""
        return float(np.max(np.abs(self.plateau_ends("loss_gap") / self.path.column("loss_gap") - 1.0)))

    @property
    def cosine_error(self) -> float:
        """Largest distance of ``cos(L, L_mm)`` from the path's, over the ends of the plateaus."""
        return float(np.max(np.abs(self.plateau_ends("logits.cosine") - self.path.column("direction_cosine"))))


class RegularisationSchedules(AbstractStudy):
    """Weight decay that is large, small, or falls, in free embeddings and in a transformer."""

    name: ClassVar[str] = "regularisation-schedules"
    question: ClassVar[str] = "Does the low-rank direction L_mm emerge in the logits as regularisation falls?"

    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Count and predict once, follow the path, train both models under each schedule."""
        require_device(recipe)
        ridge, decay = _decay(recipe, "ridges"), _decay(recipe, "decays")
        stats = count_stories(recipe, progress)
        prediction = predict_features(stats)
        path = regularisation_path(stats.P, stats.pi, prediction.L_mm, lambdas=ridge.strengths)
        ufm = {
            name: held_against(prediction, _free(stats, prediction, recipe, *how, progress), recipe)
            for name, how in ridge.schedules(recipe["ufm_steps"]).items()
        }
        network = {
            name: _network(stats, prediction, recipe, *how, progress)
            for name, how in decay.schedules(recipe["steps"]).items()
        }
        found = Schedules(stats, prediction, ridge, path, ufm, network)
        tables = {"ends": _ends(found), "plateaus": _plateau_table(found), "agreement": agreement_table(_named(found))}
        return Findings(_sentence(found), _checks(found), _figures(found, recipe), tables)


def _decay(recipe: Recipe, name: str) -> Decay:
    large, small = max(recipe[name]), min(recipe[name])
    if len(recipe[name]) != 2 or not 0 < small < large or recipe["plateaus"] < 2:
        raise InputError(
            f"A falling strength goes from a larger to a smaller number > 0 in at least 2 plateaus; got "
            f"{name}={recipe[name]} and plateaus={recipe['plateaus']}. Take {name}=[1e-2, 1e-5] and plateaus=7, say."
        )
    return Decay(large, small, recipe["plateaus"])


def _free(
    stats: NextTokenStatistics,
    prediction: FeaturePrediction,
    recipe: Recipe,
    ridge: float,
    schedule: AbstractSchedule,
    progress: AbstractProgress,
) -> Run:
    """Free embeddings with Adam, whose weight decay joins the gradient: the ridge of the mean loss."""
    return train(
        stats,
        "ufm",
        dim=recipe["dim"],
        optimizer="adam",
        steps=recipe["ufm_steps"],
        learning_rate=recipe["ufm_learning_rate"],
        weight_decay=ridge,
        decay_schedule=schedule,
        seed=recipe["seed"],
        device=recipe["device"],
        records_per_decade=recipe["records_per_decade"],
        probes={**feature_probes(prediction), **_logit_probe(prediction)},
        progress=progress,
    )


def _network(
    stats: NextTokenStatistics,
    prediction: FeaturePrediction,
    recipe: Recipe,
    decay: float,
    schedule: AbstractSchedule,
    progress: AbstractProgress,
) -> Trained:
    return trained_network(
        stats,
        prediction,
        recipe,
        probes=_logit_probe(prediction),
        progress=progress,
        weight_decay=decay,
        decay_schedule=schedule,
        records_per_decade=recipe["records_per_decade"],
    )


def _logit_probe(prediction: FeaturePrediction) -> dict[str, Probe]:
    """Centred logits: cosine with L_mm, nuclear norm in units of L_mm's, numerical rank."""

    def logits(state: State) -> dict[str, float]:
        L = centre_columns(state.L)
        s = np.linalg.svd(L, compute_uv=False)
        return {
            "cosine": cosine(L, prediction.L_mm),
            "nuclear": float(s.sum()) / prediction.nuclear_norm,
            "rank": float((s > NUMERICAL * s[0]).sum()),
        }

    return {"logits": logits}


def _named(found: Schedules) -> dict[str, Trained]:
    pairs = (("UFM", found.ufm), ("transformer", found.network))
    return {f"{model}, {name}": one for model, runs in pairs for name, one in runs.items()}


def _checks(found: Schedules) -> list[Check]:
    rise = _last(found.ufm[SMALL], "cosine") - _last(found.ufm[LARGE], "cosine")
    checks = [
        Check("relative gap of L_mm", found.prediction.certificate.relative_gap, high=1e-6),
        Check("largest duality gap on the path", float(found.path.relative_gaps.max()), high=1e-5),
        Check("UFM, plateaus: largest relative error of CE - H against the path", found.loss_error, high=0.15),
        Check("UFM, plateaus: largest error of cos(L, L_mm) against the path", found.cosine_error, high=0.01),
        Check("UFM: cos(L, L_mm) gained from large decay to small", rise, low=0.1),
    ]
    for name in (SMALL, PLATEAUS, COSINE):
        checks += gain_checks(f"transformer, {name}", found.network[name], loss_gap=5e-2)
    return checks


def _last(one: Trained, number: str) -> float:
    return one.run.trajectory.last(f"logits.{number}")


def _sentence(found: Schedules) -> str:
    first, last = found.path.points[0], found.path.points[-1]
    rank = [f"{value:.0f}" for value in found.plateau_ends("logits.rank")[[0, -1]]]
    turn = [f"{value:.3f}" for value in found.plateau_ends("logits.cosine")[[0, -1]]]
    ends = "; ".join(
        f"{name} {_last(one, 'cosine'):.3f} (SIM of contexts {one.comparison.context_similarity.value:.3f}, CE - H = "
        f"{one.run.loss_gap:.1e})"
        for name, one in found.network.items()
    )
    return (
        f"{_verdict(found)} In free embeddings, as the ridge falls from {first.lam:.0e} to {last.lam:.0e}, the cosine "
        f"of the centred logits with L_mm goes from {turn[0]} to {turn[1]} (path: {first.direction_cosine:.3f} to "
        f"{last.direction_cosine:.3f}) and their numerical rank from {rank[0]} to {rank[1]} (L_mm has "
        f"{found.prediction.rank}); at the end of every plateau CE - H is within {found.loss_error:.1%} of the path's. "
        f"The transformer ends, by its (decoupled) decay, with cosine: {ends}; one run each."
    )


def _verdict(found: Schedules) -> str:
    rise = _last(found.ufm[PLATEAUS], "cosine") - found.plateau_ends("logits.cosine")[0]
    emerges = "L_mm emerges as regularisation falls" if rise > 0 else "L_mm did not emerge as regularisation fell"
    falling = max(_last(found.network[name], "cosine") for name in (PLATEAUS, COSINE))
    constant = max(_last(found.network[name], "cosine") for name in (LARGE, SMALL))
    nearer = "nearer to L_mm than" if falling > constant else "no nearer to L_mm than"
    return f"{emerges}, and a transformer whose decay falls ends {nearer} under constant decay."


def _ends(found: Schedules) -> dict[str, Sequence[Any]]:
    columns = ("loss_gap", "logits.cosine", "logits.nuclear", "logits.rank", "context_similarity", "token_similarity")
    named = _named(found)
    return {
        "run": list(named),
        **{name.replace(".", "_"): [one.run.trajectory.last(name) for one in named.values()] for name in columns},
    }


def _plateau_table(found: Schedules) -> dict[str, Sequence[Any]]:
    path, nuclear = found.path, found.prediction.nuclear_norm
    return {
        "lam": path.column("lam").tolist(),
        "loss_gap": found.plateau_ends("loss_gap").tolist(),
        "path_loss_gap": path.column("loss_gap").tolist(),
        "cosine": found.plateau_ends("logits.cosine").tolist(),
        "path_cosine": path.column("direction_cosine").tolist(),
        "nuclear": found.plateau_ends("logits.nuclear").tolist(),
        "path_nuclear": (path.column("nuclear_norm") / nuclear).tolist(),
        "rank": found.plateau_ends("logits.rank").tolist(),
    }


def _figures(found: Schedules, recipe: Recipe) -> list[Figure]:
    ridge = found.ridge.schedules(recipe["ufm_steps"])
    decay = _decay(recipe, "decays").schedules(recipe["steps"])
    models = {
        "UFM": (ridge, {name: one.run for name, one in found.ufm.items()}),
        "transformer": (decay, {name: one.run for name, one in found.network.items()}),
    }
    return [over_schedules(models, found.prediction.rank), against_path(_plateau_table(found))]
