"""A report repeats only what depends on a change, and continues where it was interrupted; one bar shows all of it."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokengeom as tg
from pipeline_cases import JUDGED, RUNS, STAGES, TIES, plain_page, quick, results_of, write_text
from tokengeom.core.errors import ResourceError
from tokengeom.core.progress import AbstractProgress, AbstractStage
from tokengeom.corpus.tokenizers import ByteTokenizer, CharacterTokenizer
from tokengeom.page import stages
from tokengeom.page.executor import overall_progress
from tokengeom.page.report import Report
from tokengeom.page.settings import TRANSFORMER, UFM, ReportSettings
from tokengeom.page.source_text import find_text
from tokengeom.page.stages import training_stages
from waiting import wait_until


@pytest.fixture(autouse=True)
def _quick_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of one line, and one rival explanation: stages are what is tested here."""
    plain_page(monkeypatch)


@pytest.fixture
def first(finished: Report, tmp_path: Path) -> Report:
    """A copy of a finished report."""
    shutil.copytree(finished.page.parent, tmp_path, dirs_exist_ok=True)
    return replace(finished, page=tmp_path / "page.html", results=tmp_path / "page-results")


def test_every_stage_is_made_once_and_then_found(text: Path, first: Report) -> None:
    assert first.made == STAGES
    assert first.page.read_text().endswith("<title>stories.txt</title>")
    again = quick(text, first.page)
    assert again.made == ()
    assert str(again.contents.comparisons["unconstrained features"].to_dict()) == str(
        first.contents.comparisons["unconstrained features"].to_dict()
    )
    assert again.contents.choice.to_dict() == first.contents.choice.to_dict()
    assert again.contents.stats.equals(first.contents.stats)
    assert np.array_equal(
        again.contents.runs["unconstrained features"].W, first.contents.runs["unconstrained features"].W
    )


@pytest.mark.parametrize(
    ("change", "made"),
    [
        ({"seed": 2}, STAGES[4:]),
        ({"permutations": 25}, ("comparison-ufm", "rivals-ufm", "page")),
        # Without the second run, the predictions at the loss of the first one are found.
        ({"seeds": 1}, ("comparison-ufm", "rivals-ufm", "page")),
        ({"vocabulary": 15}, STAGES),
        # The same settings, now given by the user: only the reasons differ.
        ({"tokenizer": "word"}, ("choice", "page")),
    ],
)
def test_one_changed_setting_repeats_only_what_depends_on_it(
    text: Path, first: Report, change: dict[str, Any], made: tuple[str, ...]
) -> None:
    assert quick(text, first.page, **change).made == made
    assert tg.verify(results_of(first))


def test_a_saved_tokenizer_that_changed_repeats_every_stage(text: Path, tmp_path: Path) -> None:
    saved, learned = tmp_path / "tokenizer.json", CharacterTokenizer()
    learned.encode([text.read_text()])
    saved.write_text(learned.freeze().to_json())
    assert quick(text, tmp_path / "page.html", tokenizer=saved).made == STAGES
    assert quick(text, tmp_path / "page.html", tokenizer=saved).made == ()
    saved.write_text(ByteTokenizer().to_json())
    assert quick(text, tmp_path / "page.html", tokenizer=saved).made == STAGES


def test_another_text_repeats_every_stage(first: Report, tmp_path: Path) -> None:
    assert quick(write_text(tmp_path / "other.txt", seed=5), first.page).made == STAGES


