"""What is measured at a record: the built-in numbers, and whatever the caller hands in.

Training knows no theory. A probe is a function of the :class:`State`; those that compare with a prediction are
built where both sides meet, and handed to the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tokengeom.models.base import Readout
from tokengeom.numerics import Float
from tokengeom.training.objective import SoftLabels


@dataclass(frozen=True)
class State:
    """A run at one step, in double precision whatever it was trained in.

    where
        W   V x d
        H   d x m
        L   logits ``W H (+ bias)``, V x m
    """

    step: int
    readout: Readout
    labels: SoftLabels

    @property
    def W(self) -> Float:
        """Decoder."""
        return self.readout.W

    @property
    def H(self) -> Float:
        """Context embeddings."""
        return self.readout.H

    @cached_property
    def L(self) -> Float:
        """Logits."""
        return self.readout.logits


Probe = Callable[[State], float | Mapping[str, float]]


def built_in(state: State) -> dict[str, float]:
    """Measure what needs no prediction.

    ``loss_gap``
        ``CE - H`` in nats, > 0; 0 is the entropy floor, approached and never reached.
    ``norm_W``, ``norm_H``, ``norm_logits``
        Frobenius norms; they grow without bound as the loss approaches its floor.
    ``margin``
        Smallest in-support minus largest off-support logit, over all contexts; positive once every context's
        support stands above the rest, ``inf`` when every support is full.
    """
    return {
        "loss_gap": state.labels.loss_gap(state.L),
        "norm_W": float(np.linalg.norm(state.W)),
        "norm_H": float(np.linalg.norm(state.H)),
        "norm_logits": float(np.linalg.norm(state.L)),
        "margin": float(np.min(state.labels.margins(state.L))),
    }


def measure(state: State, probes: Mapping[str, Probe] | None) -> dict[str, float]:
    """Apply the built-in measurements, then the given probes; a mapping is flattened as ``name.key``."""
    row: dict[str, float] = built_in(state)
    for name, probe in (probes or {}).items():
        value = probe(state)
        if isinstance(value, Mapping):
            row.update({f"{name}.{key}": float(item) for key, item in value.items()})
        else:
            row[name] = float(value)
    return row
