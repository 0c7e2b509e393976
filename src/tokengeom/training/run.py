"""`Run`, what training returns: final W and H, measurements during training, and settings; and how it is saved.

A saved run has arrays in safetensors, the trajectory in Parquet, and everything else in the manifest. A snapshot is the
same folder with the state from which training continues; while a model trains, snapshots are saved as
``step-000000001000`` inside the folder of the run.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from tokengeom.ask.explain import AnswersQuestions
from tokengeom.ask.named_vectors import Items, NamedVectors
from tokengeom.core.checks import Entries
from tokengeom.core.errors import InputError
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import Arrays, Float
from tokengeom.results.contract import (
    ALONE,
    SNAPSHOTS,
    AbstractResult,
    NearbyResults,
    check_hashes,
    close,
    read_saved,
    under,
)
from tokengeom.results.folders import atomic_folder, remove_result, sweep
from tokengeom.results.manifests import MANIFEST, read_kind, write_manifest
from tokengeom.training.trajectory import TABLE, Trajectory, read_trajectories

if TYPE_CHECKING:
    from pandas import DataFrame

    from tokengeom.statistics.arrays_file import SavedArrays
    from tokengeom.statistics.next_token import NextTokenStatistics

_ARRAYS = "arrays.safetensors"
_STATE = "state."


@dataclass(frozen=True, eq=False, repr=False)
class Run(AnswersQuestions, AbstractResult):
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
        self, table: Items | Literal["trajectory"] = "trajectory", stats: NextTokenStatistics | None = None
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
        if "start" in self.settings:
            lines.append(_start_sentence(self.settings["start"]))
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

    @property
    def _source(self) -> str:
        return f"in a run at a loss gap of {self.loss_gap:.3g} nats"

    def checks(self, beside: NearbyResults = ALONE) -> dict[str, bool | None]:
        """What W and H say of the last record, the start of the first one, and the statistics of the loss."""
        found: dict[str, bool | None] = {
            "W and H have the dimension in the settings": self.settings.get("dim") == self.W.shape[1],
            "W and H are finite, or the run diverged": self.diverged
            or bool(np.isfinite(self.W).all() and np.isfinite(self.H).all()),
        }
        last = int(self.trajectory.last("step")) if len(self.trajectory) else -1
        found["the last record is at the last step of a finished run"] = (
            last == self.steps if self.status == "finished" else last <= self.steps
        )
        if last == self.steps and not self.diverged:
            found["loss gap and norms are those of the last record"] = self._is_record(-1, Factors(self.W, self.H))
        if self._starts_with_record:
            assert self.start is not None
            found["the norms before the first step are those of the first record"] = self._is_record(0, self.start)
        return found | self._check_loss(beside, last) | NOT_CHECKED

    @property
    def _starts_with_record(self) -> bool:
        return self.start is not None and len(self.trajectory) > 0 and self.trajectory.steps[0] == 0

    def _is_record(self, place: int, factors: Factors) -> bool:
        """Whether a record has the norms of these factors, and the last one the loss gap of the run."""
        measured = {
            "norm_W": float(np.linalg.norm(factors.W)),
            "norm_H": float(np.linalg.norm(factors.H)),
            "norm_logits": float(np.linalg.norm(factors.logits)),
        } | ({"loss_gap": self.loss_gap} if place == -1 else {})
        known = self.trajectory.names
        return all(close(self.trajectory[name][place], value) for name, value in measured.items() if name in known)

    def _check_loss(self, beside: NearbyResults, last: int) -> dict[str, bool | None]:
        """Whether losses, entropy and margins are those of the statistics beside the run."""
        if self.statistics_hash is None:
            return {"loss, margin and entropy were not computed again: the labels of the training are not saved": None}
        # GPU machines may lack scipy, which statistics need.
        from tokengeom.statistics.next_token import NextTokenStatistics
        from tokengeom.training.objective import SoftLabels

        stats = beside.find(NextTokenStatistics, hash=self.statistics_hash)
        if stats is None or stats.hash != self.statistics_hash:
            return {
                f"loss, margin and entropy were not computed again: the statistics with the hash "
                f"{self.statistics_hash[:8]} are not beside it (give their folder: --with FOLDER)": None
            }
        if (self.W.shape[0], self.H.shape[1]) != (stats.V, stats.m):
            return {"the run has the tokens and contexts of its statistics": False}
        found: dict[str, bool | None] = {
            "the entropy floor is that of the statistics": close(self.entropy, stats.entropy)
        }
        if self.diverged:
            return found
        labels, L = SoftLabels.from_statistics(stats), self.logits
        found["the loss gap is that of W and H"] = same_loss(labels.loss_gap(L), self.loss_gap)
        if last == self.steps and "margin" in self.trajectory.names:
            margin = float(np.min(labels.margins(L)))
            found["the margin of the last record is that of W and H"] = close(self.trajectory.last("margin"), margin)
        if self._starts_with_record:
            assert self.start is not None
            first, claimed = labels.loss_gap(self.start.logits), float(self.trajectory["loss_gap"][0])
            found["the loss gap of the first record is that of the start"] = same_loss(first, claimed)
        return found

    def _write(self, folder: Path) -> dict[str, Any]:
        return _write_parts(folder, [self])

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> Run:
        found = _read_runs(folder, manifest)
        if len(found) != 1:
            raise InputError(f"{folder} holds {len(found)} runs; read them with load_runs.")
        return found[0]

    @classmethod
    def check_saved(cls, folder: Path, beside: NearbyResults) -> Mapping[str, bool | None]:
        """Check a saved run, or the replicates of a batched run: files against their hashes, then `checks`."""
        checks: dict[str, bool | None] = dict(check_hashes(folder))
        if all(checks.values()):
            try:
                runs = load_runs(folder)
            except InputError as error:
                return {**checks, f"the result can be read ({error})": False}
            for r, run in enumerate(runs):
                found = run.checks(beside)
                checks |= under(f"replicate {r}", found) if len(runs) > 1 else found
        return checks


def _start_sentence(start: Mapping[str, Any]) -> str:
    used, directions = start["used"], start["directions"]
    part = "" if used == directions else f", the leading {used} of its {directions} directions"
    return f"W started from a prediction ({start['kind']}, hash {start['hash'][:8]}){part}."


NOT_CHECKED: dict[str, bool | None] = {
    "records before the last one, and seconds: only training again would show them": None,
    "the settings, except the dimension: only training again would show them": None,
    "numbers in the trajectory that compare with a prediction: the run does not record which prediction it was": None,
}
"""What the checks of a run leave out."""


def same_loss(a: float, b: float) -> bool:
    """Whether two loss gaps agree, as a share of themselves; below 1e-15 nats, rounding decides."""
    return bool(abs(a - b) <= 1e-6 * max(abs(a), abs(b)) + 1e-15)


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
        runs, stored = _read_runs(folder, manifest), Entries(manifest, folder)
        step, generators = stored.whole("step"), stored.sequence("generators")
        if any(run.steps != step for run in runs) or not all(isinstance(one, dict) for one in generators):
            raise stored.damaged("step or generators do not belong to its runs")
        state = _arrays_in(folder).beginning(_STATE)
        return Snapshot(runs, state, step, stored.number("seconds"), stored.text("data"), generators)


class Checkpoints:
    """Snapshots of a run in one folder; the newest complete one counts, and older ones are removed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def newest(self) -> Path | None:
        """The newest complete snapshot, or None."""
        return max(self._all(), default=None)

    def save(self, snapshot: Snapshot) -> None:
        """Add a snapshot, then remove the older ones."""
        target = self.folder / f"step-{snapshot.step:012d}"
        with atomic_folder(target, Run.kind) as work:
            write_manifest(work, Run.kind, Run.format_version, snapshot.write(work))
            for path in work.iterdir():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        self.remove(keep=target)

    def remove(self, keep: Path | None = None) -> None:
        """Remove the snapshots, and their folder where nothing else is in it; ``keep`` stays."""
        for snapshot in self._all():
            if snapshot != keep:
                remove_result(snapshot, {Run.kind})
        if keep is None:
            sweep(self.folder)
            with suppress(OSError):
                self.folder.rmdir()

    def _all(self) -> list[Path]:
        """Every snapshot, recognised by its manifest."""
        found = [path.parent for path in self.folder.glob(f"{SNAPSHOTS}/{MANIFEST}")]
        return [path for path in found if read_kind(path) == Run.kind]

    def load(self) -> Snapshot | None:
        """Read the newest snapshot; None where there is none. What a killed run left in the folder is removed."""
        sweep(self.folder)
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
    pq.write_table(pa.concat_tables(tables), folder / TABLE)
    return {"results": [run.to_dict() for run in runs]}


