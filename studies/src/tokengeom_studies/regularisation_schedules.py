"""The direction L_mm in the logits as regularisation falls, in free embeddings and in a transformer.

``L_lambda = argmin CE(L) + lambda ||L||_*``,  ``L_lambda ~ L_in + R(lambda) L_mm``,  R -> inf as lambda -> 0 [zhao2024]

The strength is large throughout, small throughout, or falls from one to the other, in plateaus or as half a cosine.
Free embeddings (UFM) are trained with Adam, where weight decay lambda is the ridge itself, so at the end of each
plateau they must be at the path's point for its lambda. The transformer is trained with AdamW, as networks usually are:
its decay is decoupled (``x <- (1 - rate decay) x``) and is not the ridge of a loss, so its strengths are not those of
the path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tokengeom import FeaturePrediction, NextTokenStatistics, Run, predict, train
from tokengeom.extending import (
    AbstractProgress,
    AbstractSchedule,
    Agreement,
    Constant,
    Cosine,
    Curve,
    Figure,
    Float,
    InputError,
    LinePanel,
    LogitPath,
    Probe,
    Scale,
    State,
    Steps,
    centre_columns,
    cosine,
    feature_probes,
    regularisation_path,
)
from tokengeom_studies.base import AbstractStudy, Check, Findings, Recipe, Table
from tokengeom_studies.common.feature_runs import count_stories
from tokengeom_studies.common.network_runs import (
    ITEMS,
    Trained,
    agreement_table,
    compare_run,
    gain_checks,
    require_device,
    train_and_compare,
)
from tokengeom_studies.common.trainings import PlannedTraining, network_training, ufm_training

Strengths = Mapping[str, tuple[float, AbstractSchedule]]
FIRST_PART = 0.02
"""Share of the steps at the start that is not drawn, because measurements change too much there."""
_ROWS: Sequence[tuple[str, str, str, Scale]] = (
    ("loss_gap", "loss gap", "CE - H (nats)", "log"),
    ("logits.cosine", "direction of the logits", "cos(L, L_mm)", "linear"),
    ("context_similarity", "contexts", "SIM with L_mm", "linear"),
    ("logits.rank", "numerical rank of the logits", "rank", "linear"),
)


def over_schedules(models: Mapping[str, tuple[Strengths, Mapping[str, Run]]], rank: int) -> Figure:
    """Strength, loss, direction, similarity and rank over the steps of each run; one column of panels per model."""
    panels = [_strength_panel(model, *given) for model, given in models.items()]
    for column, title, label, scale in _ROWS:
        levels = [("rank of L_mm", float(rank))] if column == "logits.rank" else []
        for model, (_, runs) in models.items():
            curves = [Curve(name, *_after_start(run, column)) for name, run in runs.items()]
            panels.append(LinePanel(f"{model}: {title}", "step", label, curves, "linear", scale, levels))
    caption = (
        "Free embeddings (UFM, left) and a transformer (right) whose weight decay is large, small, or falls from one "
        "to the other. From top to bottom: the decay (the ridge of the loss for the UFM, decoupled for the "
        "transformer); loss above its floor; cosine of the centred logits with the predicted direction L_mm; "
        "structural similarity of the cosines between contexts with those of L_mm; number of singular values of the "
        "logits above 1% of the largest. The first 2% of the steps are left out."
    )
    return Figure("schedules", "Falling regularisation", caption, panels, columns=len(models))


def _after_start(run: Run, column: str) -> tuple[Float, Float]:
    kept = run.trajectory.steps > run.steps * FIRST_PART
    return run.trajectory["step"][kept], run.trajectory[column][kept]


def _strength_panel(model: str, strengths: Strengths, runs: Mapping[str, Run]) -> LinePanel:
    curves = []
    for name, (first, schedule) in strengths.items():
        last = runs[name].steps
        steps = np.unique(np.linspace(0, max(last - 1, 0), 400).astype(np.int64)).astype(np.float64)
        curves.append(Curve(name, steps, first * schedule.factors(steps, last)))
    return LinePanel(f"{model}: strength", "step", "weight decay", curves, "linear", "log")


def plateaus_and_path(plateaus: Table) -> Figure:
    """Ends of the plateaus and the path's points at the same strengths."""
    lam = np.asarray(plateaus["lam"], np.float64)

    def panel(title: str, label: str, column: str, scale: Scale) -> LinePanel:
        curves = [
            Curve("UFM, end of plateau", lam, np.asarray(plateaus[column], np.float64)),
            Curve("path, certified", lam, np.asarray(plateaus[f"path_{column}"], np.float64), dashed=True),
        ]
        return LinePanel(title, "ridge lambda", label, curves, "log", scale)

    panels = [
        panel("Loss gap", "CE - H (nats)", "loss_gap", "log"),
        panel("Direction", "cos(L, L_mm)", "cosine", "linear"),
        panel("Size", "||L||_* / ||L_mm||_*", "nuclear", "linear"),
    ]
    caption = (
        "Free embeddings at the end of each plateau of the ridge lambda (training continues from one plateau to the "
        "next), and the minimiser of CE + lambda ||L||_* at the same lambda, solved in logit space with a duality gap. "
        "As lambda falls (to the left) the logits grow, and their direction turns to L_mm."
    )
    return Figure("plateaus", "Training and the regularisation path", caption, panels, columns=3)


