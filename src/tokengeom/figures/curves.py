"""Curves over training from runs, one colour a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tokengeom.errors import InputError
from tokengeom.figures.base import Curve
from tokengeom.numerics import Float


def require_runs(runs: Mapping[str, Any]) -> None:
    """Refuse a figure over training without a run."""
    if not runs:
        raise InputError("A figure over training needs at least one run; got none. Pass {'GD': train(...)}.")


def columns_of(runs: Mapping[str, Any]) -> set[str]:
    """Measurements that at least one run has."""
    return {name for run in runs.values() for name in run.trajectory.names}


def run_curves(
    runs: Mapping[str, Any], column: str, label: str = "{run}", *, dotted: bool = False, dashed: bool = False
) -> list[Curve]:
    """One curve a run that has the measurement; its colour is the run's place, the same in every panel."""
    found = []
    for place, (name, run) in enumerate(runs.items()):
        if column in run.trajectory.names:
            x, y = run.trajectory["step"], run.trajectory[column]
            found.append(Curve(label.replace("{run}", name), x, y, dotted=dotted, dashed=dashed, colour=place))
    return found


def shifted(curve: Curve, by: float) -> Curve:
    """The same curve higher by a constant: a loss from its gap."""
    return Curve(curve.label, curve.x, np.asarray(curve.y + by), dotted=curve.dotted, colour=curve.colour)


def last_value(run: Any, column: str) -> float:
    """Last measurement, NaN where there is none."""
    return float(run.trajectory.last(column)) if column in run.trajectory.names and len(run.trajectory) else np.nan


def scaled_logits(L: Float) -> Float:
    """Logits with columns centred, scaled to a root mean square of 1: what softmax and scale cannot change."""
    centred = L - L.mean(axis=0, keepdims=True)
    size = float(np.sqrt(np.mean(centred**2))) if centred.size else 0.0
    return np.asarray(centred / size if size > 0 else centred)
