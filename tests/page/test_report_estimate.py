"""Estimates of a report: the sum over the stages that are still to be made, shown once."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import tokengeom as tg
from estimate_cases import Said
from pipeline_cases import QUICK, plain_page, quick, write_text
from tiny_models import build, save, sentences
from tokengeom.comparison.explanations.ufm import LARGEST_DIM, MOST_STEPS, SEEDS
from tokengeom.core import resources
from tokengeom.core.errors import InputError, ResourceError
from tokengeom.core.progress import AbstractStage
from tokengeom.core.resources import Estimate
from tokengeom.corpus.locate import ReadingSettings
from tokengeom.page import executor, stages
from tokengeom.page.executor import (
    MEASURING,
    PAGE,
    PAGE_SECONDS,
    PATH_SOLVES,
    estimate_stages,
    measure_comparison,
    measure_rivals,
)
from tokengeom.page.report import estimate, plan_report
from tokengeom.page.settings import ReportSettings
from tokengeom.page.source_text import find_text
from tokengeom.theory.solving_time import Speed
from tokengeom.training.settings import TrainingSettings


@pytest.fixture(autouse=True)
def _plain_page(monkeypatch: pytest.MonkeyPatch) -> None:
    plain_page(monkeypatch)


@pytest.fixture
def everything_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "LONG", 0.0)


class Shown(Said):
    """Keeps sentences, and the titles of stages, in their order."""

    def stage(self, title: str, total: float | None) -> AbstractContextManager[AbstractStage]:
        self.sentences.append(title)
        return super().stage(title, total)


@pytest.mark.usefixtures("everything_is_long")
def test_a_report_states_once_what_is_still_to_be_made(tmp_path: Path) -> None:
    text, page, shown = write_text(tmp_path / "stories.txt"), tmp_path / "page.html", Shown()
    quick(text, page, progress=shown)
    (sentence,) = [one for one in shown.sentences if one.startswith("The report: ")]
    # Measuring takes seconds too, and is shown.
    order = [shown.sentences.index(one) for one in (MEASURING, sentence, "Predicting")]
    assert order == sorted(order)
    assert [line.split(":")[0].strip() for line in sentence.splitlines()[1:]][:3] == [
        "Predicting",
        "Predicting along the loss",
        "Training",
    ]
    assert "training 2" in sentence
    later = Shown()
    quick(text, page, progress=later, permutations=25)
    (rest,) = [one for one in later.sentences if one.startswith("The report: ")]
    assert "Comparing" in rest
    assert "Training" not in rest
    last = Shown()
    quick(text, page, progress=last, permutations=25)
    assert [one for one in last.sentences if one.startswith("The report: ")] == []


def test_the_estimate_is_the_sum_of_predictions_trainings_and_expected_durations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def one(kind: str, seconds: float) -> Any:
        def made(stats: object, **settings: Any) -> Estimate:
            asked.append({"kind": kind, **settings})
            return Estimate(kind, seconds, 2 * seconds, 10**9)

        return made

    for module in (stages, executor):
        monkeypatch.setattr(module, "estimate_prediction", one("predict", 100.0))
    monkeypatch.setattr(stages, "estimate_training", one("train", 1000.0))
    found = estimate("report", write_text(tmp_path / "stories.txt"), **QUICK)
    others = ("Comparing", "Rival", "Counting", "Holding", "Writing")
    judging = Estimate.total("", [part for part in found.parts if part.what.startswith(others)])
    # The limit, the path of as many solves, two trainings and two norms at a loss.
    measured = 100 + PATH_SOLVES * 100 + 2 * 1000 + 2 * 100
    assert found.shortest == pytest.approx(measured + judging.shortest)
    assert found.longest == pytest.approx(2 * measured + judging.longest)
    assert found.bytes == 10**9
    assert [one["kind"] for one in asked] == ["predict", "predict", "train", "predict", "predict"]
    assert {one.get("norm") for one in asked if "loss_gap" in one} == {"nuclear", "gamma2"}


def test_time_of_comparing_grows_with_pairs_of_items_that_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "measure_speed", lambda *given: Speed(product=1e-3, eigen=0.0, entry=1e-2))
    # Three tokens, of which one never occurs, and two contexts.
    stats = tg.NextTokenStatistics.from_counts([[1, 2], [0, 3], [0, 0]])
    assert measure_comparison(10.0, stats).seconds == pytest.approx(10 * (2**2 + 2**2) * 1e-2)
    rivals = measure_rivals(10.0, None, False, stats)
    trained = 3 * 2 * 2 * LARGEST_DIM * SEEDS * MOST_STEPS * 1e-3
    assert rivals.longest - rivals.shortest == pytest.approx(0.75 * trained)
    monkeypatch.setattr(executor, "MOST_ITEMS", 1)
    assert measure_comparison(10.0, stats).seconds == pytest.approx(10 * 2 * 1e-2)


def test_a_rival_that_is_trained_as_a_network_was_takes_its_time_too(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def simulation(stats: object, **settings: Any) -> Estimate:
        asked.append(settings)
        return Estimate("", 50.0, 200.0)

    monkeypatch.setattr(executor, "estimate_simulation", simulation)
    monkeypatch.setattr(executor, "measure_speed", lambda *given: Speed(product=1e-9, eigen=0.0, entry=1e-9))
    stats = tg.count(["the king sat . the queen ran . the king ran ."] * 3, context=2)
    network = TrainingSettings(model="transformer", dim=8, steps=20)
    (without, quick_copy, slow_copy, read) = (
        measure_rivals(10.0, like, False, stats)
        for like in (replace(network, model="ufm"), network, replace(network, steps=10**9), None)
    )
    assert [one.longest - without.longest for one in (quick_copy, slow_copy, read)] == pytest.approx([200.0] * 3)
    assert [(one["steps"], one["dim"]) for one in asked] == [
        (40, 8),
        (MOST_STEPS, LARGEST_DIM),
        (MOST_STEPS, LARGEST_DIM),
    ]


@pytest.mark.parametrize("kind", ["text", "statistics", "model", "model with ties"])
def test_every_stage_that_may_take_long_is_estimated(kind: str, tmp_path: Path) -> None:
    """Before the statistics nothing is known, and reading a text says how far it is."""
    text: Any = [f"{sentence} ." for sentence in sentences()]
    source: Any = tg.count(text, context=2) if kind == "statistics" else find_text(text, ReadingSettings())
    settings = ReportSettings()
    if kind.startswith("model"):
        ties = "positions" if kind.endswith("ties") else None
        settings = ReportSettings(model=str(save(build("llama"), tmp_path / "model")), ties=ties)
    plan = plan_report(source, settings)
    assert {stage.name for stage in plan.stages if stage.measure is None} <= {"choice", "statistics"}
    known = [replace(stage, measure=lambda stats: Estimate("", 1.0, 1.0)) for stage in plan.after_counting]
    found = estimate_stages(known, tg.NextTokenStatistics.from_counts([[1, 2], [0, 3], [2, 0]]), 100.0)
    times = {part.what: part.seconds for part in found.parts}
    assert list(times) == [*dict.fromkeys(stage.title for stage in known), PAGE]
    again = {stage.title for stage in known if "Counting" in stage.title or "Holding" in stage.title}
    assert {title for title, seconds in times.items() if seconds > 50.0} == again


def test_a_report_that_does_not_fit_is_refused_before_anything_is_solved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = write_text(tmp_path / "stories.txt")
    monkeypatch.setattr("tokengeom.page.stages.predict", lambda *given, **settings: pytest.fail("solved"))
    monkeypatch.setattr(resources, "free_memory", lambda device=None: 10_000)
    with pytest.raises(ResourceError, match="Keep"):
        quick(text, tmp_path / "page.html")


def test_verbs_without_an_estimate_are_refused() -> None:
    with pytest.raises(InputError, match=r"'trian' cannot be estimated\. Did you mean 'train'"):
        tg.estimate("trian")  # type: ignore[call-overload]


def test_without_stages_only_the_page_is_written() -> None:
    stats = tg.NextTokenStatistics.from_counts([[1, 2], [0, 3], [2, 0]])
    assert estimate_stages([], stats, 0.0).seconds == pytest.approx(PAGE_SECONDS)


def test_stages_are_measured_with_as_many_threads_as_they_are_made_with() -> None:
    def threads() -> set[int]:
        return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}

    def measure(stats: tg.NextTokenStatistics) -> Estimate:
        seen.append(threads())
        return Estimate("", 1.0, 1.0)

    seen = list[set[int]]()
    plan = plan_report(find_text(["a b c"], ReadingSettings()), ReportSettings())
    with threadpool_limits(2, user_api="blas"):
        first = replace(plan.after_counting[0], measure=measure)
        estimate_stages([first], tg.NextTokenStatistics.from_counts([[1, 2], [0, 3], [2, 0]]), 0.0)
    assert seen == [{1}]
