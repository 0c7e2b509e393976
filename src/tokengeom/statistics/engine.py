"""What a counting engine does: read Parquet, run an Ibis expression, write sharded Parquet."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tokengeom.errors import StatisticsError
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
        from tokengeom.statistics.duckdb_engine import DuckDBEngine

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
