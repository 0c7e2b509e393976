"""Five tokens, three contexts, two dimensions: the smallest setting in which everything can be seen.

Supports are {2,3,4}, {1,2,5}, {1,4,5} and embeddings are unit vectors at given angles; for some angles the data are
separable although ``d < m``, for others not. The published probabilities are unknown but for their entropy 0.8811; here
those of a context fall by one ratio from its first token to its last, and the ratio is the one with that entropy.
Tokens 1 and 5 follow the same contexts, so they share a row of ``W^mm`` and differ in ``W*`` alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import brentq

from tokengeom.errors import InputError
from tokengeom.figures.base import Figure
from tokengeom.figures.heatmaps import linear_heatmaps
from tokengeom.figures.linear_plane import linear_plane
from tokengeom.geometry.probes import linear_probes
from tokengeom.numerics import Float, blas_threads_for, x_log_x
from tokengeom.problems.instances import embeddings_at
from tokengeom.progress import AbstractProgress
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.studies.base import AbstractStudy, Check, Findings, Recipe
from tokengeom.studies.linear_draws import Draw, step_limit
from tokengeom.theory.linear import LinearPrediction, predict_linear
from tokengeom.training import Run, train

# From the likeliest token of a context to the least likely, counted from 0.
SUPPORTS = ((1, 2, 3), (0, 1, 4), (0, 3, 4))
TOKENS = 5
TWINS = (0, 4)


@dataclass(frozen=True, eq=False)
class Picture:
    """One set of angles: what is known of it, what is predicted, and where training went."""

    degrees: tuple[float, ...]
    known: bool
    prediction: LinearPrediction
    run: Run

    @property
    def right(self) -> bool:
        """Whether separability was answered as published."""
        return bool(self.prediction.separable) == self.known

    @property
    def above_floor(self) -> float:
        """``CE - loss_floor`` of the trained decoder, in nats."""
        return self.run.loss - self.prediction.loss_floor

    def twin_distance(self, W: Float) -> float:
        """Distance of the rows of the two tokens that follow the same contexts, relative to the size of W."""
        size = float(np.linalg.norm(W))
        return float(np.linalg.norm(W[TWINS[0]] - W[TWINS[1]])) / size if size > 0 else 0.0


class LinearPlane(AbstractStudy):
    """The 2-D pictures, answered, drawn and trained."""

    name: ClassVar[str] = "linear-2d"
    question: ClassVar[str] = "Which embeddings in the plane are separable, and where does training go?"

    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Predict and train each set of angles."""
        if not recipe["separable"]:
            raise InputError("The study 'linear-2d' needs at least one set of separable angles; got separable=[].")
        stats = plane_statistics(recipe["entropy"])
        sets = [(angles, True) for angles in recipe["separable"]] + [(angles, False) for angles in recipe["blocked"]]
        pictures = []
        with blas_threads_for(TOKENS, len(SUPPORTS)), progress.stage("angles", float(len(sets))) as stage:
            for angles, known in sets:
                pictures.append(_picture(stats, tuple(angles), known, recipe["steps"]))
                stage.advance(1.0, f"{angles}")
        return Findings(
            _sentence(pictures), _checks(pictures, recipe), _figures(pictures), {"angles": _table(pictures)}
        )


def plane_statistics(entropy: float) -> NextTokenStatistics:
    """Statistics of the 2-D setting whose entropy is as asked, in nats."""
    if not 0 < entropy < np.log(3):
        raise InputError(f"Three supports of 3 tokens have an entropy between 0 and log 3 = 1.0986; got {entropy!r}.")

    def excess(ratio: float) -> float:
        return -float(x_log_x(_falling(ratio)).sum()) - entropy

    share = _falling(float(brentq(excess, 1e-9, 1.0, xtol=1e-15)))
    P = np.zeros((TOKENS, len(SUPPORTS)))
    for j, tokens in enumerate(SUPPORTS):
        P[list(tokens), j] = share
    names = [f"context {j + 1}" for j in range(len(SUPPORTS))]
    return NextTokenStatistics.from_probabilities(P, contexts=names, vocabulary=[str(v + 1) for v in range(TOKENS)])


