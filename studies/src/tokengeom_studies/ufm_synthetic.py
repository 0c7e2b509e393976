"""Unconstrained features on small random supports, with the papers' training settings.

The synthetic setting of [zhao2024]: 16 contexts with 3 next tokens each among V=30, counts drawn at random, AdamW with
the papers' schedule. The study sets two targets: ``CE - H <= 2e-5`` after 30,000 steps, and ``SIM(H, H_mm) >= 0.96``
between the trained and the predicted cosine matrix of contexts. Whether a single run meets them depends on the supports
drawn. So several draws are trained, the medians must meet the targets, and the sentence says how many draws meet both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tokengeom import FeaturePrediction, Run, predict
from tokengeom.extending import AbstractProgress, feature_heatmaps, feature_probes, feature_training, pattern_triple
from tokengeom_studies.base import AbstractStudy, Check, Findings, Recipe, Table
from tokengeom_studies.common.model_runs import train_like_the_papers
from tokengeom_studies.common.random_data import random_counts

LOSS_GAP = 2e-5
CONTEXT_SIMILARITY = 0.96
FINITE_SHARE = 1e-3
"""Largest allowed distance of a trained finite part from L_in, relative to L_in; after 30,000 steps it is 3e-5."""


@dataclass(frozen=True, eq=False)
class Draw:
    """Prediction and run of one draw of supports and counts."""

    prediction: FeaturePrediction
    run: Run

    def last(self, name: str) -> float:
        """A measurement at the end of training."""
        return self.run.trajectory.last(name)

    @property
    def finite_error(self) -> float:
        """``||P_F(L) - L_in|| / ||L_in||`` at the end of training."""
        return self.last("finite_distance") / float(np.linalg.norm(self.prediction.L_in))

    @property
    def meets_both(self) -> bool:
        """Whether both targets are met."""
        return self.run.loss_gap <= LOSS_GAP and self.last("context_similarity") >= CONTEXT_SIMILARITY


class UfmSynthetic(AbstractStudy):
    """The papers' synthetic setting, for several draws."""

    question: ClassVar[str] = "Do learned features reach the predicted geometry on small random supports?"
    # The papers' synthetic setting. Small has their size and steps, for eight draws; paper has forty draws.
    small: ClassVar[Recipe] = {
        "seed": 0,
        "V": 30,
        "contexts": 16,
        "support": 3,
        "repeats": 4,
        "dim": 128,
        "steps": 30_000,
        "learning_rate": 1e-4,
        "weight_decay": 1e-6,
        "draws": 8,
    }
    paper: ClassVar[Recipe] = {
        **small,
        "draws": 40,
    }

    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Predict and train each draw, and compare."""
        draws = [_draw(recipe, recipe["seed"] + i, progress) for i in range(recipe["draws"])]
        runs = {f"draw {i}": draw.run for i, draw in enumerate(draws)}
        first = draws[0]
        figures = [
            pattern_triple(first.prediction),
            feature_training(runs),
            feature_heatmaps(first.prediction, {"draw 0": first.run}),
        ]
        return self.findings(recipe, _sentence(draws), _checks(draws), figures, {"draws": _table(draws)})


def _draw(recipe: Recipe, seed: int, progress: AbstractProgress) -> Draw:
    stats = random_counts(seed, recipe["V"], recipe["contexts"], recipe["support"], recipe["repeats"])
    prediction = predict(stats)
    # These contexts rarely share a support, so there is no collapse to measure.
    probes = {name: probe for name, probe in feature_probes(prediction).items() if name != "collapse"}
    return Draw(prediction, train_like_the_papers(stats, recipe, probes=probes, progress=progress, seed=seed))


def _all(draws: Sequence[Draw], name: str) -> list[float]:
    return [draw.last(name) for draw in draws]


def _checks(draws: Sequence[Draw]) -> list[Check]:
    gap = max(draw.prediction.certificate.relative_gap for draw in draws)
    return [
        Check("largest relative gap of L_mm", gap, high=1e-6),
        Check("median loss gap", float(np.median(_all(draws, "loss_gap"))), high=LOSS_GAP),
        Check("median SIM(H, H_mm)", float(np.median(_all(draws, "context_similarity"))), low=CONTEXT_SIMILARITY),
        Check("smallest SIM(H, H_mm)", min(_all(draws, "context_similarity")), low=CONTEXT_SIMILARITY - 0.02),
        Check(
            "largest relative distance of the finite part", max(draw.finite_error for draw in draws), high=FINITE_SHARE
        ),
    ]


def _sentence(draws: Sequence[Draw]) -> str:
    gaps, contexts, tokens = (_all(draws, n) for n in ("loss_gap", "context_similarity", "token_similarity"))
    return (
        f"After {draws[0].run.steps:,} steps the median of the loss gap over {len(draws)} draws is "
        f"{np.median(gaps):.2e} nats ({min(gaps):.2e} to {max(gaps):.2e}), and the median SIM with L_mm is "
        f"{np.median(contexts):.3f} ({min(contexts):.3f} to {max(contexts):.3f}) for contexts and "
        f"{np.median(tokens):.3f} ({min(tokens):.3f} to {max(tokens):.3f}) for tokens; "
        f"{sum(d.meets_both for d in draws)} of {len(draws)} draws meet both targets, loss gap <= {LOSS_GAP:.0e} and "
        f"SIM of contexts >= {CONTEXT_SIMILARITY}."
    )


def _table(draws: Sequence[Draw]) -> Table:
    names = ("loss_gap", "norm_logits", "finite_distance", "logit_distance", "context_similarity", "token_similarity",
             "proxy_context_similarity", "proxy_token_similarity")  # fmt: skip
    return {"draw": list(range(len(draws))), **{name: _all(draws, name) for name in names}}
