"""Shared by the benchmarks: child processes with their own peak memory, alternating repeats, printing and recording."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from benchmarks import rows
from benchmarks.quiet import Watch

if TYPE_CHECKING:
    from tokengeom.training.objective import SoftLabels

T = TypeVar("T")


@dataclass(frozen=True)
class Measured:
    """Median seconds of a side, its largest peak memory, and its answer, to be compared with the other side's."""

    seconds: float
    peak_gigabytes: float
    answer: list[int]


class Benchmark:
    """Where the jobs of one benchmark are printed and recorded.

    ``name``, ``packages``
        Module of the benchmark, and the packages whose versions matter.
    ``quick``
        Whether this is a run at small sizes, whose rows are kept only where TOKENGEOM_BENCHMARK_RESULTS says where.

    Make it before the first measurement: the first look at the machine is then. Rows of a busy machine are not kept,
    or, where TOKENGEOM_BENCHMARK_BUSY is set, kept with the reason.
    """

    def __init__(self, name: str, *packages: str, device: str = "cpu", quick: bool = False) -> None:
        self.name, self.kept = name, not quick or "TOKENGEOM_BENCHMARK_RESULTS" in os.environ
        self.machine, self.versions, self.commit = rows.machine(device), rows.versions(packages), rows.commit()
        self.watch = Watch(rows.references(self.machine))
        self.keeps_busy = bool(os.environ.get("TOKENGEOM_BENCHMARK_BUSY"))
        print(f"machine: {self.machine}; load average {os.getloadavg()[0]:.1f}; code {self.commit}")
        print(f"versions: {', '.join(f'{package} {found}' for package, found in self.versions.items())}", flush=True)

    def job(self, name: str, *, repeats: str = "", note: str = "") -> Job:
        """A job, whose sides are then added one by one, tokengeom first.

        Jobs that are measured together are made together, before the first side is added.
        """
        return Job(self, name, repeats, note)


class Job:
    """One job of a benchmark. Each side is printed and recorded at once."""

    def __init__(self, benchmark: Benchmark, name: str, repeats: str, note: str) -> None:
        self._benchmark, self._name, self._repeats, self._note = benchmark, name, repeats, note
        self._date, self._load = rows.now(), os.getloadavg()[0]
        self._own: float | None = None
        # What is recorded here was measured after this look, before the job was made or after.
        self._first_look = len(benchmark.watch.looks) - 1

    def ours(self, seconds: float, *, gigabytes: float | None = None, accuracy: str = "", note: str = "") -> None:
        """Add the side of tokengeom."""
        self._own = seconds
        print(f"{self._name}{f' ({self._repeats})' if self._repeats else ''}", flush=True)
        self._add(rows.OURS, seconds, gigabytes, None, accuracy, note)

    def peer(
        self, name: str, seconds: float, *, gigabytes: float | None = None, accuracy: str = "", note: str = ""
    ) -> None:
        """Add a peer; its ratio is its time over that of tokengeom."""
        assert self._own is not None, "tokengeom comes first"
        self._add(name, seconds, gigabytes, seconds / self._own, accuracy, note)

    def _add(
        self, side: str, seconds: float, gigabytes: float | None, ratio: float | None, accuracy: str, note: str
    ) -> None:
        notes = "; ".join(part for part in (self._note if side == rows.OURS else "", note) if part)
        about = self._benchmark
        about.watch.look()
        busy = about.watch.busy_since(self._first_look)
        found = rows.Row(
            date=self._date,
            benchmark=about.name,
            job=self._name,
            side=side,
            seconds=seconds,
            gigabytes=gigabytes,
            ratio=ratio,
            accuracy=accuracy,
            repeats=self._repeats,
            machine=about.machine,
            load=round(self._load, 2),
            versions=about.versions,
            commit=about.commit,
            note=notes,
            reference=round(max(look.reference for look in about.watch.looks[self._first_look :]), 4),
            busy=busy,
        )
        memory = "" if gigabytes is None else f"{gigabytes:6.2f} GB"
        times = "" if ratio is None else f"x {ratio:.3g}"
        print(f"  {side:<40} {shown_time(seconds):>10} {memory:>10} {times:>9}  {accuracy}  {notes}", flush=True)
        if busy:
            then = "marked as busy" if about.keeps_busy else "not kept: measure again on quiet cores, or with --busy"
            print(f"    {busy} meanwhile; {then}", flush=True)
        if about.kept and (about.keeps_busy or not busy):
            rows.append(found)


