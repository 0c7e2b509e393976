"""The linear model in the plane: five tokens, three contexts, two dimensions.

The setting of a figure of [thrampoulidis2024], small enough to draw everything. Supports are {2,3,4}, {1,2,5}, {1,4,5}
and embeddings are unit vectors at given angles. For some angles the data are separable although ``d < m``, for others
they are not. Of the paper's probabilities only the entropy 0.8811 is given; here the probabilities of a context fall by
a constant ratio from its first token to its last, and the ratio is chosen to give that entropy. Tokens 1 and 5 follow
the same contexts, so they have the same row of ``W^mm`` and differ only in ``W*``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.optimize import brentq
from scipy.special import entr

from tokengeom import LinearPrediction, NextTokenStatistics, Run, predict
from tokengeom.extending import (
    AbstractProgress,
    Figure,
    Float,
    HeatmapPanel,
    InputError,
    blas_threads_for,
    cosines,
    linear_plane,
    names_of,
    order_groups,
)
from tokengeom_studies.base import AbstractStudy, Check, Findings, Recipe, Table
from tokengeom_studies.common.random_data import LinearSetting, descend

SUPPORTS = ((1, 2, 3), (0, 1, 4), (0, 3, 4))
"""Tokens of each support, counted from 0, the most likely first."""
TOKENS = 5
TWINS = (0, 4)
"""The two tokens that follow the same contexts."""


@dataclass(frozen=True, eq=False)
class AngleSet:
    """One set of angles: whether the paper calls it separable, its prediction, and a training run."""

    degrees: tuple[float, ...]
    separable_in_paper: bool
    prediction: LinearPrediction
    run: Run

    @property
    def as_in_paper(self) -> bool:
        """Whether the prediction agrees with the paper on separability."""
        return bool(self.prediction.separable) == self.separable_in_paper

    @property
    def above_floor(self) -> float:
        """``CE - loss_floor`` of the trained decoder, in nats."""
        return self.run.loss - self.prediction.loss_floor

    def twin_distance(self, W: Float) -> float:
        """Distance between the rows of `TWINS`, relative to the norm of W."""
        size = float(np.linalg.norm(W))
        return float(np.linalg.norm(W[TWINS[0]] - W[TWINS[1]])) / size if size > 0 else 0.0


class LinearPlane(AbstractStudy):
    """Separability, the drawing and training of each set of angles."""

    question: ClassVar[str] = "Which embeddings in the plane are separable, and where does training converge?"
    small: ClassVar[Recipe] = {
        "entropy": 0.8811,
        "separable": [[90, 210, 330], [90, 200, 340], [60, 160, 280], [90, 225, 315]],
        "blocked": [[0, 90, 180], [30, 90, 150], [90, 180, 0]],
        "steps": 100_000,
        "close": 1e-4,
    }
    paper: ClassVar[Recipe] = {
        **small,
        "steps": 10_000_000,
        "close": 1e-6,
    }

    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Predict and train each set of angles."""
        if not recipe["separable"]:
            raise InputError("The study 'linear-2d' needs at least one set of separable angles; got separable=[].")
        stats = plane_statistics(recipe["entropy"])
        sets = [(angles, True) for angles in recipe["separable"]] + [(angles, False) for angles in recipe["blocked"]]
        judged = []
        with blas_threads_for(TOKENS, len(SUPPORTS)), progress.stage("Sets of angles", float(len(sets))) as stage:
            for angles, separable in sets:
                judged.append(_angle_set(stats, tuple(angles), separable, recipe["steps"]))
                stage.advance(1.0, f"{angles}")
        tables = {"angles": _table(judged)}
        return self.findings(recipe, _sentence(judged), _checks(judged, recipe), _figures(judged), tables)


def plane_statistics(entropy: float) -> NextTokenStatistics:
    """Statistics of the setting in the plane with the given entropy, in nats."""
    if not 0 < entropy < np.log(3):
        raise InputError(f"Three supports of 3 tokens have an entropy between 0 and log 3 = 1.0986; got {entropy!r}.")

    def excess(ratio: float) -> float:
        return float(entr(_falling(ratio)).sum()) - entropy

    share = _falling(float(brentq(excess, 1e-9, 1.0, xtol=1e-15)))
    P = np.zeros((TOKENS, len(SUPPORTS)))
    for j, tokens in enumerate(SUPPORTS):
        P[list(tokens), j] = share
    names = [f"context {j + 1}" for j in range(len(SUPPORTS))]
    return NextTokenStatistics.from_probabilities(P, contexts=names, vocabulary=[str(v + 1) for v in range(TOKENS)])


def _embeddings_at(degrees: Sequence[float]) -> Float:
    """Unit embeddings in the plane at the given angles, 2 x m."""
    angles = np.deg2rad(np.asarray(degrees))
    # The cosine of 90 degrees must be 0, not 6e-17.
    return np.round(np.stack([np.cos(angles), np.sin(angles)]), 15)


def _falling(ratio: float) -> Float:
    share = ratio ** np.arange(3.0)
    return np.asarray(share / share.sum())


def _angle_set(stats: NextTokenStatistics, degrees: tuple[float, ...], separable: bool, steps: int) -> AngleSet:
    H = _embeddings_at(degrees)
    prediction = predict(stats, embeddings=H)
    return AngleSet(degrees, separable, prediction, descend(LinearSetting(stats, H), prediction, steps))


