r"""`NamedVectors`: one vector per token or context, with its name and how frequent it is; as a table or as files.

Files are in one of three formats, per kind of items (here tokens):

``projector``
    ``tokens_vectors.tsv`` and ``tokens_metadata.tsv`` (name, frequency, supports), and ``projector_config.pbtxt``:
    ``tensorboard --logdir FOLDER`` shows them in its Projector tab, and the standalone projector
    (https://projector.tensorflow.org) loads the two files.
``word2vec``
    ``tokens.txt``: "number dimension", then a name and its coordinates per line;
    ``gensim.models.KeyedVectors.load_word2vec_format`` reads it.
``numpy``
    ``tokens.npz`` with ``vectors``, ``names``, ``frequency``, supports and, for tokens of a model that has one,
    ``bias``; nothing is pickled.

Text files have single precision, NumPy files double. Every name is one word in ``word2vec``, and one line in the
others. These two forms of a name can be read back without loss:

``one_line``
    A backslash becomes ``\\``, and every control character, line break and half of a surrogate pair ``\uXXXX``. An
    empty name becomes ``\e``.
``one_word``
    The same, and a space becomes ``▁`` (U+2581, as SentencePiece writes it), and ``▁`` itself, every other white
    space and every control of the writing direction, which would show the numbers after it reversed, ``\uXXXX``.

In ``tokens_metadata.tsv``, which spreadsheets open, a first ``=``, ``+``, ``-`` or ``@`` that is followed by more, and
controls of the writing direction, are ``\uXXXX`` too (`as_cell`), so that no cell is a formula. The other formats keep
these first characters: their names must be the words by which other programs look vectors up.

`numbered` makes equal names different: the second is followed by ``\#2``, the third by ``\#3``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from tokengeom.core.errors import InputError
from tokengeom.core.factors import Factors, HasFactors
from tokengeom.core.numerics import Float, Int
from tokengeom.core.settings import takes
from tokengeom.results.contract import data_frame

if TYPE_CHECKING:
    from pandas import DataFrame

    from tokengeom.statistics.next_token import NextTokenStatistics

Items = Literal["tokens", "contexts"]
Format = Literal["projector", "word2vec", "numpy"]
BLOCK_NUMBERS = 1 << 21
"""Coordinates that are turned into text at a time."""
SPACE = "\u2581"
EMPTY = "\\e"
SUPPORT_COLUMN: dict[Items, str] = {"tokens": "contexts", "contexts": "support_size"}
"""What `NamedVectors.supports` counts: contexts that a token follows, and tokens that follow a context."""
_CONTROL = "\\\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"
_NOT_IN_LINE = re.compile(f"[{_CONTROL}]")
_DIRECTION = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""Controls of the writing direction."""
_NOT_IN_CELL = re.compile(rf"^[=+\-@](?=.)|[{_DIRECTION}]")
"""A beginning that makes a formula of what follows it, and controls of the writing direction."""
_NOT_IN_WORD = re.compile(f"[{_CONTROL}{_DIRECTION}{SPACE} \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")


@dataclass(frozen=True, eq=False)
class NamedVectors:
    """Vectors of all tokens or all contexts, with their names.

    ``items``
        "tokens" or "contexts".
    ``names``
        One name per vector, as statistics show it; "token 0", "token 1", ... where there are no statistics.
    ``matrix``, ``mean``
        Rows of W (V x d) and their mean, or columns of H (m x d) and 0. A vector is a row of the first without the
        second: removing the mean of all tokens changes no probability, and cosines between tokens are compared so.
    ``frequency``
        Share of the windows with this context, or with this next token; None where not known.
    ``supports``
        Number of contexts that a token follows, or of tokens that follow a context; None where not known.
    """

    items: Items
    names: tuple[str, ...]
    matrix: Float
    mean: Float
    frequency: Float | None
    supports: Int | None

    @staticmethod
    @takes()
    def of(
        given: HasFactors | tuple[object, object], items: Items, stats: NextTokenStatistics | None = None
    ) -> NamedVectors:
        """Vectors of anything with W and H, named by the statistics that it belongs to."""
        factors = Factors.of(given)
        matrix = factors.W if items == "tokens" else factors.H.T
        mean = factors.W.mean(axis=0) if items == "tokens" else np.zeros(matrix.shape[1])
        if stats is None:
            names = tuple(f"{items[:-1]} {number}" for number in range(len(matrix)))
            return NamedVectors(items, names, matrix, mean, None, None)
        require_same_items(given, factors, stats)
        names = item_names(stats, items)
        return NamedVectors(items, names, matrix, mean, frequency_of(stats, items), support_sizes(stats, items))

    @property
    def vectors(self) -> Float:
        """All vectors, one per row."""
        return self.rows(0, len(self.names))

    def rows(self, begin: int, end: int) -> Float:
        """Some of the vectors, one per row."""
        return np.asarray(self.matrix[begin:end] - self.mean)

    def columns(self) -> dict[str, NDArray[Any]]:
        """What is known about each item besides its name."""
        columns = {"frequency": self.frequency, SUPPORT_COLUMN[self.items]: self.supports}
        return {name: values for name, values in columns.items() if values is not None}

    def to_frame(self) -> DataFrame:
        """Data frame with one row per item, indexed by name: what is known about it, then coordinates x0, x1, ..."""
        coordinates = [f"x{k}" for k in range(self.matrix.shape[1])]
        frame = data_frame(self.vectors, columns=coordinates, index=list(self.names))
        for place, (name, values) in enumerate(self.columns().items()):
            frame.insert(place, name, values)
        return frame.rename_axis(self.items[:-1])


