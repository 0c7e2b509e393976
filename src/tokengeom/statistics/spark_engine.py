"""The Spark engine: the same queries on a cluster, for corpora that are too large for one machine.

Sessions start within a bounded time, or the error is one paragraph without output of Java.

Spark itself gives up a master that does not answer after a minute or more, and would wait for a first worker forever:

``ANSWER_SECONDS``
    for a standalone master to accept a connection;
``spark.scheduler.maxRegisteredResourcesWaitingTime``
    for a cluster without any executor, at the start and during a query: a setting of Spark, 30 s by default.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokengeom.core.errors import ResourceError, StatisticsError, missing_extra
from tokengeom.core.progress import AbstractProgress, SilentProgress
from tokengeom.statistics.engines import AbstractEngine, memory_bytes

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
            for shard in sorted(folder.glob("part-*.parquet"), key=lambda shard: int(shard.name.split("-")[1])):
                with pq.ParquetFile(shard) as file:
                    # Older versions of pyarrow refuse to read a file without rows.
                    if file.num_row_groups:
                        yield from file.iter_batches()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def numbers(self, table: ibis.Table) -> dict[str, float]:
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


def _rows_in(folder: Path) -> int:
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(shard).num_rows for shard in folder.glob("*.parquet"))


ANSWER_SECONDS = 30.0
LAST_PORT = 65_535
WAITING_TIME = "spark.scheduler.maxRegisteredResourcesWaitingTime"

_DRIVER_HOST = "spark.driver.host"
_SMALLEST = 470
"""MiB of the smallest Java process that Spark accepts: 450, and what the garbage collector reserves."""

_REMEDIES = (
    ("OutOfMemoryError", "Raise --memory, which each executor and the driver get."),
    ("No space left", "Free some space on the workers' local disks (SPARK_LOCAL_DIRS) and where --temp is."),
    (
        "FileNotFound|FILE_NOT_EXIST|does not exist",
        "The corpus, --temp and --pairs must be on storage that this machine and every worker reach under the same "
        "path, such as NFS; Parquet shards may also be at an address like hdfs:// or s3a://.",
    ),
    ("PATH_NOT_FOUND", "Check the path; the workers must reach it too."),
    ("stopped SparkContext", "The cluster did not accept the application. Check that it has this version of Spark."),
)


def open_session(address: str, memory: str | None, spill: Path) -> SparkSession:
    """A new session, with at least one executor if the master is a cluster; otherwise `ResourceError`, in time.

    ``memory``  Memory of the driver and of each executor, such as 2GB; by default Spark's.
    ``spill``   Folder for the driver's temporary files and for the output of Java.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    own_address = _own_address(address)
    size = None if memory is None else f"{mebibytes(memory)}m"
    if SparkContext._gateway is None:
        _start_java(address, size, spill / "java.log")
    with clear_errors(f"Spark could not start on the master '{address}'"):
        # From here on the settings of spark-defaults.conf and PYSPARK_SUBMIT_ARGS are known.
        conf = SparkConf().setMaster(address).setAppName("tokengeom").set("spark.local.dir", str(spill))
        if size is not None:
            conf.set("spark.driver.memory", size).set("spark.executor.memory", size)
        if own_address is not None and not {"SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME"} & set(os.environ):
            conf.setIfMissing(_DRIVER_HOST, own_address)
        conf.setIfMissing("spark.ui.enabled", "false").set("spark.ui.showConsoleProgress", "false")
        # Hadoop's client would try a resource manager of YARN that does not answer for a quarter of an hour.
        conf.setIfMissing("spark.hadoop.yarn.resourcemanager.connect.max-wait.ms", str(int(ANSWER_SECONDS * 1000)))
        session = SparkSession.builder.config(conf=conf).getOrCreate()
        session.sparkContext.setLogLevel("OFF")
    try:
        _await_executors(session, address, memory)
    except BaseException:
        session.stop()
        raise
    return session


