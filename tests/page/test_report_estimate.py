"""Estimates of a report: the sum over the stages that are still to be made, shown once."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

import tokengeom as tg
from estimate_cases import Said
from pipeline_cases import QUICK, plain_page, quick, write_text
from tokengeom.comparison.explanations.ufm import LARGEST_DIM, MOST_STEPS, SEEDS
from tokengeom.core import resources
from tokengeom.core.errors import InputError, ResourceError
from tokengeom.core.progress import AbstractStage
from tokengeom.core.resources import Estimate
from tokengeom.page import executor, stages
from tokengeom.page.executor import MEASURING, PATH_SOLVES, estimate_stages, measure_comparison, measure_rivals
from tokengeom.page.report import estimate
from tokengeom.theory.solving_time import Speed


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
    judging = Estimate.total("", [part for part in found.parts if part.what.startswith(("Comparing", "Rival"))])
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
    rivals = measure_rivals(10.0, stats)
    trained = 3 * 2 * 2 * LARGEST_DIM * SEEDS * MOST_STEPS * 1e-3
    assert rivals.longest - rivals.shortest == pytest.approx(0.75 * trained)
    monkeypatch.setattr(executor, "MOST_ITEMS", 1)
    assert measure_comparison(10.0, stats).seconds == pytest.approx(10 * 2 * 1e-2)


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


def test_no_stage_takes_no_time() -> None:
    stats = tg.NextTokenStatistics.from_counts([[1, 2], [0, 3], [2, 0]])
    assert estimate_stages([], stats).seconds == 0.0
