"""Transformers whose embeddings have fewer dimensions than the rank of L_mm.

For free embeddings ``d >= rank L_mm`` is conjectured to be enough (study ``ufm-small-d``). In a transformer d is also
the width of every layer, so a narrow one can compute less: what is lost at small d is an upper bound of what the
embeddings lose. Runs of the authors of [zhao2024] with d = 32 and 64 at rank 30 came within 2e-4 of the entropy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tokengeom import FeaturePrediction, NextTokenStatistics, predict
from tokengeom.extending import AbstractProgress, Figure, Float, small_d
from tokengeom_studies.base import AbstractStudy, Check, Findings, Recipe, Table
from tokengeom_studies.common.feature_runs import count_stories
from tokengeom_studies.common.network_runs import (
    ITEMS,
    Trained,
    agreement_table,
    floor_check,
    require_device,
    train_and_compare,
    training_curves,
)
from tokengeom_studies.common.trainings import PlannedTraining, network_training


@dataclass(frozen=True, eq=False)
class Widths:
    """Transformers by d, in increasing order, trained on the same statistics."""

    stats: NextTokenStatistics
    prediction: FeaturePrediction
    models: Mapping[int, Trained]

    @property
    def dims(self) -> list[int]:
        """The dimensions d."""
        return list(self.models)

    @property
    def loss_gaps(self) -> Float:
        """``CE - H`` for each d."""
        return np.array([one.run.loss_gap for one in self.models.values()])

    def ends(self, number: str) -> Float:
        """A number of the comparison for each d."""
        return np.array([one.comparison[number].value for one in self.models.values()])

    def agreements(self, item: str) -> Float:
        """Agreement of "context" or "token" embeddings at the loss reached, for each d."""
        return np.array([one.agreement(item).value for one in self.models.values()])

    def floors(self, number: str) -> Float:
        """Floor of a number for each d: higher at large d, where unrelated directions are nearly orthogonal."""
        return np.array([one.comparison[number].floor for one in self.models.values()])

    def lost(self, item: str) -> float:
        """By how much the agreement with L_mm is smaller at the smallest d than at the largest."""
        values = self.ends(f"limit_{item}_agreement")
        return float(values[-1] - values[0])


class SmallDNetwork(AbstractStudy):
    """Loss, similarity and collapse of a transformer against d."""

    question: ClassVar[str] = "What does a transformer lose when d falls below the rank of L_mm?"
    # Small has few contexts and tokens, so that the rank of L_mm lies within a short list of dimensions. Paper has the
    # papers' setting.
    small: ClassVar[Recipe] = {
        "seed": 0,
        "stories": 3000,
        "context": 4,
        "contexts": 200,
        "vocabulary": 60,
        "layers": 2,
        "heads": 4,
        "dims": [8, 16, 32, 64, 96],
        "steps": 400,
        "learning_rate": 2e-3,
        "weight_decay": 1e-6,
        "schedule": "cosine",
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
        "dims": [16, 32, 64, 96, 128, 256],
        "steps": 30_000,
        "learning_rate": 1e-4,
        "weight_decay": 1e-6,
        "schedule": "papers",
        "device": "cuda",
        "draws": 1000,
    }

    def trainings(self, recipe: Recipe) -> list[PlannedTraining]:
        """One transformer per width."""
        return [network_training(recipe, dim=dim) for dim in recipe["dims"]]

    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Count and predict once, train a transformer of each width."""
        require_device(recipe)
        stats = count_stories(recipe, progress)
        prediction = predict(stats, progress=progress)
        models = {}
        for d in sorted(recipe["dims"]):
            heads = min(recipe["heads"], d)
            models[d] = train_and_compare(stats, prediction, recipe, progress=progress, dim=d, heads=heads)
        found = Widths(stats, prediction, models)
        tables = {"dimensions": _table(found), "agreement": agreement_table(_named(found), "run")}
        figures = [_figure(found), training_curves(_named(found), "Transformers of d dimensions on the same text.")]
        return self.findings(recipe, _sentence(found), _checks(found), figures, tables)


def _named(found: Widths) -> dict[str, Trained]:
    return {f"d={d}": one for d, one in found.models.items()}


def _checks(found: Widths) -> list[Check]:
    wide = found.models[found.dims[-1]]
    rise = float(found.loss_gaps[0] / found.loss_gaps[-1])
    below = float(np.sum(np.array(found.dims) < found.prediction.rank))
    return [
        Check("relative gap of L_mm", found.prediction.certificate.relative_gap, high=1e-6),
        Check("number of d below the rank of L_mm", below, low=1),
        Check("largest d over the rank of L_mm", found.dims[-1] / found.prediction.smallest_dim, low=1),
        Check("loss gap at the largest d", wide.run.loss_gap, high=2e-2),
        Check("loss gap at the smallest d over that at the largest", rise, low=1),
        floor_check("agreement of contexts at the largest d", wide.agreement("context"), by=0.1),
        Check("agreement of contexts with L_mm lost at the smallest d", found.lost("context"), low=0.1),
        Check("agreement of tokens with L_mm lost at the smallest d", found.lost("token"), low=0.05),
    ]


def _sentence(found: Widths) -> str:
    ends = "; ".join(
        f"d={d}: loss gap {one.run.loss_gap:.1e}, agreement at the loss reached {_beside_floor(one, 'context')} for "
        f"contexts and {_beside_floor(one, 'token')} for tokens, with L_mm {one.in_limit('context').value:.2f} and "
        f"{one.in_limit('token').value:.2f}"
        for d, one in found.models.items()
    )
    return (
        f"On {found.stats.m} contexts and {found.stats.V} tokens of the built-in stories, where L_mm has rank "
        f"{found.prediction.rank}: {ends}. In a transformer d is also the width of its layers, so what is lost at "
        "small d is not lost by the embeddings alone."
    )


def _beside_floor(one: Trained, item: str) -> str:
    number = one.agreement(item)
    return f"{number.value:.2f} (floor {number.floor:.2f})"


def _table(found: Widths) -> Table:
    kinds = ("agreement", "similarity")
    names = [*(f"limit_{item}_{kind}" for kind in kinds for item in ITEMS), "limit_logit_cosine", "collapse"]
    return {
        "d": found.dims,
        "loss_gap": found.loss_gaps.tolist(),
        **{f"{item}_agreement": found.agreements(item).tolist() for item in ITEMS},
        **{name: found.ends(name).tolist() for name in names},
    }


def _figure(found: Widths) -> Figure:
    numbers = {"contexts": "limit_context_similarity", "tokens": "limit_token_similarity"}
    similar = {name: found.ends(number) for name, number in numbers.items()}
    similar |= {f"{name}, floor": found.floors(number) for name, number in numbers.items()}
    dims, rank, V = np.array(found.dims, np.float64), found.prediction.rank, found.stats.V
    return small_d(dims, found.loss_gaps, similar, found.ends("collapse"), rank=rank, V=V)
