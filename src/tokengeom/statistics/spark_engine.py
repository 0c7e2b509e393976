"""The Spark engine: the same queries on a cluster, for corpora that are too large for one machine."""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokengeom.core.errors import ResourceError
from tokengeom.core.progress import AbstractProgress, SilentProgress
from tokengeom.statistics.engines import AbstractEngine
from tokengeom.statistics.spark_session import (
    clear_errors,
    executors,
    is_local,
    no_executor,
    open_session,
    patience,
    require_spark,
)

if TYPE_CHECKING:
    import ibis
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_INPUT_BYTES_PER_PARTITION = 1 << 25
"""Bytes of Parquet per partition of a shuffle: of 4 bytes per token, counting shuffles about four times as many."""

_MOST_PARTITIONS = 20_000
"""More would make the blocks of a shuffle, one per task before and partition after it, too small."""

_TASK_BYTES = 1 << 24, 1 << 27
"""Bytes of Parquet per task, at least and at most. The pairs of the former, 4 million tokens, fit in the memory of a
task; the latter is Spark's default, with which a task sorts on disk."""

_MOST_TASKS = 10_000
"""Tasks of a query that are made larger before there are more of them."""

_PARTITIONS, _SPLIT = "spark.sql.shuffle.partitions", "spark.sql.files.maxPartitionBytes"
_POLL_SECONDS = 0.25


