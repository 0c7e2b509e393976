"""Engines: their settings, their errors, and counting in a notebook."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from command_line import assert_one_paragraph, say
from tokengeom import count
from tokengeom.core.errors import CorpusError, InputError, ResourceError, StatisticsError
from tokengeom.core.progress import AbstractProgress, SilentProgress
from tokengeom.statistics.engines import DuckDBEngine, EngineSettings, _clear_errors, open_engine, temporary_folder

NOTEBOOK = """
import sys, types
import __main__

class Shell:
    config = {"IPKernelApp": {}}

sys.modules["IPython"] = types.ModuleType("IPython")
sys.modules["IPython"].get_ipython = Shell
sys.modules["ipywidgets"] = None
if hasattr(__main__, "__file__"):
    del __main__.__file__

import duckdb
try:
    duckdb.connect().execute("SET enable_progress_bar = true")
except duckdb.Error as error:
    print("ipywidgets" in str(error))

import tokengeom as tg
print(tg.count(["a b a c"], context=1).n)
"""


def test_counting_works_in_a_notebook_without_ipywidgets() -> None:
    """DuckDB believes to be in Jupyter, and refuses to measure progress without ipywidgets."""
    done = subprocess.run([sys.executable, "-c", NOTEBOOK], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "3"], "DuckDB refuses the setting, and counting works without it"


def test_progress_is_measured_where_duckdb_allows_it(tmp_path: Path) -> None:
    with open_engine(tmp_path) as engine:
        assert isinstance(engine, DuckDBEngine)
        (found,) = engine._connection.execute("SELECT current_setting('enable_progress_bar')").fetchall()
    assert found == (True,)


class Recorder(SilentProgress):
    """Remembers the titles of stages."""

    def __init__(self) -> None:
        self.titles: list[str] = []

    def stage(self, title: str, total: float | None):  # type: ignore[no-untyped-def]
        """Remember the title."""
        self.titles.append(title)
        return super().stage(title, total)


def test_the_stages_of_counting_are_shown() -> None:
    progress = Recorder()
    assert isinstance(progress, AbstractProgress)
    count(["a b a c"], context=1, top_contexts=2, progress=progress)
    assert progress.titles == ["Reading", "Counting", "Adding up", "Cutting", "Building statistics"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"engine": "polars"}, "no engine 'polars'; the engines are: duckdb, spark"),
        ({"memory": "much"}, "must be like 2GB, 500MB or 1.5GiB; got 'much'"),
        ({"threads": 1.5}, "threads must be a whole number"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        EngineSettings(**settings)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=message):
        count([[0, 1]], context=1, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("memory", "expected"),
    [("2GB", 2 * 10**9), ("500 MiB", 500 * 2**20), ("1.5gib", 3 * 2**29), ("10B", 10), ("3KB", 3000), ("1TB", 10**12)],
)
def test_a_memory_limit_is_read_as_duckdb_reads_it(memory: str, expected: int, tmp_path: Path) -> None:
    with open_engine(tmp_path, EngineSettings(memory=memory, threads=3)) as engine:
        assert engine.sorting is not None
        assert (engine.sorting.memory, engine.sorting.threads) == (expected, 3)


def test_a_temporary_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match=r"Cannot write to .*missing"):
        count([[0, 1]], context=1, temp=tmp_path / "missing")
    with temporary_folder(tmp_path) as folder:
        assert folder.is_relative_to(tmp_path)
    assert not folder.exists()


@pytest.mark.parametrize("address", ["hdfs://nowhere/a.parquet", "s3://b/a.parquet", "https://b.invalid/page"])
def test_no_engine_downloads_anything(address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither a file nor an extension of DuckDB, which is native code."""
    with open_engine(tmp_path) as engine:
        assert isinstance(engine, DuckDBEngine)
        with pytest.raises(CorpusError, match=r"must be local; .*Only Parquet files .*--engine spark"):
            engine.read([address])
        with pytest.raises(duckdb.Error, match=r"(?s)install|load") as refused:
            engine._connection.execute(f"SELECT * FROM read_parquet('https://{'x' * 9}.invalid/a.parquet')")
        assert "download" not in str(refused.value).lower()
    for verb in ("count", "report"):
        done = say(capsys, verb, address)
        assert_one_paragraph(done)
        assert "local" in done.err or "on this machine" in done.err


def test_nothing_is_saved_at_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="must be local; got the address 's3://bucket'"):
        count([[0, 1]], context=1).save("s3://bucket/stats")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("raised", "expected", "message"),
    [
        (duckdb.OutOfMemoryException("no room.\nmore"), ResourceError, "Raise --memory"),
        (duckdb.ConversionException("too large"), CorpusError, "ids are out of range: too large. Check the column"),
        (duckdb.IOException("disk"), ResourceError, "point --temp at a larger disk"),
        (RuntimeError("something else"), RuntimeError, "something else"),
    ],
)
def test_exceptions_of_duckdb_become_ours(raised: Exception, expected: type[BaseException], message: str) -> None:
    with pytest.raises(expected, match=message), _clear_errors():
        raise raised


def test_an_interruption_of_a_query_is_an_interruption() -> None:
    with pytest.raises(KeyboardInterrupt), _clear_errors():
        raise RuntimeError("Query interrupted")


@pytest.mark.parametrize("threads", [0, -1, 1025, 100_000, 10**12])
def test_too_many_threads_or_none_are_refused(threads: int, capsys: pytest.CaptureFixture[str]) -> None:
    done = say(capsys, "count", "--threads", threads)
    assert_one_paragraph(done)
    assert "threads must be 1 or more, and at most 1,024" in done.err
    with pytest.raises(StatisticsError, match=r"at most 1,024; got .* this machine has \d+ cores"):
        EngineSettings(threads=threads)


@pytest.mark.parametrize(
    ("master", "reason"),
    [("spark://127.0.0.1:1", "refused"), ("spark://127.0.0.1", "host:port"), ("spark://127.0.0.1:99999", "host:port")],
)
def test_a_spark_master_that_does_not_answer_is_refused_at_once(
    master: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    done = say(capsys, "count", "--engine", "spark", "--master", master)
    assert_one_paragraph(done)
    assert "No Spark master answers" in done.err
    assert reason in done.err
