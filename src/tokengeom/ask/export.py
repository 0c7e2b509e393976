"""`export`: embeddings with their names, in files for other programs.

An exported folder holds, for tokens and for contexts,

======================  ================================================================================================
``projector``           ``tokens_vectors.tsv`` and ``tokens_metadata.tsv`` (name, frequency, supports), and
                        ``projector_config.pbtxt``: ``tensorboard --logdir FOLDER`` shows them in its Projector tab, and
                        the standalone projector (https://projector.tensorflow.org) loads the two files
``word2vec``            ``tokens.txt``: "number dimension", then a name and its coordinates per line;
                        ``gensim.models.KeyedVectors.load_word2vec_format`` reads it
``numpy``               ``tokens.npz`` with ``vectors``, ``names``, ``frequency``, supports and, for tokens of a model
                        that has one, ``bias``; nothing is pickled
======================  ================================================================================================

and a manifest with the hash of every file. Vectors are rows of W with their mean removed, and columns of H. Text files
have single precision, NumPy files double. Names are written as `tokengeom.ask.named_vectors` says, so that every name
is one word in ``word2vec``, and one line in the others. `tokengeom.load_arrays` reads ``word2vec`` and ``numpy`` back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from tokengeom.ask.named_vectors import Items, NamedVectors, numbered, one_line, one_word
from tokengeom.comparison.checkpoints import CheckpointCurve
from tokengeom.core.errors import InputError, ProblemError
from tokengeom.core.factors import Factors, HasFactors
from tokengeom.core.numerics import Float
from tokengeom.core.settings import make, nearest_hint, option, takes
from tokengeom.results.contract import AbstractResult
from tokengeom.results.folders import atomic_folder, check_target
from tokengeom.results.manifests import write_manifest
from tokengeom.results.registry import EXPORTED, load
from tokengeom.statistics.next_token import NextTokenStatistics, statistics_of

Format = Literal["projector", "word2vec", "numpy"]
Choice = Literal["both", "tokens", "contexts"]
FORMAT_VERSION = 1
BLOCK_NUMBERS = 1 << 21
"""Coordinates that are turned into text at a time."""


@dataclass(frozen=True)
class ExportSettings:
    """What is exported, and how."""

    format: Format = option(
        "projector",
        "Files to write: projector (TensorBoard's embedding projector), word2vec (text that gensim reads) or numpy "
        "(.npz).",
    )
    items: Choice = option("both", "Which embeddings: tokens, contexts, or both.")

    def __post_init__(self) -> None:
        for name, value, known in (
            ("format", self.format, get_args(Format)),
            ("items", self.items, get_args(Choice)),
        ):
            if value not in known:
                hint = nearest_hint(str(value), known)
                raise InputError(f"{name} must be one of {', '.join(known)}; got {value!r}.{hint}")


@takes(ExportSettings)
def export(
    result: HasFactors | CheckpointCurve | tuple[object, object] | str | Path,
    folder: str | Path,
    *,
    stats: NextTokenStatistics | str | Path | None = None,
    **settings: object,
) -> Path:
    """Write the embeddings of a prediction, a run or a trained model with their names; returns the folder.

    The folder appears complete or not at all. An older export under that name is replaced, anything else refused.

    Parameters
    ----------
    result
        A prediction (in the limit, at a loss, or the proxy), a run, compared checkpoints (the last one is exported),
        anything with W (V x d) and H (d x m), or the folder of a saved result.
    folder
        Folder to write.
    stats
        The statistics, or their folder, that name tokens and contexts. Predictions that were made in this session have
        them; runs and loaded results do not.
    """
    chosen = make(ExportSettings, settings, "export")
    target = Path(folder)
    check_target(target, EXPORTED)
    given = load(result) if isinstance(result, str | Path) else result
    source: Any = given.points[-1] if isinstance(given, CheckpointCurve) else given
    factors = _factors(source)
    names = getattr(given, "stats", None) if stats is None else statistics_of(stats, "export")
    # A run that was trained on labels has no statistics, and no names.
    if names is None and isinstance(given, AbstractResult) and getattr(given, "statistics_hash", "") is not None:
        raise InputError(
            f"This {type(given).__name__} has no names of tokens and contexts: pass the statistics that it is for, "
            "export(result, folder, stats=...), or on the command line --stats FOLDER."
        )
    kinds: tuple[Items, ...] = ("tokens", "contexts") if chosen.items == "both" else (chosen.items,)
    tables = [NamedVectors.of(source, items, names) for items in kinds]
    with atomic_folder(target, EXPORTED) as work:
        for table in tables:
            _WRITERS[chosen.format](work, table, factors)
        if chosen.format == "projector":
            (work / "projector_config.pbtxt").write_text("".join(map(_projector_entry, kinds)), encoding="utf-8")
        described = {"files_for": chosen.format, "items": list(kinds), "dimension": int(factors.W.shape[1])}
        hashed = {"statistics_hash": None if names is None else names.hash}
        write_manifest(work, EXPORTED, FORMAT_VERSION, described | hashed)
    return target


def _factors(source: Any) -> Factors:
    """W and H of what is exported; results without them are refused by name."""
    try:
        return Factors.of(source)
    except ProblemError as error:
        if hasattr(source, "W") or isinstance(source, tuple | list):
            raise
        raise InputError(
            "Only results with embeddings W and H can be exported: predictions for learned features, runs and "
            f"compared checkpoints; got {type(source).__name__}. Its table is to_frame()."
        ) from error


def _write_projector(folder: Path, table: NamedVectors, factors: Factors) -> None:
    columns = table.columns()
    names = list(map(one_line, table.names))
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


def _projector_entry(items: Items) -> str:
    return (
        f'embeddings {{\n  tensor_name: "{items}"\n  tensor_path: "{items}_vectors.tsv"\n'
        f'  metadata_path: "{items}_metadata.tsv"\n}}\n'
    )


def _write_word2vec(folder: Path, table: NamedVectors, factors: Factors) -> None:
    words = iter(numbered(map(one_word, table.names)))
    with (folder / f"{table.items}.txt").open("wb") as file:
        file.write(b"%d %d\n" % table.matrix.shape)
        for block in _blocks(table):
            lines = _as_text(block, " ").splitlines()
            file.writelines(b"%s %s\n" % (next(words).encode(), line) for line in lines)


def _write_numpy(folder: Path, table: NamedVectors, factors: Factors) -> None:
    names = np.array([one_line(name) for name in table.names])
    arrays: dict[str, Any] = {"vectors": table.vectors, "names": names, **table.columns()}
    if table.items == "tokens" and factors.bias is not None:
        arrays["bias"] = factors.bias
    np.savez(folder / f"{table.items}.npz", **arrays)


_WRITERS = {"projector": _write_projector, "word2vec": _write_word2vec, "numpy": _write_numpy}


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