LARGE, SMALL, PLATEAUS, COSINE = "large decay", "small decay", "decay falling in plateaus", "decay falling as a cosine"
NUMERICAL = 1e-2
"""Singular values up to this share of the largest are not counted in the numerical rank of a trained model."""


@dataclass(frozen=True)
class Decay:
    """Largest and smallest strength of regularisation, and the schedules between them."""

    large: float
    small: float
    plateaus: int

    @property
    def strengths(self) -> Float:
        """Strength of each plateau, falling by a constant factor."""
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
    """Weight decay that is large, small, or falling, in free embeddings and in a transformer."""

    question: ClassVar[str] = "Does the low-rank direction L_mm emerge in the logits as regularisation falls?"
    # ridges are the largest and the smallest lambda of the UFM, a ridge of the mean loss (Adam); decays are those of
    # the transformer, decoupled (AdamW). The learning rate is constant, since a decoupled decay would fall with it.
    small: ClassVar[Recipe] = {
        "seed": 0,
        "stories": 3000,
        "context": 4,
        "contexts": 100,
        "vocabulary": 40,
        "layers": 2,
        "heads": 4,
        "dim": 48,
        "steps": 420,
        "learning_rate": 3e-3,
        "schedule": "constant",
        "decays": [1.0, 1e-3],
        "ufm_steps": 7_000,
        "ufm_learning_rate": 1e-2,
        "ridges": [1e-2, 1e-5],
        "plateaus": 7,
        "records_per_decade": 30,
        "device": "cpu",
        "draws": 100,
    }
    paper: ClassVar[Recipe] = {
        "seed": 0,
        "stories": 3000,
        "context": 4,
        "contexts": 400,
        "vocabulary": 104,
        "layers": 4,
        "heads": 6,
        "dim": 128,
        "steps": 30_000,
        "learning_rate": 1e-4,
        "schedule": "constant",
        "decays": [1.0, 1e-6],
        "ufm_steps": 30_000,
        "ufm_learning_rate": 1e-2,
        "ridges": [1e-2, 1e-5],
        "plateaus": 7,
        "records_per_decade": 30,
        "device": "cuda",
        "draws": 1000,
    }

    def trainings(self, recipe: Recipe) -> list[PlannedTraining]:
        """Both models under each schedule."""
        schedules = len(_decay(recipe, "decays").schedules(recipe["steps"]))
        free = ufm_training(recipe, schedules, optimizer="adam", device=recipe["device"])
        return [network_training(recipe, count=schedules), free]

    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Count and predict once, follow the path, train both models under each schedule."""
        require_device(recipe)
        ridge, decay = _decay(recipe, "ridges"), _decay(recipe, "decays")
        stats = count_stories(recipe, progress)
        prediction = predict(stats, progress=progress)
        path = regularisation_path(stats.P, stats.pi, prediction.L_mm, lambdas=ridge.strengths)
        ufm = {
            name: compare_run(prediction, _free(stats, prediction, recipe, *how, progress), recipe)
            for name, how in ridge.schedules(recipe["ufm_steps"]).items()
        }
        network = {
            name: _network(stats, prediction, recipe, *how, progress)
            for name, how in decay.schedules(recipe["steps"]).items()
        }
        found = Schedules(stats, prediction, ridge, path, ufm, network)
        tables = {"ends": _ends(found), "plateaus": _plateau_table(found), "agreement": agreement_table(_named(found))}
        return self.findings(recipe, _sentence(found), _checks(found), _figures(found, recipe), tables)


def _decay(recipe: Recipe, name: str) -> Decay:
    large, small = max(recipe[name]), min(recipe[name])
    if len(recipe[name]) != 2 or not 0 < small < large or recipe["plateaus"] < 2:
        raise InputError(
            f"A falling strength goes from a larger to a smaller number > 0 in at least 2 plateaus; got "
            f"{name}={recipe[name]} and plateaus={recipe['plateaus']}. For example: {name}=[1e-2, 1e-5], plateaus=7."
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
    """Free embeddings trained with Adam, whose weight decay is added to the gradient: the ridge of the mean loss."""
    return train(
        stats,
        "ufm",
        dim=recipe["dim"],
        optimizer="adam",
        reduction="mean",
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
    return train_and_compare(
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
    """Record of the centred logits: cosine with L_mm, nuclear norm relative to L_mm's, numerical rank."""

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
        Check("UFM, plateaus: largest relative distance of the loss gap from the path", found.loss_error, high=0.15),
        Check("UFM, plateaus: largest distance of cos(L, L_mm) from the path", found.cosine_error, high=0.01),
        Check("UFM: increase of cos(L, L_mm) from large decay to small", rise, low=0.1),
        *_path_checks(found.ufm[PLATEAUS]),
    ]
    for name in (SMALL, PLATEAUS, COSINE):
        checks += gain_checks(f"transformer, {name}", found.network[name], loss_gap=5e-2)
    return checks


