"""From sources of documents to a token table: read, tokenize, check, and report the speed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokengeom.core.errors import CorpusError, ResourceError, StatisticsError
from tokengeom.core.progress import AbstractProgress
from tokengeom.corpus.documents import (
    DEFAULT_MEMORY,
    PIECE_CHARACTERS,
    AbstractTextSource,
    AbstractTokenSource,
    Piece,
    PlainText,
    TokenBatch,
)
from tokengeom.corpus.locate import Sources
from tokengeom.corpus.token_files import TokenFile
from tokengeom.corpus.tokenizers import (
    LARGEST_VOCABULARY,
    AbstractTokenizer,
    UnchosenTokenizer,
    WhitespaceTokenizer,
    is_kind,
    make_tokenizer,
    needs_texts,
)
from tokengeom.statistics.engines import AbstractEngine
from tokengeom.statistics.token_table import SHORT_LENGTHS, CorpusTotals, TokenRows, TokenTableWriter, read_token_table
from tokengeom.statistics.windows import Windows

if TYPE_CHECKING:
    import ibis

_BATCH_PIECES = 512
_BATCH_CHARACTERS = 1 << 21
_SHORTEST_LIMIT = 1 << 16
"""A part of a document of so many bytes is read however small the memory limit is."""
_BYTES_PER_TOKEN = 144
"""Memory that statistics take per token of the vocabulary, whether it occurs or not."""
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class TokenizedCorpus:
    """A token table, and what is known about it.

    ``place``       The folder that the table was written into, or an expression of an engine.
    ``vocabulary``  Number of tokens V.
    ``described``   What was read, as plain data.
    """

    place: Path | ibis.Table
    vocabulary: int
    tokenizer: AbstractTokenizer | None
    totals: CorpusTotals
    described: dict[str, Any]

    def table(self, engine: AbstractEngine) -> ibis.Table:
        """The token table as a table of an engine."""
        return engine.read([str(self.place)]) if isinstance(self.place, Path) else self.place

    def rows(self, engine: AbstractEngine) -> Iterator[TokenRows]:
        """The rows of the token table, some at a time."""
        if isinstance(self.place, Path):
            return read_token_table(self.place)
        return map(TokenRows.of, engine.batches(self.place.select("start", "lead", "tokens")))

    def short_documents(self, windows: Windows) -> int:
        """Number of documents without a window."""
        return self.totals.shorter_than(windows.shortest_document)

    def has(self, windows: Windows) -> bool:
        """Whether some document has a window."""
        return self.short_documents(windows) < self.totals.documents

    def describe(self, windows: Windows) -> dict[str, Any]:
        """What was read, with the number of documents that have no window."""
        return {**self.described, "short_documents": self.short_documents(windows)}

    def require(self, windows: Windows) -> None:
        """Refuse a corpus in which no document has a window."""
        if not self.has(windows):
            sizes = {"document": self.totals.documents, "token": self.totals.tokens}
            documents, tokens = (f"{size:,} {noun}{'' if size == 1 else 's'}" for noun, size in sizes.items())
            raise CorpusError(
                f"No document is long enough: {documents} with {tokens} in all, and a window needs "
                f"{windows.shortest_document} tokens in one document. Use a shorter --context, count with --pad, or "
                "check the separator between documents."
            )


def tokenize(
    sources: Sources,
    tokenizer: str | Path | AbstractTokenizer | None,
    vocabulary: int | None,
    longest_context: int,
    folder: Path,
    progress: AbstractProgress,
    memory: int = DEFAULT_MEMORY,
) -> TokenizedCorpus:
    """Read every source once (twice for a tokenizer that is trained on the text) into Parquet shards in a folder.

    Only the vocabulary grows with the text; what would need more than ``memory`` bytes of memory is refused.
    """
    for source in sources:
        source.memory = memory
    made = _tokenizer_for(sources, tokenizer, progress)
    limit = _vocabulary_limit(made, vocabulary)
    with TokenTableWriter(folder, longest_context, limit) as writer:
        for name, batch in token_batches(sources, made, progress):
            writer.add(batch, name)
            _require_memory_for_vocabulary(made, memory, name)
    frozen = made.freeze() if made is not None else None
    totals, names = writer.totals, [source.name for source in sources]
    _require_tokens(totals, names)
    size = limit or (frozen.size if frozen is not None else totals.highest_id + 1)
    _refuse_vast_vocabulary(size, names, memory)
    files = [source for source in sources if isinstance(source, TokenFile)]
    likely = {source.likely_separator for source in files if source.likely_separator is not None}
    described = {
        "sources": names,
        "separators": sorted(set(_separators(sources))),
        "likely_separators": sorted(likely),
        "documents": totals.documents,
        "tokens": totals.tokens,
        "replaced_bytes": sum(source.replaced_bytes for source in sources if isinstance(source, AbstractTextSource)),
    }
    if isinstance(made, UnchosenTokenizer) and made.reason:
        described["tokenizer_reason"] = made.reason
    return TokenizedCorpus(folder, size, frozen, totals, described)


def _separators(sources: Sources) -> Iterator[str]:
    for source in sources:
        if isinstance(source, PlainText | TokenFile) and source.separator is not None:
            yield str(source.separator)


def token_shards(
    paths: Sequence[str],
    column: str,
    tokenizer: str | Path | AbstractTokenizer | None,
    vocabulary: int | None,
    engine: AbstractEngine,
    memory: int = DEFAULT_MEMORY,
) -> TokenizedCorpus:
    """Use Parquet shards of token ids, one row per document, as the token table, wherever the engine finds them."""
    import ibis

    made = _saved_tokenizer(tokenizer)
    documents = engine.read(paths)
    documents = documents.filter(documents[column].notnull() & (documents[column].length() > 0))
    ids = documents.select(id=documents[column].unnest())
    ends = engine.numbers(ids.aggregate(lowest=ids.id.min(), highest=ids.id.max(), missing=ids.id.isnull().sum()))
    lowest, highest, missing = (int(ends[name]) for name in ("lowest", "highest", "missing"))
    limit = _vocabulary_limit(made, vocabulary)
    _refuse_bad_ids(lowest, highest, missing, limit, paths)
    totals = _shard_totals(documents[column].length(), highest, engine)
    _require_tokens(totals, paths)
    _refuse_vast_vocabulary(limit or highest + 1, paths, memory)
    table = documents.select(
        start=ibis.literal(True), lead=ibis.literal(0, "int32"), tokens=documents[column].cast("array<int32>")
    )
    described = {
        "sources": list(paths),
        "separators": [],
        "likely_separators": [],
        "documents": totals.documents,
        "tokens": totals.tokens,
        "replaced_bytes": 0,
    }
    return TokenizedCorpus(table, limit or highest + 1, made, totals, described)


def _shard_totals(length: ibis.expr.types.IntegerValue, highest: int, engine: AbstractEngine) -> CorpusTotals:
    """Add up the lengths of documents."""
    lengths = length.name("length").as_table()
    sizes = engine.numbers(lengths.aggregate(documents=lengths.count(), tokens=lengths["length"].sum()))
    short = lengths.filter(lengths["length"] < SHORT_LENGTHS)
    short = short.group_by("length").aggregate(documents=short.count())
    histogram = np.zeros(SHORT_LENGTHS, np.int64)
    for batch in engine.batches(short):
        histogram[batch.column(0).to_numpy()] = batch.column(1).to_numpy()
    return CorpusTotals(int(sizes["documents"]), int(sizes["tokens"]), highest, histogram)


def _refuse_vast_vocabulary(size: int, names: Sequence[str], memory: int) -> None:
    """Refuse more tokens than any tokenizer has: such ids are something else, and V rows would fill the memory."""
    most = min(LARGEST_VOCABULARY, memory // _BYTES_PER_TOKEN)
    if size > most:
        raise StatisticsError(
            f"The vocabulary must have at most {most:,} tokens with a memory limit of {memory / 1e6:,.0f} MB; the ids "
            f"in {', '.join(names[:3])} need {size:,}. The dtype or the column is probably wrong; otherwise renumber "
            "the tokens without gaps, or raise --memory."
        )


def _require_memory_for_vocabulary(tokenizer: AbstractTokenizer | None, memory: int, name: str) -> None:
    if tokenizer is None or not tokenizer.grows:
        return
    if tokenizer.vocabulary_bytes > memory:
        raise ResourceError(
            f"The vocabulary must fit in memory: {tokenizer.size:,} distinct tokens, up to a part of {name}, take "
            f"{tokenizer.vocabulary_bytes / 1e6:,.0f} MB, and the limit is {memory / 1e6:,.0f} MB. Raise --memory, or "
            "use a tokenizer with a fixed vocabulary, such as --tokenizer bpe:4096."
        )
    _refuse_vast_vocabulary(tokenizer.size, [name], memory)


def _refuse_bad_ids(lowest: int, highest: int, missing: int, limit: int | None, paths: Sequence[str]) -> None:
    most = limit if limit is not None else 2**31 - 1
    if missing or lowest < 0 or highest >= most:
        fault = f"{missing:,} ids are missing" if missing else f"ids lie in {lowest:,}..{highest:,}"
        raise StatisticsError(
            f"Every id must lie in 0..{most - 1:,}, below the vocabulary size; in {', '.join(paths[:3])} {fault}. "
            "The column, the tokenizer or --vocabulary-size is wrong."
        )


def _vocabulary_limit(tokenizer: AbstractTokenizer | None, vocabulary: int | None) -> int | None:
    """The V that ids must be below: the given one, or the size of a tokenizer that does not grow, if larger."""
    known = tokenizer.size if tokenizer is not None and not tokenizer.grows else None
    return max((size for size in (known, vocabulary) if size is not None), default=None)


def _saved_tokenizer(wanted: str | Path | AbstractTokenizer | None) -> AbstractTokenizer | None:
    """The tokenizer of token ids: a saved one gives them their texts, and the name of a kind is ignored."""
    return None if wanted is None or is_kind(wanted) else make_tokenizer(wanted)


def _tokenizer_for(
    sources: Sources, wanted: str | Path | AbstractTokenizer | None, progress: AbstractProgress
) -> AbstractTokenizer | None:
    texts = [source for source in sources if isinstance(source, AbstractTextSource)]
    if not texts:
        return _saved_tokenizer(wanted)
    if wanted is None:
        return UnchosenTokenizer()
    if not needs_texts(wanted):
        return make_tokenizer(wanted)
    once = [source.name for source in texts if not source.repeatable]
    if once:
        raise CorpusError(
            f"A BPE tokenizer reads the text twice, and {once[0]} can be read only once. "
            "Save the text to a file first, or pass a tokenizer that is trained already."
        )
    with progress.stage("Training the tokenizer", _total_size(texts)) as stage:
        return make_tokenizer(wanted, lambda: _texts(texts, stage.advance))


def _texts(sources: Sequence[AbstractTextSource], on_bytes: Callable[[int], None]) -> Iterator[str]:
    """Texts to train a BPE on; like a trained one, its trainer may be given parts that end before white space."""
    for source in sources:
        for piece in _encodable(source, WhitespaceTokenizer(), on_bytes):
            yield piece.text


def _total_size(sources: Sources) -> int | None:
    sizes = [source.size for source in sources if source.size is not None]
    return sum(sizes) if len(sizes) == len(sources) else None


def token_batches(
    sources: Sources, tokenizer: AbstractTokenizer | None, progress: AbstractProgress
) -> Iterator[tuple[str, TokenBatch]]:
    """Every batch of every source with the source's name, reporting the tokens per second."""
    began, tokens = time.monotonic(), 0
    with progress.stage("Reading", _total_size(sources)) as stage:
        for source in sources:
            for batch in _batches(source, tokenizer, stage.advance):
                yield source.name, batch
                tokens += batch.tokens.size
                rate = tokens / max(time.monotonic() - began, 1e-9)
                stage.advance(0, f"{tokens:,} tokens, {rate:,.0f} per second")


