"""What statistics state: as plain data, in sentences and in a table, and saved, with arrays and a hash.

Nothing in a saved folder is trusted: what is not what it must be is refused, before it is used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from tokengeom.core.errors import StatisticsError
from tokengeom.core.numerics import Bool, rounded_percent
from tokengeom.core.resources import require_memory
from tokengeom.corpus.tokenizers import load_tokenizer
from tokengeom.results.convert import Digest, Within, damaged, from_entries
from tokengeom.statistics.arrays_file import SavedArrays, save_arrays, text_array
from tokengeom.statistics.cuts import OTHER, Effect
from tokengeom.statistics.supports import warnings_about
from tokengeom.statistics.windows import ABSENT, Windows

if TYPE_CHECKING:
    from tokengeom.statistics.next_token import NextTokenStatistics

S = TypeVar("S", bound="NextTokenStatistics")
TOKENIZER = "tokenizer.json"
_ARRAYS, _VOCABULARY, _LABELS = "arrays.safetensors", "vocabulary.parquet", "labels.parquet"
_MOST_WINDOWS = 2.0**53
_BYTES_PER_NAME = 100
_ROWS_AT_ONCE = 1 << 18
_CONTEXTS_SHOWN, _TOKENS_SHOWN = 3, 5
_Whole = Annotated[int, Within(0)]


class CorpusFacts(TypedDict, total=False):
    """What was read: any entries, of which those that are used later have these types."""

    documents: _Whole
    tokens: _Whole
    short_documents: _Whole
    replaced_bytes: _Whole
    sources: list[str]
    separators: list[str]
    skipped_files: list[str]
    likely_separators: list[_Whole]
    tokenizer_reason: str


@dataclass(frozen=True)
class Origin:
    """Where saved statistics or pairs come from, as their manifest states it."""

    window: Windows | None
    tokenizer: dict[str, Any] | None
    cuts: tuple[Effect, ...]
    corpus: CorpusFacts


@dataclass(frozen=True)
class _Stated(Origin):
    """What is read from the manifest of statistics; its numbers follow from the arrays, and are checked by `verify`."""

    hash: Digest


def entries(statistics: NextTokenStatistics) -> dict[str, Any]:
    """What a manifest states, and warnings."""
    text = statistics.text_counts
    return {
        "windows": statistics.n if statistics.has_counts else None,
        "coverage": statistics.coverage,
        "left_out": 0.0 if text is None else float(1 - statistics.n / text.sum()),
        "contexts": statistics.m,
        "vocabulary": statistics.V,
        "entropy_nats": statistics.entropy,
        "distinct_supports": statistics.groups.count,
        "one_hot_share": statistics.one_hot_share,
        "completeness": None if statistics.completeness is None else statistics.completeness.to_dict(),
        "hash": statistics.hash,
        "window": None if statistics.windows is None else asdict(statistics.windows),
        "tokenizer": None if statistics.tokenizer is None else statistics.tokenizer.to_dict(),
        "cuts": [asdict(effect) for effect in statistics.effects],
        "corpus": statistics.corpus,
        "warnings": warnings_about(statistics),
    }


def summary(statistics: NextTokenStatistics) -> str:
    """Sizes, entropy floor, supports, cuts and warnings, one sentence per line."""
    windows = f"{_number(statistics.n, 'window')} with " if statistics.has_counts else ""
    supports, merged = _number(statistics.groups.count, "distinct support"), statistics.merged_share
    return "\n".join(
        [
            f"{windows}{_number(statistics.m, 'distinct context')} and {_number(statistics.V, 'next token')} "
            f"(tokenizer: {statistics.tokenizer_name}).",
            f"The entropy floor is {statistics.entropy:.4f} nats: no model's loss on these windows is lower.",
            f"{supports}, with {statistics.table.nnz / statistics.m:.2f} tokens per context on average; "
            f"{rounded_percent(statistics.one_hot_share, 1)} of the contexts have a support of one token.",
            *([f"{rounded_percent(merged, 1)} of the windows end in {OTHER}."] if merged else []),
            *(effect.sentence for effect in statistics.effects),
            *warnings_about(statistics),
        ]
    )


def facts(statistics: NextTokenStatistics) -> list[tuple[str, str]]:
    """Sizes, and what follows the most frequent contexts, as rows of a table."""
    kept = "" if statistics.coverage is None else f" ({rounded_percent(statistics.coverage, 1)} of the text's)"
    return [
        *([("windows", f"{statistics.n:,}{kept}")] if statistics.has_counts else []),
        ("contexts", f"{statistics.m:,}"),
        ("vocabulary", f"{statistics.V:,}"),
        ("entropy floor", f"{statistics.entropy:.4f} nats"),
        ("distinct supports", f"{statistics.groups.count:,}"),
        ("support size", f"{statistics.support_sizes.mean():.2f} on average"),
        ("one-hot contexts", rounded_percent(statistics.one_hot_share, 1)),
        ("tokenizer", statistics.tokenizer_name),
        ("hash", statistics.hash[:8]),
        *(
            (f"after \u201c{statistics.context_text(j)}\u201d", followers(statistics, j, _TOKENS_SHOWN))
            for j in statistics.most_frequent(_CONTEXTS_SHOWN).tolist()
        ),
    ]


def followers(statistics: NextTokenStatistics, j: int, k: int, shown: Callable[[str], str] = str) -> str:
    """The k most frequent next tokens of a context, with their shares of all of its windows in the text."""
    more, left_out = int(statistics.support_sizes[j]) - k, float(statistics.left_out[j])
    tokens = (f"{shown(token)} {rounded_percent(p * (1 - left_out))}" for token, p in statistics.next_tokens(j, k))
    rest = f", and {more:,} more" if more > 0 else ""
    rest += f" (left out: {rounded_percent(left_out)})" if left_out else ""
    return ", ".join(tokens) + rest


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def write_statistics(statistics: NextTokenStatistics, folder: Path) -> dict[str, Any]:
    """Write every file but the manifest; returns what the manifest states."""
    arrays = {
        "data": statistics.table.data,
        "indices": statistics.table.indices,
        "indptr": statistics.table.indptr,
        "contexts": statistics.contexts,
        "pi": statistics.context_share,
        "text_counts": statistics.text_counts,
    }
    save_arrays({name: array for name, array in arrays.items() if array is not None}, folder / _ARRAYS)
    _write_names(folder / _VOCABULARY, statistics.vocabulary)
    if statistics.labels is not None:
        _write_names(folder / _LABELS, statistics.labels)
    if statistics.tokenizer is not None:
        (folder / TOKENIZER).write_text(statistics.tokenizer.to_json(), encoding="utf-8")
    return {name: value for name, value in entries(statistics).items() if name != "warnings"}


def read_statistics(kind: type[S], folder: Path, manifest: dict[str, Any]) -> S:
    """The statistics that `write_statistics` wrote: arrays that fit together, and have the hash that is stated."""
    stated = from_entries(_Stated, manifest, folder)
    try:
        statistics = kind(**_read_arrays(folder), **_origin(folder, stated), claimed=manifest)
    except StatisticsError as error:
        raise damaged(folder, str(error).rstrip(".")) from error
    fault = saved_fault(statistics)
    if fault is not None:
        raise damaged(folder, fault)
    if stated.hash != statistics.hash:
        raise damaged(folder, "counts, contexts, vocabulary and labels do not have the hash that the manifest states")
    return statistics


def content_hash(statistics: NextTokenStatistics) -> str:
    """SHA-256 of table, shares, contexts, vocabulary and labels."""
    ids = None if statistics.contexts is None else statistics.contexts.shape
    described = (statistics.table.shape, statistics.has_counts, ids, statistics.vocabulary, statistics.labels)
    digest = hashlib.sha256(repr(described).encode("utf-8", "backslashreplace"))
    # One type per array: scipy may hold equal indices with 32 or with 64 bits.
    _add_array(digest, statistics.table.data, "<i8" if statistics.has_counts else "<f8")
    _add_array(digest, statistics.table.indices, "<i8")
    _add_array(digest, statistics.table.indptr, "<i8")
    for _, share in statistics.shares():
        _add_array(digest, share, "<f8")
    if statistics.contexts is not None:
        _add_array(digest, statistics.contexts, "<i4")
    return digest.hexdigest()


def _add_array(digest: hashlib._Hash, array: NDArray[Any], kind: str) -> None:
    """Add an array to a hash in one type of numbers, some rows at a time: a copy of all would be as large as it is."""
    for begin in range(0, len(array), _ROWS_AT_ONCE):
        digest.update(np.ascontiguousarray(array[begin : begin + _ROWS_AT_ONCE], kind).data)


def _origin(folder: Path, stated: Origin) -> dict[str, Any]:
    return {
        "tokenizer": load_tokenizer(folder / TOKENIZER) if stated.tokenizer is not None else None,
        "windows": stated.window,
        "effects": stated.cuts,
        "corpus": stated.corpus,
    }


def _read_arrays(folder: Path) -> dict[str, Any]:
    """Arrays and names of saved statistics, of the right types and shapes."""
    arrays = SavedArrays(folder / _ARRAYS)
    arrays.only("data", "indices", "indptr", "contexts", "pi", "text_counts")
    vocabulary = _read_names(folder / _VOCABULARY)
    has_counts = not arrays.has("pi")
    table = arrays.table("", np.int64 if has_counts else np.float64, (len(vocabulary), None))
    m = table.shape[1]
    return {
        "table": table,
        "context_share": None if has_counts else arrays.shares("pi", m),
        "vocabulary": vocabulary,
        "contexts": arrays.array("contexts", np.int32, (m, None)) if arrays.has("contexts") else None,
        "labels": _read_names(folder / _LABELS) if (folder / _LABELS).is_file() else None,
        "text_counts": arrays.array("text_counts", np.int64, (m,)) if arrays.has("text_counts") else None,
    }


def _write_names(path: Path, names: Sequence[str]) -> None:
    """Write names to a Parquet file with one column, ``text``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_arrays([text_array(names)], names=["text"]), path)


