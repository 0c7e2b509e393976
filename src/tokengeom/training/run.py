"""Measurements on a log-spaced grid of steps.

Runs on disk: arrays in safetensors, the trajectory in Parquet, settings in the manifest.

A folder either is not there or is complete. Nothing is pickled.

The answer of training: the final W and H, the way there, and the settings.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokengeom.errors import InputError, ProblemError, missing_extra
from tokengeom.folders import MANIFEST, read_manifest, write_manifest, written_beside
from tokengeom.html_table import html_table
from tokengeom.numerics import Arrays, Float, Int


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


FORMAT, FORMAT_VERSION = "tokengeom-run", 1
_ARRAYS, _TABLE = "arrays.safetensors", "trajectory.parquet"


@dataclass(frozen=True)
class Stored:
    """What one folder holds; ``trajectories`` has one table a replicate."""

    manifest: dict[str, Any]
    arrays: Arrays
    trajectories: list[Trajectory] = field(default_factory=list)


def write_folder(folder: Path, stored: Stored) -> None:
    """Write everything into a folder beside, then put it in place with one rename."""
    with written_beside(folder, FORMAT) as work:
        _write_parts(work, stored)


def read_folder(folder: Path) -> Stored:
    """Read a folder back, refusing one that is not a run's."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    manifest = read_manifest(folder, FORMAT, FORMAT_VERSION)
    try:
        return Stored(manifest, dict(load_file(folder / _ARRAYS)), _read_tables(folder / _TABLE))
    except (OSError, SafetensorError) as error:
        raise InputError(f"{folder} is incomplete or damaged: {error}. Train again.") from error


class Checkpoints:
    """Snapshots ``step-000000001000`` in one folder; the newest complete one counts, and older ones are removed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def newest(self) -> Path | None:
        """Newest complete snapshot, or None."""
        return max(self.folder.glob("step-*"), default=None)

    def save(self, step: int, stored: Stored) -> None:
        """Add a snapshot, then remove what it makes obsolete."""
        target = self.folder / f"step-{step:012d}"
        write_folder(target, stored)
        for old in self.folder.glob("step-*"):
            if old != target:
                shutil.rmtree(old, ignore_errors=True)

    def load(self) -> Stored | None:
        """Read the newest snapshot."""
        newest = self.newest()
        return None if newest is None else read_folder(newest)


def _write_parts(folder: Path, stored: Stored) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from safetensors.numpy import save_file

    save_file({name: np.ascontiguousarray(array) for name, array in stored.arrays.items()}, folder / _ARRAYS)
    tables = []
    for replicate, trajectory in enumerate(stored.trajectories):
        table = trajectory.to_arrow()
        tables.append(table.append_column("replicate", pa.array(np.full(len(trajectory), replicate, np.int64))))
    pq.write_table(pa.concat_tables(tables), folder / _TABLE)
    write_manifest(folder, FORMAT, FORMAT_VERSION, stored.manifest)
    for name in (_ARRAYS, _TABLE, MANIFEST):
        with (folder / name).open("rb") as file:
            os.fsync(file.fileno())


def _read_tables(path: Path) -> list[Trajectory]:
    import pyarrow.parquet as pq

    columns = {name: values.to_numpy() for name, values in zip(*_columns(pq.read_table(path)), strict=True)}
    replicate = columns.pop("replicate")
    count = int(replicate.max(initial=-1)) + 1
    return [Trajectory({name: x[replicate == r] for name, x in columns.items()}) for r in range(count)]


def _columns(table: Any) -> tuple[list[str], list[Any]]:
    return list(table.column_names), list(table.columns)


@dataclass(frozen=True)
class Run:
    """A trained model, measured along the way.

    where
        W, H         decoder (V x d) and context embeddings (d x m) at the last step, in double precision
        loss_gap     ``CE - H`` at the last step, in nats, computed as a divergence
        trajectory   measurements on a log-spaced grid of steps
        status       "finished", "interrupted", or "diverged" with the step and the remedy
        steps        steps made, seconds: time spent in them
        settings     everything that was asked for, as plain data
    """

    W: Float
    H: Float
    loss_gap: float
    trajectory: Trajectory
    settings: dict[str, Any]
    status: str
    steps: int
    seconds: float
    entropy: float

    @property
    def logits(self) -> Float:
        """``L = W H``, V x m."""
        return self.W @ self.H

    @property
    def loss(self) -> float:
        """``CE = H + loss_gap``, in nats."""
        return self.entropy + self.loss_gap

    def to_dict(self) -> dict[str, Any]:
        """Everything but arrays and table, for a manifest or ``--json``."""
        names = ("loss_gap", "status", "steps", "seconds", "entropy", "settings")
        return {name: getattr(self, name) for name in names}

    def _repr_html_(self) -> str:
        V, d = self.W.shape
        optimizer = self.settings.get("optimizer", "")
        rows = [
            ("model", self.settings.get("model", "")),
            ("V, d, m", f"{V:,}, {d:,}, {self.H.shape[1]:,}"),
            ("optimizer", optimizer.get("name", "") if isinstance(optimizer, dict) else optimizer),
            ("steps", f"{self.steps:,} in {self.seconds:.1f} s"),
            ("loss", f"{self.loss:.6g} nats"),
            ("entropy floor H", f"{self.entropy:.6g} nats"),
            ("loss gap", f"{self.loss_gap:.3g} nats"),
        ]
        return html_table("Run", rows, [f"Status: {self.status}."])

    def save(self, folder: str | Path) -> None:
        """Write ``arrays.safetensors``, ``trajectory.parquet`` and ``manifest.json``; the folder appears complete."""
        arrays = {"result.0.W": self.W, "result.0.H": self.H}
        stored = Stored({"results": [self.to_dict()]}, arrays, [self.trajectory])
        write_folder(Path(folder), stored)

    @classmethod
    def load(cls, folder: str | Path) -> Run:
        """Read a saved run, or the newest checkpoint of a run that was stopped."""
        found = load_runs(folder)
        if len(found) != 1:
            raise InputError(f"{folder} holds {len(found)} runs; read them with load_runs.")
        return found[0]


def load_runs(folder: str | Path) -> list[Run]:
    """Read every run of a folder: one, or the replicates of a batched run."""
    path = Path(folder)
    if not (path / "manifest.json").exists():
        path = Checkpoints(path).newest() or path
    stored = read_folder(path)
    return [
        Run(stored.arrays[f"result.{r}.W"], stored.arrays[f"result.{r}.H"], trajectory=trajectory, **result)
        for r, (result, trajectory) in enumerate(zip(stored.manifest["results"], stored.trajectories, strict=True))
    ]


def snapshot(runs: list[Run], state: dict[str, Any], extra: dict[str, Any]) -> Stored:
    """Runs so far, with all that is needed to go on from there."""
    arrays = {f"state.{name}": array for name, array in state.items()}
    for r, run in enumerate(runs):
        arrays |= {f"result.{r}.W": run.W, f"result.{r}.H": run.H}
    manifest = {"results": [run.to_dict() for run in runs], **extra}
    return Stored(manifest, arrays, [run.trajectory for run in runs])
