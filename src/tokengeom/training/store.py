"""Folders of results: arrays in safetensors, tables in Parquet, the manifest in JSON; written beside, then renamed.

A folder either is not there or is complete. Nothing is pickled.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tokengeom.errors import InputError
from tokengeom.training.engine import Arrays
from tokengeom.training.trajectory import Trajectory

FORMAT = 1
_MANIFEST, _ARRAYS, _TABLE = "manifest.json", "arrays.safetensors", "trajectory.parquet"


@dataclass(frozen=True)
class Stored:
    """What one folder holds; ``trajectories`` has one table a replicate."""

    manifest: dict[str, Any]
    arrays: Arrays
    trajectories: list[Trajectory] = field(default_factory=list)


def write_folder(folder: Path, stored: Stored) -> None:
    """Write everything into a folder beside, then put it in place with one rename."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        _write_parts(beside, stored)
        _replace(beside, folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def read_folder(folder: Path) -> Stored:
    """Read a folder back, refusing one that is not a run's."""
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{folder} must hold a saved run; it has no {_MANIFEST}.") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{folder / _MANIFEST} is not readable JSON ({error}). Is the disk damaged?") from None
    if manifest.get("format") != FORMAT:
        raise InputError(
            f"{folder} must hold a run of format {FORMAT}; got {manifest.get('format')!r}. It was written by another "
            f"version of tokengeom: load it with that version."
        )
    from safetensors.numpy import load_file

    return Stored(manifest, dict(load_file(folder / _ARRAYS)), _read_tables(folder / _TABLE))


def machine() -> dict[str, str]:
    """Where and with what a result was made."""
    return {"system": platform.platform(), "python": platform.python_version(), "numpy": np.__version__}


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
    manifest = {"format": FORMAT, "machine": machine(), **stored.manifest}
    (folder / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    for name in (_ARRAYS, _TABLE, _MANIFEST):
        with (folder / name).open("rb") as file:
            os.fsync(file.fileno())


def _replace(beside: Path, folder: Path) -> None:
    """Rename into place; an older folder of that name steps aside first and is removed last."""
    aside = None
    if folder.exists():
        aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.old.", dir=folder.parent)) / folder.name
        folder.rename(aside)
    beside.rename(folder)
    if aside is not None:
        shutil.rmtree(aside.parent, ignore_errors=True)


def _read_tables(path: Path) -> list[Trajectory]:
    import pyarrow.parquet as pq

    columns = {name: values.to_numpy() for name, values in zip(*_columns(pq.read_table(path)), strict=True)}
    replicate = columns.pop("replicate")
    count = int(replicate.max(initial=-1)) + 1
    return [Trajectory({name: x[replicate == r] for name, x in columns.items()}) for r in range(count)]


def _columns(table: Any) -> tuple[list[str], list[Any]]:
    return list(table.column_names), list(table.columns)
