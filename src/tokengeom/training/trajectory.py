"""`Trajectory`: measurements during training, the steps at which they are made, and how they are saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tokengeom.core.errors import InputError, ProblemError
from tokengeom.core.numerics import Float, Int
from tokengeom.core.settings import takes
from tokengeom.results.contract import data_frame
from tokengeom.results.convert import damaged as damaged_folder

if TYPE_CHECKING:
    import pyarrow as pa
    from pandas import DataFrame

TABLE = "trajectory.parquet"
"""File of the trajectories of a run's replicates."""
_MOST_RECORDS = 10**6
_ALWAYS_FINITE = ("seconds", "loss_gap", "norm_W", "norm_H", "norm_logits")


def record_steps(steps: int, per_decade: int = 10) -> Int:
    """Steps at which a run is measured: 0, 1, then ``per_decade`` per factor of ten, and the last; increasing."""
    if per_decade < 1:
        raise ProblemError(f"records per decade must be at least 1; got {per_decade!r}.")
    if per_decade > _MOST_RECORDS:
        raise ProblemError(f"records per decade must be at most {_MOST_RECORDS:,}; got {per_decade:,}. 10 is usual.")
    if steps < 1:
        return np.zeros(1, np.int64)
    count = int(np.ceil(np.log10(max(steps, 2)) * per_decade)) + 1
    grid = np.round(10.0 ** (np.arange(count) / per_decade)).astype(np.int64)
    return np.unique(np.concatenate(([0], grid[grid <= steps], [steps])))


class Trajectory:
    """Measurements during training: one row per record, one column per measurement.

    The first columns are ``step`` and ``seconds`` (spent in steps, without measuring); the others are measurements.
    """

    def __init__(self, columns: Mapping[str, Any] | None = None) -> None:
        self._columns: dict[str, list[float]] = {name: list(values) for name, values in (columns or {}).items()}

    def append(self, row: Mapping[str, float]) -> None:
        """Add one record; every record must have the same columns."""
        if self._columns and set(row) != set(self._columns):
            raise ProblemError(
                f"A probe must return the same names at every record; got {sorted(row)}, earlier "
                f"{sorted(self._columns)}."
            )
        for name, value in row.items():
            self._columns.setdefault(name, []).append(float(value))

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()), []))

    def __getitem__(self, name: str) -> Float:
        return np.asarray(self._columns[name], np.float64)

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __repr__(self) -> str:
        return f"Trajectory({len(self)} records of {', '.join(self._columns) or 'nothing'})"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self._columns)

    @property
    def steps(self) -> Int:
        """Steps that were recorded."""
        return self["step"].astype(np.int64) if self._columns else np.zeros(0, np.int64)

    @takes()
    def last(self, name: str) -> float:
        """Latest value of a measurement."""
        if not self._columns.get(name):
            raise ProblemError(f"Nothing was recorded as {name!r}. There are: {', '.join(self)}.")
        return self._columns[name][-1]

    def to_dict(self) -> dict[str, NDArray[Any]]:
        """Columns as NumPy arrays; ``step`` in integers."""
        return {name: self.steps if name == "step" else self[name] for name in self._columns}

    def to_arrow(self) -> pa.Table:
        """Columns as a pyarrow table."""
        import pyarrow as pa

        return pa.table(self.to_dict())

    def to_frame(self) -> DataFrame:
        """Columns as a pandas data frame."""
        return data_frame(self.to_dict())


def write_trajectories(trajectories: Sequence[Trajectory], file: Path) -> None:
    """Write the trajectories of replicates as one table, in which they are numbered."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = [
        known.to_arrow().append_column("replicate", pa.array(np.full(len(known), r, np.int64)))
        for r, known in enumerate(trajectories)
    ]
    pq.write_table(pa.concat_tables(tables), file)


def read_trajectories(file: Path, count: int) -> list[Trajectory]:
    """The trajectory of each replicate: columns of numbers, steps that increase, and losses that are finite."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def damaged(what: str) -> InputError:
        return damaged_folder(file.parent, f"{file.name}: {what}")

    table = pq.read_table(file)
    names = table.column_names
    if len(set(names)) < len(names) or "replicate" not in names or (len(names) > 1 and "step" not in names):
        raise damaged(f"it must have different columns, step and replicate among them; got {', '.join(names)}")
    for name, values in zip(names, table.columns, strict=True):
        kind = pa.int64() if name in ("step", "replicate") else pa.float64()
        if values.type != kind or values.null_count:
            raise damaged(f"the column {name!r} must have numbers of type {kind}; it has {values.type}")
    columns = {name: values.to_numpy() for name, values in zip(names, table.columns, strict=True)}
    replicate = columns.pop("replicate")
    if replicate.size and not 0 <= replicate.min() <= replicate.max() < count:
        raise damaged(f"it has replicates beyond the {count} of the manifest")
    trajectories = [Trajectory({name: x[replicate == r] for name, x in columns.items()}) for r in range(count)]
    for trajectory in filter(len, trajectories):
        if trajectory.steps[0] < 0 or (np.diff(trajectory.steps) <= 0).any():
            raise damaged("steps must increase")
        if not all(np.isfinite(trajectory[name]).all() for name in _ALWAYS_FINITE if name in trajectory.names):
            raise damaged("seconds, losses and norms must be finite")
    return trajectories
