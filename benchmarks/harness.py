"""Shared by the benchmarks: child processes with their own peak memory, interleaved repeats, one way to print."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from tokengeom.training.objective import SoftLabels

T = TypeVar("T")


@dataclass(frozen=True)
class Measured:
    """Median seconds of a side, its largest peak memory, and its answer, to be compared with the other side's."""

    seconds: float
    peak_gigabytes: float
    answer: list[int]


def print_machine(*packages: str, device: str = "cpu") -> None:
    """Print the machine and the versions that the numbers below were measured with."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    python = platform.python_version()
    print(f"machine: {os.cpu_count()} cores, {memory:.0f} GiB, {platform.platform()}, Python {python}")
    print(f"load average {os.getloadavg()[0]:.1f}, OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS', 'not set')}")
    if device != "cpu":
        import torch

        print(f"device: {torch.cuda.get_device_name()}")
    print(f"versions: {', '.join(f'{package} {_version(package)}' for package in packages)}", flush=True)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


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


def row(name: str, measured: Measured, reference: Measured, note: str = "") -> None:
    """Print one side of a comparison; the ratio is its time over that of the reference."""
    ratio = measured.seconds / reference.seconds
    print(
        f"  {name:<34} {measured.seconds:9.3f} s  {measured.peak_gigabytes:6.2f} GB  x{ratio:7.2f}  {note}", flush=True
    )


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
