"""A report repeats what depends on a change and nothing else, and goes on where it was stopped."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokengeom as tg
from pipeline_cases import QUICK, STAGES, plain_page, quick, write_text
from tokengeom.errors import InputError, MissingExtraError, ResourceError
from tokengeom.page import stages
from tokengeom.page.make import Report, report


@pytest.fixture(autouse=True)
def _plain_page(monkeypatch: pytest.MonkeyPatch) -> None:
    plain_page(monkeypatch)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "stories.txt")


@pytest.fixture(scope="module")
def finished(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Report:
    with pytest.MonkeyPatch.context() as patch:
        plain_page(patch)
        return quick(text, tmp_path_factory.mktemp("finished") / "page.html")


@pytest.fixture
def first(finished: Report, tmp_path: Path) -> Report:
    """A finished report at a place of its own."""
    shutil.copytree(finished.page.parent, tmp_path, dirs_exist_ok=True)
    return replace(finished, page=tmp_path / "page.html", results=tmp_path / "page-results")


def test_everything_is_made_once_and_then_found(text: Path, first: Report) -> None:
    assert first.made == STAGES
    assert first.page.read_text() == "<title>stories.txt</title>"
    again = quick(text, first.page)
    assert again.made == ()
    assert str(again.contents.comparisons["unconstrained features"].to_dict()) == str(
        first.contents.comparisons["unconstrained features"].to_dict()
    )
    assert again.contents.choice == first.contents.choice
    assert again.contents.stats.equals(first.contents.stats)
    assert np.array_equal(
        again.contents.runs["unconstrained features"].W, first.contents.runs["unconstrained features"].W
    )


@pytest.mark.parametrize(
    ("change", "made"),
    [
        ({"seed": 1}, ("run-ufm", "comparison-ufm", "rivals-ufm", "page")),
        ({"draws": 25}, ("comparison-ufm", "rivals-ufm", "page")),
        ({"vocabulary": 15}, STAGES),
        # The same settings, now chosen by the user: only the reasons differ.
        ({"tokenizer": "word"}, ("choice", "page")),
    ],
)
def test_one_changed_option_repeats_only_what_depends_on_it(
    text: Path, first: Report, change: dict[str, Any], made: tuple[str, ...]
) -> None:
    assert quick(text, first.page, **change).made == made
    assert tg.verify(first.results)


def test_another_text_makes_everything_anew(first: Report, tmp_path: Path) -> None:
    assert quick(write_text(tmp_path / "other.txt", seed=5), first.page).made == STAGES


def test_the_numbers_are_those_of_the_verbs(first: Report, text: Path) -> None:
    stats = tg.count(text, context=2).limited(contexts=30, vocabulary=20)
    assert first.contents.stats.equals(stats)
    found = first.to_dict()
    assert (found["windows"], found["contexts"], found["vocabulary"]) == (stats.n, stats.m, stats.V)
    assert found["nuclear_norm"] == pytest.approx(tg.predict(stats).nuclear_norm, rel=1e-5)
    run = first.contents.runs["unconstrained features"]
    direct = tg.compare(tg.predict(stats), run, resamples=20, permutations=20)
    assert found["context_similarity"]["value"] == pytest.approx(direct.context_similarity.value, abs=1e-4)
    assert {"low", "high", "null"} <= set(found["token_similarity"])
    assert {"versions", "machine", "seeds", "settings", "hashes", "seconds"} <= set(first.contents.provenance)


def test_ctrl_c_in_training_keeps_what_was_done(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    straight = quick(text, tmp_path / "straight.html").contents.runs["unconstrained features"]

    def stop(step: int, steps: int, row: object) -> None:
        if step == 10:
            os.kill(os.getpid(), signal.SIGINT)

    def interrupted(*args: Any, **options: Any) -> Any:
        return tg.train(*args, **options, on_record=stop)

    with monkeypatch.context() as patch:
        patch.setattr(stages, "train", interrupted)
        with pytest.raises(KeyboardInterrupt):
            quick(text, tmp_path / "page.html")
    results = tmp_path / "page-results"
    assert not (results / "run-ufm").exists()
    assert "the report is finished" in tg.verify(results).failed
    resumed: list[int] = []

    def watched(*args: Any, **options: Any) -> Any:
        return tg.train(*args, **options, on_record=lambda step, steps, row: resumed.append(step))

    monkeypatch.setattr(stages, "train", watched)
    done = quick(text, tmp_path / "page.html")
    assert done.made == STAGES[3:]
    assert min(resumed) > 9
    assert np.array_equal(done.contents.runs["unconstrained features"].W, straight.W)
    assert tg.verify(results)


_KILLED = """
import sys
from pipeline_cases import QUICK
from tokengeom.page import make, stages
stages.SNAPSHOT_SECONDS = 0.05
make.report(sys.argv[1], sys.argv[2], **{**QUICK, "steps": 2_000_000})
"""


def test_a_killed_training_goes_on_from_its_snapshot(text: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    environment = {**os.environ, "PYTHONPATH": paths}
    process = subprocess.Popen([sys.executable, "-c", _KILLED, str(text), str(page)], env=environment)
    snapshots = tmp_path / "page-results/unfinished"
    deadline = time.monotonic() + 60
    while not list(snapshots.glob("run-ufm-*/step-0*")):
        assert process.poll() is None, "it ended before there was a snapshot"
        assert time.monotonic() < deadline
        time.sleep(0.02)
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
    # Another number of steps is another run: nothing of the killed one is taken for it.
    assert quick(text, page).made == STAGES[3:]
    assert tg.verify(tmp_path / "page-results")


def _full_disk(*args: object, **options: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    "place", ["tokengeom.geometry.comparison.write_manifest", "tokengeom.training.run._write_parts"]
)
def test_a_full_disk_ends_in_words_and_harms_nothing(
    text: Path, first: Report, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(place, _full_disk)
        with pytest.raises(ResourceError, match="No space left on device"):
            quick(text, first.page, seed=7)
    assert first.page.read_text() == "<title>stories.txt</title>"
    assert quick(text, first.page, seed=7).made[-3:] == ("comparison-ufm", "rivals-ufm", "page")
    assert tg.verify(first.results)


def test_a_page_that_cannot_be_written_leaves_the_old_one(
    text: Path, first: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = first.page.read_bytes()
    write = Path.write_bytes

    def full(self: Path, content: bytes) -> int:
        if "page.html" in self.name:
            write(self, content[:3])
            _full_disk()
        return write(self, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ResourceError, match="Free some space"):
        quick(text, first.page, seed=3)
    assert first.page.read_bytes() == before
    assert sorted(path.name for path in first.page.parent.iterdir()) == ["page-results", "page.html"]


def test_a_transformer_is_trained_and_compared_beside_the_features(text: Path, first: Report) -> None:
    both = quick(text, first.page, transformer=True, steps=12)
    judged = ("comparison-ufm", "rivals-ufm", "comparison-transformer", "rivals-transformer")
    assert both.made == ("run-ufm", "run-transformer", *judged, "page")
    assert set(both.contents.comparisons) == {"unconstrained features", "transformer"}
    assert both.contents.missing == ()
    assert tg.verify(both.results)
    # Leaving it out again finds the other stages, and keeps the network for the next time.
    assert quick(text, first.page, steps=12).made == ("page",)
    assert quick(text, first.page, transformer=True, steps=12).made == ("page",)


def test_a_missing_network_package_is_said_with_the_remedy(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "find_spec", lambda name: None)
    made = quick(text, tmp_path / "page.html", transformer=True)
    assert set(made.contents.runs) == {"unconstrained features"}
    (sentence,) = made.contents.missing
    assert "torch and transformers" in sentence
    assert "pip install 'tokengeom[networks]'" in sentence


def test_a_missing_page_package_is_said_before_any_work(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tokengeom.page.make.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"tokengeom\[report\]"):
        quick(text, tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_a_diverged_run_is_shown_and_not_compared(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wild(*args: Any, **options: Any) -> Any:
        with np.errstate(all="ignore"):
            return tg.train(*args, **{**options, "learning_rate": 1e30})

    monkeypatch.setattr(stages, "train", wild)
    made = quick(text, tmp_path / "page.html")
    assert made.contents.runs["unconstrained features"].status.startswith("diverged")
    assert made.contents.comparisons == {}
    assert "lower the learning rate" in made.contents.missing[1]
    assert "context_similarity" not in made.to_dict()
    assert tg.verify(made.results)


def test_statistics_are_reported_on_in_memory_and_from_their_folder(text: Path, tmp_path: Path) -> None:
    stats = tg.count(text, context=2).limited(contexts=30, vocabulary=20)
    options = {name: value for name, value in QUICK.items() if name in ("steps", "dim", "draws", "transformer")}
    made = report(stats, tmp_path / "page.html", **options)
    assert made.contents.stats.equals(stats)
    assert made.contents.title == "stories.txt"
    stats.save(tmp_path / "saved")
    assert report([tmp_path / "saved"], tmp_path / "page.html", **options).made == ()
    assert report(stats, tmp_path / "page.html", **options, vocabulary=10).contents.stats.V == 10


def test_a_comparison_writes_its_page(text: Path, tmp_path: Path) -> None:
    stats = tg.count(text, context=2).limited(contexts=30, vocabulary=20)
    prediction, run = tg.predict(stats), tg.train(stats, "ufm", dim=4, steps=5)
    page = tg.compare(prediction, run, resamples=0, permutations=0).report(tmp_path / "page.html")
    assert page.read_text() == "<title>stories.txt</title>"
    with pytest.raises(InputError, match="made in this session"):
        tg.compare(prediction, (run.W, run.H), resamples=0, permutations=0).report(tmp_path / "page.html")


def test_the_verb_is_callable_before_and_after_its_room_is_imported() -> None:
    code = (
        "import tokengeom as tg; before = tg.report; import tokengeom.page.text; import tokengeom.page.make;"
        "assert callable(before) and callable(tg.report);"
        "from tokengeom.errors import InputError\n"
        "for verb in (before, tg.report):\n"
        "    try: verb(['a b'], out='.', preset='huge')\n"
        "    except InputError as error: assert 'preset' in str(error), error\n"
        "    else: raise SystemExit('nothing was refused')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_folder_is_no_page(text: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        quick(text, tmp_path)
