"""From sources of documents to a token table: tokenizing, checking, telling how fast it goes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokengeom.corpus.documents import AbstractTextSource, AbstractTokenSource, Piece, PlainText, TokenBatch
from tokengeom.corpus.token_files import TokenFile
from tokengeom.corpus.tokenizers import AbstractTokenizer, is_kind, make_tokenizer, needs_texts
from tokengeom.errors import CorpusError, StatisticsError
from tokengeom.progress import AbstractProgress
from tokengeom.statistics.engines import AbstractEngine
from tokengeom.statistics.token_table import CorpusTotals, TokenTableWriter
from tokengeom.statistics.windows import Windows

if TYPE_CHECKING:
    import ibis

_BATCH_PIECES = 512
_SURROGATE = re.compile("[\ud800-\udfff]")
_LARGEST_VOCABULARY = 1 << 26
_BATCH_CHARACTERS = 1 << 21


@dataclass(frozen=True)
class TokenizedCorpus:
    """A token table on disk and what is known of it."""

    table: ibis.Table
    vocabulary: int
    tokenizer: AbstractTokenizer | None
    corpus: dict[str, Any]


def tokenize(
    sources: Sequence[AbstractTextSource] | Sequence[AbstractTokenSource],
    tokenizer: str | Path | AbstractTokenizer | None,
    vocabulary: int | None,
    windows: Windows,
    folder: Path,
    engine: AbstractEngine,
    progress: AbstractProgress,
) -> TokenizedCorpus:
    """Read every source once (twice for a tokenizer that is trained on the text) into Parquet shards."""
    made = _tokenizer_for(sources, tokenizer, progress)
    limit = _vocabulary_limit(made, vocabulary)
    with TokenTableWriter(folder, windows.context, windows.shortest_document, limit) as writer:
        for name, batch in _watched(sources, made, progress):
            writer.add(batch, name)
    frozen = made.freeze() if made is not None else None
    totals = writer.totals
    _refuse_what_has_no_window(totals, windows, [source.name for source in sources])
    size = limit or (frozen.size if frozen is not None else totals.highest_id + 1)
    _refuse_vast_vocabulary(size)
    corpus = {
        "sources": [source.name for source in sources],
        "separators": sorted(set(_separators(sources))),
        "documents": totals.documents,
        "tokens": totals.tokens,
        "short_documents": totals.short_documents,
        "replaced_bytes": sum(source.replaced_bytes for source in sources if isinstance(source, AbstractTextSource)),
    }
    return TokenizedCorpus(engine.read([str(folder)]), size, frozen, corpus)


def _separators(sources: Sequence[AbstractTextSource] | Sequence[AbstractTokenSource]) -> Iterator[str]:
    for source in sources:
        if isinstance(source, PlainText | TokenFile) and source.separator is not None:
            yield str(source.separator)


def token_shards(
    paths: Sequence[str],
    column: str,
    tokenizer: str | Path | AbstractTokenizer | None,
    vocabulary: int | None,
    windows: Windows,
    engine: AbstractEngine,
) -> TokenizedCorpus:
    """Take Parquet shards of ids as the token table itself, one row a document, wherever the engine finds them."""
    import ibis

    made = _saved_tokenizer(tokenizer)
    documents = engine.read(paths)
    documents = documents.filter(documents[column].notnull() & (documents[column].length() > 0))
    lengths = documents[column].length()
    sizes = engine.numbers(
        documents.aggregate(
            documents=documents.count(),
            tokens=lengths.sum(),
            short_documents=(lengths < windows.shortest_document).sum(),
        )
    )
    ids = documents.select(id=documents[column].unnest())
    ends = engine.numbers(ids.aggregate(lowest=ids.id.min(), highest=ids.id.max(), missing=ids.id.isnull().sum()))
    totals = CorpusTotals(**{name: int(size) for name, size in sizes.items()}, highest_id=int(ends["highest"]))
    limit = _vocabulary_limit(made, vocabulary)
    _refuse_bad_ids(int(ends["lowest"]), totals.highest_id, int(ends["missing"]), limit, paths)
    _refuse_what_has_no_window(totals, windows, paths)
    table = documents.select(
        start=ibis.literal(True), lead=ibis.literal(0, "int32"), tokens=documents[column].cast("array<int32>")
    )
    _refuse_vast_vocabulary(limit or totals.highest_id + 1)
    corpus = {"sources": list(paths), "separators": [], "replaced_bytes": 0, **vars(totals)}
    corpus.pop("highest_id")
    return TokenizedCorpus(table, limit or totals.highest_id + 1, made, corpus)


def _refuse_vast_vocabulary(size: int) -> None:
    """No tokenizer has so many tokens: such ids are something else, and V rows of them would fill the memory."""
    if size > _LARGEST_VOCABULARY:
        raise StatisticsError(
            f"The vocabulary must have at most {_LARGEST_VOCABULARY:,} tokens; the ids ask for {size:,}. "
            "The dtype or the column is probably wrong; otherwise number the tokens anew, without gaps."
        )


def _refuse_bad_ids(lowest: int, highest: int, missing: int, limit: int | None, paths: Sequence[str]) -> None:
    most = limit if limit is not None else 2**31 - 1
    if missing or lowest < 0 or highest >= most:
        found = f"{missing:,} ids are missing" if missing else f"they lie in {lowest:,}..{highest:,}"
        raise StatisticsError(
            f"Every id must lie in 0..{most - 1:,}, below the vocabulary size; in {', '.join(paths[:3])} {found}. "
            "The column, the tokenizer or --vocabulary-size is wrong."
        )


def _vocabulary_limit(tokenizer: AbstractTokenizer | None, vocabulary: int | None) -> int | None:
    """The V that ids must stay below: the given one, or that of a tokenizer that no longer grows, if larger."""
    known = tokenizer.size if tokenizer is not None and not tokenizer.grows else None
    return max((size for size in (known, vocabulary) if size is not None), default=None)


def _saved_tokenizer(wanted: str | Path | AbstractTokenizer | None) -> AbstractTokenizer | None:
    """For ids, which need no tokenizer: a saved one gives them their words, a kind by name means nothing."""
    return None if wanted is None or is_kind(wanted) else make_tokenizer(wanted)


def _tokenizer_for(
    sources: Sequence[AbstractTextSource] | Sequence[AbstractTokenSource],
    wanted: str | Path | AbstractTokenizer | None,
    progress: AbstractProgress,
) -> AbstractTokenizer | None:
    texts = [source for source in sources if isinstance(source, AbstractTextSource)]
    if not texts:
        return _saved_tokenizer(wanted)
    if wanted is None:
        raise CorpusError("Text needs a tokenizer: word, character, byte, bpe, or the path of a saved one.")
    if not needs_texts(wanted):
        return make_tokenizer(wanted)
    once = [source.name for source in texts if not source.repeatable]
    if once:
        raise CorpusError(
            f"A BPE tokenizer reads the text twice, and {once[0]} can be read only once. "
            "Save it to a file first, or give a tokenizer that was trained before."
        )
    with progress.stage("Training the tokenizer", _total_size(texts)) as stage:
        return make_tokenizer(wanted, lambda: _texts(texts, stage.advance))


def _texts(sources: Sequence[AbstractTextSource], on_bytes: Callable[[int], None]) -> Iterator[str]:
    for source in sources:
        for piece in source.pieces(on_bytes):
            yield piece.text


def _total_size(sources: Sequence[AbstractTextSource] | Sequence[AbstractTokenSource]) -> int | None:
    sizes = [source.size for source in sources if source.size is not None]
    return sum(sizes) if len(sizes) == len(sources) else None


def _watched(
    sources: Sequence[AbstractTextSource] | Sequence[AbstractTokenSource],
    tokenizer: AbstractTokenizer | None,
    progress: AbstractProgress,
) -> Iterator[tuple[str, TokenBatch]]:
    """Every batch of every source, with tokens a second told on the way."""
    began, tokens = time.monotonic(), 0
    with progress.stage("Reading", _total_size(sources)) as stage:
        for source in sources:
            for batch in _batches(source, tokenizer, stage.advance):
                yield source.name, batch
                tokens += batch.tokens.size
                rate = tokens / max(time.monotonic() - began, 1e-9)
                stage.advance(0, f"{tokens:,} tokens, {rate:,.0f} a second")


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
    pieces = source.pieces(on_bytes)
    for piece in pieces if tokenizer.cuts_at_gaps else _whole_documents(pieces):
        _refuse_surrogates(piece.text, source.name)
        waiting.append(piece)
        characters += len(piece.text)
        if len(waiting) >= _BATCH_PIECES or characters >= _BATCH_CHARACTERS:
            yield from _encoded(waiting, tokenizer)
            waiting, characters = [], 0
    yield from _encoded(waiting, tokenizer)


def _whole_documents(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Documents in one piece each, for a tokenizer whose ids depend on where a text is cut."""
    waiting: list[str] = []
    for piece in pieces:
        if piece.starts and waiting:
            yield Piece("".join(waiting))
            waiting = []
        waiting.append(piece.text)
    if waiting:
        yield Piece("".join(waiting))


