"""W and H of a model of any framework from files: safetensors, NumPy, or word2vec text with names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tokengeom.ask.named_vectors import Items, item_names, numbered, one_line, one_word
from tokengeom.core.errors import CheckpointError, ProblemError, TokengeomError
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import Arrays, Float
from tokengeom.core.resources import require_memory
from tokengeom.core.settings import takes
from tokengeom.core.system import require_regular
from tokengeom.results.contract import require_unchanged
from tokengeom.results.manifests import MANIFEST
from tokengeom.statistics.next_token import NextTokenStatistics, statistics_of

_NAMES = ("W", "H", "bias")
_NAMED: tuple[Items, ...] = ("tokens", "contexts")
_LONGEST_LINE = 1 << 26
_KNOWN = (
    "one .safetensors or .npz file with arrays W and H, or a folder with W.npy and H.npy, with tokens.txt and "
    "contexts.txt (word2vec text), or with tokens.npz and contexts.npz (what export writes)"
)


@takes()
def load_arrays(path: str | Path, stats: NextTokenStatistics | str | Path | None = None) -> Factors:
    """W (V x d), H (d x m) and, where there is one, bias (V). Nothing is unpickled.

    Parameters
    ----------
    path
        A ``.safetensors`` or ``.npz`` file with arrays of these names; a folder with ``W.npy`` and ``H.npy`` (and
        ``bias.npy``), or the path of that ``W.npy``; or a folder with one vector and name per token and per context:
        ``tokens.txt`` and ``contexts.txt`` in word2vec's text format, or ``tokens.npz`` and ``contexts.npz``, as
        `tokengeom.export` writes them.
    stats
        Statistics, or their folder, whose tokens and contexts W and H get, in that order. They are found by name, and
        the files may have more of them. Without it, and in files without names, the order is that of the file.
    """
    path = Path(path)
    if (path / MANIFEST).is_file():
        require_unchanged(path)
    named = _named_files(path)
    if named:
        wanted = None if stats is None else statistics_of(stats, "load_arrays")
        tokens, contexts = (_vectors(named[items], items, wanted) for items in _NAMED)
        return _checked(path, tokens["vectors"], contexts["vectors"].T, tokens.get("bias"))
    arrays = _arrays(path)
    absent = [name for name in ("W", "H") if name not in arrays]
    if absent:
        raise CheckpointError(
            f"{path} must have W (V x d, one row per token) and H (d x m, one column per context); "
            f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} missing. "
            f"It has: {', '.join(arrays) or 'neither'}."
        )
    return _checked(path, **{name: arrays.get(name) for name in _NAMES})


def _arrays(path: Path) -> Arrays:
    """Arrays by name, from one file or from a folder with one file each."""
    if path.is_file() and path.suffix in (".safetensors", ".npz"):
        return read_file(path)
    if path.is_dir() or (path.is_file() and path.name == "W.npy"):
        folder = path if path.is_dir() else path.parent
        files = [file for name in _NAMES if (file := folder / f"{name}.npy").is_file()]
        return {name: array for file in files for name, array in read_file(file).items()}
    problem = "is another kind of file" if path.exists() else "does not exist"
    raise CheckpointError(f"W and H must be in {_KNOWN}; {path} {problem}.")


def _named_files(folder: Path) -> dict[Items, Path]:
    """The files with named vectors of tokens and of contexts in a folder; none where it has no such files."""
    for end in (".txt", ".npz"):
        pair = {items: folder / f"{items}{end}" for items in _NAMED}
        there = [items for items, file in pair.items() if file.is_file()]
        if len(there) == 1:
            (other,) = set(_NAMED) - set(there)
            raise CheckpointError(
                f"{folder} has {pair[there[0]].name} and no {pair[other].name}: vectors of tokens and of contexts are "
                "both needed. Export both."
            )
        if there:
            return pair
    return {}


def _vectors(path: Path, items: Items, stats: NextTokenStatistics | None) -> Arrays:
    """Vectors and what else a file has per item, in the order of the statistics where these are given."""
    if path.suffix == ".npz":
        arrays, written = read_file(path), one_line
    else:
        names, vectors = read_word2vec(path)
        arrays, written = {"names": np.array(names, dtype=object), "vectors": vectors}, one_word
    absent = [name for name in ("vectors", "names") if name not in arrays]
    if absent:
        raise CheckpointError(f"{path} must have the arrays vectors and names; it has: {', '.join(arrays)}.")
    if arrays["vectors"].ndim != 2 or any(
        arrays[name].shape != arrays["vectors"].shape[:1] for name in ("names", "bias") if name in arrays
    ):
        raise CheckpointError(
            f"{path} must have one vector per name: vectors with a row for each of the names (and each entry of bias); "
            f"got {', '.join(f'{name} {array.shape}' for name, array in arrays.items())}."
        )
    if stats is None:
        return arrays
    order = _order(path, items, list(map(str, arrays["names"])), item_names(stats, items), written)
    return {name: arrays[name][order] for name in ("vectors", "bias") if name in arrays}


def _order(
    path: Path, items: Items, stored: Sequence[str], wanted: Sequence[str], written: Callable[[str], str]
) -> list[int]:
    """Place in a file of each name of the statistics, which the file may have as `export` writes it or as it is."""
    place: Mapping[str, int] = {name: number for number, name in reversed(list(enumerate(numbered(stored))))}
    keys, plain = numbered(map(written, wanted)), numbered(wanted)
    order = [place.get(key, place.get(name, -1)) for key, name in zip(keys, plain, strict=True)]
    missing = [name for name, number in zip(wanted, order, strict=True) if number < 0]
    if missing:
        shown = ", ".join(map(repr, missing[:5])) + (", ..." if len(missing) > 5 else "")
        raise CheckpointError(
            f"{path} must have a vector for each of the {len(wanted):,} {items} of the statistics; "
            f"{len(missing):,} {'is' if len(missing) == 1 else 'are'} missing: {shown}. Leave them out of the "
            "statistics, or add them to the file."
        )
    return order


def read_word2vec(path: Path) -> tuple[list[str], Float]:
    """Names and vectors (one per row) of a file in word2vec's text format."""
    import pyarrow as pa
    from pyarrow import csv

    rows, d, extra = _word2vec_shape(path)
    columns = ["name", *(f"x{k}" for k in range(d)), *(f"end{k}" for k in range(extra))]
    types = {name: pa.binary() if name[0] == "n" else pa.float64() for name in columns if name[0] != "e"}
    try:
        table = csv.read_csv(
            path,
            csv.ReadOptions(column_names=columns, skip_rows=1),
            csv.ParseOptions(delimiter=" ", quote_char=False),
            csv.ConvertOptions(column_types=types, include_columns=list(types)),
        )
    except (pa.ArrowException, OSError) as error:
        raise CheckpointError(f"{path} cannot be read as word2vec text: {error}. Likely truncated.") from error
    if table.num_rows != rows:
        raise CheckpointError(f"{path} must have {rows:,} vectors, as its first line says; it has {table.num_rows:,}.")
    names = [str(name, "utf-8", "replace") for name in table["name"].to_pylist()]
    vectors = np.empty((rows, d))
    for k in range(d):
        vectors[:, k] = table[k + 1].to_numpy()
    return names, vectors


