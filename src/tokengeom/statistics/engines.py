"""Engines: they read Parquet, run an Ibis expression and write sharded Parquet.

DuckDB, in this file, runs inside the process within a memory limit and spills to disk; windows are counted by sorting
there (`sorting`), and DuckDB cuts and merges the counted pairs. Spark does all of it on a cluster.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tokengeom.core.errors import CorpusError, ResourceError, StatisticsError
from tokengeom.core.progress import AbstractProgress
from tokengeom.core.settings import option, whole_number
from tokengeom.results.folders import refuse_address, work_folder

if TYPE_CHECKING:
    import duckdb
    import ibis
    import pyarrow as pa

EngineName = Literal["duckdb", "spark"]
PANEL = "Engine"
MOST_THREADS = 1024
"""Starting more threads than this takes longer than counting."""

_MEMORY = re.compile(r"\d+(\.\d+)?\s*([KMGT]i?)?B", re.IGNORECASE)
_BATCH_ROWS = 1 << 17
_POLL_SECONDS = 0.25


@dataclass(frozen=True)
class EngineSettings:
    """Where to count, and within which limits."""

    engine: EngineName = option("duckdb", "Count in this process (duckdb) or on a cluster (spark).", panel=PANEL)
    memory: str = option(
        "2GB", "Memory limit of counting, such as 2GB or 500MiB; what does not fit spills to disk.", panel=PANEL
    )
    threads: int | None = option(None, "Number of threads; by default one per core.", panel=PANEL)
    master: str | None = option(
        None,
        "Spark's master, such as local[4] or spark://host:7077; by default the environment variable "
        "SPARK_MASTER, else all cores of this machine.",
        panel=PANEL,
    )
    temp: str | Path | None = option(
        None, "Folder for temporary files and spilling; by default the system's.", panel=PANEL
    )

    def __post_init__(self) -> None:
        if self.engine not in ("duckdb", "spark"):
            raise StatisticsError(f"There is no engine '{self.engine}'; the engines are: duckdb, spark.")
        if not _MEMORY.fullmatch(str(self.memory).strip()):
            raise StatisticsError(f"The memory limit must be like 2GB, 500MB or 1.5GiB; got '{self.memory}'.")
        if self.threads is not None and not 1 <= whole_number("threads", self.threads) <= MOST_THREADS:
            raise StatisticsError(
                f"The number of threads must be 1 or more, and at most {MOST_THREADS:,}; got {self.threads:,}. "
                f"One per core is best, which is the default; this machine has {os.cpu_count()} cores."
            )

    @property
    def memory_bytes(self) -> int:
        """The memory limit in bytes."""
        return memory_bytes(str(self.memory))


@dataclass(frozen=True)
class SortingLimits:
    """Bytes of memory and number of threads that counting by sorting may use."""

    memory: int
    threads: int


class AbstractEngine(ABC):
    """Runs relational expressions, wherever that is."""

    name: str
    sorting: SortingLimits | None = None
    """Limits of counting by sorting in this process; None where the engine counts with a query."""

    @abstractmethod
    def read(self, paths: Sequence[str]) -> ibis.Table:
        """A table over Parquet files or folders."""

    @abstractmethod
    def write(self, table: ibis.Table, folder: Path, title: str, progress: AbstractProgress) -> None:
        """Run an expression and write its rows, in any order, as Parquet shards into a new folder."""

    @abstractmethod
    def batches(self, table: ibis.Table) -> Iterator[pa.RecordBatch]:
        """Run an expression and yield its rows in order."""

    @abstractmethod
    def close(self) -> None:
        """Free memory and threads, and remove spill files."""

    def numbers(self, table: ibis.Table) -> dict[str, float]:
        """The single row of an aggregate."""
        (row,) = (row for batch in self.batches(table) for row in batch.to_pylist())
        return {name: value if value is not None else 0 for name, value in row.items()}


@contextmanager
def open_engine(spill: Path, settings: EngineSettings | None = None) -> Iterator[AbstractEngine]:
    """Open an engine that spills into the folder ``spill``, and close it afterwards."""
    chosen = settings or EngineSettings()
    if chosen.engine == "duckdb":
        engine: AbstractEngine = DuckDBEngine(spill, chosen.memory, chosen.threads)
    else:
        from tokengeom.statistics.spark_engine import SparkEngine

        engine = SparkEngine(spill, chosen.memory, chosen.master)
    try:
        yield engine
    finally:
        engine.close()


@contextmanager
def temporary_folder(parent: str | Path | None = None) -> Iterator[Path]:
    """A folder for files that are deleted when the work ends; after a kill, by the next command that works there."""
    with work_folder(Path(parent or tempfile.gettempdir())) as work:
        folder = work / "files"
        folder.mkdir()
        yield folder


class DuckDBEngine(AbstractEngine):
    """The embedded engine."""

    name = "duckdb"

    def __init__(self, spill: Path, memory: str, threads: int | None = None) -> None:
        self.sorting = SortingLimits(memory_bytes(memory), threads or os.cpu_count() or 1)
        self._spill = spill
        self._limits: dict[str, str | int] = {"memory_limit": memory}
        if threads is not None:
            self._limits["threads"] = threads

    @cached_property
    def _ibis(self) -> Any:
        """The connection, made when it is needed: counting without cuts and merging never loads DuckDB."""
        import ibis

        # DuckDB would download native code where a query mentions an address or a function that it does not have.
        offline = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
        place = {"temp_directory": str(self._spill), "preserve_insertion_order": False}
        backend = ibis.duckdb.connect(**place, **offline, **self._limits)
        _measure_progress(backend.con)
        return backend

    @property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        connection: duckdb.DuckDBPyConnection = self._ibis.con
        return connection

    def read(self, paths: Sequence[str]) -> ibis.Table:
        import duckdb

        for path in paths:
            refuse_address(path)
        files = [f"{_literal(path)}/*.parquet" if Path(path).is_dir() else _literal(path) for path in paths]
        try:
            return self._ibis.read_parquet(files)
        except duckdb.Error as error:
            raise CorpusError(
                f"DuckDB cannot read {', '.join(paths[:3])} as Parquet: {_first_line(error)}. Check the path."
            ) from error

    def write(self, table: ibis.Table, folder: Path, title: str, progress: AbstractProgress) -> None:
        """Run an expression and write one shard per thread."""
        target = str(folder).replace("'", "''")
        query = (
            f"COPY ({self._typed(table)}) TO '{target}' (FORMAT parquet, PER_THREAD_OUTPUT true, COMPRESSION lz4_raw)"
        )
        with self._watched(title, progress), _clear_errors():
            self._connection.execute(query)

    def batches(self, table: ibis.Table) -> Iterator[pa.RecordBatch]:
        """Run an expression and yield its rows as they are computed, without gathering them first."""
        with _clear_errors():
            yield from self._connection.sql(self._typed(table)).to_arrow_reader(_BATCH_ROWS)

    def _typed(self, table: ibis.Table) -> str:
        """The query, with every column cast to the type that Ibis gives it.

        DuckDB adds up BIGINT as HUGEINT, which Parquet and Arrow would store as a rounded double.
        """
        columns = ", ".join(f'CAST("{name}" AS {_type(kind)}) AS "{name}"' for name, kind in table.schema().items())
        return f"SELECT {columns} FROM ({self._ibis.compile(table)})"

    def close(self) -> None:
        """Close the connection, which removes its spill files."""
        if "_ibis" in vars(self):
            self._ibis.disconnect()

    @contextmanager
    def _watched(self, title: str, progress: AbstractProgress) -> Iterator[None]:
        """Show the progress of a query, which a second thread asks the engine for."""
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


def memory_bytes(memory: str) -> int:
    """The number of bytes that a memory limit such as ``2GB`` or ``500MiB`` stands for."""
    number, unit = re.fullmatch(r"([\d.]+)\s*(\w*)", memory.strip()).groups()  # type: ignore[union-attr]
    powers = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
    scale = unit.lower().removesuffix("b")
    return int(float(number) * (1024 if scale.endswith("i") else 1000) ** powers[scale.removesuffix("i")])


def _measure_progress(connection: duckdb.DuckDBPyConnection) -> None:
    """Let DuckDB measure the progress of queries without printing it."""
    import duckdb

    # DuckDB refuses this in a notebook without ipywidgets, which it would draw its own bar with. Only progress is lost.
    with suppress(duckdb.Error):
        connection.execute("SET enable_progress_bar = true; SET enable_progress_bar_print = false")


@contextmanager
def _clear_errors() -> Iterator[None]:
    """Say what to do when memory or disk runs out, and let an interruption be one."""
    import duckdb

    try:
        yield
    except RuntimeError as error:
        # DuckDB swallows the exception of a signal handler and raises this instead.
        if "interrupted" in str(error):
            raise KeyboardInterrupt from error
        raise
    except duckdb.OutOfMemoryException as error:
        raise ResourceError(
            f"Counting ran out of memory or of disk space to spill to: {_first_line(error)}. "
            "Raise --memory, or point --temp at a larger disk."
        ) from error
    except duckdb.ConversionException as error:
        raise CorpusError(f"The ids are out of range: {_first_line(error)}. Check the column.") from error
    except (duckdb.IOException, OSError) as error:
        raise ResourceError(
            f"Counting could not use the disk: {_first_line(error)}. "
            "Free some space, or point --temp at a larger disk; nothing was saved."
        ) from error
    except duckdb.Error as error:
        # What is wrong with the bytes of a file has one of these types; others are ours.
        if type(error) not in (duckdb.Error, duckdb.InvalidInputException):
            raise
        raise CorpusError(f"A file cannot be read: {_first_line(error)}. It is damaged; make it again.") from error


def _literal(path: str) -> str:
    """A path with its special characters escaped: DuckDB takes every path for a pattern."""
    return re.sub(r"([*?\[])", r"[\1]", path)


def _type(kind: Any) -> str:
    """DuckDB's name of an Ibis type, for the types that our tables have."""
    if kind.is_int32():
        return "INTEGER"
    if kind.is_integer():
        return "BIGINT"
    return "BOOLEAN" if kind.is_boolean() else "DOUBLE"


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(".")
