"""A real Spark cluster on the loopback address: one master and workers, from the PySpark package."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import Popen

import pytest

from waiting import PATIENCE

NEEDS_SPARK = [
    pytest.mark.skipif(
        shutil.which("java") is None and "JAVA_HOME" not in os.environ, reason="Spark needs Java 17; install a JDK"
    ),
    # PySpark leaves sockets to the garbage collector when its session stops.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
"""Marks of a module whose tests start Spark."""


class SparkCluster:
    """A standalone master and its workers, each a Java process with one core and 512 MiB for executors."""

    address: str
    page_port: int

    def __init__(self, folder: Path) -> None:
        import pyspark

        self._folder, self._home = folder, Path(pyspark.__file__).parent
        self._processes: list[Popen[bytes]] = []

    def start_master(self) -> None:
        """Start the master on free ports, which it logs."""
        self._start("master", "master.Master", "--port", "0")
        self.address = self._logged("master", r"Starting Spark master at (\S+)")
        self.page_port = int(self._logged("master", r"'MasterUI' on port (\d+)"))

    def add_workers(self, number: int) -> list[Popen[bytes]]:
        """Start workers, and wait until the master knows them."""
        first = len(self._processes)
        for place in range(first, first + number):
            self._start(f"worker-{place}", "worker.Worker", "--cores", "1", "--memory", "512m", self.address)
        alive = sum(process.poll() is None for process in self._processes) - 1
        wait_for(lambda: self._alive_workers() == alive, f"the master does not have {alive} workers")
        return self._processes[first:]

    def kill_workers(self) -> None:
        """End every worker at once."""
        for process in self._processes[1:]:
            process.kill()

    def stop(self) -> None:
        """End every process that was started, whatever its state."""
        for process in reversed(self._processes):
            process.kill()
        for process in self._processes:
            process.wait()

    def _start(self, name: str, main: str, *arguments: str) -> None:
        environment = os.environ | {
            "SPARK_HOME": str(self._home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_WORKER_DIR": str(self._folder / "work"),
            "SPARK_LOCAL_DIRS": str(self._folder / "local"),
            "SPARK_DAEMON_JAVA_OPTS": "-Dspark.master.rest.enabled=false",
            # Executors inherit this too; compiling less makes short programs faster.
            "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        program = [str(self._home / "bin/spark-class"), f"org.apache.spark.deploy.{main}"]
        command = [*program, "--host", "127.0.0.1", "--webui-port", "0", *arguments]
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes.append(Popen(command, env=environment, stdout=log, stderr=log))

    def _logged(self, name: str, pattern: str) -> str:
        log = self._folder / f"{name}.log"
        wait_for(lambda: re.search(pattern, log.read_text()) is not None, f"{log} does not have {pattern}")
        found = re.search(pattern, log.read_text())
        assert found is not None
        return found[1]

    def _alive_workers(self) -> int:
        page = f"http://127.0.0.1:{self.page_port}/json/"
        # For a moment the master has a port and no pages yet.
        with suppress(urllib.error.HTTPError), urllib.request.urlopen(page) as answer:
            return int(json.load(answer)["aliveworkers"])
        return -1


def wait_for(condition: Callable[[], bool], otherwise: str) -> None:
    """Wait until a condition holds, for a bounded time."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.1)


@contextmanager
def spark_cluster(folder: Path, workers: int) -> Iterator[SparkCluster]:
    """A cluster that ends with the block, however the block ends."""
    cluster = SparkCluster(folder)
    try:
        cluster.start_master()
        cluster.add_workers(workers)
        yield cluster
    finally:
        cluster.stop()