def _read_names(path: Path) -> tuple[str, ...]:
    """Names from what `_write_names` wrote."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # A small file can claim any number of equal names.
        require_memory(_BYTES_PER_NAME * pq.read_metadata(path).num_rows, f"The names in {path}", "Check the file.")
        column = pq.read_table(path, columns=["text"])["text"]
        column.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise damaged(path.parent, f"{path.name} cannot be read ({str(error).splitlines()[0]})") from error
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)) or column.null_count:
        missing = f"{column.type}, {column.null_count} missing"
        raise damaged(path.parent, f"{path.name} must have one text per row; got {missing}")
    return tuple(column.to_pylist())


def saved_fault(statistics: NextTokenStatistics) -> str | None:
    """What in saved statistics cannot be true; None if nothing is found."""
    counted = statistics.table.data if statistics.text_counts is None else statistics.text_counts
    if statistics.has_counts and float(counted.sum(dtype=np.float64)) > _MOST_WINDOWS:
        return "its counts add up to more than any text has"
    if statistics.windows is not None and (statistics.contexts is None or not statistics.has_counts):
        return "windows of a text were counted, so there must be counts and contexts"
    if statistics.contexts is None:
        return None
    return contexts_fault(statistics.contexts, statistics.windows, statistics.text_vocabulary)


def contexts_fault(contexts: NDArray[np.int32], windows: Windows | None, vocabulary: int) -> str | None:
    """What shows that contexts are not those of a text's windows: length, ids, repetitions; None if nothing does.

    ``windows``     The windows that were counted; None for contexts that a user gave, which may have any ids and
                    repeat.
    ``vocabulary``  Number of tokens that the text could have.
    """
    if windows is None:
        bad = contexts.size and contexts.min() < ABSENT
        return f"ids of contexts must be at least {ABSENT}; one is {contexts.min()}" if bad else None
    if contexts.shape[1] != windows.context:
        return f"contexts must have {windows.context} tokens, as the windows do; they have {contexts.shape[1]}"
    lowest = windows.lowest_field
    smallest, largest = int(contexts.min(initial=0)), int(contexts.max(initial=0))
    if not lowest <= smallest <= largest < vocabulary:
        return f"ids of contexts must lie in {lowest}..{vocabulary - 1}; they lie in {smallest}..{largest}"
    if not in_order(contexts) and len(np.unique(contexts, axis=0)) < len(contexts):
        return "contexts must be distinct, and one occurs twice"
    return None


def in_order(contexts: NDArray[np.int32]) -> bool:
    """Whether each context comes after the one before it in the order of token ids, oldest first: all are distinct."""
    # Some at a time: arrays for all contexts are large.
    return all(
        bool(rises(contexts[begin : begin + _ROWS_AT_ONCE + 1].T).all())
        for begin in range(0, len(contexts), _ROWS_AT_ONCE)
    )


def rises(columns: Sequence[NDArray[np.integer[Any]]] | NDArray[np.int32]) -> Bool:
    """Whether each row comes after the one before it, by the first column, then the second, and so on."""
    rising = np.zeros(len(columns[0]) - 1, np.bool_)
    for column in reversed(columns):
        before, after = column[:-1], column[1:]
        rising = (before < after) | ((before == after) & rising)
    return rising
