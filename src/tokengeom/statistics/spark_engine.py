"""Apache Spark: the same plan on a cluster, for corpora that outgrow one machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokengeom.errors import ResourceError, missing_extra
from tokengeom.progress import AbstractProgress
from tokengeom.statistics.engine import AbstractEngine

if TYPE_CHECKING:
    import ibis
    import pyarrow as pa


class SparkEngine(AbstractEngine):
    """The distributed engine, through PySpark."""

    name = "spark"

    def __init__(self, spill: Path, memory: str | None = None, master: str | None = None) -> None:
        try:
            from pyspark.sql import SparkSession
        except ImportError:
            missing_extra("pyspark", "spark", "The Spark engine")
        if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
            raise ResourceError("The Spark engine needs Java 17 or newer, and none was found. Install it.")
        import ibis

        self._mine = SparkSession.getActiveSession() is None
        builder = SparkSession.builder.appName("tokengeom").config("spark.local.dir", str(spill))
        builder = builder.master(master or os.environ.get("SPARK_MASTER", "local[*]"))
        # A wrong answer is worse than an error: overflow and a missing index must raise.
        builder = builder.config("spark.sql.ansi.enabled", "true").config("spark.ui.enabled", "false")
        builder = builder.config("spark.ui.showConsoleProgress", "false")
        builder = builder.config("spark.sql.session.timeZone", "UTC")
        if memory is not None:
            builder = builder.config("spark.driver.memory", memory.strip().upper().replace("IB", "B").rstrip("B"))
        self._views = 0
        self._session: Any = builder.getOrCreate()
        self._session.sparkContext.setLogLevel("ERROR")
        self._ibis: Any = ibis.pyspark.connect(self._session)

    def read(self, paths: Sequence[str]) -> ibis.Table:
        """A table over Parquet files or folders, on any file system that the cluster knows."""
        frame = self._session.read.parquet(*paths)
        self._views += 1
        name = f"tokengeom_{self._views}"
        frame.createOrReplaceTempView(name)
        return self._ibis.table(name)

    def write(self, table: ibis.Table, folder: Path, title: str, progress: AbstractProgress) -> None:
        """One shard a partition; the rows never pass through the driver."""
        with progress.stage(title, None):
            self._session.sql(self._ibis.compile(table)).write.parquet(str(folder))

    def batches(self, table: ibis.Table) -> Iterator[pa.RecordBatch]:
        """Rows gathered on the driver: meant for aggregates, and for pairs after the cuts."""
        yield from self._session.sql(self._ibis.compile(table)).toArrow().to_batches()

    def close(self) -> None:
        """Stop the session, unless it was there before."""
        if self._mine:
            self._session.stop()
