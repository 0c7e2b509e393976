"""Statistics on disk: a folder that any language with Parquet, safetensors and JSON can read.

::

    manifest.json         format, version, sizes, entropy, cuts, corpus, tokenizer hash, hash of each file
    arrays.safetensors    the V x m matrix in CSC form: data, indices, indptr; contexts, m x L ids, oldest first (-1 the
                          start of a document, -2 before a shorter context); pi, where there are no counts
    vocabulary.parquet    one row a next token: its text
    labels.parquet        one row a context: its name, where contexts have no ids
    tokenizer.json        the tokenizer, where there is one
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from scipy import sparse

from tokengeom.corpus.tokenizers import load_tokenizer
from tokengeom.errors import StatisticsError
from tokengeom.folders import read_manifest, write_manifest, written_beside
from tokengeom.statistics.cuts import describe_effects, read_effects
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.statistics.windows import Windows

FORMAT, FORMAT_VERSION = "tokengeom-statistics", 1


def save_statistics(statistics: NextTokenStatistics, folder: Path) -> None:
    """Write statistics; an older result of that name is replaced only once the new one is whole."""
    with written_beside(folder, FORMAT) as work:
        _save_into(statistics, work)


def _save_into(statistics: NextTokenStatistics, folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = statistics.table
    arrays = {
        "data": table.data,
        "indices": table.indices,
        "indptr": table.indptr,
        "contexts": statistics.contexts,
        "pi": statistics.context_share,
    }
    save_file({name: array for name, array in arrays.items() if array is not None}, folder / "arrays.safetensors")
    pq.write_table(pa.table({"text": list(statistics.vocabulary)}), folder / "vocabulary.parquet")
    if statistics.labels is not None:
        pq.write_table(pa.table({"text": list(statistics.labels)}), folder / "labels.parquet")
    if statistics.tokenizer is not None:
        (folder / "tokenizer.json").write_text(statistics.tokenizer.to_json(), encoding="utf-8")
    write_manifest(folder, FORMAT, FORMAT_VERSION, _content(statistics))


def _content(statistics: NextTokenStatistics) -> dict[str, Any]:
    return {
        "windows_counted": statistics.n if statistics.has_counts else None,
        "contexts": statistics.m,
        "vocabulary": statistics.V,
        "entropy_nats": statistics.entropy,
        "windows": vars(statistics.windows) if statistics.windows is not None else None,
        "tokenizer": statistics.tokenizer.content_hash if statistics.tokenizer is not None else None,
        "cuts": describe_effects(statistics.effects),
        "corpus": statistics.corpus,
    }


def read_content(folder: Path) -> dict[str, Any]:
    """The manifest of saved statistics."""
    return read_manifest(folder, FORMAT, FORMAT_VERSION)


def load_statistics(folder: Path) -> NextTokenStatistics:
    """Read statistics, refusing what is broken, foreign or from a newer version."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    manifest = read_content(folder)
    try:
        arrays = load_file(folder / "arrays.safetensors")
        vocabulary = pq.read_table(folder / "vocabulary.parquet")["text"].to_pylist()
        labelled = (folder / "labels.parquet").is_file()
        labels = pq.read_table(folder / "labels.parquet")["text"].to_pylist() if labelled else None
    except (OSError, SafetensorError, pa.ArrowException) as error:
        raise StatisticsError(f"{folder} is incomplete or damaged: {error}. Count again.") from error
    try:
        shape = (manifest["vocabulary"], manifest["contexts"])
        table = sparse.csc_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=shape)
        # An index out of range would be followed blindly later on.
        table.check_format(full_check=True)
        return NextTokenStatistics(
            table=table,
            context_share=arrays.get("pi"),
            vocabulary=tuple(vocabulary),
            contexts=arrays.get("contexts"),
            labels=None if labels is None else tuple(labels),
            tokenizer=load_tokenizer(folder / "tokenizer.json") if manifest["tokenizer"] else None,
            windows=Windows(**manifest["windows"]) if manifest["windows"] else None,
            effects=read_effects(manifest["cuts"]),
            corpus=manifest["corpus"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StatisticsError(f"{folder} is damaged: {error!r}. Count again.") from error
