"""Which norm of the logits a run is judged in: the one that goes with its optimizer, where that is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tokengeom.geometry.comparison import NORM_PREFIX
from tokengeom.geometry.inputs import NORM_OF_OPTIMIZER, decays_in_gradient, optimizer_of
from tokengeom.theory.at_loss import NORMS

if TYPE_CHECKING:
    from tokengeom.geometry.agreement import Agreement

_ITEMS = ("context", "token")


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
        why = f"The {NORMS[norm]} goes with the optimizer {optimizer}"
    elif optimizer is None:
        why = f"The optimizer is not known; of both norms the {NORMS[norm]} agrees better"
    else:
        why = f"No norm is known to go with the optimizer {optimizer}{decay}; the {NORMS[norm]} agrees better"
    return [f"{why} ({mine}); the {NORMS[others[0]]} gives {theirs}."]