def _falling(ratio: float) -> Float:
    share = ratio ** np.arange(3.0)
    return np.asarray(share / share.sum())


def _picture(stats: NextTokenStatistics, degrees: tuple[float, ...], known: bool, steps: int) -> Picture:
    H = embeddings_at(degrees)
    prediction = predict_linear(stats, H)
    run = train(
        stats,
        "linear",
        embeddings=H,
        optimizer="gd",
        learning_rate=step_limit(Draw(stats, H)),
        steps=steps,
        init="zero",
        probes=linear_probes(prediction),
    )
    return Picture(degrees, known, prediction, run)


def _checks(pictures: Sequence[Picture], recipe: Recipe) -> list[Check]:
    separable = [p for p in pictures if p.known]
    first = pictures[0].prediction
    wrong = sum(not p.right for p in pictures)
    gaps = [p.prediction.certificate.relative_gap for p in separable]
    inner = [abs(float(np.vdot(p.prediction.W_star, p.prediction.W_mm))) for p in pictures]
    return [
        Check("angle sets answered otherwise than published", float(wrong), high=0.0),
        Check("entropy in nats (published 0.8811)", first.entropy, recipe["entropy"] - 5e-5, recipe["entropy"] + 5e-5),
        Check("largest relative gap of W^mm", max(gaps), high=1e-8),
        Check(
            "distance of the twin tokens in W^mm", max(p.twin_distance(p.prediction.W_mm) for p in separable), high=1e-8
        ),
        Check(
            "distance of the twin tokens in W*", min(p.twin_distance(p.prediction.W_star) for p in separable), low=0.1
        ),
        Check("inner product of W* and W^mm", max(inner), high=1e-8),
        Check("loss of training above the predicted floor", max(p.above_floor for p in pictures), high=recipe["close"]),
        Check("loss of training below the predicted floor", max(-p.above_floor for p in pictures), high=1e-9),
    ]


def _sentence(pictures: Sequence[Picture]) -> str:
    separable = [p for p in pictures if p.known]
    margins = [p.prediction.margin for p in separable]
    right, first = sum(p.right for p in pictures), separable[0]
    cosine = first.run.trajectory.last("cosine_without_finite")
    return (
        f"{right} of {len(pictures)} sets of angles are answered as published; the separable ones have margins "
        f"{min(margins):.3f} to {max(margins):.3f}, although d=2 < m=3. Tokens 1 and 5, which follow the same "
        f"contexts, share a row of W^mm to {first.twin_distance(first.prediction.W_mm):.0e} and are "
        f"{first.twin_distance(first.prediction.W_star):.2f} ||W*|| apart in W*. {first.run.steps:,} steps of gradient "
        f"descent end within {max(p.above_floor for p in pictures):.1e} nats of the predicted floor for all angles, at "
        f"cos(W - W*, W^mm) = {cosine:.5f} for the first (the published entropy 0.8811 was kept; the published "
        f"probabilities are not known)."
    )


def _table(pictures: Sequence[Picture]) -> Mapping[str, Sequence[Any]]:
    return {
        "degrees": ["/".join(f"{a:g}" for a in p.degrees) for p in pictures],
        "published": ["separable" if p.known else "not separable" for p in pictures],
        "separable": [bool(p.prediction.separable) for p in pictures],
        "compatible": [bool(p.prediction.compatible) for p in pictures],
        "margin": [p.prediction.margin for p in pictures],
        "loss_floor": [p.prediction.loss_floor for p in pictures],
        "loss_after_training": [p.run.loss for p in pictures],
        "cosine_without_finite": [p.run.trajectory.last("cosine_without_finite") for p in pictures],
        "finite_error": [p.run.trajectory.last("finite_error") for p in pictures],
    }


def _figures(pictures: Sequence[Picture]) -> list[Figure]:
    first = pictures[0].prediction
    return [linear_plane(first), linear_heatmaps(first)]