def shown_time(seconds: float) -> str:
    """Seconds with three digits, in the unit that suits them."""
    unit, size = ("us", 1e-6) if seconds < 1e-3 else ("ms", 1e-3) if seconds < 1.0 else ("s", 1.0)
    value = seconds / size
    return f"{value:.3g} {unit}" if value < 1000 else f"{value:,.0f} {unit}"


def side(module: str, *arguments: object) -> Callable[[], Measured]:
    """One side as a separate process: ``python -m module arguments`` ends by calling `finish`."""

    def run() -> Measured:
        command = [sys.executable, "-m", module, *map(str, arguments)]
        environment = os.environ | {"POLARS_MAX_THREADS": str(os.cpu_count())}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
        return Measured(**json.loads(done.stdout.splitlines()[-1]))

    return run


def finish(seconds: float, answer: list[int]) -> None:
    """Print the result of a child process, as its last line."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    print(json.dumps({"seconds": seconds, "peak_gigabytes": peak, "answer": answer}))


def measure_processes(sides: dict[str, Callable[[], Measured]], repeats: int) -> dict[str, Measured]:
    """Median seconds of each side; sides alternate, so that other load on the machine affects all of them."""
    runs: dict[str, list[Measured]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, run in sides.items():
            runs[name].append(run())
    return {
        name: Measured(
            statistics.median(one.seconds for one in all_runs),
            max(one.peak_gigabytes for one in all_runs),
            all_runs[0].answer,
        )
        for name, all_runs in runs.items()
    }


def measure_calls(sides: dict[str, Callable[[], T]], repeats: int) -> dict[str, tuple[float, T]]:
    """Median seconds of each function over alternating repeats, after one call to warm up, and its first answer."""
    answers = {name: call() for name, call in sides.items()}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, call in sides.items():
            with stopwatch() as elapsed:
                call()
                seconds[name].append(elapsed())
    return {name: (statistics.median(seconds[name]), answers[name]) for name in sides}


@contextmanager
def stopwatch() -> Iterator[Callable[[], float]]:
    """Yield a function that returns the seconds since the block began."""
    began = time.perf_counter()
    yield lambda: time.perf_counter() - began


def seconds_per_step(run: Callable[[int], None], steps: int, device: str) -> float:
    """Seconds per step of ``run(steps)``; the queue of a GPU is emptied before and after."""
    if device != "cpu":
        import torch

        torch.cuda.synchronize()
    with stopwatch() as elapsed:
        run(steps)
        if device != "cpu":
            torch.cuda.synchronize()
        return elapsed() / steps


def grouped_labels(V: int, m: int, *, size: int = 5, groups: int = 40, seed: int = 0) -> SoftLabels:
    """Labels of m contexts that share ``groups`` random supports of ``size`` tokens; each pair occurs 1 to 4 times."""
    # Imported here, so that the peak memory of other benchmarks does not include it.
    from tokengeom.training.objective import SoftLabels

    rng = np.random.default_rng(seed)
    supports = [rng.choice(V, size, replace=False) for _ in range(groups)]
    counts = np.zeros((V, m), np.int64)
    for j in range(m):
        counts[supports[j % groups], j] = rng.integers(1, 5, size)
    n = int(counts.sum())
    return SoftLabels.from_dense(counts / counts.sum(0), counts.sum(0) / n, windows=n)


def data_folder() -> Path:
    """Folder for generated data, kept between benchmarks."""
    folder = Path(os.environ.get("TOKENGEOM_BENCHMARK_DATA", "benchmarks/data"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