def _word2vec_shape(path: Path) -> tuple[int, int, int]:
    """Numbers of vectors and dimensions in the first line, and of empty columns at the end of the second."""
    with path.open("rb") as file:
        first, second = file.readline(_LONGEST_LINE).split(), file.readline(_LONGEST_LINE).rstrip(b"\r\n")
    if len(first) != 2 or not all(part.isdigit() and len(part) < 16 for part in first):
        raise CheckpointError(
            f"The first line of {path} must be the number of vectors and their dimension, as in word2vec's text format."
        )
    rows, d = map(int, first)
    if rows < 1 or d < 1 or second.rstrip(b" ").count(b" ") != d:
        raise CheckpointError(
            f"{path} must have a name and {d:,} numbers per line, as its first line says; its second line has "
            f"{second.rstrip(b' ').count(b' '):,} spaces. Likely it is truncated, or another format."
        )
    # The original word2vec ends each line with a space.
    return rows, d, len(second) - len(second.rstrip(b" "))


def _checked(path: Path, W: Any, H: Any, bias: Any) -> Factors:
    for name, array in (("W", W), ("H", H), ("bias", bias)):
        if array is not None and array.dtype.kind not in "fiu":
            raise CheckpointError(f"{name} in {path} must have real numbers; it has {array.dtype}.")
    try:
        return Factors.of(Factors(W, H, bias))
    except ProblemError as error:
        raise CheckpointError(f"{path} has no usable W and H: {error}") from error


def read_file(path: Path) -> Arrays:
    """Arrays by name of a ``.safetensors`` or ``.npz`` file, or the array of a ``.npy`` file under the file's name.

    Nothing is unpickled, and no memory is allocated for more numbers than the file has.
    """
    from safetensors.numpy import load_file

    require_regular(path)
    try:
        return load_file(path) if path.suffix == ".safetensors" else _numpy(path)
    except TokengeomError:
        raise
    # A damaged file leads these libraries to errors of many types; NumPy has no bfloat16, which is a KeyError.
    except Exception as error:
        kind, how = "arrays of numbers", "Likely truncated; pickled objects are refused: save it with numpy.savez"
        if path.suffix == ".safetensors":
            short = isinstance(error, KeyError)
            kind = "safetensors"
            how = "NumPy has no such numbers (bfloat16): save it as float32" if short else "Likely truncated or damaged"
        reason = str(error).rstrip(". ") or type(error).__name__
        raise CheckpointError(f"{path} cannot be read as {kind}: {reason}. {how}.") from error


def _numpy(path: Path) -> Arrays:
    # A mapped file must be as long as its header says, so a false header is refused before memory is allocated.
    loaded = np.load(path, mmap_mode="r", allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        return {path.stem: np.array(loaded)}
    with loaded:
        unpacked = sum(member.file_size for member in loaded.zip.infolist())
        require_memory(unpacked, f"{path}, unpacked,", "Save W and H alone.")
        return dict(loaded)
