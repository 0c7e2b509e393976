"""What saved statistics and saved pairs have in common: windows, cuts, corpus, names of tokens; read and checked.

Nothing in a saved folder is trusted: what is not what it must be is refused, before it is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

import numpy as np
from numpy.typing import NDArray

from tokengeom.core.checks import Entries
from tokengeom.core.numerics import Bool
from tokengeom.core.resources import require_memory
from tokengeom.results.contract import close
from tokengeom.statistics.arrow_arrays import text_array
from tokengeom.statistics.cuts import Effect, Totals
from tokengeom.statistics.windows import ABSENT, LONGEST_CONTEXT, WindowKind, Windows

if TYPE_CHECKING:
    from tokengeom.corpus.tokenizers import AbstractTokenizer

_COUNTED = ("documents", "tokens", "short_documents", "replaced_bytes")
_NAMED = ("sources", "separators", "skipped_files")
_BYTES_PER_NAME = 100
_ROWS_AT_ONCE = 1 << 18


def read_windows(saved: Entries) -> Windows:
    """Windows from an object of a manifest."""
    kind = cast(WindowKind, saved.text("kind", get_args(WindowKind)))
    return Windows(saved.whole("context", 1, LONGEST_CONTEXT), kind, saved.flag("pad"))


def read_totals(saved: Entries) -> Totals:
    """Sizes from an object of a manifest that has the names of the fields."""
    return Totals(saved.whole("n", 1), saved.whole("m", 1), saved.whole("V", 1), saved.within("entropy", 0.0))


def read_effects(saved: Entries) -> tuple[Effect, ...]:
    """Cuts and their effects from a manifest."""
    found = []
    for one in saved.several("cuts"):
        effect = Effect(one.text("cut"), read_totals(one.inside("before")), read_totals(one.inside("after")))
        if effect.after.n > effect.before.n or effect.after.m > effect.before.m:
            raise saved.damaged(f"the cut {effect.cut!r} leaves more windows or contexts than there were before it")
        found.append(effect)
    return tuple(found)


def read_corpus(saved: Entries) -> dict[str, Any]:
    """What was read, from a manifest: any entries, of which those that are used later have the right types."""
    corpus = saved.inside("corpus")
    for name in corpus.names:
        if name in _COUNTED:
            corpus.whole(name)
        elif name in _NAMED:
            corpus.texts(name)
        elif name == "likely_separators":
            corpus.wholes(name)
    return saved.plain("corpus")


def write_names(path: Path, names: Sequence[str]) -> None:
    """Write names to a Parquet file with one column, ``text``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_arrays([text_array(names)], names=["text"]), path)


def read_names(path: Path, saved: Entries) -> tuple[str, ...]:
    """Names from what `write_names` wrote."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # A small file can claim any number of equal names.
        require_memory(_BYTES_PER_NAME * pq.read_metadata(path).num_rows, f"The names in {path}", "Check the file.")
        column = pq.read_table(path, columns=["text"])["text"]
        column.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise saved.damaged(f"{path.name} cannot be read ({str(error).splitlines()[0]})") from error
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)) or column.null_count:
        raise saved.damaged(f"{path.name} must have one text per row; got {column.type}, {column.null_count} missing")
    return tuple(column.to_pylist())


def contexts_fault(contexts: NDArray[np.int32], windows: Windows | None, vocabulary: int) -> str | None:
    """What shows that contexts are not those of a text's windows: length, ids, repetitions; None if nothing does.

    ``windows``
        The windows that were counted; None for contexts that a user gave, which may have any ids and repeat.
    ``vocabulary``
        Number of tokens that the text could have.
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
        bool(_rises(contexts[begin : begin + _ROWS_AT_ONCE + 1]).all())
        for begin in range(0, len(contexts), _ROWS_AT_ONCE)
    )


def _rises(rows: NDArray[np.int32]) -> Bool:
    rises = np.zeros(len(rows) - 1, np.bool_)
    for column in reversed(range(rows.shape[1])):
        before, after = rows[:-1, column], rows[1:, column]
        rises = (before < after) | ((before == after) & rises)
    return rises


def names_fit(names: Sequence[str], tokenizer: AbstractTokenizer | None, vocabulary: int, other: str) -> bool:
    """Whether names are those of tokens of a text, in the order of their ids; a cut may have left out some.

    ``vocabulary``
        Number of tokens that the text could have.
    ``other``
        Name of the token, after all others, that stands for merged ones.
    """
    known: Iterable[str] = () if tokenizer is None else tokenizer.vocabulary()[:vocabulary]
    size = 0 if tokenizer is None else min(tokenizer.size, vocabulary)
    everything = iter(chain(known, (f"token {row}" for row in range(size, vocabulary)), [other]))
    return all(name in everything for name in names)


def same(found: object, claimed: object) -> bool:
    """Whether plain data agree: numbers as far as two machines do, everything else exactly."""
    if isinstance(found, dict) and isinstance(claimed, dict):
        return found.keys() == claimed.keys() and all(same(found[name], claimed[name]) for name in found)
    if isinstance(found, list | tuple) and isinstance(claimed, list | tuple):
        return len(found) == len(claimed) and all(map(same, found, claimed))
    if isinstance(found, float) and isinstance(claimed, int | float) and not isinstance(claimed, bool):
        return close(found, claimed)
    return type(found) is type(claimed) and found == claimed
