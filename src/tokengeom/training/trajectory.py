"""Measurements on a log-spaced grid of steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokengeom.errors import ProblemError, missing_extra
from tokengeom.numerics import Float
from tokengeom.training.objective import Int


def record_steps(steps: int, per_decade: int = 10) -> Int:
    """Steps at which a run is measured: 0, 1, then ``per_decade`` a decade, and the last; increasing and distinct."""
    if per_decade < 1:
        raise ProblemError(f"records per decade must be at least 1; got {per_decade!r}.")
    if steps < 1:
        return np.zeros(1, np.int64)
    count = int(np.ceil(np.log10(max(steps, 2)) * per_decade)) + 1
    grid = np.round(10.0 ** (np.arange(count) / per_decade)).astype(np.int64)
    return np.unique(np.concatenate(([0], grid[grid <= steps], [steps])))


class Trajectory:
    """A growing table: one row a record, one column a measurement.

    The first columns are ``step`` and ``seconds`` (of training, measurements not counted); the others are what the
    probes measured.
    """

    def __init__(self, columns: Mapping[str, Any] | None = None) -> None:
        self._columns: dict[str, list[float]] = {name: list(values) for name, values in (columns or {}).items()}

    def append(self, row: Mapping[str, float]) -> None:
        """Add one record; every record must hold the same columns."""
        if self._columns and set(row) != set(self._columns):
            raise ProblemError(
                f"A probe must give the same names at every record; got {sorted(row)}, earlier {sorted(self._columns)}."
            )
        for name, value in row.items():
            self._columns.setdefault(name, []).append(float(value))

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()), []))

    def __getitem__(self, name: str) -> Float:
        return np.asarray(self._columns[name], np.float64)

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self._columns)

    @property
    def steps(self) -> Int:
        """Steps that were recorded."""
        return self["step"].astype(np.int64) if self._columns else np.zeros(0, np.int64)

    def last(self, name: str) -> float:
        """Latest value of a measurement."""
        return self._columns[name][-1]

    def to_dict(self) -> dict[str, NDArray[Any]]:
        """Columns as numpy arrays; ``step`` in integers."""
        return {name: self.steps if name == "step" else self[name] for name in self._columns}

    def to_arrow(self) -> Any:
        """Columns as a pyarrow table."""
        import pyarrow as pa

        return pa.table(self.to_dict())

    def to_frame(self) -> Any:
        """Columns as a pandas data frame."""
        try:
            import pandas as pd
        except ModuleNotFoundError:
            missing_extra("pandas", "pandas", "A data frame of the trajectory (to_arrow and to_dict need nothing)")
        return pd.DataFrame(self.to_dict())