def _path_checks(one: Trained) -> list[Check]:
    """A ridge is the nuclear norm of the logits, whatever the optimizer: W and H must be those at the loss reached."""
    return [
        Check(
            f"UFM, plateaus: agreement of {item}s at the loss reached (nuclear norm)",
            one.comparison.agreements.get(f"nuclear_{item}_agreement", Agreement(float("nan"))).value,
            low=0.98,
        )
        for item in ITEMS
    ]


def _last(one: Trained, number: str) -> float:
    return one.run.trajectory.last(f"logits.{number}")


def _sentence(found: Schedules) -> str:
    first, last = found.path.points[0], found.path.points[-1]
    rank = [f"{value:.0f}" for value in found.plateau_ends("logits.rank")[[0, -1]]]
    turn = [f"{value:.3f}" for value in found.plateau_ends("logits.cosine")[[0, -1]]]
    ends = "; ".join(
        f"{name} {_last(one, 'cosine'):.3f} (agreement of contexts at the loss reached "
        f"{one.agreement('context').value:.3f}, with L_mm {one.in_limit('context').value:.3f}; loss gap "
        f"{one.run.loss_gap:.1e})"
        for name, one in found.network.items()
    )
    return (
        f"{_verdict(found)} In free embeddings, as the ridge falls from {first.lam:.0e} to {last.lam:.0e}, the cosine "
        f"of the centred logits with L_mm goes from {turn[0]} to {turn[1]} (path: {first.direction_cosine:.3f} to "
        f"{last.direction_cosine:.3f}) and their numerical rank from {rank[0]} to {rank[1]} (L_mm has "
        f"{found.prediction.rank}); at the end of every plateau the loss gap is within {found.loss_error:.1%} of the "
        f"path's. The cosine of the transformer at the end of training, for each (decoupled) decay: {ends}; one run "
        "each."
    )


def _verdict(found: Schedules) -> str:
    rise = _last(found.ufm[PLATEAUS], "cosine") - found.plateau_ends("logits.cosine")[0]
    emerges = "L_mm emerges as regularisation falls" if rise > 0 else "L_mm did not emerge as regularisation fell"
    falling = max(_last(found.network[name], "cosine") for name in (PLATEAUS, COSINE))
    constant = max(_last(found.network[name], "cosine") for name in (LARGE, SMALL))
    nearer = "closer to L_mm than" if falling > constant else "no closer to L_mm than"
    return f"{emerges}, and a transformer whose decay falls ends {nearer} under constant decay."


def _ends(found: Schedules) -> Table:
    columns = ("loss_gap", "logits.cosine", "logits.nuclear", "logits.rank", "context_similarity", "token_similarity")
    named = _named(found)
    return {
        "run": list(named),
        **{name.replace(".", "_"): [one.run.trajectory.last(name) for one in named.values()] for name in columns},
    }


def _plateau_table(found: Schedules) -> Table:
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
    return [over_schedules(models, found.prediction.rank), plateaus_and_path(_plateau_table(found))]
