"""Benchmarks record what they print, and the tables of the page and of the README are those of the rows."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import resource
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import estimates, quiet, rows, table  # noqa: E402
from benchmarks.harness import Benchmark, shown_time  # noqa: E402
from benchmarks.rows import OURS, Row  # noqa: E402

from tokengeom.page import executor  # noqa: E402

KEPT = rows.read(rows.KEPT)
QUICK = {
    "checkpoint": {"one context at a time, without proof or intervals"},
    "counting": {"Polars group_by", "pandas groupby", "nltk.lm NgramCounter"},
    "gamma2_at_loss": {"cvxpy + SCS, semidefinite", "tokengeom, nuclear norm"},
    "linear_svm": {"cvxpy + Clarabel", "cvxpy + OSQP"},
    "linear_training": {"plain PyTorch loop"},
    "margin_norms": {"cvxpy + Clarabel"},
    "nuclear_svm": {"cvxpy + SCS"},
    "prediction_at_loss": {"cvxpy + Clarabel", "cvxpy + SCS"},
    "tied_prediction": {"cvxpy + Clarabel"},
    # Its peer has no wheels for Python 3.12 and later.
    **({"tied_training": {"fastText, supervised"}} if find_spec("fasttext") else {}),
    "ufm_training": {"plain PyTorch loop on distinct contexts", "plain PyTorch loop on raw windows"},
}
"""Benchmarks with a peer, and peers that each has to record."""


def row(date: str, side: str, seconds: float, ratio: float | None = None, job: str = "job", busy: str = "") -> Row:
    return Row(date=date, benchmark="counting", job=job, side=side, seconds=seconds, ratio=ratio, busy=busy)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """A machine whose reference and whose other programs take what the test says; at first it is quiet."""
    known = {"reference": 0.05, "others": 0.0}
    monkeypatch.setattr(quiet, "reference_seconds", lambda: known["reference"])
    monkeypatch.setattr(quiet, "processor_seconds_of_others", lambda: known["others"])
    monkeypatch.delenv("TOKENGEOM_BENCHMARK_BUSY", raising=False)
    return known


@pytest.mark.parametrize("page", table.FILLED, ids=lambda path: path.name)
def test_tables_are_those_of_the_rows(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert table.PLACE.search(text), "the page has a place for its table"
    assert table.filled(text, KEPT) == text, "run: python -m benchmarks table"


def test_a_number_edited_by_hand_is_found() -> None:
    text = table.README.read_text(encoding="utf-8")
    shown = table.short_table(KEPT).splitlines()[2]
    edited = text.replace(shown, re.sub(r"\d", lambda digit: str((int(digit[0]) + 1) % 10), shown, count=1))
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


@pytest.mark.usefixtures("machine")
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


@pytest.mark.usefixtures("machine")
def test_a_quick_run_keeps_no_rows_of_its_own_accord(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOKENGEOM_BENCHMARK_RESULTS", raising=False)
    monkeypatch.setattr(rows, "KEPT", tmp_path)
    Benchmark("counting", quick=True).job("a job").ours(1.0)
    assert rows.read() == []
    Benchmark("counting").job("a job").ours(1.0)
    assert [one.job for one in rows.read()] == ["a job"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"others": 1e6}, "other programs used"), ({"reference": 0.1}, "took 2.0 times as long as at best")],
)
@pytest.mark.parametrize("before", [True, False], ids=["job made before the work", "job made after the work"])
def test_what_was_measured_on_a_busy_machine_is_not_kept(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    machine: dict[str, float],
    change: dict[str, float],
    reason: str,
    before: bool,
) -> None:
    monkeypatch.setenv("TOKENGEOM_BENCHMARK_RESULTS", str(tmp_path))
    benchmark = Benchmark("counting")
    benchmark.job("quiet").ours(1.0)
    job = benchmark.job("busy") if before else None
    machine.update(change)
    job = job or benchmark.job("busy")
    job.ours(1.0)
    machine["reference"] = 0.05
    # Sides of one job are measured together: the peer is not kept either.
    job.peer("peer", 2.0)
    assert [(one.job, one.busy, one.reference) for one in rows.read()] == [("quiet", "", 0.05)]
    printed = capsys.readouterr().out
    assert reason in printed
    assert "measure again on quiet cores, or with --busy" in printed


def test_a_row_of_a_busy_machine_is_kept_on_request_and_the_machine_may_be_quiet_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: dict[str, float]
) -> None:
    monkeypatch.setenv("TOKENGEOM_BENCHMARK_RESULTS", str(tmp_path))
    monkeypatch.setenv("TOKENGEOM_BENCHMARK_BUSY", "1")
    benchmark = Benchmark("counting")
    machine["others"] = 1e6
    benchmark.job("busy").ours(1.0)
    benchmark.job("quiet").ours(1.0)
    busy, found = rows.read()
    assert "other programs used" in busy.busy
    assert (found.job, found.busy) == ("quiet", "")


@pytest.mark.parametrize(("other", "is_busy"), [({}, True), ({"machine": "another"}, False), ({"busy": "so"}, False)])
def test_a_machine_that_is_busy_from_the_beginning_is_known_by_the_kept_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: dict[str, float], other: dict[str, str], is_busy: bool
) -> None:
    monkeypatch.setenv("TOKENGEOM_BENCHMARK_RESULTS", str(tmp_path))
    monkeypatch.setenv("TOKENGEOM_BENCHMARK_BUSY", "1")
    fast = dataclasses.replace(row("2026-01-01T00:00:00Z", OURS, 1.0), machine=rows.machine(), reference=0.03)
    rows.append(dataclasses.replace(fast, **other))  # type: ignore[arg-type]
    Benchmark("counting").job("job").ours(1.0)
    found = rows.read()[-1]
    assert bool(found.busy) is is_busy
    assert not is_busy or "1.7 times as long as at best" in found.busy


def test_rows_that_name_no_processor_are_of_a_machine_with_the_same_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKENGEOM_BENCHMARK_RESULTS", str(tmp_path))
    names = ("2 cores, 24 GiB", "One, 2 cores, 24 GiB", "Two, 2 cores, 24 GiB", "2 cores, 64 GiB")
    for k, name in enumerate(names):
        rows.append(dataclasses.replace(row("2026-01-01T00:00:00Z", OURS, 1.0), machine=name, reference=0.01 * k))
    assert rows.references("One, 2 cores, 24 GiB") == [0.0, 0.01]
    assert rows.references("One, 12 cores, 24 GiB") == []


def test_a_machine_is_named_with_its_processor() -> None:
    assert f"{os.cpu_count()} cores" in rows.machine()
    cpu = Path("/proc/cpuinfo")
    if cpu.exists() and (named := re.search(r"model name\s*: (.+)", cpu.read_text())):
        assert rows.machine().startswith(f"{named[1]}, ")


def test_the_readme_shows_the_fastest_peer() -> None:
    for job, peer in table.SHORT:
        quiet_rows = [one for one in KEPT if one.job == job and not one.busy]
        last = [one for one in quiet_rows if one.date == quiet_rows[-1].date and one.side != OURS]
        assert min(last, key=lambda one: one.seconds or 0.0).side == peer


def test_every_row_has_a_program_or_says_that_it_has_none() -> None:
    for one in KEPT:
        assert (ROOT / "benchmarks" / f"{one.benchmark}.py").is_file() or "no program is kept" in one.note


def test_processor_time_of_other_programs_is_counted() -> None:
    before = quiet.processor_seconds_of_others()
    assert (before is not None) == Path("/proc/stat").exists()
    if before is None:
        return
    child = subprocess.Popen([sys.executable, "-c", "for _ in range(10**7): pass"])
    # A child that has ended counts as another program until it is waited for.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    after = quiet.processor_seconds_of_others()
    used = -sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    child.wait()
    used += sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    assert after is not None
    # The system counts in hundredths of a second.
    assert after - before >= used - 0.05


def test_busy_rows_are_shown_as_such_on_the_page_only() -> None:
    job, peer = table.SHORT[0]
    first, second = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    slow = [row(second, OURS, 2.0, job=job, busy="too many programs"), row(second, peer, 3.0, 1.5, job, "also")]
    assert "**busy machine** (too many programs)" in table.jobs_table(slow)
    assert job not in table.short_table(slow)
    assert [line.get_label() for line in table.draw(slow).axes[0].get_lines() if job in str(line.get_label())] == []
    both = [row(first, OURS, 1.0, job=job), row(first, peer, 4.0, 4.0, job), *slow]
    assert "busy machine" not in table.jobs_table(both)
    assert [line.ratio for line in table.newest_lines(both)] == ["4"]


def test_times_are_shown_in_their_unit() -> None:
    shown = [shown_time(value) for value in (4e-6, 2.193e-3, 0.4651, 7.459, 276.0, 4000.0)]
    assert shown == ["4 us", "2.19 ms", "465 ms", "7.46 s", "276 s", "4,000 s"]


def test_the_plot_shows_every_ratio_of_the_readme() -> None:
    axes = table.draw(KEPT).axes[0]
    drawn = {line.get_label().partition("\n")[0]: line.get_ydata() for line in axes.get_lines()}
    for job, peer in table.SHORT:
        ratios = [one.ratio for one in KEPT if (one.job, one.side) == (job, peer) and not one.busy]
        assert list(drawn.get(job, [])) == ratios


def test_parts_of_a_report_that_took_long_and_were_not_announced_are_marked() -> None:
    stated = {
        "short": (0.1, 0.2),
        "right": (6.0, 8.0),
        "twice": (2.0, 3.0),
        "wrong": (6.0, 8.0),
        "left out": (60.0, 60.0),
    }
    parts = [{"what": name, "shortest_seconds": a, "longest_seconds": b} for name, (a, b) in stated.items()]
    taken = {"short": 4.0, "right": 11.9, "twice": 8.9, "wrong": 12.1, "unknown": 5.1}
    found = estimates.compared_parts({"parts": [*parts, parts[2]], "taken": taken})
    assert [line.partition(":")[0] for line, is_fine in found if not is_fine] == ["wrong", "unknown", "left out"]


def test_parts_of_a_report_are_timed_by_their_titles(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, now = estimates.Timed(), [0.0]
    monkeypatch.setattr("benchmarks.estimates.time.perf_counter", lambda: now[0])
    with shown.stage("Report", 100.0) as bar:
        for title, seconds in (("Counting", 1.0), ("Predicting", 2.0)):
            bar.advance(0.0, title)
            with shown.stage("its own bar", None) as own:
                own.advance(1.0, "a note of its own")
                now[0] += seconds
        with shown.stage(executor.MEASURING, None):
            now[0] += 4.0
        now[0] += 8.0
    assert {title: seconds for title, seconds in shown.taken.items() if seconds} == {
        "Counting": 1.0,
        "Predicting": 10.0,
        executor.MEASURING: 4.0,
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(QUICK))
def test_every_benchmark_records_its_sides(name: str, tmp_path: Path) -> None:
    places = {"TOKENGEOM_BENCHMARK_RESULTS": str(tmp_path / "rows"), "TOKENGEOM_BENCHMARK_DATA": str(tmp_path / "data")}
    command = [sys.executable, "-m", "benchmarks", "--quick", "--busy", name]
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
