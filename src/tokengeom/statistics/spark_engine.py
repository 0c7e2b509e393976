"""The Spark engine: the same queries on a cluster, for corpora that are too large for one machine."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokengeom.errors import ResourceError, missing_extra
from tokengeom.progress import AbstractProgress
from tokengeom.statistics.engines import AbstractEngine

if TYPE_CHECKING:
    import ibis
    import pyarrow as pa

ANSWER_SECONDS = 10.0
"""Seconds that a master may take to answer; Spark itself would try for more than a minute."""


class SparkEngine(AbstractEngine):
    """The distributed engine, through PySpark."""

    name = "spark"

    def __init__(self, spill: Path, memory: str | None = None, master: str | None = None) -> None:
        try:
            from pyspark.sql import SparkSession
        except ImportError:
            missing_extra("pyspark", "spark", "The Spark engine")
        if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
            raise ResourceError("The Spark engine needs Java 17 or newer, which was not found. Install it.")
        import ibis

        self._mine = SparkSession.getActiveSession() is None
        builder = SparkSession.builder.appName("tokengeom").config("spark.local.dir", str(spill))
        address = master or os.environ.get("SPARK_MASTER", "local[*]")
        builder = builder.master(address)
        # Overflow and a missing index must raise: a wrong result is worse than an error.
        builder = builder.config("spark.sql.ansi.enabled", "true").config("spark.ui.enabled", "false")
        builder = builder.config("spark.ui.showConsoleProgress", "false")
        builder = builder.config("spark.sql.session.timeZone", "UTC")
        if memory is not None:
            builder = builder.config("spark.driver.memory", memory.strip().upper().replace("IB", "B").rstrip("B"))
        self._views = 0
        _check_answers(address)
        with _clear_errors(f"Spark could not start on the master '{address}'"):
            self._session: Any = builder.getOrCreate()
            self._session.sparkContext.setLogLevel("ERROR")
        self._ibis: Any = ibis.pyspark.connect(self._session)

    def read(self, paths: Sequence[str]) -> ibis.Table:
        """A table over Parquet files or folders, on any file system that the cluster knows."""
        with _clear_errors(f"Spark cannot read {', '.join(paths[:3])}"):
            frame = self._session.read.parquet(*paths)
        self._views += 1
        name = f"tokengeom_{self._views}"
        frame.createOrReplaceTempView(name)
        return self._ibis.table(name)

    def write(self, table: ibis.Table, folder: Path, title: str, progress: AbstractProgress) -> None:
        """Run an expression and write one shard per partition; the rows are not gathered on the driver."""
        with progress.stage(title, None), _clear_errors(f"{title} on Spark failed"):
            self._session.sql(self._ibis.compile(table)).write.parquet(str(folder))

    def batches(self, table: ibis.Table) -> Iterator[pa.RecordBatch]:
        """Run an expression and gather its rows on the driver: for aggregates, and for pairs after the cuts."""
        with _clear_errors("Spark could not answer"):
            gathered = self._session.sql(self._ibis.compile(table)).toArrow()
        yield from gathered.to_batches()

    def close(self) -> None:
        """Stop the session, unless it existed before."""
        if self._mine:
            self._session.stop()


def _check_answers(address: str) -> None:
    """Refuse a cluster whose masters do not answer, before Java is started."""
    if not address.startswith("spark://"):
        return
    reasons = [_failure(one) for one in address.removeprefix("spark://").split(",")]
    if all(reasons):
        raise ResourceError(
            f"No Spark master answers at '{address}': {reasons[0]}. Check host and port, and that the master is "
            "running, or count on this machine with --engine duckdb; nothing was saved."
        )


def _failure(place: str) -> str:
    """Why a connection to ``host:port`` fails; empty if it succeeds."""
    host, _, port = place.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        return f"'{place}' does not have the form host:port"
    try:
        socket.create_connection((host, int(port)), ANSWER_SECONDS).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


@contextmanager
def _clear_errors(failed: str) -> Iterator[None]:
    """Raise errors with the reason that a long Java stack trace contains."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        raise ResourceError(f"{failed}: {_reason(error)}. Check the cluster; nothing was saved.") from error


def _reason(error: Exception) -> str:
    """The line that names the Java exception, else the first line."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()] or [type(error).__name__]
    return next((line.removeprefix(": ") for line in lines if line.startswith(": ")), lines[0]).rstrip(".")