def _refuse_surrogates(text: str, name: str) -> None:
    """Half a character, which JSON and Python can hold and no text file can."""
    if not text.isascii() and (found := _SURROGATE.search(text)):
        raise CorpusError(
            f"{name} has a document with half a character, U+{ord(found[0]):04X}, at place {found.start():,}: "
            "it cannot be written as UTF-8. Remove it, or encode the text with errors='replace' first."
        )


def _encoded(pieces: list[Piece], tokenizer: AbstractTokenizer) -> Iterator[TokenBatch]:
    """Pieces as batches; a piece that goes on with a document starts a batch of its own."""
    encoded = tokenizer.encode([piece.text for piece in pieces])
    begin = 0
    breaks = [i for i, piece in enumerate(pieces) if not piece.starts and i > 0]
    for end in (*breaks, len(pieces)):
        part = encoded[begin:end]
        if part:
            lengths = np.array([ids.size for ids in part], dtype=np.int64)
            yield TokenBatch(np.concatenate(part), lengths, continues=not pieces[begin].starts)
        begin = end


def _refuse_what_has_no_window(
    totals: CorpusTotals,
    windows: Windows,
    names: Sequence[str],
) -> None:
    where = ", ".join(names[:3])
    if totals.tokens == 0:
        raise CorpusError(f"The corpus is empty: no token was found in {where}.")
    if totals.short_documents == totals.documents:
        raise CorpusError(
            f"No document is long enough: {totals.documents:,} documents with {totals.tokens:,} tokens in all, and a "
            f"window needs {windows.shortest_document} in one. Take a shorter --context, count with --pad, or "
            "check the separator between documents."
        )
