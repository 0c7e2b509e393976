"""The token table: documents as rows of token ids in Parquet shards, which every counting engine reads.

Columns: ``start`` (whether the row's first token is its document's first), ``lead`` (number of tokens at the head of
the row that were counted with the row before and serve as context only) and ``tokens`` (ids). A long document has
several rows, which keeps every row small.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tokengeom.core.errors import ResourceError, StatisticsError
from tokengeom.core.numerics import Bool, Int
from tokengeom.corpus.documents import Ids, TokenBatch
from tokengeom.statistics.arrays_file import boolean_array, integer_array, list_array, numbers_of
from tokengeom.statistics.windows import LONGEST_CONTEXT

if TYPE_CHECKING:
    import pyarrow as pa

ROW_TOKENS = 1 << 15
SHORT_LENGTHS = LONGEST_CONTEXT + 1
"""Documents of fewer tokens may be shorter than a window, so their lengths are recorded."""

_ROW_GROUP_TOKENS = 1 << 20
_SHARD_TOKENS = 1 << 24


@dataclass(frozen=True)
class CorpusTotals:
    """What was read: documents, tokens, the largest id (-1 without tokens), and the lengths of short documents.

    ``short_lengths``  Number of documents with exactly 0, 1, ... tokens, up to `SHORT_LENGTHS`.
    """

    documents: int
    tokens: int
    highest_id: int
    short_lengths: Int

    def shorter_than(self, tokens: int) -> int:
        """Number of documents with fewer tokens."""
        return int(self.short_lengths[:tokens].sum())


@dataclass(frozen=True)
class TokenRows:
    """Rows of a token table: all ids one after the other, and each row's length, lead and start."""

    tokens: Ids
    lengths: Int
    lead: NDArray[np.int32]
    start: Bool

    @staticmethod
    def of(batch: pa.RecordBatch) -> TokenRows:
        """Rows from a batch with the columns of a token table."""
        start, lead, tokens = (batch.column(name) for name in ("start", "lead", "tokens"))
        lengths = numbers_of(tokens.value_lengths()).astype(np.int64)
        return TokenRows(numbers_of(tokens.flatten()), lengths, numbers_of(lead), numbers_of(start))

    def part(self, begin: int, end: int) -> TokenRows:
        """The rows from ``begin`` up to ``end``."""
        first, last = int(self.lengths[:begin].sum()), int(self.lengths[:end].sum())
        return TokenRows(self.tokens[first:last], self.lengths[begin:end], self.lead[begin:end], self.start[begin:end])


def read_token_table(folder: Path) -> Iterator[TokenRows]:
    """The rows of a token table that was written into a folder, a few million tokens at a time."""
    import pyarrow.parquet as pq

    for path in sorted(folder.glob("*.parquet")):
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                for batch in file.read_row_group(group).to_batches():
                    yield TokenRows.of(batch)


@dataclass
class _OpenDocument:
    """The document that the next batch may continue: its last tokens and its length so far."""

    tail: Ids = field(default_factory=lambda: np.empty(0, np.int32))
    length: int = 0


