"""Runs on disk: arrays in safetensors, the trajectory in Parquet, settings in the manifest.

A folder either is not there or is complete. Nothing is pickled.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tokengeom.errors import InputError
from tokengeom.folders import MANIFEST, read_manifest, write_manifest, written_beside
from tokengeom.training.engine import Arrays
from tokengeom.training.trajectory import Trajectory

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
