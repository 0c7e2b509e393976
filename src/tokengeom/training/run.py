"""`Run`, what training returns: final W and H, measurements during training, and settings; and how it is saved.

A saved run has arrays in safetensors, the trajectory in Parquet, and everything else in the manifest. A snapshot is the
same folder with the state from which training continues; while a model trains, snapshots are saved as
``step-000000001000`` inside the folder of the run.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from tokengeom.errors import InputError, ProblemError
from tokengeom.factors import Factors
from tokengeom.folders import MANIFEST, atomic_folder, changed_files, write_manifest
from tokengeom.named_vectors import Items, NamedVectors, NamesItems
from tokengeom.numerics import Arrays, Float, Int
from tokengeom.results import AbstractResult, Verification, close, data_frame, read_saved, saved_folder

if TYPE_CHECKING:
    import pyarrow as pa
    from pandas import DataFrame

_ARRAYS, _TABLE = "arrays.safetensors", "trajectory.parquet"
_STATE = "state."


def record_steps(steps: int, per_decade: int = 10) -> Int:
    """Steps at which a run is measured: 0, 1, then ``per_decade`` per factor of ten, and the last; increasing."""
    if per_decade < 1:
        raise ProblemError(f"records per decade must be at least 1; got {per_decade!r}.")
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

    def last(self, name: str) -> float:
        """Latest value of a measurement."""
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


@dataclass(frozen=True, eq=False, repr=False)
class Run(AbstractResult):
    """A trained model with measurements during training.

    where
        W, H              decoder (V x d) and context embeddings (d x m) at the last step, in double precision
        loss_gap          ``CE - H`` at the last step, in nats, computed as a divergence
        trajectory        measurements at steps on a logarithmic grid
        settings          all settings of the run as plain data
        status            "finished", "interrupted", "diverged" with the step and what to do, or "running" in a snapshot
        steps, seconds    steps made, and the time spent in them
        entropy           the entropy floor H, in nats
        statistics_hash   hash of the statistics that it was trained on, None where it was trained on labels
        start             W and H before the first step, which an agreement has to beat; None where not recorded
    """

    kind: ClassVar[str] = "tokengeom-run"
    title: ClassVar[str] = "Run"

    W: Float
    H: Float
    loss_gap: float
    trajectory: Trajectory
    settings: dict[str, Any]
    status: str
    steps: int
    seconds: float
    entropy: float
    statistics_hash: str | None = None
    start: Factors | None = None

    @property
    def logits(self) -> Float:
        """``L = W H``, V x m."""
        return self.W @ self.H

    @property
    def loss(self) -> float:
        """``CE = H + loss_gap``, in nats."""
        return self.entropy + self.loss_gap

    @property
    def diverged(self) -> bool:
        """Whether training ended because the logits were no longer finite."""
        return self.status.startswith("diverged")

    def to_dict(self) -> dict[str, Any]:
        """Everything except the arrays and the trajectory, as plain data."""
        names = ("loss_gap", "status", "steps", "seconds", "entropy", "statistics_hash", "settings")
        return {name: getattr(self, name) for name in names}

    def to_frame(
        self, table: Items | Literal["trajectory"] = "trajectory", stats: NamesItems | None = None
    ) -> DataFrame:
        """Data frame of the trajectory, one row per record; or of the tokens or contexts after training.

        ``table``
            "trajectory"; or "tokens" or "contexts": one row per item with its frequency, supports and coordinates.
        ``stats``
            The statistics that the run was trained on, which name tokens and contexts; without them they are numbered.
        """
        if table == "trajectory":
            return self.trajectory.to_frame()
        return NamedVectors.of(self, table, stats).to_frame()

    def summary(self) -> str:
        """Status, speed and loss, and a hint where the loss is no better than a uniform guess."""
        rate = self.steps / max(self.seconds, 1e-9)
        lines = [
            f"Status: {self.status}.",
            f"{self.steps:,} steps in {self.seconds:.1f} s ({rate:,.0f} per second).",
            f"The loss is {self.loss:.6f} nats, {self.loss_gap:.3g} above the entropy floor {self.entropy:.6f}.",
        ]
        if self.loss >= math.log(self.W.shape[0]):
            lines.append(
                "This is no better than a uniform guess: lower the learning rate if it is large, or train longer."
            )
        return "\n".join(lines)

    def _facts(self) -> list[tuple[str, str]]:
        (V, d), m = self.W.shape, self.H.shape[1]
        optimizer = self.settings.get("optimizer", "")
        return [
            ("model", str(self.settings.get("model", ""))),
            ("d", f"{d:,}"),
            ("optimizer", str(optimizer.get("name", "") if isinstance(optimizer, dict) else optimizer)),
            ("steps", f"{self.steps:,}"),
            ("loss gap", f"{self.loss_gap:.3g} nats"),
            ("tokens V", f"{V:,}"),
            ("contexts m", f"{m:,}"),
            ("loss", f"{self.loss:.6g} nats"),
            ("entropy floor H", f"{self.entropy:.6g} nats"),
            ("seconds", f"{self.seconds:.1f}"),
        ]

    def checks(self) -> dict[str, bool]:
        """Whether arrays, last record and settings agree with each other."""
        fit = self.W.ndim == self.H.ndim == 2 and self.W.shape[1] == self.H.shape[0]
        found = {
            "W and H share the dimension in the settings": fit and self.settings.get("dim") == self.W.shape[1],
            "W and H are finite, or the run diverged": self.diverged
            or bool(np.isfinite(self.W).all() and np.isfinite(self.H).all()),
        }
        last = int(self.trajectory.last("step")) if len(self.trajectory) else -1
        found["the last record is at the last step of a finished run"] = (
            last == self.steps if self.status == "finished" else last <= self.steps
        )
        if fit and last == self.steps and not self.diverged:
            found["loss gap and norms are those of the last record"] = self._agrees_with_last_record()
        return found

    def _agrees_with_last_record(self) -> bool:
        measured = {
            "loss_gap": self.loss_gap,
            "norm_W": float(np.linalg.norm(self.W)),
            "norm_H": float(np.linalg.norm(self.H)),
            "norm_logits": float(np.linalg.norm(self.logits)),
        }
        return all(close(self.trajectory.last(name), value) for name, value in measured.items())

    def _write(self, folder: Path) -> dict[str, Any]:
        return _write_parts(folder, [self])

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> Run:
        found = _read_runs(folder, manifest)
        if len(found) != 1:
            raise InputError(f"{folder} holds {len(found)} runs; read them with load_runs.")
        return found[0]

    @classmethod
    def verify(cls, folder: str | Path) -> Verification:
        """Check a saved run, or the replicates of a batched run: files against their hashes, then `checks`."""
        path = saved_folder(folder)
        checks = {"every file is the one that was written": not changed_files(path)}
        if all(checks.values()):
            runs = load_runs(path)
            for r, run in enumerate(runs):
                name = f"replicate {r}: " if len(runs) > 1 else ""
                checks |= {f"{name}{sentence}": holds for sentence, holds in run.checks().items()}
        return Verification.of(checks)


def load_runs(folder: str | Path) -> list[Run]:
    """Every run of a folder: one, or the replicates of a batched run."""
    return read_saved(folder, Run.kind, Run.format_version, _read_runs)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The runs so far, with everything that the next step depends on.

    where
        state        parameters and optimizer slots of the engine
        step         steps made, seconds: time spent in them
        data         hash of the labels
        generators   state of the generator of sampled windows of each replicate, where windows are sampled
    """

    runs: list[Run]
    state: Arrays
    step: int
    seconds: float
    data: str
    generators: list[dict[str, Any]]

    def write(self, folder: Path) -> dict[str, Any]:
        """Write every file but the manifest, and return what the manifest adds to their hashes."""
        more = {"step": self.step, "seconds": self.seconds, "data": self.data, "generators": self.generators}
        return _write_parts(folder, self.runs, self.state) | more

    @staticmethod
    def read(folder: Path, manifest: dict[str, Any]) -> Snapshot:
        """Read what `write` wrote."""
        arrays = _read_arrays(folder)
        state = {name.removeprefix(_STATE): x for name, x in arrays.items() if name.startswith(_STATE)}
        rest = {name: manifest[name] for name in ("step", "seconds", "data", "generators")}
        return Snapshot(_read_runs(folder, manifest), state, **rest)


