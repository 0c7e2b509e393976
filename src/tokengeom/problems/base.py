"""What a convex problem, its certificate and its solution are, for every problem in the house.

A problem holds data and judges answers; it knows no algorithm. Whoever found an answer (a solver of ours,
cvxpy, a trained network) is judged by the same ``certify``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Generic, TypeVar

X = TypeVar("X")
Y = TypeVar("Y")


@dataclass(frozen=True)
class Certificate:
    """Proof of how good an answer is, computed from the answer and the problem's data alone.

    ``primal_residual``
        Largest violation of a primal constraint, relative to the constraint's scale.
    ``dual_residual``
        Largest violation of a dual constraint; ``inf`` when no dual was given.
    ``value``, ``bound``
        Objective of the answer, and the bound on the optimum that the dual proves.
    """

    primal_residual: float
    dual_residual: float
    value: float
    bound: float

    @property
    def relative_gap(self) -> float:
        """``|value - bound| / max(|value|, tiny)``: 0 is optimal, ``inf`` is unproven."""
        if not math.isfinite(self.value) or not math.isfinite(self.bound):
            return math.inf
        return abs(self.value - self.bound) / max(abs(self.value), 1e-300)

    def holds(self, tolerance: float) -> bool:
        """Whether both residuals and the gap are within ``tolerance``."""
        worst = max(self.primal_residual, self.dual_residual, self.relative_gap)
        return bool(worst <= tolerance)

    def rows(self) -> list[tuple[str, str]]:
        """The proof as rows of a table."""
        residuals = f"{self.primal_residual:.1e} and {self.dual_residual:.1e}"
        return [("proven gap", f"{self.relative_gap:.1e}"), ("residuals, primal and dual", residuals)]

    def to_dict(self) -> dict[str, float]:
        """Plain numbers, for a manifest or ``--json``."""
        return {
            "primal_residual": self.primal_residual,
            "dual_residual": self.dual_residual,
            "value": self.value,
            "bound": self.bound,
            "relative_gap": self.relative_gap,
        }


class AbstractProblem(ABC, Generic[X, Y]):
    """A convex program as data. ``X`` is the type of a primal answer, ``Y`` of a dual one."""

    @abstractmethod
    def certify(self, x: X, dual: Y | None) -> Certificate:
        """Judge an answer: residuals, value and the bound that the dual proves."""


@dataclass(frozen=True)
class Solution(Generic[X, Y]):
    """An answer with its proof. ``status`` says in words how the solver ended, and the remedy if it failed."""

    x: X
    dual: Y | None
    certificate: Certificate
    status: str
    iterations: int
    seconds: float
    converged: bool = field(default=True)
