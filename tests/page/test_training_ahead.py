"""A second process makes the later trainings: the same results to the last bit, and it never outlives the report."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokengeom as tg
from pipeline_cases import QUICK, STAGES, plain_page, quick, write_text
from tokengeom.core.errors import InputError
from tokengeom.core.resources import Estimate
from tokengeom.page import executor, stages, training_ahead
from tokengeom.page.executor import estimate_stages
from tokengeom.page.settings import TRANSFORMER, UFM, ReportSettings
from tokengeom.page.stages import run_stage, training_stages
from tokengeom.page.training_ahead import LaterTraining, SecondProcess, half_of_the_threads, later_trainings
from waiting import wait_until

SECOND = "run-ufm-2"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return write_text(tmp_path / "text.txt")


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second process for any length of training, on any machine."""
    plain_page(monkeypatch)
    monkeypatch.setattr(training_ahead, "WORTHWHILE", 0.0)
    monkeypatch.setattr(training_ahead, "PROCESS_BYTES", 0)
    monkeypatch.setattr(training_ahead, "usable_cores", lambda: 2)


def arrays(results: Path, stage: str) -> bytes:
    return (results / stage / "arrays.safetensors").read_bytes()


@pytest.mark.slow
@pytest.mark.usefixtures("always")
def test_the_second_process_trains_to_the_same_bits(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = []

    def watched(*arguments: Any, **options: Any) -> Any:
        return tg.train(*arguments, **options, on_record=lambda step, steps, row: seeds.append(options["seed"]))

    monkeypatch.setattr(training_ahead, "train", watched)
    ahead = quick(text, tmp_path / "ahead.html")
    assert ahead.made == STAGES
    assert set(seeds) == {0}, "the second training was resumed at its end"
    assert not (tmp_path / "ahead-results" / "unfinished").exists()
    monkeypatch.setattr(training_ahead, "WORTHWHILE", np.inf)
    alone = quick(text, tmp_path / "alone.html")
    assert set(seeds) == {0, 1}
    for stage in ("run-ufm", SECOND):
        assert arrays(tmp_path / "ahead-results", stage) == arrays(tmp_path / "alone-results", stage)
    assert alone.made == STAGES


@pytest.mark.slow
@pytest.mark.usefixtures("always")
def test_without_the_second_process_the_report_trains_itself(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_ahead, "START", "raise SystemExit(1)  # {source}")
    assert quick(text, tmp_path / "failed.html").made == STAGES
    monkeypatch.setattr(sys, "executable", str(tmp_path / "missing"))
    assert quick(text, tmp_path / "missing.html").made == STAGES
    assert arrays(tmp_path / "failed-results", SECOND) == arrays(tmp_path / "missing-results", SECOND)


@pytest.mark.usefixtures("always")
def test_an_error_stops_the_second_process(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[SecondProcess] = []
    start = SecondProcess.start

    def kept(*arguments: Any) -> SecondProcess | None:
        found = start(*arguments)
        assert found is not None
        started.append(found)
        return found

    def fails(*arguments: Any, **options: Any) -> Any:
        raise InputError("The prediction failed.")

    monkeypatch.setattr(SecondProcess, "start", kept)
    monkeypatch.setattr("tokengeom.page.stages.predict", fails)
    with pytest.raises(InputError, match="The prediction failed"):
        quick(text, tmp_path / "page.html", steps=20_000_000)
    (second,) = started
    assert second._process.poll() is not None


_REPORT = """
import sys
from tokengeom.page.settings import ReportSettings
from tokengeom.page.training_ahead import LaterTraining, SecondProcess
settings = ReportSettings(steps=20_000_000, dim=8, transformer=False)
second = SecondProcess(__import__("pathlib").Path(sys.argv[1]), settings, [LaterTraining("ufm", 1, sys.argv[2])])
print(second._process.pid, flush=True)
second.wait_for("ufm", 1)
"""


def test_the_second_process_ends_when_the_first_is_killed(text: Path, tmp_path: Path) -> None:
    tg.count(text, context=2, top_contexts=30, vocabulary=20).save(tmp_path / "stats")
    command = [sys.executable, "-c", _REPORT, str(tmp_path / "stats"), str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        second = int(first.stdout.readline())
        first.kill()
    wait_until(lambda: not is_running(second))


def is_running(process: int) -> bool:
    """Whether a process runs that is not a child of this one; an ended one may wait for its new parent."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_second_process_is_used_where_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    both, settings = [UFM, TRANSFORMER], ReportSettings()
    monkeypatch.setattr(training_ahead, "usable_cores", lambda: 2)
    assert later_trainings(settings, both) == [(UFM, 1), (TRANSFORMER, 1)]
    planned = training_stages(tg.NextTokenStatistics.from_counts([[1, 2], [3, 0]]), settings, both)
    trained = [stage.name for stage in planned if stage.name.startswith("run-")]
    assert trained == [run_stage(*one) for one in ((TRANSFORMER, 0), (UFM, 0), (UFM, 1), (TRANSFORMER, 1))]
    assert [stage.ahead for stage in planned if stage.ahead] == [(UFM, 1), (TRANSFORMER, 1)]
    assert later_trainings(settings, [UFM]) == []
    assert later_trainings(ReportSettings(steps=100), both) == []
    assert later_trainings(ReportSettings(preset="paper"), both) == []
    assert later_trainings(ReportSettings(device="cuda"), both) == []
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert later_trainings(settings, both) == []
    monkeypatch.delenv("WORLD_SIZE")
    monkeypatch.setattr(training_ahead, "usable_cores", lambda: 1)
    assert later_trainings(settings, both) == []


def test_no_second_process_without_work_or_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = LaterTraining(UFM, 1, str(tmp_path / "run"))
    assert SecondProcess.start(tmp_path, ReportSettings(), []) is None
    monkeypatch.setattr(training_ahead, "free_memory", lambda: 10**9)
    assert SecondProcess.start(tmp_path, ReportSettings(), [training]) is None


def test_the_estimate_counts_trainings_at_the_same_time_once(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stats = tg.count(text, context=2, top_contexts=30, vocabulary=20)
    settings = ReportSettings(**QUICK)
    found = Estimate("", 30.0, 30.0, 10**9)
    monkeypatch.setattr(training_ahead, "estimate_training", lambda *a, **o: found)
    monkeypatch.setattr(training_ahead, "LONG_TRAINING", 0.0)
    for module in (stages, executor):
        monkeypatch.setattr(module, "estimate_prediction", lambda *a, **o: Estimate("", 1.0, 1.0))
    after_each_other = estimate_stages(training_stages(stats, settings, [UFM]), stats)
    monkeypatch.setattr(training_ahead, "WORTHWHILE", 0.0)
    monkeypatch.setattr(training_ahead, "usable_cores", lambda: 2)
    together = estimate_stages(training_stages(stats, settings, [UFM]), stats)
    assert together.shortest == pytest.approx(after_each_other.shortest - 30.0)
    assert together.longest == pytest.approx(after_each_other.longest - 30.0)
    assert together.bytes == 2 * 10**9
    assert together.parts[-1].what.endswith("training 2, at the same time")


def test_threads_are_halved_and_restored() -> None:
    import numba
    import torch

    before = numba.get_num_threads(), torch.get_num_threads()
    with half_of_the_threads(True):
        assert (numba.get_num_threads(), torch.get_num_threads()) == tuple(max(1, count // 2) for count in before)
    assert (numba.get_num_threads(), torch.get_num_threads()) == before
    assert training_ahead.usable_cores() <= (os.cpu_count() or 1)


def test_a_second_process_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_ahead, "START", "import time; time.sleep(60)")
    monkeypatch.setattr(training_ahead, "STOP_SECONDS", 0.2)
    process = SecondProcess(tmp_path, ReportSettings(), [LaterTraining(UFM, 1, str(tmp_path))])
    process.stop()
    assert process._process.returncode == -signal.SIGKILL, "it did not end by itself, after 60 s"
