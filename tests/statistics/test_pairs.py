"""Counted pairs: kept without gathering them, and refused in words when they are damaged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from command_line import assert_one_paragraph, say
from tokengeom import CountedPairs, count
from tokengeom.errors import StatisticsError
from tokengeom.statistics.count import count_pairs

TEXT = ["a b a b c a b d a c", "b a c a"]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs") / "kept"
    count_pairs(TEXT, folder, context=2)
    return folder


def damaged(kept: Path, tmp_path: Path, **changes: Any) -> Path:
    shutil.copytree(kept, tmp_path / "p")
    manifest = json.loads((tmp_path / "p/manifest.json").read_text())
    left = {name: value for name, value in (manifest | changes).items() if value != "gone"}
    (tmp_path / "p/manifest.json").write_text(json.dumps(left))
    return tmp_path / "p"


def test_totals_are_those_of_the_frozen_statistics(tmp_path: Path) -> None:
    pairs, totals = count_pairs(TEXT, tmp_path / "p", context=2)
    frozen = count(TEXT, context=2)
    assert (totals.n, totals.m, totals.V) == (frozen.n, frozen.m, frozen.V)
    assert totals.entropy == pytest.approx(frozen.entropy)
    assert pairs.corpus == frozen.corpus
    assert count(tmp_path / "p").equals(frozen)


def test_pairs_alone_are_never_frozen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("frozen")

    monkeypatch.setattr("tokengeom.statistics.count.freeze", refuse)
    (tmp_path / "a.txt").write_text(TEXT[0])
    done = say(capsys, "count", tmp_path / "a.txt", "--context", 1, "--pairs", tmp_path / "p", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["windows"] == 9
    assert "merge them" in say(capsys, "count", tmp_path / "a.txt", "-c", 1, "--pairs", tmp_path / "p").out
    asked = say(capsys, "count", tmp_path / "a.txt", "--pairs", tmp_path / "p", "--out", tmp_path / "s")
    assert "frozen" in asked.err, "statistics are"


@pytest.mark.parametrize(
    "changes",
    [
        {"vocabulary": "gone"},
        {"vocabulary": "many"},
        {"vocabulary": 0},
        {"vocabulary": True},
        {"windows": "gone"},
        {"windows": {"length": 2}},
        {"windows": {"context": 0}},
        {"windows": [1]},
        {"corpus": "gone"},
        {"corpus": [1]},
        {"tokenizer": "gone"},
    ],
)
def test_a_damaged_manifest_is_refused_in_words(
    changes: dict[str, Any], kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = damaged(kept, tmp_path, **changes)
    with pytest.raises(StatisticsError, match="is damaged"):
        CountedPairs.load(folder)
    assert_one_paragraph(say(capsys, "count", folder))


def test_missing_shards_and_a_torn_manifest_are_refused(
    kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = damaged(kept, tmp_path)
    shutil.move(folder / "pairs", tmp_path / "elsewhere")
    with pytest.raises(StatisticsError, match="no shards"):
        CountedPairs.load(folder)
    shutil.move(tmp_path / "elsewhere", folder / "pairs")
    (folder / "manifest.json").write_text("{")
    done = say(capsys, "count", folder)
    assert_one_paragraph(done)
    assert "manifest.json cannot be read" in done.err


@pytest.mark.parametrize("threads", [0, -1, 1025, 100_000, 10**12])
def test_threads_beyond_reason_are_refused(threads: int, capsys: pytest.CaptureFixture[str]) -> None:
    done = say(capsys, "count", "--threads", threads)
    assert_one_paragraph(done)
    assert "threads must be 1 or more, and at most 1,024" in done.err


@pytest.mark.parametrize(
    ("master", "reason"),
    [("spark://127.0.0.1:1", "refused"), ("spark://127.0.0.1", "host:port"), ("spark://127.0.0.1:99999", "host:port")],
)
def test_a_spark_master_that_does_not_answer_is_told_at_once(
    master: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    done = say(capsys, "count", "--engine", "spark", "--master", master)
    assert_one_paragraph(done)
    assert "No Spark master answers" in done.err
    assert reason in done.err