def _batches(
    source: AbstractTextSource | AbstractTokenSource,
    tokenizer: AbstractTokenizer | None,
    on_bytes: Callable[[int], None],
) -> Iterator[TokenBatch]:
    if isinstance(source, AbstractTokenSource):
        yield from source.batches(on_bytes)
        return
    assert tokenizer is not None, "text sources always come with a tokenizer"
    waiting: list[Piece] = []
    characters = 0
    most = min(_BATCH_CHARACTERS, source.memory // (8 * tokenizer.memory_per_byte))
    for piece in _encodable(source, tokenizer, on_bytes):
        waiting.append(piece)
        characters += len(piece.text)
        if len(waiting) >= _BATCH_PIECES or characters >= most:
            yield from _encoded(waiting, tokenizer)
            waiting, characters = [], 0
    yield from _encoded(waiting, tokenizer)


def _encodable(
    source: AbstractTextSource, tokenizer: AbstractTokenizer, on_bytes: Callable[[int], None]
) -> Iterator[Piece]:
    """Pieces that can be encoded separately: a source splits documents anywhere, so tokens may span two of its pieces.

    A part of a document that the tokenizer cannot split must fit in memory.
    """
    longest = max(source.memory // tokenizer.memory_per_byte, _SHORTEST_LIMIT)
    waiting, size, starts, position = list[str](), 0, True, 0
    for piece in source.pieces(on_bytes):
        text = piece.text
        if piece.starts:
            if size:
                yield Piece("".join(waiting), starts)
            waiting, size, starts, position = [], 0, True, 0
        _refuse_surrogates(text, source.name, position)
        position += len(text)
        if size + len(text) >= min(PIECE_CHARACTERS, longest) and (cut := tokenizer.split_point(text)):
            yield Piece("".join((*waiting, text[:cut])), starts)
            waiting, size, starts, text = [], 0, False, text[cut:]
        if text:
            waiting.append(text)
            size += len(text) if text.isascii() else len(text.encode())
        if size > longest:
            raise _too_long(source, tokenizer, longest)
    if size:
        yield Piece("".join(waiting), starts)


def _too_long(source: AbstractTextSource, tokenizer: AbstractTokenizer, longest: int) -> ResourceError:
    return ResourceError(
        f"{source.name} has {longest:,} bytes in a row that a {tokenizer.kind} tokenizer cannot split into parts, and "
        f"the memory limit of {source.memory / 1e6:,.0f} MB allows no more. Raise --memory, split the document, or use "
        "--tokenizer byte or character, which split text anywhere."
    )


def _refuse_surrogates(text: str, name: str, position: int) -> None:
    """Refuse half a character, which JSON and Python strings can hold but UTF-8 cannot."""
    if not text.isascii() and (half := _SURROGATE.search(text)):
        where = position + half.start()
        raise CorpusError(
            f"{name} has a document with half a character, U+{ord(half[0]):04X}, at position {where:,}: "
            "it cannot be written as UTF-8. Remove it, or encode the text with errors='replace' first."
        )


def _encoded(pieces: list[Piece], tokenizer: AbstractTokenizer) -> Iterator[TokenBatch]:
    """Pieces as batches; a piece that continues a document starts a batch of its own."""
    encoded = tokenizer.encode([piece.text for piece in pieces])
    begin = 0
    breaks = [i for i, piece in enumerate(pieces) if not piece.starts and i > 0]
    for end in (*breaks, len(pieces)):
        part = encoded[begin:end]
        if part:
            lengths = np.array([ids.size for ids in part], dtype=np.int64)
            yield TokenBatch(np.concatenate(part), lengths, continues=not pieces[begin].starts)
        begin = end


def _require_tokens(totals: CorpusTotals, names: Sequence[str]) -> None:
    if totals.tokens == 0:
        raise CorpusError(f"The corpus is empty: no token was found in {', '.join(names[:3])}.")
