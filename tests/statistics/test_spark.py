"""Spark runs the same plan on the same table and gives equal results, row for row."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from counting_oracle import as_pairs, dictionary_count
from tokengeom import CountedPairs, count
from tokengeom.statistics.cuts import CommonestTokens, MinimumCount, MostFrequentContexts, SupportByMass
from tokengeom.statistics.engines import AbstractEngine, open_engine
from tokengeom.statistics.pairs import freeze

pytestmark = [
    pytest.mark.skipif(
        shutil.which("java") is None and "JAVA_HOME" not in os.environ, reason="Spark needs Java 17; install a JDK"
    ),
    # PySpark leaves sockets to the garbage collector when its session stops.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory):
    """One session for the module: `getOrCreate` hands it to every count below."""
    pytest.importorskip("pyspark", reason="needs the extra 'spark'")
    with open_engine("spark", spill=tmp_path_factory.mktemp("spark"), memory="1GB", master="local[2]") as engine:
        yield engine


@pytest.mark.parametrize(
    ("kind", "pad"), [("sliding", False), ("sliding", True), ("prefixes", False), ("prefixes", True)]
)
def test_spark_counts_as_a_dictionary_does(spark: AbstractEngine, kind: str, pad: bool) -> None:
    rng = np.random.default_rng(0)
    documents = [rng.integers(0, 4, size).tolist() for size in rng.integers(0, 12, 30)]
    statistics = count(documents, context=3, windows=kind, pad=pad, vocabulary_size=4, engine="spark")
    assert as_pairs(statistics) == dictionary_count(documents, 3, kind, pad)


def test_both_engines_agree_after_every_cut(spark: AbstractEngine, tmp_path: Path) -> None:
    """Sharded Parquet in; counting and all cuts happen in the engine; only the rest is gathered."""
    rng = np.random.default_rng(1)
    documents = [rng.zipf(1.5, size).clip(max=60).tolist() for size in rng.integers(5, 60, 80)]
    for shard in range(4):
        pq.write_table(pa.table({"ids": documents[shard::4]}), tmp_path / f"{shard}.parquet")
    cuts = [MinimumCount(2), MostFrequentContexts(60), CommonestTokens(12, "merge"), SupportByMass(0.9)]
    options = {"context": 2, "column": "ids", "windows": "prefixes", "cuts": cuts}
    embedded = count(tmp_path, engine="duckdb", **options)
    distributed = count(tmp_path, engine="spark", **options)
    assert distributed.equals(embedded)
    for mine, theirs in zip(embedded.effects, distributed.effects, strict=True):
        assert (mine.cut, mine.after.n, mine.after.m) == (theirs.cut, theirs.after.n, theirs.after.m)
        assert mine.after.entropy == pytest.approx(theirs.after.entropy, abs=1e-12)


def test_pairs_of_one_engine_are_read_and_merged_by_the_other(spark: AbstractEngine, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    documents = [rng.integers(0, 5, 20).tolist() for _ in range(20)]
    whole = count(documents, context=2, vocabulary_size=5)
    for half, engine in enumerate(["spark", "duckdb"]):
        count(documents[half::2], context=2, vocabulary_size=5, engine=engine, pairs=tmp_path / engine)
    assert len(list((tmp_path / "spark" / "pairs").glob("*.parquet"))) >= 1
    assert count([tmp_path / "spark", tmp_path / "duckdb"]).equals(whole)
    one, two = (CountedPairs.load(tmp_path / name) for name in ("spark", "duckdb"))
    merged = one.merge(two, engine=spark, folder=tmp_path / "merged")
    assert freeze(merged, spark).equals(whole)