class SparkEngine(AbstractEngine):
    """The distributed engine, through PySpark.

    A session that is active already is used, with its master and its memory; its settings and views stay as they are.
    """

    name = "spark"

    def __init__(self, spill: Path, memory: str | None = None, master: str | None = None) -> None:
        require_spark()
        import ibis
        from pyspark.sql import SparkSession

        active = SparkSession.getActiveSession()
        address = master or os.environ.get("SPARK_MASTER", "local[*]")
        self._opened = open_session(address, memory, spill) if active is None else None
        self._session: SparkSession = (active or self._opened).newSession()  # type: ignore[union-attr]
        self._memory, self._address = memory, str(self._session.sparkContext.master)
        # Overflow and a missing index must raise: a wrong result is worse than an error.
        self._session.conf.set("spark.sql.ansi.enabled", "true")
        self._session.conf.set("spark.sql.session.timeZone", "UTC")
        self._ibis: Any = ibis.pyspark.connect(self._session)
        self._spill, self._names = spill, 0
        try:
            self._check_storage()
        except BaseException:
            self.close()
            raise

    def read(self, paths: Sequence[str]) -> ibis.Table:
        """A table over Parquet files or folders, on any file system that the cluster knows."""
        with clear_errors(f"Spark cannot read {', '.join(paths[:3])}"):
            frame = self._session.read.parquet(*map(_address, paths))
            self._choose_partitions(frame)
        name = self._new_name("table")
        frame.createOrReplaceTempView(name)
        return self._ibis.table(name)

    def write(self, table: ibis.Table, folder: Path, title: str, progress: AbstractProgress) -> None:
        """Run an expression and write one shard per partition; the rows are not gathered on the driver."""
        self._save(self._session.sql(self._ibis.compile(table)), folder, title, progress)

    def batches(self, table: ibis.Table) -> Iterator[pa.RecordBatch]:
        """Run an expression and yield its rows in order, through shards, which the driver need not hold in memory."""
        import pyarrow.parquet as pq

        folder = self._spill / self._new_name("answer")
        try:
            self.write(table, folder, "Gathering", SilentProgress())
            for shard in sorted(folder.glob("part-*.parquet"), key=_shard_number):
                with pq.ParquetFile(shard) as file:
                    # Older versions of pyarrow refuse to read a file without rows.
                    if file.num_row_groups:
                        yield from file.iter_batches()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def numbers(self, table: ibis.Table) -> dict[str, float]:
        """The single row of an aggregate."""
        with self._running("Adding up", SilentProgress()):
            (row,) = self._session.sql(self._ibis.compile(table)).collect()
        return {name: value if value is not None else 0 for name, value in row.asDict().items()}

    def close(self) -> None:
        """Stop the session, unless it existed before."""
        if self._opened is not None:
            self._opened.stop()

    def _new_name(self, kind: str) -> str:
        self._names += 1
        return f"tokengeom_{kind}_{self._names}"

    def _choose_partitions(self, frame: DataFrame) -> None:
        """Let the number of tasks, and of partitions of a shuffle, grow with the input.

        Spark joins small partitions later but never splits large ones of an aggregate, so there must be enough.
        """
        size = int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
        now = int(self._session.conf.get(_PARTITIONS) or 0)
        wanted = min(-(-size // _INPUT_BYTES_PER_PARTITION), _MOST_PARTITIONS)
        self._session.conf.set(_PARTITIONS, str(max(wanted, now)))
        least, most = _TASK_BYTES
        self._session.conf.set(_SPLIT, str(min(max(size // _MOST_TASKS, least), most)))

    def _check_storage(self) -> None:
        """Refuse temporary folders that workers do not share, before hours of work instead of after them."""
        if not is_local(self._address):
            context = self._session.sparkContext
            tasks = 2 * context.defaultParallelism
            probe = self._spill / self._new_name("probe")
            self._save(self._session.range(0, tasks, 1, tasks), probe, "Testing the storage", SilentProgress())
            shutil.rmtree(probe, ignore_errors=True)

    def _save(self, frame: DataFrame, folder: Path, title: str, progress: AbstractProgress) -> None:
        """Write a frame, and refuse a folder in which not all of its rows are seen from here.

        A worker with a folder of its own under this path would write its rows there, and Spark would call it a success.
        """
        from pyspark.sql import Observation, functions

        seen = Observation()
        with self._running(title, progress):
            frame.observe(seen, functions.count(functions.lit(1)).alias("rows")).write.parquet(_address(str(folder)))
            written = int(seen.get.get("rows", 0))
        here = _rows_in(folder)
        if here != written:
            raise ResourceError(
                f"The workers of '{self._address}' wrote {written:,} rows to {folder}, and {here:,} of them are seen "
                "from this machine: the folder is not on storage that this machine and every worker share. Point "
                "--temp, and --pairs where it is used, at a folder of such storage, such as NFS; nothing was saved."
            )

    @contextmanager
    def _running(self, title: str, progress: AbstractProgress) -> Iterator[None]:
        """Show the tasks of a query while it runs, and end it when the cluster has lost all of its executors."""
        from py4j.protocol import Py4JError

        context, group = self._session.sparkContext, self._new_name("query")
        done, lost = threading.Event(), threading.Event()
        waited = patience(self._session)
        context.setJobGroup(group, title, interruptOnCancel=True)
        with progress.stage(title, None) as stage:

            def watch() -> None:
                alive = time.monotonic()
                # A session that ends takes the watcher's connection along; the query itself raises the error then.
                with suppress(Py4JError, ConnectionError):
                    while not done.wait(_POLL_SECONDS):
                        number = executors(self._session)
                        if number or is_local(self._address):
                            alive = time.monotonic()
                        if time.monotonic() - alive > waited:
                            lost.set()
                            context.cancelJobGroup(group)
                            return
                        if note := _tasks(context.statusTracker(), group):
                            stage.advance(0, note + ("" if is_local(self._address) else f" on {number} executors"))

            watcher = threading.Thread(target=watch, daemon=True)
            watcher.start()
            try:
                with clear_errors(f"{title} on Spark failed"):
                    yield
            except ResourceError as error:
                if lost.is_set():
                    host = context.getConf().get("spark.driver.host", "its address")
                    raise no_executor(self._address, self._memory, waited, host) from error
                raise
            finally:
                done.set()
                watcher.join()
                with suppress(Py4JError, ConnectionError):
                    context.setLocalProperty("spark.jobGroup.id", None)


def _tasks(tracker: Any, group: str) -> str:
    """How many tasks of the stage that runs now are done; empty between stages."""
    for job in reversed(tracker.getJobIdsForGroup(group)):
        known = tracker.getJobInfo(job)
        for number in reversed(known.stageIds if known else []):
            stage = tracker.getStageInfo(number)
            if stage and stage.numActiveTasks:
                return f"stage {number}: {stage.numCompletedTasks:,} of {stage.numTasks:,} tasks"
    return ""


def _address(path: str) -> str:
    """An address with a scheme, as the default file system of a cluster may be another one than that of this machine.

    Characters that Spark would take for a pattern are escaped in paths, not in addresses.
    """
    return path if "://" in path else "file://" + re.sub(r"([*?\[\]{}\\])", r"\\\1", str(Path(path).absolute()))


def _shard_number(shard: Path) -> int:
    return int(shard.name.split("-")[1])


def _rows_in(folder: Path) -> int:
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(shard).num_rows for shard in folder.glob("*.parquet"))
