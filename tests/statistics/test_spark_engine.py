"""Spark runs the same queries on the same table and gives equal results, row for row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from counting_oracle import as_pairs, cut_by_engine, dictionary_count
from spark_cluster import NEEDS_SPARK
from tokengeom import CountedPairs, count
from tokengeom.core.errors import ResourceError, StatisticsError
from tokengeom.core.progress import SilentProgress
from tokengeom.statistics import spark_engine
from tokengeom.statistics.count import count_lengths
from tokengeom.statistics.cuts import CommonestTokens, MinimumCount, MostFrequentContexts, SupportByMass
from tokengeom.statistics.engines import AbstractEngine, EngineName, EngineSettings, open_engine
from tokengeom.statistics.ordered_pairs import build_statistics
from tokengeom.statistics.spark_engine import SparkEngine, require_spark
from tokengeom.statistics.windows import WindowKind

pytestmark = NEEDS_SPARK


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AbstractEngine]:
    """One session for the module, which every count below shares."""
    pytest.importorskip("pyspark", reason="needs the extra 'spark'")
    settings = EngineSettings(engine="spark", memory="1GB", master="local[2]")
    with open_engine(tmp_path_factory.mktemp("spark"), settings) as engine:
        assert isinstance(engine, SparkEngine)
        yield engine


@pytest.mark.parametrize(
    ("kind", "pad"), [("sliding", False), ("sliding", True), ("prefixes", False), ("prefixes", True)]
)
def test_spark_counts_as_a_dictionary_does(spark: AbstractEngine, kind: WindowKind, pad: bool) -> None:
    rng = np.random.default_rng(0)
    documents = [rng.integers(0, 4, size).tolist() for size in rng.integers(0, 12, 30)]
    statistics = count(documents, context=3, windows=kind, pad=pad, vocabulary_size=4, engine="spark")
    assert as_pairs(statistics) == dictionary_count(documents, 3, kind, pad)


@pytest.mark.slow
def test_both_engines_agree_after_every_cut(spark: AbstractEngine, tmp_path: Path) -> None:
    """Sharded Parquet is read, counted and cut in the engine; only what is left is gathered."""
    rng = np.random.default_rng(1)
    documents = [rng.zipf(1.5, size).clip(max=60).tolist() for size in rng.integers(5, 60, 80)]
    for shard in range(4):
        pq.write_table(pa.table({"ids": documents[shard::4]}), tmp_path / f"{shard}.parquet")
    cuts = [MinimumCount(2), MostFrequentContexts(60), CommonestTokens(12, "merge"), SupportByMass(0.9)]
    embedded = cut_by_engine(tmp_path, cuts, context=2, column="ids", windows="prefixes")
    cluster = EngineSettings(engine="spark", master="local[2]")
    distributed = cut_by_engine(tmp_path, cuts, cluster, context=2, column="ids", windows="prefixes")
    assert distributed.equals(embedded)
    for mine, theirs in zip(embedded.effects, distributed.effects, strict=True):
        assert (mine.cut, mine.after.n, mine.after.m) == (theirs.cut, theirs.after.n, theirs.after.m)
        assert mine.after.entropy == pytest.approx(theirs.after.entropy, abs=1e-12)


def test_pairs_of_one_engine_are_read_and_merged_by_the_other(spark: AbstractEngine, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    documents = [rng.integers(0, 5, 20).tolist() for _ in range(20)]
    whole = count(documents, context=2, vocabulary_size=5)
    engines: list[EngineName] = ["spark", "duckdb"]
    for half, engine in enumerate(engines):
        count(documents[half::2], context=2, vocabulary_size=5, engine=engine, pairs=tmp_path / engine)
    assert len(list((tmp_path / "spark" / "pairs").glob("*.parquet"))) >= 1
    assert count([tmp_path / "spark", tmp_path / "duckdb"]).equals(whole)
    one, two = (CountedPairs.load(tmp_path / name) for name in ("spark", "duckdb"))
    merged = one.merge(two, engine=spark, folder=tmp_path / "merged")
    assert build_statistics(merged, spark).equals(whole)


def test_spark_counts_several_lengths_of_parquet_shards(spark: AbstractEngine, tmp_path: Path) -> None:
    documents = [[0, 1, 2, 1, 0, 0, 2], [1, 2], [2, 2, 1]]
    pq.write_table(pa.table({"ids": documents}), tmp_path / "a.parquet")
    for length, statistics in count_lengths(tmp_path, [1, 2, 4], column="ids", engine="spark").items():
        assert as_pairs(statistics) == dictionary_count(documents, length, "sliding", False)
        assert statistics.corpus == count(tmp_path, context=length, column="ids").corpus


def test_a_cut_that_leaves_nothing_is_refused_by_spark_too(spark: AbstractEngine) -> None:
    """A query without rows is written and checked like any other."""
    with pytest.raises(StatisticsError, match="leaves nothing"):
        count([[0, 1, 2, 3, 4, 5]], context=2, vocabulary_size=6, min_count=100, engine="spark")


def test_partitions_grow_with_the_input_and_settings_of_an_active_session_stay(
    spark: AbstractEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql import SparkSession

    names = ["spark.sql.shuffle.partitions", "spark.sql.session.timeZone", "spark.sql.ansi.enabled"]
    active = SparkSession.getActiveSession()
    assert active is not None
    before = [active.conf.get(name) for name in names]
    pq.write_table(pa.table({"ids": [list(range(300))] * 5}), tmp_path / "a.parquet")
    size = (tmp_path / "a.parquet").stat().st_size
    monkeypatch.setattr(spark_engine, "_INPUT_BYTES_PER_PARTITION", max(1, size // 500))
    with open_engine(tmp_path, EngineSettings(engine="spark")) as engine:
        assert isinstance(engine, SparkEngine)
        table = engine.read([str(tmp_path / "a.parquet")])
        assert 500 <= int(engine._session.conf.get(names[0]) or 0) <= 1000
        assert engine.numbers(table.aggregate(rows=table.count())) == {"rows": 5}
    assert [active.conf.get(name) for name in names] == before


def test_rows_arrive_in_order_from_many_shards(spark: AbstractEngine, tmp_path: Path) -> None:
    numbers = np.random.default_rng(5).permutation(20_000)
    pq.write_table(pa.table({"number": numbers}), tmp_path / "a.parquet")
    with open_engine(tmp_path, EngineSettings(engine="spark")) as engine:
        assert isinstance(engine, SparkEngine)
        table = engine.read([str(tmp_path / "a.parquet")])
        # Otherwise Spark joins partitions this small into one shard.
        engine._session.conf.set("spark.sql.adaptive.enabled", "false")
        engine._session.conf.set("spark.sql.shuffle.partitions", "12")
        found = np.concatenate([batch.column(0).to_numpy() for batch in engine.batches(table.order_by("number"))])
    np.testing.assert_array_equal(found, np.arange(20_000))


def test_rows_that_are_missing_from_a_folder_are_noticed(
    spark: AbstractEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pa.table({"number": range(10)}), tmp_path / "a.parquet")
    table = spark.read([str(tmp_path / "a.parquet")])
    monkeypatch.setattr(spark_engine, "_rows_in", lambda folder: 7)
    with pytest.raises(ResourceError, match=r"wrote 10 rows to .*, and 7 of them are seen from this machine"):
        spark.write(table, tmp_path / "out", "Copying", SilentProgress())


def test_without_java_the_engine_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for home, reason in (("", "which was not found"), (str(tmp_path), "which has no bin/java")):
        monkeypatch.setenv("JAVA_HOME", home)
        with pytest.raises(ResourceError, match=f"needs Java 17 or newer.*{reason}"):
            require_spark()