def item_names(stats: NextTokenStatistics, items: Items) -> tuple[str, ...]:
    """Names of all tokens or contexts of statistics, in their order."""
    return stats.vocabulary if items == "tokens" else tuple(map(stats.context_text, range(stats.m)))


def frequency_of(stats: NextTokenStatistics, items: Items) -> Float:
    """Share of the windows with each next token, or with each context."""
    return np.asarray(stats.P @ stats.pi) if items == "tokens" else stats.pi


def support_sizes(stats: NextTokenStatistics, items: Items) -> Int:
    """Number of contexts that each token follows, or of tokens that follow each context."""
    if items == "contexts":
        return np.asarray(stats.support_sizes)
    return np.bincount(stats.P.indices, minlength=stats.V).astype(np.int64)


def require_own(given: object, stats: NextTokenStatistics) -> None:
    """Refuse statistics that are not those of a prediction or a run: their names would be wrong."""
    known = getattr(given, "statistics_hash", None)
    if known is not None and known != stats.hash:
        raise InputError(
            f"The embeddings of this {type(given).__name__} are for other statistics (hash {known[:8]}) than these "
            f"({stats.hash[:8]}): it was predicted from, or trained on, another text or other cuts. Pass its own "
            "statistics."
        )


def require_same_items(given: object, factors: Factors, stats: NextTokenStatistics) -> None:
    """Refuse statistics that other embeddings belong to, or that have other numbers of tokens and contexts."""
    require_own(given, stats)
    if (factors.W.shape[0], factors.H.shape[1]) != (stats.V, stats.m):
        raise InputError(
            f"Names must come from the statistics that the embeddings are for: W and H have {factors.W.shape[0]:,} "
            f"tokens and {factors.H.shape[1]:,} contexts, the statistics {stats.V:,} and {stats.m:,}."
        )


def one_line(name: str) -> str:
    """A name without line breaks, tabs and other control characters; see the top of this file."""
    return _NOT_IN_LINE.sub(_escaped, name) or EMPTY


def one_word(name: str) -> str:
    """A name without white space and control characters, those of the writing direction included; see above."""
    return _NOT_IN_WORD.sub(_escaped, name) or EMPTY


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    return {"\\": "\\\\", " ": SPACE}.get(character) or f"\\u{ord(character):04x}"


def numbered(names: Iterable[str]) -> list[str]:
    """The names, all different: an equal one is followed by its number."""
    seen: dict[str, int] = {}
    different = []
    for name in names:
        seen[name] = number = seen.get(name, 0) + 1
        different.append(name if number == 1 else f"{name}\\#{number}")
    return different


def as_cell(line: str) -> str:
    """A name in one line as a cell that no spreadsheet computes and no display reverses."""
    return _NOT_IN_CELL.sub(_escaped, line)


def _write_projector(folder: Path, table: NamedVectors, bias: Float | None) -> None:
    columns = table.columns()
    names = [as_cell(one_line(name)) for name in table.names]
    lines = ["\t".join(["name", *columns])] if columns else []
    values = [column.tolist() for column in columns.values()]
    lines += ["\t".join([name, *map(str, rest)]) for name, *rest in zip(names, *values, strict=True)]
    with (folder / f"{table.items}_metadata.tsv").open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)
    with (folder / f"{table.items}_vectors.tsv").open("wb") as file:
        for block in _blocks(table):
            # The projector refuses vectors of one dimension.
            wide = block if block.shape[1] > 1 else np.column_stack([block, np.zeros(len(block))])
            file.write(_as_text(wide, "\t"))


def projector_config(kinds: Iterable[Items]) -> str:
    """The file by which TensorBoard finds vectors and metadata."""
    return "".join(
        f'embeddings {{\n  tensor_name: "{items}"\n  tensor_path: "{items}_vectors.tsv"\n'
        f'  metadata_path: "{items}_metadata.tsv"\n}}\n'
        for items in kinds
    )


def _write_word2vec(folder: Path, table: NamedVectors, bias: Float | None) -> None:
    words = iter(numbered(map(one_word, table.names)))
    with (folder / f"{table.items}.txt").open("wb") as file:
        file.write(b"%d %d\n" % table.matrix.shape)
        for block in _blocks(table):
            lines = _as_text(block, " ").splitlines()
            file.writelines(b"%s %s\n" % (next(words).encode(), line) for line in lines)


def _write_numpy(folder: Path, table: NamedVectors, bias: Float | None) -> None:
    names = np.array([one_line(name) for name in table.names])
    arrays: dict[str, Any] = {"vectors": table.vectors, "names": names, **table.columns()}
    if table.items == "tokens" and bias is not None:
        arrays["bias"] = bias
    np.savez(folder / f"{table.items}.npz", **arrays)


WRITERS: dict[Format, Callable[[Path, NamedVectors, Float | None], None]] = {
    "projector": _write_projector,
    "word2vec": _write_word2vec,
    "numpy": _write_numpy,
}
"""What writes vectors into a folder, by format; the last argument is the bias of the tokens, or None."""


def _blocks(table: NamedVectors) -> Iterator[Float]:
    """The vectors, some at a time."""
    size = max(1, BLOCK_NUMBERS // table.matrix.shape[1])
    for begin in range(0, len(table.names), size):
        yield table.rows(begin, begin + size)


def _as_text(block: Float, separator: str) -> bytes:
    """Numbers in single precision, one row per line, in the fewest digits that are read back as the same number."""
    import pyarrow as pa
    from pyarrow import csv

    columns = np.ascontiguousarray(block.T, dtype=np.float32)
    table = pa.RecordBatch.from_arrays([pa.array(column) for column in columns], [str(k) for k in range(len(columns))])
    options = csv.WriteOptions(include_header=False, delimiter=separator, quoting_style="none")
    sink = pa.BufferOutputStream()
    csv.write_csv(table, sink, options)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
