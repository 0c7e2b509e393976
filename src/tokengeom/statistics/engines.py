"""What a counting engine does: read Parquet, run an Ibis expression, write sharded Parquet.

DuckDB: counts inside this process, within a memory limit, spilling to disk.
"""

from __future__ import annotations

import os
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import duckdb
import ibis

from tokengeom.errors import CorpusError, ResourceError, StatisticsError
from tokengeom.progress import AbstractProgress

if TYPE_CHECKING:
    import ibis
    import pyarrow as pa


EngineName = Literal["duckdb", "spark"]


class AbstractEngine(ABC):
    """Runs relational expressions. The plan is the same for all; only where it runs differs."""

    name: str

    @abstractmethod
    def read(self, paths: Sequence[str]) -> ibis.Table:
        """A table over Parquet files or folders."""

    @abstractmethod
    def write(self, table: ibis.Table, folder: Path, title: str, progress: AbstractProgress) -> None:
        """Run an expression and write its rows, in no order, as Parquet shards into a new folder."""

    @abstractmethod
    def batches(self, table: ibis.Table) -> Iterator[pa.RecordBatch]:
        """Run an expression and yield its rows in their order."""

    @abstractmethod
    def close(self) -> None:
        """Give back memory, threads and spill files."""

    def numbers(self, table: ibis.Table) -> dict[str, float]:
        """The single row of an aggregate."""
        (row,) = (row for batch in self.batches(table) for row in batch.to_pylist())
        return {name: value if value is not None else 0 for name, value in row.items()}


@contextmanager
def open_engine(
    name: str, *, spill: Path, memory: str | None = None, threads: int | None = None, master: str | None = None
) -> Iterator[AbstractEngine]:
    """Open an engine by name and close it afterwards.

    Parameters
    ----------
    name
        ``duckdb``: this process, with a memory limit, spilling to ``spill``; ``spark``: a cluster.
    memory, threads
        Limits for DuckDB; for Spark on a local master, the driver's memory.
    master
        Spark's master URL; by default the one of the environment, else ``local[*]``.
    """
    if name == "duckdb":
        engine: AbstractEngine = DuckDBEngine(spill, memory, threads)
    elif name == "spark":
        from tokengeom.statistics.spark_engine import SparkEngine

        engine = SparkEngine(spill, memory, master)
    else:
        raise StatisticsError(f"There is no engine '{name}'; the engines are: duckdb, spark.")
    try:
        yield engine
    finally:
        engine.close()


_MEMORY = re.compile(r"\d+(\.\d+)?\s*([KMGT]i?)?B", re.IGNORECASE)
_BATCH_ROWS = 1 << 17
_POLL_SECONDS = 0.25
MOST_THREADS = 1024
"""Beyond this many, starting them takes longer than counting."""


