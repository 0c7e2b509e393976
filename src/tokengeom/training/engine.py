"""What the loop asks of an engine: make steps, show W and H, hand over its whole state and take it back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from numpy.typing import NDArray

from tokengeom.models.base import Readout
from tokengeom.numerics import Float
from tokengeom.training.objective import Int

Arrays = dict[str, NDArray[Any]]


class AbstractEngine(ABC):
    """Runs one or several replicates (seeds, dimensions) of a model side by side.

    An engine knows nothing of records, checkpoints or time. Steps may be asked for in any portions: the result is
    the same to the last bit on a CPU.
    """

    replicates: int

    @abstractmethod
    def advance(self, table: Float, windows: list[Int] | None) -> None:
        """Make one step for each row of the optimizer's coefficients; ``windows[r]`` is steps x batch."""

    @abstractmethod
    def readout(self, replicate: int) -> Readout:
        """W and H of one replicate, in double precision, as copies."""

    @abstractmethod
    def state(self) -> Arrays:
        """Everything that the next step depends on."""

    @abstractmethod
    def load(self, state: Arrays) -> None:
        """Take back what :meth:`state` handed over."""
