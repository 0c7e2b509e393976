"""Anderson acceleration of a fixed-point iteration: a step made from the last few steps and their residuals.

Type II: with residual ``F`` at state ``w``, the plain step ``w + F`` is replaced by ``w + F - (dW + dF) gamma``, where
``gamma`` is the regularised least-squares fit of F by its last few differences ``dF``. When the residual exceeds twice
the smallest since the last restart, or the entries of gamma are huge, the plain step is taken and the memory cleared;
the plain iteration converges from any start.

A state is a matrix in blocks and, where an iteration has one, a vector, which is accelerated together with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, final

import numpy as np

from tokengeom.core.numerics import Float
from tokengeom.problems.columns import Columns, Layout

if TYPE_CHECKING:
    from tokengeom.problems.backend import Array, Backend

MEMORY = 5
REGULARISATION = 1e-8
"""Ridge of the least squares, relative to the mean squared norm of the differences."""
SAFEGUARD = 2.0
"""Growth of the residual over its smallest value at which the acceleration restarts."""
LARGEST_WEIGHTS = 1e3
"""Sum of the absolute gamma at which it restarts too: far from the solution residuals hardly differ, and a fit to such
differences leads arbitrarily far away without a larger residual. Where the iteration converges the sum is below 100."""


@final
class Remembered:
    """The last few differences of the residuals of a matrix or a vector, and the steps that belong to them.

    In several blocks differences are kept in single precision: they change the step, and not the fixed point, and an
    error in the step is relative to the residual.
    """

    def __init__(self, layout: Layout, *, single: bool) -> None:
        self.layout, self._single = layout, single
        self.F = self._columns()
        self.restart()

    def _columns(self) -> Columns:
        return Columns(self.layout, single=self._single)

    def restart(self) -> None:
        """Forget everything but the residual."""
        self.steps: list[Columns] = []
        self.dF: list[Columns] = []
        self.last: Columns | None = None
        self.moved = self._columns()

    def begin(self, size: int) -> None:
        """Make room for a new residual and, where there is an earlier one, for the difference."""
        self.F = self._columns()
        if self.last is None:
            return
        if len(self.dF) == size:
            self.steps.pop(0)
            self.dF.pop(0)
        self.dF.append(self._columns())
        self.steps.append(self._columns())

    def add(self, k: int, F: Array) -> list[Array]:
        """Take the residual of block k; returns the differences that are remembered, the new one last."""
        self.F[k] = F
        if self.last is None:
            return []
        self.dF[-1][k] = F - self.last.take(k)
        # Inner products are those of the differences as they are kept.
        known = [old[k] for old in self.dF]
        # Only dW + dF is ever used of the states: storing the sum saves a pass over the data.
        self.steps[-1][k] = self.moved.take(k) + known[-1]
        return known

    def change(self, k: int, gammas: Float) -> Array:
        """The step of block k."""
        change = self.F[k]
        for i, (gamma, old) in enumerate(zip(gammas, self.steps, strict=True)):
            # Not in place the first time: the residual is needed again.
            if i == 0:
                change = change - float(gamma) * old[k]
            else:
                change -= float(gamma) * old[k]
        return change


@final
class AndersonMemory:
    """The last few differences of states and residuals, and the step that they suggest."""

    def __init__(self, backend: Backend, size: int = MEMORY, layout: Layout | None = None) -> None:
        self.backend, self.size = backend, size
        one_block = Layout(backend, (slice(None),))
        layout = layout or one_block
        self.matrix = Remembered(layout, single=layout.several)
        self.vector = Remembered(one_block, single=layout.several)
        self.rejected = 0
        self.restart()

    def restart(self) -> None:
        """Clear the memory; the next step is a plain one."""
        self.matrix.restart()
        self.vector.restart()
        self.gram = np.zeros((0, 0))
        self.best = float("inf")

    @property
    def is_empty(self) -> bool:
        """Whether nothing is remembered, so that the next step is a plain one."""
        return self.matrix.last is None

    def add(self, k: int, F: Array) -> None:
        """Take the residual of block k of the matrix; blocks come in order, beginning with block 0."""
        if k == 0:
            self._begin()
        self._count(F, self.matrix.add(k, F))

    def add_vector(self, F: Array) -> None:
        """Take the residual of the vector, after those of the blocks."""
        self._count(F, self.vector.add(0, F))

    def _begin(self) -> None:
        self.matrix.begin(self.size)
        self.vector.begin(self.size)
        count = 0 if self.is_empty else len(self.matrix.dF)
        self.gram = self.gram[1:, 1:] if count and len(self.gram) == self.size else self.gram
        self._square, self._row, self._right = 0.0, np.zeros(count), np.zeros(count)

    def _count(self, F: Array, known: Sequence[Array]) -> None:
        """Add to the inner products of all blocks."""
        self._square += float(self.backend.xp.linalg.norm(F)) ** 2
        if known:
            self._row += self._own_dots(known[-1], known)
            self._right += self._own_dots(F, known)

    def _own_dots(self, x: Array, others: Sequence[Array]) -> Float:
        if self.backend.device is None:
            return np.array([np.vdot(x, y) for y in others])
        products = [self.backend.xp.vdot(x.reshape(-1), y.reshape(-1)) for y in others]
        return self.backend.to_numpy(self.backend.xp.stack(products))

    def step(self, w: Columns) -> None:
        """Move the matrix by the residuals that were added: accelerated, or plainly where the safeguard requires it."""
        total = self.backend.total
        norm = float(total(self._square)) ** 0.5
        if self._row.size:
            row, self._right = (np.asarray(self.backend.to_numpy(total(x))) for x in (self._row, self._right))
            self.gram = np.block([[self.gram, row[:-1, None]], [row[None, :]]])
        if norm > SAFEGUARD * self.best:
            self.restart()
            self.rejected += 1
        self._gammas = self._coefficients()
        if np.abs(self._gammas).sum() > LARGEST_WEIGHTS:
            self.restart()
            self.rejected += 1
            self._gammas = np.zeros(0)
        self.best = min(self.best, norm)
        for k in range(len(w)):
            change = self.matrix.change(k, self._gammas)
            w[k] = w[k] + change
            if self.size:
                self.matrix.moved[k] = change
        if self.size:
            self.matrix.last, self.vector.last = self.matrix.F, self.vector.F

    def step_of_vector(self) -> Array:
        """The step of the vector that belongs to the last step of the matrix."""
        return self.vector.change(0, self._gammas)

    def vector_moved(self, change: Array) -> None:
        """Take by how much the vector was moved, which may be less than its step."""
        self.vector.moved[0] = change

    def _coefficients(self) -> Float:
        count = len(self.matrix.dF)
        if not count:
            return np.zeros(0)
        ridge = REGULARISATION * np.trace(self.gram) / count + 1e-300
        gammas = np.linalg.solve(self.gram + ridge * np.eye(count), self._right)
        return np.asarray(self.backend.to_numpy(self.backend.agree(gammas)))

    def advance(self, w: Array, F: Array) -> Array:
        """The state after ``w`` with residual ``F``, each one array; w must be what the last call returned."""
        state = Columns(self.vector.layout)
        state[0] = w
        self.add(0, F)
        self.step(state)
        return state[0]
