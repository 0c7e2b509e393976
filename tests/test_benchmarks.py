"""Benchmarks record what they print, and the tables of the page and of the README are those of the rows."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import rows, table  # noqa: E402
from benchmarks.harness import Benchmark, shown_time  # noqa: E402
from benchmarks.rows import OURS, Row  # noqa: E402

KEPT = rows.read(rows.KEPT)
QUICK = {
    "checkpoint": {"one context at a time, without proof or intervals"},
    "counting": {"Polars group_by", "pandas groupby", "nltk.lm NgramCounter"},
    "linear_svm": {"cvxpy + Clarabel", "cvxpy + OSQP"},
    "linear_training": {"plain PyTorch loop"},
    "margin_norms": {"cvxpy + Clarabel"},
    "nuclear_svm": {"cvxpy + SCS"},
    "prediction_at_loss": {"cvxpy + Clarabel", "cvxpy + SCS"},
    "ufm_training": {"plain PyTorch loop on distinct contexts", "plain PyTorch loop on raw windows"},
}
"""Benchmarks with a peer, and peers that each has to record."""


def row(date: str, side: str, seconds: float, ratio: float | None = None, job: str = "job") -> Row:
    return Row(date=date, benchmark="counting", job=job, side=side, seconds=seconds, ratio=ratio)


@pytest.mark.parametrize("page", [table.PAGE, table.README], ids=lambda path: path.name)
def test_tables_are_those_of_the_rows(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert table.PLACE.search(text), "the page has a place for its table"
    assert table.filled(text, KEPT) == text, "run: python -m benchmarks table"


def test_a_number_edited_by_hand_is_found() -> None:
    text = table.README.read_text(encoding="utf-8")
    shown = table.short_table(KEPT).splitlines()[2]
    edited = text.replace(shown, shown.replace("1", "2", 1))
    assert edited != text
    assert table.filled(edited, KEPT) == text


def test_every_kept_row_can_be_read_and_says_where_it_was_measured() -> None:
    assert len(KEPT) > 50
    for one in KEPT:
        assert one.benchmark in table.NAMES
        assert one.machine
        assert one.date.startswith("20")
        assert one.date.endswith("Z")
        assert one.seconds is None or one.seconds > 0
        assert one.side != OURS or one.ratio is None
        if one.commit is not None:
            assert one.versions
            assert one.repeats
            assert one.load is not None


def test_kept_ratios_are_those_of_their_times() -> None:
    own = {(one.job, one.date): one.seconds for one in KEPT if one.side == OURS}
    for one in KEPT:
        seconds = own[one.job, one.date]
        if one.ratio is not None and one.seconds is not None:
            assert seconds is not None
            # Older rows have times of two digits, which were rounded after the ratio had been computed.
            assert one.seconds / seconds == pytest.approx(one.ratio, rel=1e-9 if one.commit else 0.06), one.job


def test_the_newest_measurement_of_each_peer_is_shown_with_the_tokengeom_of_its_run() -> None:
    found = table.newest_lines(
        [
            row("2026-01-01T00:00:00Z", OURS, 1.0),
            row("2026-01-01T00:00:00Z", "a", 3.0, 3.0),
            row("2026-01-01T00:00:00Z", "b", 5.0, 5.0),
            row("2026-01-02T00:00:00Z", OURS, 2.0),
            row("2026-01-02T00:00:00Z", "a", 8.0, 4.0),
            row("2026-01-01T00:00:00Z", OURS, 7.0, job="alone"),
        ]
    )
    assert [(line.own.seconds, line.peer and line.peer.side, line.ratio) for line in found] == [
        (2.0, "a", "4"),
        (1.0, "b", "5"),
        (7.0, None, ""),
    ]


def test_a_job_is_recorded_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOKENGEOM_BENCHMARK_RESULTS", str(tmp_path))
    job = Benchmark("counting", "numpy", "not-a-package").job("a job", repeats="median of 3", note="of the job")
    job.ours(0.5, gigabytes=0.1, accuracy="gap 1e-6")
    (first,) = rows.read(tmp_path)
    assert (first.side, first.ratio, set(first.versions), first.note) == (OURS, None, {"numpy"}, "of the job")
    job.peer("a peer", 2.0, note="of the peer")
    second = rows.read(tmp_path)[1]
    assert (second.ratio, second.note, second.date) == (4.0, "of the peer", first.date)
    printed = capsys.readouterr().out
    assert "a job (median of 3)" in printed
    assert "a peer" in printed
    assert "x 4" in printed


def test_a_quick_run_keeps_no_rows_of_its_own_accord(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOKENGEOM_BENCHMARK_RESULTS", raising=False)
    monkeypatch.setattr(rows, "KEPT", tmp_path)
    Benchmark("counting", quick=True).job("a job").ours(1.0)
    assert rows.read() == []
    Benchmark("counting").job("a job").ours(1.0)
    assert [one.job for one in rows.read()] == ["a job"]


def test_times_are_shown_in_their_unit() -> None:
    shown = [shown_time(value) for value in (4e-6, 2.193e-3, 0.4651, 7.459, 276.0, 4000.0)]
    assert shown == ["4 us", "2.19 ms", "465 ms", "7.46 s", "276 s", "4,000 s"]


def test_the_plot_shows_every_ratio_of_the_readme() -> None:
    axes = table.draw(KEPT).axes[0]
    drawn = {line.get_label().partition("\n")[0]: line.get_ydata() for line in axes.get_lines()}
    for job, peer in table.SHORT:
        ratios = [one.ratio for one in KEPT if (one.job, one.side) == (job, peer)]
        assert list(drawn.get(job, [])) == ratios


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(QUICK))
def test_every_benchmark_records_its_sides(name: str, tmp_path: Path) -> None:
    places = {"TOKENGEOM_BENCHMARK_RESULTS": str(tmp_path / "rows"), "TOKENGEOM_BENCHMARK_DATA": str(tmp_path / "data")}
    command = [sys.executable, "-m", "benchmarks", "--quick", name]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | places, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = rows.read(tmp_path / "rows")
    assert {one.benchmark for one in found} == {name}
    assert {one.side for one in found} >= {OURS, *QUICK[name]}
    for one in found:
        assert one.commit is None or len(one.commit) >= 7
        assert one.versions["tokengeom"]
        json.dumps(dataclasses.asdict(one))
    assert all(line.peer is None or line.ratio for line in table.newest_lines(found))
