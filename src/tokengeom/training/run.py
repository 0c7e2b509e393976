"""`Run`, what training returns: final W and H, measurements during training, and settings; and how it is saved.

A saved run has arrays in safetensors, the trajectory in Parquet, and everything else in the manifest. A snapshot is the
same folder with the state from which training continues; while a model trains, snapshots are saved as
``step-000000001000`` inside the folder of the run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypedDict

import numpy as np

from tokengeom.ask.explain import AnswersQuestions
from tokengeom.ask.named_vectors import Items, NamedVectors
from tokengeom.core.errors import InputError, ProblemError
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import Arrays, Float
from tokengeom.core.settings import takes
from tokengeom.models.factored import FACTORED
from tokengeom.results.contract import SNAPSHOTS, AbstractResult, read_saved
from tokengeom.results.convert import Digest, Number, Skipped, Within, damaged, from_entries, from_plain, to_plain
from tokengeom.results.folders import atomic_folder, lock_of, remove_result, sweep
from tokengeom.results.manifests import MANIFEST, read_kind, write_manifest
from tokengeom.training.trajectory import TABLE, read_trajectories, write_trajectories
from tokengeom.training.trajectory import Trajectory as Trajectory

if TYPE_CHECKING:
    from pandas import DataFrame

    from tokengeom.ask.item_search import Item
    from tokengeom.ask.place import Contexts, Placed
    from tokengeom.statistics.arrays_file import SavedArrays
    from tokengeom.statistics.next_token import NextTokenStatistics
    from tokengeom.training.simulation import Simulation

_ARRAYS = "arrays.safetensors"
_STATE, _WEIGHTS = "state.", "weights."
_Whole = Annotated[int, Within(0)]
ROUNDING = 1e-3
"""Share of H by which a network's own H may differ when it is computed again on another device, in float32."""


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
        weights           of a tied model, A (d x F) and the gain of its last norm (d), which `place` other contexts
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
    weights: Arrays = field(default_factory=dict)

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

    @property
    def is_tied(self) -> bool:
        """Whether it is of the tied model, which has a place for contexts that were never seen."""
        return "A" in self.weights

    def place(self, texts: Contexts, stats: NextTokenStatistics) -> Placed:
        """Where contexts lie that the text may not have, for a tied model: as in `tokengeom.place`.

        ``stats`` are the statistics that the run was trained on, which number the features.
        """
        return self._alone(stats).place(texts)

    def _placed_item(self, stats: NextTokenStatistics, text: str) -> Item | None:
        return self._alone(stats)._placed_item(stats, text) if self.is_tied else None

    def _alone(self, stats: NextTokenStatistics) -> Simulation:
        """A tied run as a simulation of one training."""
        # A simulation reads arrays of its own, and imports what a training does not need.
        from tokengeom.training.simulation import Simulation

        if not self.is_tied or stats.contexts is None or self.statistics_hash not in (None, stats.hash):
            raise ProblemError(
                "Other contexts have a place in a tied model, with the statistics that it was trained on; this is "
                f"model {self.settings.get('model')!r} of the statistics {self.statistics_hash}, with {stats.hash}."
            )
        A, gain, ties = self.weights["A"], self.weights.get("gain"), self.settings["ties"]
        ended = self.loss_gap, (self.steps,), self.settings, (self.loss_gap,)
        return Simulation(self.W, A, gain, stats.contexts, ties, 1, *ended, stats=stats)

    def to_dict(self) -> dict[str, Any]:
        return {stated.name: getattr(self, stated.name) for stated in fields(_Stated)}

    @takes()
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

    def _write(self, folder: Path) -> dict[str, Any]:
        return _write_parts(folder, [self])

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> Run:
        runs = _read_runs(folder, manifest)
        if len(runs) != 1:
            raise InputError(f"{folder} holds {len(runs)} runs; read them with load_runs.")
        return runs[0]


