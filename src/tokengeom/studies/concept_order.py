"""Whether concepts are learned in the predicted order: the larger their singular value, the earlier.

``c_k(t) = u_k^T L(t) v_k``,   learned when ``c_k`` passes half of its last value

where ``S~ = sum_k sigma_k u_k v_k^T`` and L(t) are the logits at step t, V x m. The prediction [zhao2025] is for the
square loss under gradient flow with all contexts alike; cross-entropy and unequal contexts are tried on it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokengeom.errors import InputError
from tokengeom.figures.concepts import LearnedConcepts
from tokengeom.numerics import Float
from tokengeom.studies.feature_runs import ranks_agree
from tokengeom.theory.concepts import Concepts
from tokengeom.training.probes import Probe, State
from tokengeom.training.run import Run

_COLUMN = "concept"


@dataclass(frozen=True, eq=False)
class ConceptOrder:
    """Steps at which each leading concept was half learned, and the predicted times (in units of their own)."""

    found: Concepts
    learned: LearnedConcepts
    half_steps: Float
    predicted: Float

    @property
    def agreement(self) -> float:
        """Spearman correlation of measured and predicted half-times; 1 is the predicted order."""
        return ranks_agree(self.half_steps, self.predicted)


def strength_probe(found: Concepts, count: int) -> dict[str, Probe]:
    """Record the strength of the leading concepts as columns ``concept.0``, ``concept.1``, ..."""
    if count < 2:
        raise InputError(f"An order needs at least two concepts; got count={count}.")
    U, Vt = found.U[:, :count], found.Vt[:count]

    def strength(state: State) -> dict[str, float]:
        held = ((U.T @ state.L) * Vt).sum(axis=1)
        return {str(k): float(x) for k, x in enumerate(held)}

    return {_COLUMN: strength}


def concept_order(found: Concepts, run: Run) -> ConceptOrder:
    """Read the order off a run that was measured with ``strength_probe(found, ...)``."""
    names = [name for name in run.trajectory.names if name.startswith(f"{_COLUMN}.")]
    strength = np.array([run.trajectory[name] for name in names])
    steps = run.trajectory["step"]
    half = np.array([_passing(steps, row, 0.5 * row[-1]) for row in strength])
    return ConceptOrder(found, LearnedConcepts(steps, strength), half, found.half_times()[: len(names)])


def _passing(steps: Float, values: Float, level: float) -> float:
    """First step at which the values pass a level, on a straight line between records."""
    i = int(np.argmax(values >= level))
    if i == 0:
        return 0.0 if values[0] >= level else float(steps[-1])
    part = (level - values[i - 1]) / (values[i] - values[i - 1])
    return float(steps[i - 1] + part * (steps[i] - steps[i - 1]))
