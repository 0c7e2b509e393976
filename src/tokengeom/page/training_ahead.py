"""The later trainings of a report, made by a second process while the first one does everything else.

A later training (the same model with another seed) needs the statistics and nothing else. The second process trains
into the folder of snapshots from which an interrupted report resumes. When the report comes to that training, it waits
for the second process and resumes from its last snapshot, so the result is the same to the last bit. Where the second
process ended early, whatever the reason, the report trains the rest itself.

Each process uses half of the threads. The number of threads depends on settings and machine alone, not on whether a
second process was started, because sums in a network can depend on it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from tokengeom.core.processes import handle_signals, launched_processes
from tokengeom.core.progress import AbstractProgress
from tokengeom.core.resources import Estimate, free_memory
from tokengeom.page.settings import SECONDS_PER_STEP, UFM, ReportSettings
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.training.loop import Probe
from tokengeom.training.run import Run
from tokengeom.training.train import estimate_training, train

WORTHWHILE = 20.0
"""Expected seconds of later trainings from which on a second process is started, which itself takes seconds."""
PROCESS_BYTES = 2 * 10**9
"""Free memory without which no second process is started."""
SNAPSHOT_SECONDS = 10.0
"""Time between two snapshots of a training."""
FINISHED = "finished"
"""First word of the line that the second process writes after each training."""
REHEARSAL = 0.7
"""Seconds of training per model that the estimate of a report is made from."""
LONG_TRAINING = 60.0
"""Seconds from which the training of unconstrained features is rehearsed even beside a second process.

A rehearsal compiles their loop, which takes seconds, and the second process does that meanwhile.
"""
STOP_SECONDS = 10.0
"""Time that the second process has to save a last snapshot and end."""
START = "import sys; sys.path.insert(0, {source!r}); from tokengeom.page.training_ahead import main; main()"
SOURCE = Path(__file__).parents[2]


def later_trainings(settings: ReportSettings, models: Sequence[str]) -> list[tuple[str, int]]:
    """Model and place of the trainings that a second process makes, the shortest first; empty where none pays."""
    later = [(model, place) for model in models for place in range(1, settings.trainings)]
    expected = {model: expected_seconds(settings, model) for model in models}
    later.sort(key=lambda training: expected[training[0]])
    shared = settings.device == "cpu" and usable_cores() > 1 and launched_processes() == 1
    return later if shared and sum(expected[model] for model, _ in later) >= WORTHWHILE else []


def expected_seconds(settings: ReportSettings, model: str) -> float:
    """Expected duration of a training of a model on two cores."""
    return settings.training(model).steps * SECONDS_PER_STEP[model]


def usable_cores() -> int:
    """Number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def half_of_the_threads(is_network: bool) -> Iterator[None]:
    """A context in which compiled loops, and PyTorch where a network is trained, use half of their threads."""
    libraries: list[Any] = [import_module("numba"), *([import_module("torch")] if is_network else [])]
    before = [(library, library.get_num_threads()) for library in libraries]
    try:
        for library, threads in before:
            library.set_num_threads(max(1, threads // 2))
        yield
    finally:
        for library, threads in before:
            library.set_num_threads(threads)


def train_model(
    stats: NextTokenStatistics,
    settings: ReportSettings,
    model: str,
    place: int,
    checkpoint: Path,
    *,
    probes: Mapping[str, Probe] | None = None,
    progress: AbstractProgress | None = None,
) -> Run:
    """One training of a report, resumed where there is a snapshot of it."""
    return train(
        stats,
        **vars(settings.training(model, place)),
        probes=probes,
        progress=progress,
        checkpoint=checkpoint,
        checkpoint_seconds=SNAPSHOT_SECONDS,
        resume=True,
    )


def estimate_model(model: str, settings: ReportSettings, shared: bool, stats: NextTokenStatistics) -> Estimate:
    """Time and memory of a training; ``shared``, of one that leaves half of the cores to a second process."""
    chosen = settings.training(model)
    usual = expected_seconds(settings, model)
    if shared and model == UFM and usual < LONG_TRAINING:
        return Estimate("", usual, usual)
    with half_of_the_threads(chosen.is_network) if shared else nullcontext():
        return estimate_training(stats, **vars(chosen), rehearsal=REHEARSAL)


@dataclass(frozen=True)
class LaterTraining:
    """Model and place of a training, and the folder of its snapshots."""

    model: str
    place: int
    checkpoint: str


class SecondProcess:
    """A process that makes later trainings, one after the other.

    It ends when it is done, when `stop` is called, or when this process ends in any way: it watches the pipe that
    connects the two. It is in a session of its own, so Ctrl-C in a terminal reaches it through `stop` only.
    """

    def __init__(self, statistics: Path, settings: ReportSettings, trainings: Sequence[LaterTraining]) -> None:
        task = {
            "statistics": str(statistics.absolute()),
            "settings": asdict(settings),
            "trainings": [asdict(training) for training in trainings],
        }
        self._process = subprocess.Popen(
            [sys.executable, "-c", START.format(source=str(SOURCE))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._process.stdin is not None, "it was started with pipes"
        assert self._process.stdout is not None, "it was started with pipes"
        self._pipe, self._said = self._process.stdin, self._process.stdout
        self._finished: set[tuple[str, int]] = set()
        with suppress(BrokenPipeError):
            self._pipe.write(f"{json.dumps(task)}\n".encode())
            self._pipe.flush()

    @classmethod
    def start(
        cls, statistics: Path, settings: ReportSettings, trainings: Sequence[LaterTraining]
    ) -> SecondProcess | None:
        """A process for the trainings, the shortest first; None where there are none or it cannot be started."""
        if not trainings or not sys.executable or free_memory() < PROCESS_BYTES:
            return None
        with suppress(OSError):
            return cls(statistics, settings, trainings)
        return None

    def wait_for(self, model: str, place: int) -> None:
        """Wait until a training is finished, or the process has ended for whatever reason."""
        while (model, place) not in self._finished and (line := self._said.readline()):
            words = line.decode().split()
            if words[:1] == [FINISHED]:
                self._finished.add((words[1], int(words[2])))

    def stop(self) -> None:
        """Let the process save a last snapshot and end; kill it where that takes too long."""
        with suppress(BrokenPipeError):
            self._pipe.close()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._said.close()


def main() -> None:
    """The second process: read the task from standard input, and train until it is done or the input is closed."""
    handle_signals()
    task = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_the_input, daemon=True).start()
    settings, stats = ReportSettings(**task["settings"]), NextTokenStatistics.load(task["statistics"])
    for training in (LaterTraining(**saved) for saved in task["trainings"]):
        with half_of_the_threads(settings.training(training.model).is_network):
            run = train_model(stats, settings, training.model, training.place, Path(training.checkpoint))
        if run.status == "interrupted":
            return
        sys.stdout.write(f"{FINISHED} {training.model} {training.place}\n")
        sys.stdout.flush()


def _end_with_the_input() -> None:
    """Wait for the end of the standard input, which comes when the other process closes it or ends."""
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