def require_spark() -> None:
    """Raise an error if PySpark or Java is not installed."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        missing_extra("pyspark", "spark", "The Spark engine")
    home = os.environ.get("JAVA_HOME")
    if home and shutil.which("java", path=str(Path(home) / "bin")) is None:
        raise ResourceError(
            f"The Spark engine needs Java 17 or newer, and JAVA_HOME is {home}, which has no bin/java. Correct it."
        )
    if not home and shutil.which("java") is None:
        raise ResourceError("The Spark engine needs Java 17 or newer, which was not found. Install it.")


def mebibytes(memory: str) -> int:
    """Whole MiB of a size such as 2GB or 1.5GiB: Spark accepts no fractions; less than Spark needs is refused."""
    size = memory_bytes(memory) // 2**20
    if size < _SMALLEST:
        raise StatisticsError(f"Spark needs a --memory of at least 500MB; got {memory}.")
    return size


def is_local(address: str) -> bool:
    """Whether a master is threads of this machine instead of a cluster."""
    return address.startswith("local")


def executors(session: SparkSession) -> int:
    """Number of executors of a cluster that are alive now."""
    return int(session.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1


def patience(session: SparkSession) -> float:
    """Seconds without any executor after which a cluster is given up."""
    return float(session.sparkContext._jsc.sc().conf().getTimeAsMs(WAITING_TIME, "30s")) / 1000


def no_executor(address: str, memory: str | None, seconds: float, own_address: str) -> ResourceError:
    """The error for a cluster without workers that could run a task."""
    return ResourceError(
        f"No worker of the Spark master '{address}' provided an executor with {memory or 'the default'} memory for "
        f"{seconds:.0f} seconds. Check that workers are registered with the master, that they are not busy, that each "
        f"has this much memory (otherwise lower --memory), and that they can connect to this machine at "
        f"{own_address}. To wait longer, raise Spark's setting {WAITING_TIME}; nothing was saved."
    )


def _own_address(address: str) -> str | None:
    """The address of this machine towards a standalone master: the one that workers can most likely connect to.

    Masters to which no connection can be made are refused, before Java is started.
    """
    if not address.startswith("spark://"):
        return None
    reasons = []
    for place in address.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        if not host or not port.isdecimal() or int(port) > LAST_PORT:
            reasons.append(f"'{place}' is not of the form host:port, with a port of at most {LAST_PORT}")
            continue
        try:
            with socket.create_connection((host, int(port)), ANSWER_SECONDS) as connection:
                own = str(connection.getsockname()[0])
                # Spark wants IPv6 addresses in a form of its own, so there it chooses one itself.
                return None if ":" in own else own
        except OSError as error:
            reasons.append(error.strerror or str(error))
    raise ResourceError(
        f"No Spark master answers at '{address}': {reasons[0]}. Check host and port, and that the master is running, "
        "or count on this machine with --engine duckdb; nothing was saved."
    )


def _start_java(address: str, memory: str | None, log: Path) -> None:
    """Start the Java process of the driver with its output in a file instead of on the terminal."""
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    # With the master known, Java itself refuses an address that it cannot use, and says why.
    conf = SparkConf(loadDefaults=False).setMaster(address)
    if memory is not None:
        conf.set("spark.driver.memory", memory)
    try:
        with log.open("wb") as output:
            gateway = launch_gateway(conf, popen_kwargs={"stdout": output, "stderr": output})
    except PySparkRuntimeError as error:
        raise ResourceError(
            f"Spark could not start on the master '{address}', as Java ended with: {_last_words(log)}. "
            "Check the address and Spark's settings; nothing was saved."
        ) from error
    SparkContext._ensure_initialized(gateway=gateway)


def _last_words(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    named = [line for line in lines if "xception" in line or line.startswith("Error")]
    return (named or lines or ["it printed nothing"])[0].removeprefix('Exception in thread "main" ').rstrip(".")


def _await_executors(session: SparkSession, address: str, memory: str | None) -> None:
    """Wait until a task could run, unless executors are started only when there are tasks."""
    settings = session.sparkContext.getConf()
    if is_local(address) or settings.get("spark.dynamicAllocation.enabled", "false") == "true":
        return
    seconds = patience(session)
    deadline = time.monotonic() + seconds
    with clear_errors(f"Spark could not start on the master '{address}'"):
        while executors(session) == 0:
            if time.monotonic() > deadline:
                raise no_executor(address, memory, seconds, settings.get(_DRIVER_HOST, "its address"))
            time.sleep(0.1)


@contextmanager
def clear_errors(failed: str) -> Iterator[None]:
    """Raise errors of Spark as one paragraph: what failed, the reason in the Java stack trace, and a remedy."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException, ConnectionError) as error:
        text = str(error)
        remedy = next((remedy for marker, remedy in _REMEDIES if re.search(marker, text)), "Check the cluster.")
        reason = _reason(text) or type(error).__name__
        raise ResourceError(f"{failed}: {reason}. {remedy} Nothing was saved.") from error


def _reason(text: str) -> str:
    """The line that names the Java exception, else the first line; and the first cause, where there is one."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()] or [""]
    named = next((line.removeprefix(": ") for line in lines if line.startswith(": ")), lines[0]).rstrip(".")
    causes = [line.removeprefix("Caused by: ").rstrip(".") for line in lines if line.startswith("Caused by: ")]
    return f"{named}, because of {causes[-1]}" if causes and causes[-1] not in named else named
