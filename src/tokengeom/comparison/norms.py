"""Norms of the logits: in which ones a run is predicted at its loss, and which one decides the verdict.

The verdict is in the norm that goes with the run's optimizer, where that is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tokengeom.comparison.comparison import NORM_PREFIX
from tokengeom.comparison.inputs import NORM_OF_OPTIMIZER, decays_in_gradient, optimizer_of
from tokengeom.core.errors import ProblemError
from tokengeom.problems.base import LARGEST_GAP
from tokengeom.problems.regularised_logits import Merging
from tokengeom.theory.at_loss import NORMS, LossPrediction, LossSettings
from tokengeom.theory.loss_path import LossPath

if TYPE_CHECKING:
    from scipy.sparse import csc_array

    from tokengeom.comparison.agreement import Agreement
    from tokengeom.comparison.inputs import CompareSettings
    from tokengeom.core.progress import AbstractProgress
    from tokengeom.theory.features import FeaturePrediction

AT_LOSS_ENTRIES = {"nuclear": 1_000_000, "gamma2": 400_000}
"""Merged tokens times merged contexts up to which predictions at a loss are made by default: about half a minute."""
_ITEMS = ("context", "token")


def norms_at_loss(P: csc_array, asked: bool | None) -> tuple[str, ...]:
    """Norms in which to predict at a loss for these probabilities: all or none as asked, or where that is fast."""
    if asked is not None:
        return tuple(AT_LOSS_ENTRIES) if asked else ()
    entries = Merging.of(P).entries
    return tuple(norm for norm, most in AT_LOSS_ENTRIES.items() if entries <= most)


def too_large(P: csc_array) -> str:
    """Why `norms_at_loss` leaves out a norm that was not asked for."""
    merged = Merging.of(P)
    return (
        f"{merged.a.size:,} distinct tokens x {merged.n.size:,} distinct contexts would take minutes. Ask for it with "
        "at_loss=True (--at-loss)."
    )


def predictions_at(
    gap: float, prediction: FeaturePrediction, settings: CompareSettings, progress: AbstractProgress
) -> tuple[tuple[LossPrediction, ...], list[str]]:
    """Predictions at a loss gap in each norm, and why one is missing."""
    if settings.at_loss is False:
        return (), []
    if not gap < prediction.largest_gap:
        return (), [
            f"Nothing is predicted at the loss reached: the run's loss gap, {gap:.3g} nats, is at least that of a "
            f"uniform guess, {prediction.largest_gap:.3g}."
        ]
    norms = norms_at_loss(prediction.P, settings.at_loss)
    if not norms:
        return (), [f"No prediction was made at the loss reached: {too_large(prediction.P)}"]
    left_out = [NORMS[norm] for norm in NORM_PREFIX if norm not in norms]
    why = too_large(prediction.P) if left_out else ""
    notes = [f"No prediction was made at the loss reached in the {norm}: {why}" for norm in left_out]
    found = []
    for norm in norms:
        path = LossPath(
            prediction.P,
            prediction.pi,
            entropy=prediction.entropy,
            statistics_hash=prediction.statistics_hash,
            settings=LossSettings(norm=norm, tolerance=settings.tolerance),
        )
        try:
            found.append(path.at(gap, progress))
        except ProblemError as problem:
            notes.append(f"The prediction at the loss reached failed in the {NORMS[norm]}: {problem}")
    return tuple(found), notes


def proven(at: Iterable[LossPrediction]) -> tuple[tuple[LossPrediction, ...], list[str]]:
    """Predictions that are proven well enough to be compared with, and a sentence for each of the others."""
    found, notes = [], []
    for one in at:
        if one.relative_gap > LARGEST_GAP:
            notes.append(
                f"The prediction at the loss reached in the {NORMS[one.norm]} is not used: its norm is proven only to "
                f"a relative gap of {one.relative_gap:.1e}."
            )
        elif one.rank > 0:
            found.append(one)
    return tuple(found), notes


def norm_of(run: object) -> str | None:
    """The norm that goes with a run's training, where that is known.

    With weight decay in the gradient, training ends at a stationary point of the loss and the decay, whatever the
    optimizer: in the nuclear norm. Before that it is on the way from its optimizer's own norm, so neither is known.
    """
    norm = NORM_OF_OPTIMIZER.get(optimizer_of(run) or "")
    return None if norm != "nuclear" and decays_in_gradient(run) else norm


def choose_norm(wanted: str | None, norms: Sequence[str], agreements: Callable[[], Mapping[str, float]]) -> str | None:
    """The norm of the verdict, among those that were predicted in; None where there are none.

    The wanted one, or the one in which contexts agree better (``agreements()``, by norm).
    """
    if wanted in norms or len(norms) < 2:
        return wanted if wanted in norms else next(iter(norms), None)
    values = agreements()
    return max(norms, key=lambda norm: np.nan_to_num(values[norm], nan=-2.0))


def norm_sentence(norm: str | None, run: object, found: Mapping[str, Agreement]) -> list[str]:
    """Why this norm, and what the other one gives; nothing where there is one norm alone, or no number."""
    others = [one for one, prefix in NORM_PREFIX.items() if one != norm and f"{prefix}context_agreement" in found]
    if norm is None or not others:
        return []
    values = [found[f"{NORM_PREFIX[one]}{kind}_agreement"].value for one in (norm, others[0]) for kind in _ITEMS]
    if not np.isfinite(values).all():
        return []
    mine, theirs = (f"{a:.2f} for contexts and {b:.2f} for tokens" for a, b in (values[:2], values[2:]))
    optimizer, decay = optimizer_of(run), " with weight decay" if decays_in_gradient(run) else ""
    if norm_of(run) == norm:
        why = f"The {NORMS[norm]} goes with the optimizer {optimizer}, as measured in unconstrained features"
    elif optimizer == "spectral":
        why = (
            "Spectral descent was measured to keep the spectral norm of unconstrained features small, in which nothing "
            f"is predicted here; the {NORMS[norm]} agrees better than the other"
        )
    elif optimizer is None:
        why = f"The optimizer is not known; of both norms the {NORMS[norm]} agrees better"
    else:
        why = f"No norm is known to go with the optimizer {optimizer}{decay}; the {NORMS[norm]} agrees better"
    return [f"{why} ({mine}); the {NORMS[others[0]]} gives {theirs}."]
