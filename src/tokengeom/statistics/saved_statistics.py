"""Saved statistics: written, read and checked, and what their manifest claims computed again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokengeom.core.checks import Entries
from tokengeom.corpus.tokenizers import load_tokenizer
from tokengeom.statistics.arrays_file import SavedArrays, save_arrays
from tokengeom.statistics.cuts import follows
from tokengeom.statistics.saved_parts import (
    contexts_fault,
    in_order,
    names_fit,
    read_corpus,
    read_effects,
    read_names,
    read_windows,
    same,
    write_names,
)

if TYPE_CHECKING:
    from tokengeom.statistics.next_token import NextTokenStatistics

_ARRAYS, _TOKENIZER = "arrays.safetensors", "tokenizer.json"
_VOCABULARY, _LABELS = "vocabulary.parquet", "labels.parquet"
_MOST_WINDOWS = 2.0**53


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
    write_names(folder / _VOCABULARY, statistics.vocabulary)
    if statistics.labels is not None:
        write_names(folder / _LABELS, statistics.labels)
    if statistics.tokenizer is not None:
        (folder / _TOKENIZER).write_text(statistics.tokenizer.to_json(), encoding="utf-8")
    return {name: value for name, value in statistics.to_dict().items() if name != "warnings"}


def read_fields(folder: Path, saved: Entries) -> dict[str, Any]:
    """The fields of saved statistics by name: arrays of the right types and shapes, and what the manifest adds."""
    arrays = SavedArrays(folder / _ARRAYS)
    arrays.only("data", "indices", "indptr", "contexts", "pi", "text_counts")
    vocabulary = read_names(folder / _VOCABULARY, saved)
    has_counts = not arrays.has("pi")
    table = arrays.table("", np.int64 if has_counts else np.float64, (len(vocabulary), None))
    m = table.shape[1]
    return {
        "table": table,
        "context_share": None if has_counts else arrays.shares("pi", m),
        "vocabulary": vocabulary,
        "contexts": arrays.array("contexts", np.int32, (m, None)) if arrays.has("contexts") else None,
        "labels": read_names(folder / _LABELS, saved) if (folder / _LABELS).is_file() else None,
        "text_counts": arrays.array("text_counts", np.int64, (m,)) if arrays.has("text_counts") else None,
        "tokenizer": load_tokenizer(folder / _TOKENIZER) if saved.has("tokenizer") else None,
        "windows": read_windows(saved.inside("window")) if saved.has("window") else None,
        "effects": read_effects(saved),
        "corpus": read_corpus(saved),
    }


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


def check_claims(statistics: NextTokenStatistics, claimed: dict[str, Any]) -> dict[str, bool | None]:
    """Whether the numbers that the manifest states follow from counts, contexts and names."""
    found = statistics.to_dict()

    def equal(*names: str) -> bool:
        return all(same(found[name], claimed.get(name)) for name in names)

    return {
        "the sizes are the ones claimed": equal("windows", "contexts", "vocabulary"),
        "the cuts lead to these sizes": not statistics.has_counts or follows(statistics.effects, statistics.totals),
        "coverage and share left out are the ones claimed": equal("coverage", "left_out"),
        "the entropy floor is the one claimed": equal("entropy_nats"),
        "the supports are the ones claimed": equal("distinct_supports", "one_hot_share"),
        "the estimates of completeness are the ones claimed": equal("completeness"),
        "the tokenizer is the one claimed": equal("tokenizer"),
        "counts, contexts and vocabulary have the hash claimed": equal("hash"),
    }


def check_text(statistics: NextTokenStatistics, other: str, *, is_shared: bool) -> dict[str, bool | None]:
    """What can be known of the text, which is not kept.

    ``other`` is the name of the token that stands for merged ones; ``is_shared`` says that contexts and names are those
    that two texts share.
    """
    if statistics.windows is None:
        return {"that numbers and names are the ones given: they are kept nowhere else": None}
    unknown = "that contexts, counts and corpus are those of the text: the text is not kept with the statistics"
    assert statistics.contexts is not None
    if is_shared:
        return {unknown: None}
    named = names_fit(statistics.vocabulary, statistics.tokenizer, statistics.text_vocabulary, other)
    return {
        "tokens have the names of their ids, in order": named,
        "contexts are in the order of their ids": in_order(statistics.contexts),
        unknown: None,
    }