@pytest.mark.parametrize("place", [0, 1])
def test_training_resumes_after_ctrl_c(
    text: Path, first: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    straight = [*first.contents.runs.values(), *first.contents.repeats["unconstrained features"]][place]

    def stop(step: int, steps: int, row: object) -> None:
        if step == 10:
            os.kill(os.getpid(), signal.SIGINT)

    def interrupted(*args: Any, **options: Any) -> Any:
        return tg.train(*args, **options, on_record=stop if options["seed"] == place else None)

    with monkeypatch.context() as patch:
        patch.setattr(stages, "train", interrupted)
        with pytest.raises(KeyboardInterrupt):
            quick(text, tmp_path / "new.html")
    results = tmp_path / "new-results"
    assert [(results / name).exists() for name in RUNS] == [place == 1, False]
    assert "the report is finished" in tg.verify(results).failed
    resumed: list[int] = []

    def watched(*args: Any, **options: Any) -> Any:
        return tg.train(*args, **options, on_record=lambda step, steps, row: resumed.append(step))

    monkeypatch.setattr(stages, "train", watched)
    done = quick(text, tmp_path / "new.html")
    assert done.made == STAGES[4 + place :]
    assert resumed[0] > 9
    again = [*done.contents.runs.values(), *done.contents.repeats["unconstrained features"]][place]
    assert np.array_equal(again.W, straight.W)
    assert tg.verify(results)


_KILLED = """
import sys
from pipeline_cases import QUICK
from tokengeom.page import report, stages
stages.SNAPSHOT_SECONDS = 0.05
report.report(sys.argv[1], sys.argv[2], **{**QUICK, "steps": 2_000_000})
"""


@pytest.mark.slow
def test_training_resumes_from_its_snapshot_after_a_kill(text: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    environment = {**os.environ, "PYTHONPATH": paths}
    process = subprocess.Popen([sys.executable, "-c", _KILLED, str(text), str(page)], env=environment)
    snapshots = tmp_path / "page-results/unfinished"
    wait_until(lambda: any(snapshots.glob("run-ufm-*/step-0*")), process)
    process.kill()
    process.wait()
    before = max(int(path.name[5:]) for path in snapshots.glob("run-ufm-*/step-0*"))
    assert not page.exists()
    seen: list[int] = []

    def stopped(*args: Any, **options: Any) -> Any:
        def stop(step: int, steps: int, row: object) -> None:
            seen.append(step)
            raise KeyboardInterrupt

        return tg.train(*args, **options, on_record=stop)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stages, "train", stopped)
        with pytest.raises(KeyboardInterrupt):
            quick(text, page, steps=2_000_000)
    assert seen[0] >= before > 0
    # Another number of steps is another run, which must not use snapshots of the killed one.
    assert quick(text, page).made == STAGES[4:]
    assert tg.verify(tmp_path / "page-results")


def _full_disk(*args: object, **options: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("place", ["tokengeom.results.contract.write_json", "tokengeom.training.run._write_parts"])
def test_a_full_disk_is_reported_and_damages_nothing(
    text: Path, first: Report, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(place, _full_disk)
        with pytest.raises(ResourceError, match="No space left on device"):
            quick(text, first.page, seed=7)
    assert first.page.read_text().endswith("<title>stories.txt</title>")
    assert quick(text, first.page, seed=7).made[-3:] == STAGES[-3:]
    assert tg.verify(results_of(first))


def test_a_page_that_cannot_be_written_leaves_the_old_one(
    text: Path, first: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = first.page.read_bytes()
    write = Path.write_bytes

    def full(self: Path, content: bytes) -> int:
        if content.startswith(b"<"):
            write(self, content[:3])
            _full_disk()
        return write(self, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ResourceError, match="Free some space"):
        quick(text, first.page, seed=3)
    assert first.page.read_bytes() == before
    assert sorted(path.name for path in first.page.parent.iterdir()) == ["page-results", "page.html"]


def test_a_transformer_is_trained_and_compared_as_well(text: Path, first: Report) -> None:
    both = quick(text, first.page, transformer=True, steps=12)
    own = [tuple(name.replace("ufm", "transformer") for name in names) for names in (RUNS, JUDGED)]
    assert both.made == (*RUNS, *JUDGED, *own[0], *own[1], *TIES, "page")
    assert {name: comparison.runs for name, comparison in both.contents.comparisons.items()} == {
        "unconstrained features": 2,
        "transformer": 2,
    }
    assert both.contents.missing == ()
    assert tg.verify(results_of(both))
    # Without it, the other stages are found, and its results are kept for the next time.
    assert quick(text, first.page, steps=12).made == ("page",)
    assert quick(text, first.page, transformer=True, steps=12).made == ("page",)


def test_a_missing_network_package_is_named_with_the_remedy(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tokengeom.page.settings.find_spec", lambda name: None)
    made = quick(text, tmp_path / "page.html", transformer=True)
    assert set(made.contents.runs) == {"unconstrained features"}
    sentence = made.contents.missing[0]
    assert "torch and transformers" in sentence
    assert "pip install 'tokengeom[networks]'" in sentence


def test_a_diverged_run_is_shown_and_not_compared(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wild(*args: Any, **options: Any) -> Any:
        with np.errstate(all="ignore"):
            return tg.train(*args, **{**options, "learning_rate": 1e30})

    monkeypatch.setattr(stages, "train", wild)
    made = quick(text, tmp_path / "page.html")
    assert made.contents.trained["unconstrained features"].status.startswith("diverged")
    assert made.contents.comparisons == {}
    assert "lower the learning rate" in made.contents.missing[1]
    assert not {"verdict", "context_agreement"} & set(made.to_dict())
    # The record has the learning rate that was asked for.
    failed = tg.verify(results_of(made)).failed
    assert failed == tuple(f"{name}: its settings are those in the record" for name in RUNS)


def test_a_second_training_shows_what_is_reproducible(text: Path, first: Report) -> None:
    name = "unconstrained features"
    (second,) = first.contents.repeats[name]
    run, found = first.contents.trained[name], first.contents.comparisons[name]
    assert second.settings == {**run.settings, "seed": 1}
    group = first.contents.stats.groups.label
    apart = group[:, None] != group[None, :]
    directions = [one.H / np.linalg.norm(one.H, axis=0) for one in (run, second)]
    x, y = ((D.T @ D)[apart] for D in directions)
    assert found.runs == 2
    assert found.context_agreement.reproducible == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-9)
    once = quick(text, first.page, seeds=1)
    assert np.isnan(once.contents.comparisons[name].context_agreement.reproducible)
    unknown = "How much of the geometry of the model 'unconstrained features' is reproducible is not known"
    assert unknown in once.contents.missing[1]


class _Bar(AbstractStage):
    def __init__(self) -> None:
        self.at, self.notes = 0.0, [""]

    def advance(self, amount: float, note: str = "") -> None:
        self.at += amount
        self.notes.append(note)


class _Bars(AbstractProgress):
    def __init__(self) -> None:
        self.bars: dict[str, _Bar] = {}
        self.totals: dict[str, float | None] = {}

    @contextmanager
    def stage(self, title: str, total: float | None) -> Iterator[AbstractStage]:
        self.bars[title] = _Bar()
        self.totals[title] = total
        yield self.bars[title]


def test_the_overall_bar_moves_by_the_share_of_each_part_and_no_further() -> None:
    shown = _Bars()
    with overall_progress(shown, "Report", 30.0) as whole:
        with whole.part(20.0, "training"):
            with whole.stage("Training", 1000.0) as stage:
                stage.advance(500.0)
                assert shown.bars["Report"].at == pytest.approx(10.0)
            with whole.stage("Again", 10.0) as stage:
                stage.advance(10.0)
            assert shown.bars["Report"].at == pytest.approx(20.0)
        with whole.part(10.0, "rest"):
            with whole.stage("Unknown", None) as stage:
                stage.advance(3.0)
            assert shown.bars["Report"].at == pytest.approx(20.0)
    assert shown.bars["Report"].at == pytest.approx(30.0)
    assert shown.bars["Training"].at == 500.0
    assert "rest" in shown.bars["Report"].notes


UNSEEN = ("unseen-cut", "unseen-counted", "unseen")


def test_stages_are_listed_for_a_text_and_for_statistics() -> None:
    settings = ReportSettings(steps=600)
    from_text = training_stages(find_text(["a b c"], tg.ReadingSettings()), settings, [UFM, TRANSFORMER])
    runs, judged = ([name.replace("ufm", "transformer") for name in names] for names in (RUNS, JUDGED))
    assert [one.name for one in from_text] == [*STAGES[:4], *RUNS, *JUDGED, *runs, *judged, *TIES, *UNSEEN]
    given = training_stages(tg.NextTokenStatistics.from_counts([[1, 2], [3, 0]]), settings, [UFM])
    assert [one.name for one in given] == ["statistics", *STAGES[2:-1], *UNSEEN]
    without = training_stages(find_text(["a b c"], tg.ReadingSettings()), replace(settings, unseen=False), [UFM])
    assert not {one.name for one in without} & set(UNSEEN)
    for listed in (from_text, given):
        for place, stage in enumerate(listed):
            assert {*stage.needs, *stage.uses} <= {one.name for one in listed[:place]}
            assert stage.seconds > 0


def test_progress_names_every_stage_and_ends_complete(text: Path, tmp_path: Path) -> None:
    shown = _Bars()
    quick(text, tmp_path / "page.html", progress=shown)
    notes = [note for note in shown.bars["Report"].notes if note]
    assert notes == [
        "Choosing settings", "Counting", "Predicting", "Predicting along the loss", "Training: unconstrained features",
        "Training: unconstrained features, training 2", *["Predicting at the loss: unconstrained features"] * 2,
        "Comparing: unconstrained features", "Rival explanations: unconstrained features", "Writing the page",
    ]  # fmt: skip
    assert shown.bars["Report"].at == pytest.approx(shown.totals["Report"])
    assert {"Predicting", "Predicting at the loss: unconstrained features"} <= set(shown.bars)