class TokenTableWriter:
    """Writes batches of documents as a token table; use it as a context manager.

    ``folder``      Where to write the shards; it must exist.
    ``overlap``     Number of tokens that a row repeats from the row before: the longest context to be counted.
    ``vocabulary``  Number of tokens V; ids must be smaller. None: any id is accepted.
    """

    def __init__(self, folder: Path, overlap: int, vocabulary: int | None = None) -> None:
        self._folder, self._overlap, self._vocabulary = folder, overlap, vocabulary
        self._open = _OpenDocument()
        self._waiting: list[TokenRows] = []
        self._waiting_tokens = self._shard_tokens = self._shards = 0
        self._documents = self._tokens = 0
        self._short_lengths = np.zeros(SHORT_LENGTHS, np.int64)
        self._highest = -1
        self._writer: pa.parquet.ParquetWriter | None = None

    def __enter__(self) -> TokenTableWriter:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            self._end_document()
            self._flush()
        self._close_shard()

    @property
    def totals(self) -> CorpusTotals:
        """What was added; complete once the writer is closed."""
        return CorpusTotals(self._documents, self._tokens, self._highest, self._short_lengths)

    def add(self, batch: TokenBatch, name: str) -> None:
        """Add a batch that was read from the source called ``name``."""
        self._check(batch.tokens, name)
        for rows in self._rows(batch):
            self._waiting.append(rows)
            self._waiting_tokens += rows.tokens.size
        self._tokens += batch.tokens.size
        if self._waiting_tokens >= _ROW_GROUP_TOKENS:
            self._flush()

    def _check(self, tokens: Ids, name: str) -> None:
        highest = int(tokens.max(initial=-1))
        self._highest = max(self._highest, highest)
        if self._vocabulary is not None and highest >= self._vocabulary:
            where = self._tokens + int(np.argmax(tokens >= self._vocabulary))
            raise StatisticsError(
                f"Every id must be below the vocabulary size {self._vocabulary:,}; {name} has {highest:,}, "
                f"and the first id that is too large is token {where:,}. "
                "The dtype of the file, the tokenizer or --vocabulary-size is wrong."
            )

    def _rows(self, batch: TokenBatch) -> Iterator[TokenRows]:
        """Rows of a batch: long and continued documents one at a time, the others together."""
        lengths = batch.lengths
        ends = np.cumsum(lengths)
        special = lengths > ROW_TOKENS
        if batch.continues and lengths.size:
            special[0] = True
        position = 0
        for index in (*np.flatnonzero(special).tolist(), lengths.size):
            if index > position:
                yield from self._whole(
                    batch.tokens[ends[position] - lengths[position] : ends[index - 1]], lengths[position:index]
                )
            if index < lengths.size:
                stretch = batch.tokens[ends[index] - lengths[index] : ends[index]]
                yield from self._stretch(stretch, continues=batch.continues and index == 0)
            position = index + 1

    def _whole(self, tokens: Ids, lengths: Int) -> Iterator[TokenRows]:
        """Rows of documents that fit in a row each; the last one stays open, as the next batch may continue it."""
        lengths = lengths[lengths > 0]
        if not lengths.size:
            return
        self._end_document()
        self._count_documents(lengths[:-1])
        last = tokens[tokens.size - int(lengths[-1]) :]
        self._open = _OpenDocument(last[-self._overlap :], last.size)
        yield TokenRows(tokens, lengths, np.zeros(lengths.size, np.int32), np.ones(lengths.size, np.bool_))

    def _stretch(self, tokens: Ids, continues: bool) -> Iterator[TokenRows]:
        """Rows of one document's tokens, each repeating the last tokens of the row before."""
        if not continues:
            self._end_document()
        for begin in range(0, tokens.size, ROW_TOKENS):
            body, tail = tokens[begin : begin + ROW_TOKENS], self._open.tail
            row = np.concatenate((tail, body))
            starts = self._open.length == tail.size
            yield TokenRows(row, np.array([row.size]), np.array([tail.size], np.int32), np.array([starts]))
            self._open = _OpenDocument(row[-self._overlap :], self._open.length + body.size)

    def _end_document(self) -> None:
        if self._open.length:
            self._count_documents(np.array([self._open.length]))
        self._open = _OpenDocument()

    def _count_documents(self, lengths: Int) -> None:
        self._documents += lengths.size
        self._short_lengths += np.bincount(lengths[lengths < SHORT_LENGTHS], minlength=SHORT_LENGTHS)

    def _flush(self) -> None:
        """Write the waiting rows as one row group, and close the shard when it is full."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not self._waiting:
            return
        columns = zip(*(vars(rows).values() for rows in self._waiting), strict=True)
        rows = TokenRows(*map(np.concatenate, columns))
        written = [boolean_array(rows.start), integer_array(rows.lead), list_array(rows.tokens, rows.lengths)]
        table = pa.Table.from_arrays(written, names=["start", "lead", "tokens"])
        if self._writer is None:
            path = self._folder / f"tokens-{self._shards:05d}.parquet"
            # Ids of natural text hardly compress, and the table is deleted after counting.
            self._writer = pq.ParquetWriter(path, table.schema, compression="none", use_dictionary=False)
            self._shards += 1
        with disk_errors(f"The token table could not be written to {self._folder}"):
            self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self._shard_tokens += self._waiting_tokens
        self._waiting, self._waiting_tokens = [], 0
        if self._shard_tokens >= _SHARD_TOKENS:
            self._close_shard()

    def _close_shard(self) -> None:
        if self._writer is not None:
            with disk_errors(f"The token table could not be written to {self._folder}"):
                self._writer.close()
        self._writer, self._shard_tokens = None, 0


@contextmanager
def disk_errors(failed: str) -> Iterator[None]:
    """Say what to do where a temporary file cannot be written; ``failed`` is what could not be done."""
    try:
        yield
    except OSError as error:
        raise ResourceError(
            f"{failed}: {error.strerror or error}. Free some space, or point --temp at a larger disk; "
            "nothing was saved."
        ) from error