@dataclass(frozen=True)
class _Start:
    """The prediction that W started from."""

    kind: str
    hash: Digest
    directions: _Whole
    used: _Whole


class _Choice(TypedDict):
    """An optimizer or a schedule, with settings of its own beside the name."""

    name: str


class _Settings(TypedDict, total=False):
    """Settings of a run, of which those that later commands read have these types."""

    model: str
    dim: _Whole
    seed: _Whole
    steps: _Whole
    learning_rate: float
    weight_decay: float
    optimizer: str | _Choice
    rate_schedule: str | _Choice
    decay_schedule: str | _Choice
    start: _Start


@dataclass(frozen=True)
class _Stated:
    """What the manifest states of each run."""

    loss_gap: Number
    status: str
    steps: _Whole
    seconds: float
    entropy: float
    statistics_hash: Digest | None
    settings: _Settings

    def __post_init__(self) -> None:
        if math.isnan(self.loss_gap) and not self.diverged:
            raise ValueError("loss_gap must be a finite number, unless the run diverged")

    @property
    def diverged(self) -> bool:
        """Whether training ended because the logits were no longer finite."""
        return self.status.startswith("diverged")


def _start_sentence(start: Mapping[str, Any]) -> str:
    used, directions = start["used"], start["directions"]
    part = "" if used == directions else f", the leading {used} of its {directions} directions"
    return f"W started from a prediction ({start['kind']}, hash {start['hash'][:8]}){part}."


