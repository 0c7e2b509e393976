"""What each step of counting costs as the corpus grows: in this process, and on a Spark cluster of two workers.

The data are those of the benchmark ``counting``: Zipf-distributed ids (exponent 1, GPT-2's vocabulary), contexts of 4
tokens, so nearly every window is a new pair, which is the worst case. Three sizes with a factor of 4 between them give
the slope of each cost: 1 where it is proportional to the tokens. Its value at 10^12 tokens is the cost per token at the
largest size, times 10^12; each 0.05 by which a slope really exceeds 1 would multiply it by 1.7. Costs are seconds of
CPU, summed over all processes, which other load on the machine changes less than the time on the clock.

``--text FILE`` (token ids, uint16) also prints how the number of distinct pairs grows in a natural text.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.counting import CONTEXT, SEPARATOR, V, token_file
from benchmarks.harness import Benchmark, data_folder, stopwatch
from tokengeom.core.progress import AbstractProgress, AbstractStage
from tokengeom.statistics.count import count
from tokengeom.statistics.engines import EngineSettings, open_engine

SIZES = (2_000_000, 8_000_000, 32_000_000)
TARGET = 10**12
MINIMUM_COUNT = 5
WORKER_MEMORY, MEMORY = "3g", "2GB"
Costs = dict[str, float]


class CpuOfStages(AbstractProgress, AbstractStage):
    """Adds up the seconds of CPU and of the clock of each stage, of this process and all that it started."""

    def __init__(self) -> None:
        self.cpu: Costs = {}
        self.clock: Costs = {}

    @contextmanager
    def stage(self, title: str, total: float | None) -> Iterator[AbstractStage]:
        """Measure one stage."""
        before = cpu_seconds()
        with stopwatch() as elapsed:
            yield self
            self.clock[title] = self.clock.get(title, 0.0) + elapsed()
        self.cpu[title] = self.cpu.get(title, 0.0) + cpu_seconds() - before

    def advance(self, amount: float, note: str = "") -> None:
        """Nothing: only whole stages are measured."""


def cpu_seconds() -> float:
    """Seconds of CPU of this process and of all processes that it started and that still run."""
    import psutil

    own = psutil.Process()
    return sum(sum(one.cpu_times()[:2]) for one in [own, *own.children(recursive=True)])


def text_file(tokens: int) -> Path:
    """The ids of the token file as words, one document per line; made once and kept."""
    path = data_folder() / f"zipf-{tokens}.txt"
    if not path.exists():
        names = np.array([*(f"w{number}" for number in range(SEPARATOR)), "\n"])
        ids = np.fromfile(token_file("zipf", tokens), np.uint16)
        with path.open("w") as file:
            for begin in range(0, ids.size, 1_000_000):
                file.write(" ".join(names[ids[begin : begin + 1_000_000]]) + " ")
    return path


@contextmanager
def cluster() -> Iterator[str]:
    """The address of a standalone master with two workers of one core each, from the PySpark package."""
    import pyspark

    home = Path(pyspark.__file__).parent
    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(dir=data_folder(), ignore_cleanup_errors=True) as folder:
        log = Path(folder).resolve() / "log"
        places = {"SPARK_HOME": str(home), "SPARK_WORKER_DIR": f"{log.parent}/work", "SPARK_LOCAL_IP": "127.0.0.1"}

        def start(main: str, *arguments: str) -> None:
            program = [str(home / "bin/spark-class"), f"org.apache.spark.deploy.{main}"]
            command = [*program, "--webui-port", "0", *arguments]
            with log.open("ab") as output:
                processes.append(subprocess.Popen(command, env=os.environ | places, stdout=output, stderr=output))

        try:
            start("master.Master", "--host", "127.0.0.1", "--port", "0")
            address, page = _logged(log, r"Starting Spark master at (\S+)"), _logged(log, r"'MasterUI' on port (\d+)")
            for _ in range(2):
                start("worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", WORKER_MEMORY, address)
            while _workers(f"http://127.0.0.1:{page}/json/") < 2:
                time.sleep(0.2)
            yield address
        finally:
            for process in reversed(processes):
                process.kill()
                process.wait()


def _workers(page: str) -> int:
    # For a moment the master has a port and no pages yet.
    with suppress(urllib.error.HTTPError), urllib.request.urlopen(page) as answer:
        return int(json.load(answer)["aliveworkers"])
    return 0


def _logged(log: Path, pattern: str) -> str:
    while not (found := re.search(pattern, log.read_text())):
        time.sleep(0.2)
    return found[1]


def measure(tokens: int, engine: str, benchmark: Benchmark | None = None) -> tuple[Costs, Costs]:
    """CPU seconds per step, and sizes, of counting a token file with a cut, and of reading the same as text."""
    import pyarrow.parquet as pq

    shuffled = _shuffled_bytes() if engine == "spark" else 0.0
    shown = CpuOfStages()
    with tempfile.TemporaryDirectory(dir=data_folder()) as work:
        statistics = count(
            token_file("zipf", tokens),
            context=CONTEXT,
            vocabulary_size=V,
            dtype="uint16",
            separator_id=SEPARATOR,
            min_count=MINIMUM_COUNT,
            pairs=Path(work) / "pairs",
            temp=work,
            engine=engine,
            memory=MEMORY,
            progress=shown,
        )
        shards = list((Path(work) / "pairs/pairs").glob("*.parquet"))
        distinct = sum(pq.read_metadata(shard).num_rows for shard in shards)
        stored = sum(shard.stat().st_size for shard in shards)
    windows = statistics.effects[0].before.n
    sizes = {"windows": float(windows), "distinct pairs": float(distinct), "bytes of pairs": float(stored)}
    if engine == "spark":
        sizes["bytes shuffled"] = _shuffled_bytes() - shuffled
    if benchmark is not None:
        where = "in one process" if engine == "duckdb" else "on a Spark cluster of two workers"
        name = f"count {tokens / 1e6:g} million independent tokens with a cut, {where}"
        note = f"{sum(shown.cpu.values()):.1f} s of CPU, {distinct:,} distinct pairs"
        benchmark.job(name, repeats="once").ours(sum(shown.clock.values()), note=note)
    return shown.cpu, sizes


def measure_text(tokens: int) -> Costs:
    """CPU seconds of reading and tokenizing the same tokens as text, and of writing their token table."""
    shown = CpuOfStages()
    with tempfile.TemporaryDirectory(dir=data_folder()) as work:
        count(text_file(tokens), context=1, tokenizer="word", top_contexts=10, temp=work, progress=shown)
    return {"Reading text": shown.cpu["Reading"]}


def _shuffled_bytes() -> float:
    """Bytes that the stages of the running session have written for shuffles so far."""
    from pyspark.sql import SparkSession

    store = SparkSession.getActiveSession().sparkContext._jsc.sc().statusStore()
    jobs = store.jobsList(None)
    stages = " ".join(str(jobs.apply(place).stageIds()) for place in range(jobs.size()))
    numbers = {int(number) for number in re.findall(r"\d+", stages)}
    return float(sum(store.lastStageAttempt(number).shuffleWriteBytes() for number in numbers))


def distinct_pairs(ids: NDArray[np.uint16], context: int) -> tuple[int, int]:
    """Number of windows and of distinct pairs."""
    documents = [document[1:] for document in np.split(ids, np.flatnonzero(ids == SEPARATOR))]
    statistics = count(documents, context=context, vocabulary_size=V)
    return statistics.n, int(statistics.counts.nnz)


def print_growth(path: Path) -> None:
    """How the number of distinct pairs grows with a natural text."""
    ids = np.fromfile(path, np.uint16)
    print(f"distinct pairs of {path.name}, {ids.size:,} tokens, at a sixteenth, a quarter and all of it")
    for context in (1, 2, 4):
        sizes = [distinct_pairs(ids[: ids.size // part], context) for part in (16, 4, 1)]
        slopes = [_slope(*one, *two) for one, two in pairwise(sizes)]
        last = sizes[-1][1] * (TARGET / sizes[-1][0]) ** slopes[-1]
        print(f"  contexts of {context}: {sizes}, slopes {slopes[0]:.3f}, {slopes[1]:.3f}; {last:.2g} at 10^12 tokens")


def _slope(size: float, cost: float, next_size: float, next_cost: float) -> float:
    return math.log(next_cost / cost) / math.log(next_size / size) if cost > 0 and next_cost > 0 else math.nan


def print_costs(title: str, costs: list[Costs], unit: str) -> None:
    """A row per step: its cost at each size, the slopes, and what it would be at 10^12 tokens."""
    print(title)
    for step in costs[-1]:
        found = [cost.get(step, math.nan) for cost in costs]
        pairs = zip(SIZES, SIZES[1:], found, found[1:], strict=False)
        slopes = [_slope(size, cost, larger, grown) for size, larger, cost, grown in pairs]
        last = found[-1] * TARGET / SIZES[-1]
        target = f"{last / 3600:,.0f} core-hours" if unit == "s" else f"{last:.2g}"
        row = " ".join(f"{value:14,.1f}" for value in found)
        print(f"  {step:<20} {row} {unit}  slopes {slopes[0]:.2f}, {slopes[1]:.2f}; {target} at 10^12", flush=True)


def main() -> None:
    """Measure every step at three sizes, and continue the costs to 10^12 tokens."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, help="file of uint16 token ids of a natural text")
    parser.add_argument("--engine", choices=["duckdb", "spark"], action="append", help="default: both")
    chosen = parser.parse_args()
    benchmark = Benchmark("counting_at_scale", "tokengeom", "pyspark", "duckdb", "numpy")
    if chosen.text:
        print_growth(chosen.text)
    if not chosen.engine or "duckdb" in chosen.engine:
        print_costs("reading text", [measure_text(tokens) for tokens in SIZES], "s")
    for engine in chosen.engine or ["duckdb", "spark"]:
        if engine == "spark" and shutil.which("java") is None:
            print("spark: skipped, because Java is not installed")
            continue
        with _warm(engine):
            measured = [measure(tokens, engine, benchmark) for tokens in SIZES]
        print_costs(f"{engine}: seconds of CPU", [cpu for cpu, _ in measured], "s")
        print_costs(f"{engine}: sizes", [sizes for _, sizes in measured], "")


@contextmanager
def _warm(engine: str) -> Iterator[None]:
    """A session on a cluster that has counted before, so that Java has compiled the query; nothing for DuckDB."""
    if engine == "duckdb":
        yield
        return
    spill = Path(tempfile.mkdtemp(dir=data_folder()))
    try:
        with cluster() as master, open_engine(spill, EngineSettings("spark", MEMORY, master=master)):
            measure(500_000, engine)
            yield
    finally:
        shutil.rmtree(spill, ignore_errors=True)


if __name__ == "__main__":
    main()
