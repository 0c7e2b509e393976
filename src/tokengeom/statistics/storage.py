"""Statistics on disk: a folder that any language with Parquet, safetensors and JSON can read.

::

    manifest.json         format, version, sizes, entropy, cuts, corpus, tokenizer hash, hash of each file
    counts.safetensors    the V x m matrix in CSC form: data, indices, indptr (and pi, where there are no counts)
    contexts.parquet      one row a context: ids (oldest first, -1 a document's start), label, share
    vocabulary.parquet    one row a next token: its text
    tokenizer.json        the tokenizer, where there is one
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from scipy import sparse

from tokengeom.corpus.make_tokenizer import load_tokenizer
from tokengeom.errors import StatisticsError
from tokengeom.statistics.cuts import describe_effects, read_effects
from tokengeom.statistics.manifest import read_manifest, write_manifest, written_beside
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.statistics.packing import ABSENT
from tokengeom.statistics.windows import Windows

FORMAT, FORMAT_VERSION = "tokengeom-statistics", 1


def save_statistics(statistics: NextTokenStatistics, folder: Path) -> None:
    """Write statistics; an older result of that name is replaced only once the new one is whole."""
    with written_beside(folder) as work:
        _save_into(statistics, work)


def _save_into(statistics: NextTokenStatistics, folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = statistics.table
    arrays = {"data": table.data, "indices": table.indices, "indptr": table.indptr}
    if statistics.context_share is not None:
        arrays["pi"] = statistics.context_share
    save_file(arrays, folder / "counts.safetensors")
    pq.write_table(_contexts_table(statistics), folder / "contexts.parquet")
    pq.write_table(pa.table({"text": list(statistics.vocabulary)}), folder / "vocabulary.parquet")
    if statistics.tokenizer is not None:
        (folder / "tokenizer.json").write_text(statistics.tokenizer.to_json(), encoding="utf-8")
    write_manifest(folder, FORMAT, FORMAT_VERSION, _content(statistics))


def _content(statistics: NextTokenStatistics) -> dict[str, Any]:
    return {
        "windows_counted": statistics.n if statistics.has_counts else None,
        "contexts": statistics.m,
        "context_length": statistics.contexts.shape[1] if statistics.contexts is not None else None,
        "vocabulary": statistics.V,
        "entropy_nats": statistics.entropy,
        "windows": vars(statistics.windows) if statistics.windows is not None else None,
        "tokenizer": statistics.tokenizer.content_hash if statistics.tokenizer is not None else None,
        "cuts": describe_effects(statistics.effects),
        "corpus": statistics.corpus,
    }


def _contexts_table(statistics: NextTokenStatistics) -> Any:
    import pyarrow as pa

    columns: dict[str, Any] = {"share": statistics.pi}
    if statistics.contexts is not None:
        present = statistics.contexts != ABSENT
        offsets = np.concatenate(([0], np.cumsum(present.sum(axis=1)))).astype(np.int64)
        ids = statistics.contexts.ravel() if present.all() else statistics.contexts[present]
        columns["ids"] = pa.LargeListArray.from_arrays(offsets, ids)
    if statistics.labels is not None:
        columns["label"] = list(statistics.labels)
    return pa.table(columns)


def load_statistics(folder: Path) -> NextTokenStatistics:
    """Read statistics, refusing what is broken, foreign or from a newer version."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    manifest = read_manifest(folder, FORMAT, FORMAT_VERSION)
    try:
        arrays = load_file(folder / "counts.safetensors")
        contexts = pq.read_table(folder / "contexts.parquet")
        vocabulary = pq.read_table(folder / "vocabulary.parquet")["text"].to_pylist()
    except (OSError, SafetensorError, pa.ArrowException) as error:
        raise StatisticsError(f"{folder} is incomplete or damaged: {error}. Count again.") from error
    shape = (manifest["vocabulary"], manifest["contexts"])
    return NextTokenStatistics(
        table=sparse.csc_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=shape),
        context_share=arrays.get("pi"),
        vocabulary=tuple(vocabulary),
        contexts=_read_contexts(contexts, manifest["context_length"]),
        labels=tuple(contexts["label"].to_pylist()) if "label" in contexts.column_names else None,
        tokenizer=load_tokenizer(folder / "tokenizer.json") if manifest["tokenizer"] else None,
        windows=Windows(**manifest["windows"]) if manifest["windows"] else None,
        effects=read_effects(manifest["cuts"]),
        corpus=manifest["corpus"],
    )


def _read_contexts(table: Any, longest: int | None) -> NDArray[np.int32] | None:
    if longest is None:
        return None
    lists = table["ids"].combine_chunks()
    lengths = np.asarray(lists.value_lengths().to_numpy(zero_copy_only=False), np.int64)
    contexts = np.full((lengths.size, longest), ABSENT, np.int32)
    # Shorter contexts are filled up on the left, where their oldest token would be.
    present = np.arange(longest) >= longest - lengths[:, None]
    contexts[present] = lists.flatten().to_numpy(zero_copy_only=False)
    return contexts