class Checkpoints:
    """Snapshots of a run in one folder; the newest complete one counts, and older ones are removed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def newest(self) -> Path | None:
        """The newest complete snapshot, or None."""
        newest = max(self.folder.glob(f"step-*/{MANIFEST}"), default=None)
        return None if newest is None else newest.parent

    def save(self, snapshot: Snapshot) -> None:
        """Add a snapshot, then remove the older ones."""
        target = self.folder / f"step-{snapshot.step:012d}"
        with atomic_folder(target, Run.kind) as work:
            write_manifest(work, Run.kind, Run.format_version, snapshot.write(work))
            for path in work.iterdir():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        for old in self.folder.glob("step-*"):
            if old != target:
                shutil.rmtree(old, ignore_errors=True)

    def load(self) -> Snapshot | None:
        """Read the newest snapshot; None where there is none."""
        newest = self.newest()
        return None if newest is None else read_saved(newest, Run.kind, Run.format_version, Snapshot.read)


def _write_parts(folder: Path, runs: Sequence[Run], state: Arrays | None = None) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from safetensors.numpy import save_file

    arrays = {f"{_STATE}{name}": array for name, array in (state or {}).items()}
    tables = []
    for r, run in enumerate(runs):
        arrays |= {f"result.{r}.W": run.W, f"result.{r}.H": run.H}
        if run.start is not None:
            arrays |= {f"result.{r}.start.W": run.start.W, f"result.{r}.start.H": run.start.H}
        table = run.trajectory.to_arrow()
        tables.append(table.append_column("replicate", pa.array(np.full(len(run.trajectory), r, np.int64))))
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, folder / _ARRAYS)
    pq.write_table(pa.concat_tables(tables), folder / _TABLE)
    return {"results": [run.to_dict() for run in runs]}


def _read_runs(folder: Path, manifest: dict[str, Any]) -> list[Run]:
    arrays, trajectories = _read_arrays(folder), _read_tables(folder / _TABLE)
    return [
        Run(
            arrays[f"result.{r}.W"],
            arrays[f"result.{r}.H"],
            trajectory=trajectory,
            start=_read_start(arrays, r),
            **result,
        )
        for r, (result, trajectory) in enumerate(zip(manifest["results"], trajectories, strict=True))
    ]


def _read_start(arrays: Arrays, r: int) -> Factors | None:
    known = f"result.{r}.start.W" in arrays
    return Factors(arrays[f"result.{r}.start.W"], arrays[f"result.{r}.start.H"]) if known else None


def _read_arrays(folder: Path) -> Arrays:
    from safetensors.numpy import load_file

    return dict(load_file(folder / _ARRAYS))


def _read_tables(path: Path) -> list[Trajectory]:
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    columns = {name: values.to_numpy() for name, values in zip(table.column_names, table.columns, strict=True)}
    replicate = columns.pop("replicate")
    count = int(replicate.max(initial=-1)) + 1
    return [Trajectory({name: x[replicate == r] for name, x in columns.items()}) for r in range(count)]
