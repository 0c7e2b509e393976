"""What every benchmark needs: children with their own peak memory, interleaved repeats, one way to print."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path


@dataclass(frozen=True)
class Measured:
    """Median seconds of a side, its largest peak memory, and what it found, to be compared with the other side."""

    seconds: float
    peak_gigabytes: float
    answer: object


def print_machine(*packages: str) -> None:
    """The machine and the versions that the numbers below belong to."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = ", ".join(f"{package} {version(package)}" for package in packages)
    print(
        f"machine: {os.cpu_count()} cores, {memory:.0f} GiB, {platform.platform()}, Python {platform.python_version()}"
    )
    print(f"versions: {versions}", flush=True)


def side(module: str, *arguments: object) -> Callable[[], Measured]:
    """One side as a process of its own: ``python -m module arguments`` prints what `finish` prints."""

    def run() -> Measured:
        command = [sys.executable, "-m", module, *map(str, arguments)]
        environment = os.environ | {"POLARS_MAX_THREADS": str(os.cpu_count())}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
        return Measured(**json.loads(done.stdout.splitlines()[-1]))

    return run


def finish(seconds: float, answer: object) -> None:
    """Report a child's result on its last line."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    print(json.dumps({"seconds": seconds, "peak_gigabytes": peak, "answer": answer}))


def compare(sides: dict[str, Callable[[], Measured]], repeats: int) -> dict[str, Measured]:
    """Run all sides in turn, several times over; medians, so that a busy moment does not decide."""
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


@contextmanager
def stopwatch():
    """Seconds since the block began, by calling what it yields."""
    began = time.perf_counter()
    yield lambda: time.perf_counter() - began


def row(name: str, measured: Measured, reference: Measured, note: str = "") -> None:
    """One side of a comparison; the ratio is its time over the reference's."""
    ratio = measured.seconds / reference.seconds
    print(
        f"  {name:<34} {measured.seconds:9.3f} s  {measured.peak_gigabytes:6.2f} GB  x{ratio:7.2f}  {note}", flush=True
    )


def data_folder() -> Path:
    """Where generated data is kept between benchmarks."""
    folder = Path(os.environ.get("TOKENGEOM_BENCHMARK_DATA", "benchmarks/data"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
