"""The answer of training: the final W and H, the way there, and the settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokengeom.errors import InputError
from tokengeom.html_table import html_table
from tokengeom.numerics import Float
from tokengeom.training.store import Checkpoints, Stored, read_folder, write_folder
from tokengeom.training.trajectory import Trajectory


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
