"""A real cluster counts as DuckDB does, row for row, and one that cannot count is refused in one paragraph."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from command_line import Done, assert_one_paragraph
from spark_cluster import NEEDS_SPARK, SparkCluster, spark_cluster, wait_for
from tokengeom import count
from tokengeom.core.errors import ResourceError, StatisticsError
from tokengeom.core.progress import AbstractProgress, AbstractStage, SilentProgress
from tokengeom.statistics import spark_engine
from tokengeom.statistics.count import count_pairs
from tokengeom.statistics.engines import AbstractEngine, EngineSettings, open_engine
from tokengeom.statistics.spark_engine import _own_address, _reason, executors, mebibytes
from tokengeom.statistics.windows import ContextPacking, WindowKind, Windows, count_windows
from waiting import PATIENCE

# Starting a cluster takes half a minute; test_spark_engine runs on a local master in every suite.
pytestmark = [*NEEDS_SPARK, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A master and two workers."""
    pytest.importorskip("pyspark", reason="needs the extra 'spark'")
    with spark_cluster(tmp_path_factory.mktemp("cluster"), workers=2) as running:
        yield running


@pytest.fixture(scope="module")
def spark(cluster: SparkCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AbstractEngine]:
    """One session on the cluster, which every count below shares."""
    settings = EngineSettings(engine="spark", memory="512MB", master=cluster.address)
    with open_engine(tmp_path_factory.mktemp("spark"), settings) as engine:
        wait_for(lambda: executors(engine._session) == 2, "there are not two executors")  # type: ignore[attr-defined]
        yield engine


@pytest.mark.parametrize(("kind", "pad"), [("sliding", True), ("prefixes", False)])
def test_a_cluster_counts_as_duckdb_does_row_for_row(
    spark: AbstractEngine, tmp_path: Path, kind: WindowKind, pad: bool
) -> None:
    """The pairs of shards, the same query in DuckDB, and how this machine counts by default: three equal tables."""
    rng = np.random.default_rng(3)
    documents = [rng.zipf(1.4, size).clip(max=300).tolist() for size in rng.integers(0, 90, 120)]
    shards = tmp_path / "shards [1]"
    shards.mkdir()
    for shard in range(3):
        pq.write_table(pa.table({"ids": documents[shard::3]}), shards / f"{shard}.parquet")
    how: dict[str, Any] = {"context": 3, "windows": kind, "pad": pad, "column": "ids", "vocabulary_size": 301}
    for engine in ("spark", "duckdb"):
        count_pairs(shards, tmp_path / engine, engine=engine, **how)
    table = pa.table({"start": [True] * 120, "lead": pa.array([0] * 120, pa.int32()), "tokens": documents})
    pq.write_table(table, tmp_path / "tokens.parquet")
    with open_engine(tmp_path) as duckdb:
        query = count_windows(
            duckdb.read([str(tmp_path / "tokens.parquet")]), Windows(3, kind, pad), ContextPacking(301, 3)
        )
        duckdb.write(query, tmp_path / "query", "Counting", SilentProgress())
    distributed, embedded, query_rows = (_rows(tmp_path / name) for name in ("spark/pairs", "duckdb/pairs", "query"))
    assert distributed.equals(embedded)
    assert distributed.equals(query_rows)
    assert distributed.num_rows > 1000


def _rows(folder: Path) -> pa.Table:
    columns = ["context_0", "next", "count"]
    kinds = pa.schema([("context_0", pa.int64()), ("next", pa.int32()), ("count", pa.int64())])
    table = pq.read_table(folder, columns=columns).cast(kinds)
    return table.sort_by([("context_0", "ascending"), ("next", "ascending")])


class _CallOnce(AbstractProgress, AbstractStage):
    """Calls a function when the first task of a stage is seen."""

    def __init__(self, title: str, function: Callable[[], None]) -> None:
        self._title, self._function, self._open, self.notes = title, function, "", list[str]()

    def stage(self, title: str, total: float | None) -> AbstractContextManager[AbstractStage]:
        self._open = title
        return nullcontext(self)

    def advance(self, amount: float, note: str = "") -> None:
        if self._open == self._title and "tasks" in note:
            self.notes.append(note)
            if len(self.notes) == 1:
                self._function()