def load_runs(folder: str | Path) -> list[Run]:
    """Every run of a folder: one, or the replicates of a batched run."""
    return read_saved(folder, Run.kind, Run.format_version, _read_runs)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The runs so far, with everything that the next step depends on.

    where
        step         steps made, seconds: time spent in them
        data         hash of the labels
        generators   state of the generator of sampled windows of each replicate, where windows are sampled
        state        parameters and optimizer slots of the engine
    """

    step: _Whole
    seconds: float
    data: str
    generators: list[dict[str, Any]]
    runs: Annotated[Sequence[Run], Skipped] = ()
    state: Annotated[Arrays, Skipped] = field(default_factory=dict)

    def write(self, folder: Path) -> dict[str, Any]:
        """Write every file but the manifest, and return what the manifest adds to their hashes."""
        return {**_write_parts(folder, self.runs, self.state), **to_plain(self)}

    @staticmethod
    def read(folder: Path, manifest: dict[str, Any]) -> Snapshot:
        """Read what `write` wrote."""
        runs, stated = _read_runs(folder, manifest), from_entries(Snapshot, manifest, folder)
        if any(run.steps != stated.step for run in runs):
            raise damaged(folder, "step does not belong to its runs")
        return replace(stated, runs=runs, state=_arrays_in(folder).beginning(_STATE))


def fits_state(run: Run, readout: Factors, kept: Arrays | None = None) -> bool:
    """Whether W, H and further weights of a run are those of its state; H of a network within rounding of a device."""
    rounding = 0.0 if run.settings.get("model") in FACTORED else ROUNDING
    pairs = [(run.W, readout.W, 0.0), (run.H, readout.H, rounding)]
    pairs += [(run.weights[name], again, 0.0) for name, again in (kept or {}).items() if name in run.weights]
    return all(
        mine.shape == again.shape and np.linalg.norm(mine - again) <= share * np.linalg.norm(again)
        for mine, again, share in pairs
    )


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
                # That of a process that was killed.
                lock_of(self.folder).unlink(missing_ok=True)

    def _all(self) -> list[Path]:
        """Every snapshot, recognised by its manifest."""
        saved = [path.parent for path in self.folder.glob(f"{SNAPSHOTS}/{MANIFEST}")]
        return [path for path in saved if read_kind(path) == Run.kind]

    def load(self) -> Snapshot | None:
        """Read the newest snapshot; None where there is none. What a killed run left in the folder is removed."""
        sweep(self.folder)
        newest = self.newest()
        return None if newest is None else read_saved(newest, Run.kind, Run.format_version, Snapshot.read)


def _write_parts(folder: Path, runs: Sequence[Run], state: Arrays | None = None) -> dict[str, Any]:
    from safetensors.numpy import save_file

    arrays = {f"{_STATE}{name}": array for name, array in (state or {}).items()}
    for r, run in enumerate(runs):
        arrays |= {f"result.{r}.W": run.W, f"result.{r}.H": run.H}
        arrays |= {f"result.{r}.{_WEIGHTS}{name}": array for name, array in run.weights.items()}
        if run.start is not None:
            arrays |= {f"result.{r}.start.W": run.start.W, f"result.{r}.start.H": run.start.H}
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, folder / _ARRAYS)
    write_trajectories([run.trajectory for run in runs], folder / TABLE)
    return {"results": [run.to_dict() for run in runs]}


def _read_runs(folder: Path, manifest: dict[str, Any]) -> list[Run]:
    results = from_entries(_Results, manifest, folder).results
    arrays, trajectories = _arrays_in(folder), read_trajectories(folder / TABLE, len(results))
    arrays.only_beginning(_STATE, *(f"result.{r}." for r in range(len(results))))
    runs = []
    for r, content in enumerate(results):
        # The loss gap of a diverged run is NaN, which Python's JSON has and the converter reads as null.
        stated = from_plain(_Stated, {**content, **to_plain({"loss_gap": content.get("loss_gap")})}, folder, f"run {r}")
        runs.append(_read_run(stated, r, arrays, trajectories[r]))
    numbers = [x for x in arrays.beginning(_STATE).values() if x.dtype.kind == "f"]
    if not any(run.diverged for run in runs) and not all(np.isfinite(x).all() for x in numbers):
        raise damaged(folder, "the state that training continues from has numbers that are not finite")
    return runs


@dataclass(frozen=True)
class _Results:
    """The entry of the manifest that has the runs."""

    results: tuple[dict[str, Any], ...]

    def __post_init__(self) -> None:
        if not self.results:
            raise ValueError("it has no run")


def _read_run(stated: _Stated, r: int, arrays: SavedArrays, trajectory: Trajectory) -> Run:
    """One run; its arrays must fit together, and be finite unless it diverged."""
    is_finite = not stated.diverged
    W = arrays.matrix(f"result.{r}.W", (None, None), finite=is_finite)
    H = arrays.matrix(f"result.{r}.H", (W.shape[1], None), finite=is_finite)
    start = None
    if arrays.has(f"result.{r}.start.W"):
        V, d, m = *W.shape, H.shape[1]
        before = arrays.matrix(f"result.{r}.start.W", (V, d), finite=is_finite)
        start = Factors(before, arrays.matrix(f"result.{r}.start.H", (d, m), finite=is_finite))
    if len(trajectory) and trajectory.steps[-1] > stated.steps:
        reached = f"step {trajectory.steps[-1]}, and it made {stated.steps} steps"
        raise damaged(arrays.folder, f"its trajectory has {reached}")
    weights = _read_weights(arrays, f"result.{r}.{_WEIGHTS}", W.shape[1], is_finite)
    return Run(W, H, trajectory=trajectory, start=start, weights=weights, **vars(stated))


def _read_weights(arrays: SavedArrays, prefix: str, d: int, is_finite: bool) -> Arrays:
    """A, and the gain of the last norm; nothing for models that keep none."""
    shapes: dict[str, tuple[int | None, ...]] = {"A": (d, None), "gain": (d,)}
    read = arrays.floats if is_finite else lambda name, shape: arrays.array(name, np.float64, shape)
    return {name: read(prefix + name, shape) for name, shape in shapes.items() if arrays.has(prefix + name)}


def _arrays_in(folder: Path) -> SavedArrays:
    # GPU machines may lack scipy, which that module needs.
    from tokengeom.statistics.arrays_file import SavedArrays

    return SavedArrays(folder / _ARRAYS)