def _read_runs(folder: Path, manifest: dict[str, Any]) -> list[Run]:
    stored = Entries(manifest, folder).several("results")
    arrays, trajectories = _arrays_in(folder), read_trajectories(folder, len(stored))
    if not stored:
        raise Entries(manifest, folder).damaged("it has no run")
    arrays.only_beginning(_STATE, *(f"result.{r}." for r in range(len(stored))))
    return [_read_run(one, r, arrays, trajectories[r]) for r, one in enumerate(stored)]


def _read_run(stored: Entries, r: int, arrays: SavedArrays, trajectory: Trajectory) -> Run:
    """One run; its arrays must fit together, and be finite unless it diverged."""
    stored.only("loss_gap", "status", "steps", "seconds", "entropy", "statistics_hash", "settings")
    is_finite = not stored.text("status").startswith("diverged")
    W = arrays.matrix(f"result.{r}.W", (None, None), finite=is_finite)
    H = arrays.matrix(f"result.{r}.H", (W.shape[1], None), finite=is_finite)
    start = None
    if arrays.has(f"result.{r}.start.W"):
        V, d, m = *W.shape, H.shape[1]
        before = arrays.matrix(f"result.{r}.start.W", (V, d), finite=is_finite)
        start = Factors(before, arrays.matrix(f"result.{r}.start.H", (d, m), finite=is_finite))
    _require_settings(stored.inside("settings"))
    steps = stored.whole("steps")
    if len(trajectory) and trajectory.steps[-1] > steps:
        raise stored.damaged(f"its trajectory has step {trajectory.steps[-1]}, and it made {steps} steps")
    return Run(
        W,
        H,
        loss_gap=stored.number("loss_gap", finite=is_finite),
        trajectory=trajectory,
        settings=stored.plain("settings"),
        status=stored.text("status"),
        steps=steps,
        seconds=stored.number("seconds"),
        entropy=stored.number("entropy"),
        statistics_hash=stored.digest("statistics_hash") if stored.has("statistics_hash") else None,
        start=start,
    )


def _require_settings(stored: Entries) -> None:
    """Refuse settings of other types than those that later commands read."""
    for name in ("dim", "seed", "steps"):
        if name in stored.names:
            stored.whole(name)
    for name in ("learning_rate", "weight_decay"):
        if name in stored.names:
            stored.number(name)
    if "model" in stored.names:
        stored.text("model")
    if "start" in stored.names:
        start = stored.inside("start")
        start.only("kind", "hash", "directions", "used")
        start.text("kind")
        start.digest("hash")
        for name in ("directions", "used"):
            start.whole(name)
    for name in ("optimizer", "rate_schedule", "decay_schedule"):
        if name in stored.names and not isinstance(stored.value(name), str):
            stored.inside(name).text("name")


def _arrays_in(folder: Path) -> SavedArrays:
    # GPU machines may lack scipy, which that module needs.
    from tokengeom.statistics.arrays_file import SavedArrays

    return SavedArrays(folder / _ARRAYS)