def _checks(sets: Sequence[AngleSet], recipe: Recipe) -> list[Check]:
    separable = [a for a in sets if a.separable_in_paper]
    entropy, asked = sets[0].prediction.entropy, recipe["entropy"]
    wrong = sum(not a.as_in_paper for a in sets)
    gaps = [a.prediction.certificate.relative_gap for a in separable]
    inner = [abs(float(np.vdot(a.prediction.W_star, a.prediction.W_mm))) for a in sets]
    twins_in_direction = max(a.twin_distance(a.prediction.W_mm) for a in separable)
    twins_in_finite_part = min(a.twin_distance(a.prediction.W_star) for a in separable)
    return [
        Check("sets of angles classified differently from the paper", float(wrong), high=0.0),
        Check("entropy in nats (0.8811 in the paper)", entropy, asked - 5e-5, asked + 5e-5),
        Check("largest relative gap of W^mm", max(gaps), high=1e-8),
        Check("distance between tokens 1 and 5 in W^mm", twins_in_direction, high=1e-8),
        Check("distance between tokens 1 and 5 in W*", twins_in_finite_part, low=0.1),
        Check("inner product of W* and W^mm", max(inner), high=1e-8),
        Check(
            "largest loss above the predicted floor, in nats", max(a.above_floor for a in sets), high=recipe["close"]
        ),
        Check("largest loss below the predicted floor, in nats", max(-a.above_floor for a in sets), high=1e-9),
    ]


def _sentence(sets: Sequence[AngleSet]) -> str:
    separable = [a for a in sets if a.separable_in_paper]
    margins = [a.prediction.margin for a in separable]
    right, first = sum(a.as_in_paper for a in sets), separable[0]
    cosine = first.run.trajectory.last("cosine_without_finite")
    return (
        f"{right} of {len(sets)} sets of angles are classified as in the paper; the separable ones have margins "
        f"{min(margins):.3f} to {max(margins):.3f}, although d=2 < m=3. Tokens 1 and 5, which follow the same "
        f"contexts, have the same row of W^mm to {first.twin_distance(first.prediction.W_mm):.0e} and are "
        f"{first.twin_distance(first.prediction.W_star):.2f} ||W*|| apart in W*. After {first.run.steps:,} steps of "
        f"gradient descent the loss is within {max(a.above_floor for a in sets):.1e} nats of the predicted floor for "
        f"all angles, and cos(W - W*, W^mm) = {cosine:.5f} for the first set. The entropy is that of the paper; its "
        "probabilities are not given there."
    )


def _table(sets: Sequence[AngleSet]) -> Table:
    return {
        "degrees": ["/".join(f"{angle:g}" for angle in a.degrees) for a in sets],
        "in_paper": ["separable" if a.separable_in_paper else "not separable" for a in sets],
        "separable": [bool(a.prediction.separable) for a in sets],
        "compatible": [bool(a.prediction.compatible) for a in sets],
        "margin": [a.prediction.margin for a in sets],
        "loss_floor": [a.prediction.loss_floor for a in sets],
        "loss_after_training": [a.run.loss for a in sets],
        "cosine_without_finite": [a.run.trajectory.last("cosine_without_finite") for a in sets],
        "finite_error": [a.run.trajectory.last("finite_error") for a in sets],
    }


def _figures(sets: Sequence[AngleSet]) -> list[Figure]:
    first = sets[0].prediction
    return [linear_plane(first), _heatmaps(first)]


def _heatmaps(prediction: LinearPrediction) -> Figure:
    """Next-token probabilities, diverging direction and finite part of the linear model, with tokens in one order."""
    data = prediction.data
    rows = order_groups(np.arange(data.V), cosines(data.P.T))
    _, group = np.unique(data.S, axis=1, return_inverse=True)
    columns = order_groups(group.reshape(-1), cosines(data.P))
    tokens = rows.names(names_of(data, "tokens", data.V))
    probabilities = HeatmapPanel(
        "P: next-token probabilities",
        data.P[np.ix_(rows.indices, columns.indices)],
        "contexts",
        "tokens",
        columns.names(names_of(data, "contexts", data.m)),
        tokens,
        columns.breaks,
        low=0.0,
        colour_label="probability",
    )
    coordinates = [f"coordinate {i}" for i in range(data.d)]
    direction, finite = (
        HeatmapPanel(
            title, W[rows.indices], "coordinates of the embedding", "tokens", coordinates, tokens,
            colour_label=label,
        )
        for title, W, label in (
            ("W^mm: diverging direction", prediction.W_mm, "entry of W^mm"),
            ("W*: finite part", prediction.W_star, "entry of W*"),
        )
    )  # fmt: skip
    caption = (
        f"The linear model with {data.m:,} contexts, {data.V:,} tokens and fixed embeddings of dimension {data.d}. "
        "Left: next-token probabilities; contexts with the same support are adjacent. Middle: W^mm, the direction in "
        "which the decoder diverges. Right: W*, the finite part. Tokens (rows) are in the same order in all panels; "
        "tokens that follow similar contexts are neighbours. In the middle and on the right, red is positive, blue "
        f"negative and white 0. {' '.join(prediction.summary().splitlines())}"
    )
    panels = [probabilities, direction, finite]
    return Figure("linear-heatmaps", "The data and the limit of training", caption, panels, columns=3)
