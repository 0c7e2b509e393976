"""Anderson acceleration of a fixed-point iteration: a step made from the last few steps and their residuals.

Type II: with residual ``F`` at state ``w``, the plain step ``w + F`` is replaced by ``w + F - (dW + dF) gamma``, where
``gamma`` is the regularised least-squares fit of F by its last few differences ``dF``. When the residual exceeds twice
the smallest since the last restart, or the entries of gamma are huge, the plain step is taken and the memory cleared;
the plain iteration converges from any start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

import numpy as np

from tokengeom.problems.columns import Columns, Layout

if TYPE_CHECKING:
    from tokengeom.core.numerics import Float
    from tokengeom.problems.backend import Array, Backend

MEMORY = 5
REGULARISATION = 1e-8
"""Ridge of the least squares, relative to the mean squared norm of the differences."""
SAFEGUARD = 2.0
"""Growth of the residual over its smallest value at which the acceleration restarts."""
LARGEST_WEIGHTS = 1e3
"""Sum of the absolute gamma at which it restarts too: far from the solution residuals hardly differ, and a fit to such
differences leads arbitrarily far away without a larger residual. Where the iteration converges the sum is below 100."""


class State(Protocol):
    """The parts of a state, each an array that can be replaced."""

    def __len__(self) -> int: ...
    def __getitem__(self, k: int, /) -> Array: ...
    def __setitem__(self, k: int, x: Array, /) -> None: ...


@final
class AndersonMemory:
    """The last few differences of states and residuals, and the step that they suggest.

    A state is a sequence of arrays. In several blocks the differences are kept in single precision: they change the
    step, and not the fixed point, and an error in the step is relative to the residual.
    """

    def __init__(self, backend: Backend, size: int = MEMORY, layout: Layout | None = None) -> None:
        self.backend, self.size = backend, size
        self.layout = layout or Layout(backend, (slice(None),))
        self.rejected = 0
        self.F = self._columns()
        self.restart()

    def restart(self) -> None:
        """Clear the memory; the next step is a plain one."""
        self.steps: list[Columns] = []
        self.dF: list[Columns] = []
        self.gram = np.zeros((0, 0))
        self.last: Columns | None = None
        self.moved = self._columns()
        self.best = float("inf")

    def _columns(self) -> Columns:
        return Columns(self.layout, single=self.layout.several)

    def add(self, k: int, F: Array) -> None:
        """Take the residual of part k of the state; the parts come in order, beginning with part 0."""
        if k == 0:
            self._begin()
        self._square += float(self.backend.xp.linalg.norm(F)) ** 2
        if self.last is not None and self.size:
            self.dF[-1][k] = F - self.last.take(k)
            # Inner products are those of the differences as they are kept.
            known = [old[k] for old in self.dF]
            # Only dW + dF is ever used of the states: storing the sum saves a pass over the data.
            self.steps[-1][k] = self.moved.take(k) + known[-1]
            self._row += self._own_dots(known[-1], known)
            self._right += self._own_dots(F, known)
        self.F[k] = F

    def _begin(self) -> None:
        self._square, self.F = 0.0, self._columns()
        if self.last is None or not self.size:
            self._row = self._right = np.zeros(0)
            return
        if len(self.dF) == self.size:
            self.steps.pop(0)
            self.dF.pop(0)
            self.gram = self.gram[1:, 1:]
        self.dF.append(self._columns())
        self.steps.append(self._columns())
        self._row, self._right = np.zeros((2, len(self.dF)))

    def _own_dots(self, x: Array, others: list[Array]) -> Float:
        if self.backend.device is None:
            return np.array([np.vdot(x, y) for y in others])
        products = [self.backend.xp.vdot(x.reshape(-1), y.reshape(-1)) for y in others]
        return self.backend.to_numpy(self.backend.xp.stack(products))

    def step(self, w: State) -> None:
        """Move the state by the residuals that were added: accelerated, or plainly where the safeguard requires it."""
        total = self.backend.total
        norm = float(total(self._square)) ** 0.5
        if self._row.size:
            row, self._right = (np.asarray(self.backend.to_numpy(total(x))) for x in (self._row, self._right))
            self.gram = np.block([[self.gram, row[:-1, None]], [row[None, :]]])
        if norm > SAFEGUARD * self.best:
            self.restart()
            self.rejected += 1
        gammas = self._coefficients()
        if np.abs(gammas).sum() > LARGEST_WEIGHTS:
            self.restart()
            self.rejected += 1
            gammas = np.zeros(0)
        self.best = min(self.best, norm)
        for k in range(len(w)):
            change = self.F[k]
            for i, (gamma, old) in enumerate(zip(gammas, self.steps, strict=True)):
                # Not in place the first time: the residual is needed again.
                if i == 0:
                    change = change - float(gamma) * old[k]
                else:
                    change -= float(gamma) * old[k]
            w[k] = w[k] + change
            if self.size:
                self.moved[k] = change
        self.last = self.F if self.size else None

    def _coefficients(self) -> Float:
        count = len(self.dF)
        if not count:
            return np.zeros(0)
        ridge = REGULARISATION * np.trace(self.gram) / count + 1e-300
        found = np.linalg.solve(self.gram + ridge * np.eye(count), self._right)
        return np.asarray(self.backend.to_numpy(self.backend.agree(found)))

    def advance(self, w: Array, F: Array) -> Array:
        """The state after ``w`` with residual ``F``, each one array; w must be what the last call returned."""
        state = [w]
        self.add(0, F)
        self.step(state)
        return state[0]
