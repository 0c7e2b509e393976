"""A convex problem, the certificate of an answer to it, and a solution.

A problem holds data and certifies answers; it contains no algorithm. Every answer is certified by the same code,
whether it comes from a solver of this package, from cvxpy or from a trained network.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Generic, TypeVar

from tokengeom.results.convert import Extended, Within, to_plain

LARGEST_GAP = 0.005
"""Relative gap up to which an answer is compared with: cosines of less exact ones differ (how_numbers_are_measured)."""

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

    primal_residual: Annotated[Extended, Within(0.0)]
    dual_residual: Annotated[Extended, Within(0.0)]
    value: Extended
    bound: Extended

    derived: ClassVar[tuple[str, ...]] = ("relative_gap",)

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
        """Gap and residuals as rows of a table."""
        residuals = f"{self.primal_residual:.1e} and {self.dual_residual:.1e}"
        return [("proven gap", f"{self.relative_gap:.1e}"), ("residuals, primal and dual", residuals)]

    def to_dict(self) -> dict[str, float]:
        """Residuals, value, bound and relative gap."""
        plain: dict[str, float] = to_plain(self)
        return plain


class AbstractProblem(ABC, Generic[X, Y]):
    """A convex program as data. ``X`` is the type of a primal answer, ``Y`` of a dual one."""

    @abstractmethod
    def certify(self, x: X, dual: Y | None) -> Certificate:
        """Certificate of an answer: residuals, value and the bound that the dual proves."""


@dataclass(frozen=True)
class Solution(Generic[X, Y]):
    """An answer with its certificate. ``status`` says how the solver ended, and what to do if it failed."""

    x: X
    dual: Y | None
    certificate: Certificate
    status: str
    iterations: int
    seconds: float
    converged: bool = field(default=True)
