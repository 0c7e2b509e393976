"""Limitations of a comparison: sentences about what its numbers do not say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokengeom.comparison.inputs import Observed
from tokengeom.comparison.similarity_numbers import MOST_ITEMS
from tokengeom.core.factors import Factors
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.linear import LinearPrediction
from tokengeom.theory.proxy import ProxyPrediction

if TYPE_CHECKING:
    from tokengeom.core.numerics import Int

EMBEDDING_TOLERANCE = 1e-9
"""Embeddings with a relative distance below this are the same."""
SAME_LOSS = 0.02
"""Loss gaps with a relative difference below this are the same."""


def loss_limitations(prediction: LossPrediction, gap: float | None) -> list[str]:
    """Whether prediction and run are at the same loss."""
    if gap is None:
        return [f"The prediction is at a loss gap of {prediction.loss_gap:.3g} nats; that of the run is not known."]
    if abs(gap - prediction.loss_gap) <= SAME_LOSS * prediction.loss_gap:
        return [
            f"The loss gaps of the run ({gap:.3g} nats) and of the prediction ({prediction.loss_gap:.3g} nats) agree "
            f"within {SAME_LOSS:.0%}."
        ]
    return [
        f"The prediction is at a loss gap of {prediction.loss_gap:.3g} nats and the run at {gap:.3g}: predict at the "
        "run's own loss gap to compare like with like."
    ]


def feature_limitations(prediction: FeaturePrediction, run: Factors) -> list[str]:
    """Proof and uniqueness of L_mm, too few dimensions, and contexts without or with shared supports."""
    d, proof = run.H.shape[0], prediction.certificate
    found = list(prediction.warnings)
    if prediction.rank == 0:
        return found
    found.append(_uniqueness(prediction))
    if proof.relative_gap > 1e-4:
        found.append(f"L_mm is proven only to a relative gap of {proof.relative_gap:.1e}.")
    if not prediction.suffices(d):
        found.append(
            f"The run has d={d} < rank L_mm = {prediction.rank}: it cannot represent the predicted geometry, so "
            "disagreement is expected and is not evidence against the prediction."
        )
    if prediction.proxy_is_exact:
        found.append("The proxy is exact here: its numbers equal those of L_mm as far as L_mm is unique.")
    return [*found, *_group_limitations(prediction)]


def _uniqueness(prediction: FeaturePrediction) -> str:
    share = prediction.solution_bounds.tight_share()
    pinned = f"The certificate determines {share:.0%} of the margins of L_mm: they are equal in every optimal solution."
    if prediction.spread is None:
        return f"{pinned} Whether L_mm is unique was not measured (predict(stats, spread_solves=2) measures it)."
    if prediction.spread.looks_unique:
        return f"{pinned} {prediction.spread.sentence}"
    return f"{pinned} {prediction.spread.sentence} Differences in agreement below this spread have no meaning."


def _group_limitations(prediction: FeaturePrediction) -> list[str]:
    n, m = prediction.reduction.n, prediction.reduction.m
    left_out = m - int(n.sum())
    found = []
    if left_out:
        found.append(
            f"{left_out} of {m} contexts have full support: they have no predicted direction and are left out."
        )
    if n.size and n.max() > 1:
        share = float((n * (n - 1)).sum() / max(n.sum() * (n.sum() - 1), 1.0))
        found.append(
            f"{int(n.sum())} contexts share {n.size} supports, and {share:.1%} of the pairs of contexts have the same "
            "support: these pairs count for collapse, and not for agreement."
        )
    elif n.size:
        found.append("No two contexts share a support: collapse is not defined on these data.")
    return found


def proxy_limitations(prediction: ProxyPrediction) -> list[str]:
    """What a comparison with the proxy alone means."""
    return [
        f"The run is compared with the proxy S~, not the certified L_mm: {prediction.singular_values.size} leading "
        f"singular vectors, {prediction.captured:.1%} of its squared norm. How far S~ is from L_mm is not known here."
    ]


def sampling_limitations(V: int, kept: Int, seen: Int) -> list[str]:
    """Which items were compared, where not all of them: ``kept`` contexts, and ``seen`` tokens of V."""
    unseen = V - seen.size
    found = []
    if unseen:
        found.append(
            f"{unseen:,} of {V:,} tokens never follow these contexts. They take part in the prediction and in the "
            "loss, and not in the agreement of tokens: the prediction gives them all the same embedding."
        )
    return found + [
        f"{MOST_ITEMS} of {count} {items}, drawn at random, are compared."
        for items, count in (("contexts", kept.size), ("tokens", seen.size))
        if count > MOST_ITEMS
    ]


def training_limitations(runs: list[Observed]) -> list[str]:
    """What is wrong with the other runs as a ceiling: other settings than the seed differ, or none does."""
    settings = [getattr(run, "settings", None) for run in runs]
    known = [one for one in settings if isinstance(one, dict)]
    if len(runs) < 2 or len(known) < len(runs):
        return []
    differing = sorted({name for one in known for name in one if name != "seed" and one[name] != known[0].get(name)})
    if differing:
        return [f"The runs differ in more than their seed ({', '.join(differing)}): the ceiling is not one."]
    if len({one.get("seed") for one in known}) < len(known):
        return ["Some runs have the same seed: the ceiling is too high."]
    return []


def linear_limitations(prediction: LinearPrediction, run: Factors) -> list[str]:
    """What does not diverge, is not separable, or belongs to other embeddings."""
    found = []
    if not prediction.W_mm.any():
        found.append("W_mm is 0, so nothing diverges and cosines with it are not defined.")
    if not prediction.separable:
        found.append("The data are not separable: margins and finite part are those of the effective supports.")
    if not prediction.W_star.any():
        found.append("W_star is 0: finite_error is the absolute norm of the projection on F.")
    H = prediction.data.H
    distance = float(np.linalg.norm(run.H - H) / np.linalg.norm(H))
    if distance > EMBEDDING_TOLERANCE:
        found.append(
            f"The distance of the run's embeddings from those of the prediction is {distance:.2g} (relative): the "
            "prediction is for fixed embeddings, and margins are measured with the run's own."
        )
    found.append(
        "Under gradient descent directions converge slowly (for one-hot labels like 1/log(steps)): a cosine below 1 is "
        "expected after any practical number of steps."
    )
    return found