def _token_shards(folder: Path, tokens: int) -> Path:
    rng = np.random.default_rng(4)
    folder.mkdir()
    for shard in range(4):
        ids = pa.array(rng.zipf(1.3, tokens // 4).clip(max=5000), pa.int32())
        lists = pa.ListArray.from_arrays(pa.array(range(0, tokens // 4 + 1, 100), pa.int32()), ids)
        pq.write_table(pa.table({"tokens": lists}), folder / f"{shard}.parquet")
    return folder


def test_a_worker_that_is_killed_while_it_counts_changes_nothing(
    cluster: SparkCluster, spark: AbstractEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A quiet machine counts these before the first look at the tasks.
    monkeypatch.setattr("tokengeom.statistics.spark_engine._POLL_SECONDS", 0.01)
    shards = _token_shards(tmp_path / "shards", 400_000)
    (worker,) = cluster.add_workers(1)
    wait_for(lambda: executors(spark._session) == 3, "the new worker has no executor")  # type: ignore[attr-defined]
    progress = _CallOnce("Counting", worker.kill)
    counted = count(shards, context=2, column="tokens", min_count=5, engine="spark", progress=progress)
    assert "of" in progress.notes[0]
    assert "executors" in progress.notes[0]
    assert counted.equals(count(shards, context=2, column="tokens", min_count=5))
    worker.wait()
    wait_for(lambda: executors(spark._session) == 2, "the executor is still there")  # type: ignore[attr-defined]


# The working folder of the process itself: the same path is another folder for every worker, as on unshared disks.
OWN_FOLDER = Path("/proc/self/cwd")


@pytest.fixture
def own_folder_as_before() -> Iterator[None]:
    """Remove what Spark's processes write into their own folders, which is where the tests were started."""
    before = set(OWN_FOLDER.glob(".tokengeom-*"))
    yield
    for left in set(OWN_FOLDER.glob(".tokengeom-*")) - before:
        shutil.rmtree(left)


@pytest.mark.usefixtures("own_folder_as_before")
@pytest.mark.skipif(not OWN_FOLDER.is_dir(), reason="needs a path that is another folder for every process: Linux")
def test_storage_that_workers_do_not_share_is_refused(
    spark: AbstractEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    where = r"not on storage that this machine and every worker share. Point --temp"
    with pytest.raises(ResourceError, match=where):
        count([[0, 1, 2, 3]], engine="spark", temp=OWN_FOLDER)
    _token_shards(tmp_path / "shards", 400)
    with pytest.raises(ResourceError, match="must be on storage that this machine and every worker reach"):
        count(OWN_FOLDER / "shards", column="tokens", engine="spark")


def _count_in_a_new_process(*arguments: str, **environment: str) -> Done:
    """What a terminal shows, all output of Java included; the process must end by itself."""
    program = "from tokengeom.cli import main; main()"
    command = [sys.executable, "-c", program, "count", "--engine", "spark", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=os.environ | environment)
    return Done(run.returncode, run.stdout, run.stderr)


def _wait(seconds: float) -> dict[str, str]:
    """Environment in which Spark waits this long for an executor."""
    setting = f"spark.scheduler.maxRegisteredResourcesWaitingTime={seconds}s"
    return {"PYSPARK_SUBMIT_ARGS": f"--conf {setting} pyspark-shell"}


@pytest.mark.slow
def test_executors_that_no_worker_has_memory_for_are_refused_in_one_paragraph(cluster: SparkCluster) -> None:
    done = _count_in_a_new_process("--master", cluster.address, "--memory", "1.5GB", **_wait(2))
    assert_one_paragraph(done)
    assert f"No worker of the Spark master '{cluster.address}' provided an executor with 1.5GB memory" in done.err
    assert "for 2 seconds" in done.err
    assert "connect to this machine at 127.0.0.1" in done.err


def test_a_cluster_that_has_lost_every_worker_is_given_up(
    cluster: SparkCluster, spark: AbstractEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No worker of the module is left after this test."""
    cluster.kill_workers()
    monkeypatch.setattr(spark_engine, "patience", lambda session: 1.0)
    with pytest.raises(ResourceError, match=r"provided an executor with .* for 1 seconds. Check that workers"):
        count([[0, 1, 2, 3, 4, 5]], engine="spark")


@pytest.mark.slow
def test_a_master_without_workers_is_refused_by_default(tmp_path: Path) -> None:
    with spark_cluster(tmp_path, workers=0) as empty:
        done = _count_in_a_new_process("--master", empty.address)
    assert_one_paragraph(done)
    assert "for 30 seconds. Check that workers are registered with the master" in done.err


@pytest.mark.slow
def test_a_cluster_that_is_not_configured_is_refused_in_one_paragraph(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    done = _count_in_a_new_process("--master", "yarn")
    assert_one_paragraph(done)
    assert "either HADOOP_CONF_DIR or YARN_CONF_DIR must be set" in done.err


def test_a_host_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ResourceError, match=r"No Spark master answers at 'spark://nowhere.invalid:7077': "):
        _own_address("spark://nowhere.invalid:7077")


def test_one_of_several_masters_that_answers_is_enough(cluster: SparkCluster) -> None:
    assert _own_address(f"{cluster.address},127.0.0.1:1") == "127.0.0.1"
    assert _own_address(cluster.address.replace("//", "//127.0.0.1:1,")) == "127.0.0.1"


@pytest.mark.parametrize(("memory", "expected"), [("2GB", 1907), ("1.5GiB", 1536), ("500 mb", 476), ("1tb", 953_674)])
def test_memory_is_given_to_spark_in_whole_mebibytes(memory: str, expected: int) -> None:
    assert mebibytes(memory) == expected


def test_less_memory_than_spark_needs_is_refused() -> None:
    with pytest.raises(StatisticsError, match="at least 500MB; got 400MB"):
        mebibytes("400MB")


def test_the_reason_is_the_exception_and_its_first_cause() -> None:
    trace = "An error occurred while calling o1.\n: a.B: it failed.\n\tat x.Y\nCaused by: c.D: no route\n\tat z\n"
    assert _reason(trace) == "a.B: it failed, because of c.D: no route"
    assert _reason("[CODE] first line.\n\nJVM stacktrace:\nnothing") == "[CODE] first line"
