"""Ordered shards: counted pairs in Parquet, sorted by context and next token from the first shard to the last.

A row group never ends inside a context, so one pass over the row groups adds up contexts without a hash table, and
builds statistics without sorting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokengeom.core.errors import ResourceError, StatisticsError
from tokengeom.statistics.arrow_arrays import integer_array, numbers_of
from tokengeom.statistics.sorting import PairRows

if TYPE_CHECKING:
    import pyarrow as pa

_SHARD_ROWS = 1 << 24


def write_ordered_shards(parts: Iterable[PairRows], names: Sequence[str], folder: Path) -> None:
    """Write sorted pairs into a new folder, each part as one row group.

    ``names``
        Names of the columns: the keys of contexts, ``next`` and ``count``.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    writer: pq.ParquetWriter | None = None
    rows = shards = 0
    try:
        for part in parts:
            if part.size:
                table = pa.Table.from_arrays(list(map(integer_array, part.columns)), names=list(names))
                if writer is None:
                    path = folder / f"pairs-{shards:05d}.parquet"
                    writer = pq.ParquetWriter(path, table.schema, compression="lz4", use_dictionary=False)
                writer.write_table(table, row_group_size=part.size)
                rows += part.size
            if writer is not None and rows >= _SHARD_ROWS:
                writer.close()
                writer, rows, shards = None, 0, shards + 1
        if writer is not None:
            writer.close()
    except OSError as error:
        raise ResourceError(
            f"Counted pairs could not be written to {folder}: {error.strerror or error}. "
            "Free some space, or point --temp at a larger disk; nothing was saved."
        ) from error


def ordered_files(paths: Sequence[str]) -> list[Path]:
    """The shards of some folders, in order."""
    return [file for path in paths for file in sorted(Path(path).glob("*.parquet"))]


def number_of_pairs(paths: Sequence[str]) -> int:
    """Number of pairs in ordered shards."""
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(file).num_rows for file in ordered_files(paths))


def shards_fault(paths: Sequence[str], names: Sequence[str]) -> str | None:
    """What is wrong with the columns of saved shards, as their headers describe them; None if nothing is.

    ``names``
        Names of the columns: the keys of contexts, ``next`` and ``count``.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = ordered_files(paths)
    if not files:
        return f"there are no shards in {Path(paths[0]).name}/"
    for file in files:
        try:
            schema = pq.read_schema(file)
        except (pa.ArrowException, OSError) as error:
            return f"{file.name} cannot be read ({str(error).splitlines()[0]})"
        for name in names:
            kind = pa.int32() if name == "next" else pa.int64()
            if schema.names.count(name) != 1 or schema.field(name).type != kind:
                return f"{file.name} must have one column {name} of {kind}"
    return None


def read_ordered_shards(paths: Sequence[str], names: Sequence[str]) -> Iterator[pa.Table]:
    """The row groups of ordered shards, from the first to the last."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for path in ordered_files(paths):
        try:
            with pq.ParquetFile(path) as file:
                for group in range(file.num_row_groups):
                    yield file.read_row_group(group, columns=list(names))
        except (pa.ArrowException, OSError) as error:
            raise StatisticsError(
                f"The counted pairs in {path} cannot be read: {str(error).splitlines()[0]}. Count the text again."
            ) from error


def pair_rows(table: Any) -> PairRows:
    """Rows from a table with the columns of counted pairs."""
    return PairRows.of(list(map(numbers_of, table.columns)))