class DuckDBEngine(AbstractEngine):
    """The embedded engine."""

    name = "duckdb"

    def __init__(self, spill: Path, memory: str | None = None, threads: int | None = None) -> None:
        if memory is not None and not _MEMORY.fullmatch(memory.strip()):
            raise StatisticsError(f"The memory limit must be like 2GB, 500MB or 1.5GiB; got '{memory}'.")
        if threads is not None and not 1 <= threads <= MOST_THREADS:
            raise StatisticsError(
                f"The number of threads must be 1 or more, and at most {MOST_THREADS:,}; got {threads:,}. "
                f"One a core is best, and this machine has {os.cpu_count()}; leave the option out for that."
            )
        settings: dict[str, str | int | bool] = {"temp_directory": str(spill), "preserve_insertion_order": False}
        if memory is not None:
            settings["memory_limit"] = memory
        if threads is not None:
            settings["threads"] = threads
        self._ibis = ibis.duckdb.connect(**settings)
        self._connection: duckdb.DuckDBPyConnection = self._ibis.con
        # Progress is measured only when a bar is wanted; ours shows it.
        self._connection.execute("SET enable_progress_bar = true; SET enable_progress_bar_print = false")

    def read(self, paths: Sequence[str]) -> ibis.Table:
        """A table over Parquet files or folders."""
        files = [f"{_literal(path)}/*.parquet" if Path(path).is_dir() else _literal(path) for path in paths]
        try:
            return self._ibis.read_parquet(files)
        except duckdb.Error as error:
            raise CorpusError(
                f"DuckDB cannot read {', '.join(paths[:3])} as Parquet: {_first_line(error)}. "
                "Check the path; addresses of a cluster need --engine spark."
            ) from error

    def write(self, table: ibis.Table, folder: Path, title: str, progress: AbstractProgress) -> None:
        """One shard a thread."""
        target = str(folder).replace("'", "''")
        query = (
            f"COPY ({self._typed(table)}) TO '{target}' (FORMAT parquet, PER_THREAD_OUTPUT true, COMPRESSION lz4_raw)"
        )
        with self._watched(title, progress), _clear_errors():
            self._connection.execute(query)

    def batches(self, table: ibis.Table) -> Iterator[pa.RecordBatch]:
        """Rows as they come out of the plan, without gathering them first."""
        with _clear_errors():
            yield from self._connection.sql(self._typed(table)).to_arrow_reader(_BATCH_ROWS)

    def _typed(self, table: ibis.Table) -> str:
        """The query with every column cast to the type that Ibis takes it to have.

        DuckDB adds up BIGINT as HUGEINT, which Parquet and Arrow would store as a rounded double.
        """
        columns = ", ".join(f'CAST("{name}" AS {_type(kind)}) AS "{name}"' for name, kind in table.schema().items())
        return f"SELECT {columns} FROM ({self._ibis.compile(table)})"

    def close(self) -> None:
        """Close the connection, which removes its spill files."""
        self._ibis.disconnect()

    @contextmanager
    def _watched(self, title: str, progress: AbstractProgress) -> Iterator[None]:
        """Show how far a query is, asking the engine from a second thread."""
        done = threading.Event()
        with progress.stage(title, 100.0) as stage:

            def watch() -> None:
                shown = 0.0
                while not done.wait(_POLL_SECONDS):
                    reached = self._connection.query_progress()
                    if reached > shown:
                        stage.advance(reached - shown)
                        shown = reached

            watcher = threading.Thread(target=watch, daemon=True)
            watcher.start()
            try:
                yield
            finally:
                done.set()
                watcher.join()


@contextmanager
def _clear_errors() -> Iterator[None]:
    """Say what the user can do when memory or disk gives out, and let an interruption be one."""
    try:
        yield
    except RuntimeError as error:
        # DuckDB swallows the exception of a signal handler and raises this instead.
        if "interrupted" in str(error):
            raise KeyboardInterrupt from error
        raise
    except duckdb.OutOfMemoryException as error:
        raise ResourceError(
            f"Counting ran out of memory or of room to spill: {_first_line(error)}. "
            "Raise --memory, or point --temp at a larger disk."
        ) from error
    except duckdb.ConversionException as error:
        raise CorpusError(f"The ids do not fit: {_first_line(error)}. Is it the right column?") from error
    except (duckdb.IOException, OSError) as error:
        raise ResourceError(
            f"Counting could not use the disk: {_first_line(error)}. "
            "Free some space, or point --temp at a larger disk; nothing was saved."
        ) from error


def _literal(path: str) -> str:
    """A path in which no character stands for others: DuckDB takes every path for a pattern."""
    return re.sub(r"([*?\[])", r"[\1]", path)


def _type(kind: Any) -> str:
    """DuckDB's name of a type of Ibis, as far as our tables have it."""
    if kind.is_int32():
        return "INTEGER"
    if kind.is_integer():
        return "BIGINT"
    return "BOOLEAN" if kind.is_boolean() else "DOUBLE"


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(".")
