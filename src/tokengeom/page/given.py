"""Reports on what exists already: statistics in memory or in a folder, and comparisons of this session."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from tokengeom.corpus.documents import exists
from tokengeom.errors import InputError
from tokengeom.folders import MANIFEST, read_kind
from tokengeom.geometry.comparison import Comparison
from tokengeom.page.contents import Choice, Contents
from tokengeom.page.recipe import NAMES
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.statistics.storage import FORMAT
from tokengeom.theory.concepts import Concepts
from tokengeom.theory.features import FeaturePrediction
from tokengeom.training.run import Run

GIVEN = "The statistics were given, so that nothing had to be chosen."


def given_statistics(source: Any) -> NextTokenStatistics | None:
    """Statistics, or those in a saved folder; None where a text was named."""
    if isinstance(source, NextTokenStatistics):
        return source
    named = source[0] if isinstance(source, list | tuple) and len(source) == 1 else source
    if isinstance(named, str | Path) and exists(Path(named) / MANIFEST) and read_kind(Path(named)) == FORMAT:
        return NextTokenStatistics.load(named)
    return None


def title_of(stats: NextTokenStatistics) -> str:
    """The text behind statistics, as far as they know it."""
    names = [Path(str(name)).name for name in stats.corpus.get("sources", [])]
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "") or "given statistics"


def choice_of(stats: NextTokenStatistics) -> Choice:
    """Settings of given statistics, as far as they know them."""
    tokenizer = stats.tokenizer.kind if stats.tokenizer is not None else None
    context = stats.windows.context if stats.windows is not None else None
    return Choice({"tokenizer": tokenizer, "context": context, "contexts": stats.m, "vocabulary": stats.V}, (GIVEN,))


def digest_of(stats: NextTokenStatistics) -> str:
    """SHA-256 of everything that a prediction, a run or a page takes from statistics."""
    digest = hashlib.sha256()
    for array in (stats.table.data, stats.table.indices, stats.table.indptr, stats.pi, stats.contexts):
        digest.update(b"" if array is None else array.tobytes())
    digest.update(repr((stats.table.shape, stats.vocabulary, stats.labels)).encode("utf-8", "backslashreplace"))
    return digest.hexdigest()


def contents_of(comparison: Comparison) -> Contents:
    """Contents of a page on one comparison, which must know what it compared."""
    prediction, run = comparison.compared or (None, None)
    stats = getattr(prediction, "stats", None)
    if not isinstance(prediction, FeaturePrediction) or not isinstance(run, Run) or stats is None:
        raise InputError(
            "A comparison can be reported on when both sides were made in this session: compare(predict(stats), "
            "train(stats, ...)) with learned features. For saved results use `tokengeom report STATS`."
        )
    name = NAMES.get(run.settings["model"], run.settings["model"])
    return Contents(
        title=title_of(stats),
        stats=stats,
        choice=choice_of(stats),
        prediction=prediction,
        concepts=Concepts.of(prediction.L_mm),
        runs={name: run},
        comparisons={name: comparison},
        provenance={"settings": {"training": {name: run.settings}}, "seeds": {"seed": run.settings["seed"]}},
    )
