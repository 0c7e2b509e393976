"""Every kind of result keeps one contract: saved, loaded, described and checked in the same way."""

from __future__ import annotations

import dataclasses
import json
import pkgutil
import sys
from collections.abc import Iterator
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiny_models
import tokengeom as tg
from forging import forge
from html_reader import read
from pipeline_cases import plain_page, results_of
from study_cases import run_study
from tokengeom.comparison.checkpoints import CheckpointCurve
from tokengeom.comparison.compare_texts import compare_texts
from tokengeom.core.errors import InputError, MissingExtraError
from tokengeom.page.chosen_settings import Choice
from tokengeom.page.read_model import ReadModel
from tokengeom.page.report import Report
from tokengeom.results.contract import (
    ALONE,
    SAME,
    AbstractJsonResult,
    AbstractResult,
    NearbyResults,
    html_table,
    saved_hash,
)
from tokengeom.results.manifests import read_seal
from tokengeom.results.registry import KINDS, load, result_class
from tokengeom.statistics.count import count_pairs
from tokengeom.verification.verify import Verification, same, under, verify
from tokengeom_studies.base import Findings

DRAWS: dict[str, Any] = {"permutations": 20}
SHORT = sorted(kind.removeprefix("tokengeom-") for kind in KINDS)
Samples = dict[str, AbstractResult]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module", autouse=True)
def plain_pages() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        plain_page(patch)
        yield


@pytest.fixture(scope="module")
def samples(folder: Path, finished: Report) -> Samples:
    """One result of each kind."""
    counts = np.array([[3, 1, 0, 0, 1], [2, 0, 4, 0, 1], [0, 5, 1, 0, 0], [0, 0, 0, 7, 0], [1, 0, 0, 1, 2]])
    stats = tg.NextTokenStatistics.from_counts(counts)
    prediction, run = tg.predict(stats), tg.train(stats, "ufm", dim=5, steps=30)
    read = tg.NextTokenStatistics.from_counts(counts, contexts=np.arange(10, dtype=np.int32).reshape(5, 2))
    return {
        "statistics": stats,
        "pairs": count_pairs(["a b a b c", "b c a a b"], folder / "counted", context=1),
        "features": prediction,
        "at-loss": tg.predict(stats, loss_gap=0.1),
        "path": tg.PredictedPath.of(prediction.path([0.5, 0.1])),
        "linear": tg.predict(stats, embeddings=np.random.default_rng(0).normal(size=(6, 5))),
        "proxy": tg.predict_proxy(stats, components=2),
        "run": run,
        "simulation": tg.simulate(read, loss_gap=0.5, learning_rate=0.1, replicates=2, dim=3),
        "tied": tg.predict(read, loss_gap=0.3, ties="positions+self"),
        "comparison": tg.compare(prediction, run, **DRAWS),
        "rivals": tg.rivals(stats, run, prediction, **DRAWS),
        "texts": compare_texts(stats, tg.NextTokenStatistics.from_counts(counts.T), **DRAWS),
        "checkpoints": (curve := checkpoint_curve(folder)),
        "model": model_that_was_read(curve),
        "findings": run_study("linear-2d", steps=50),
        "choice": Choice.load(results_of(finished) / "choice"),
        "report": finished,
    }


def model_that_was_read(curve: CheckpointCurve) -> ReadModel:
    (point,) = curve
    assert curve.stats is not None
    names = ("step", "convention", "factors", "loss_gap", "bos", "other_gap")
    fields = {name: getattr(point, name) for name in names}
    return ReadModel(name=point.model, statistics_hash=curve.stats.hash, **fields, entropy=point.entropy)


def checkpoint_curve(folder: Path) -> CheckpointCurve:
    tiny_models.save(tiny_models.build("llama", seed=0), folder / "model")
    tokens = np.random.default_rng(0).integers(3, 9, size=(20, 15))
    documents = [" ".join(f"w{z}" for z in row) for row in tokens]
    return tg.compare_models(folder / "model", documents, context=1, bos=False, **DRAWS)


def saved(samples: Samples, kind: str, folder: Path) -> Path:
    """A saved result; the results of a report were saved when it was made, beside its page."""
    result = samples[kind]
    if isinstance(result, tg.Report):
        assert result.results is not None
        return result.results
    return result.save(folder / f"saved-{kind}")


def test_the_registry_lists_every_class_of_results() -> None:
    for module in pkgutil.walk_packages(tg.__path__, "tokengeom."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    found = [*AbstractResult.__subclasses__(), *AbstractJsonResult.__subclasses__()]
    names = {f"{one.__module__}.{one.__name__}" for one in found if not one.__name__.startswith("Abstract")}
    assert set(KINDS.values()) == {name for name in names if name.startswith("tokengeom.")}
    assert all(result_class(kind).kind == kind for kind in KINDS)


@pytest.mark.parametrize("kind", SHORT)
def test_a_result_is_a_frozen_dataclass(samples: Samples, kind: str) -> None:
    result = samples[kind]
    assert dataclasses.is_dataclass(result)
    field = dataclasses.fields(result)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(result, field, None)


@pytest.mark.parametrize("kind", SHORT)
def test_what_is_saved_is_loaded_by_its_own_class(samples: Samples, kind: str, folder: Path) -> None:
    again = load(saved(samples, kind, folder))
    assert type(again) is type(samples[kind])
    assert plain(again.to_dict()) == pytest.approx(plain(samples[kind].to_dict()), nan_ok=True)


@pytest.mark.parametrize("kind", SHORT)
def test_every_result_has_a_data_frame_that_is_the_same_after_loading(
    samples: Samples, kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = samples[kind].to_frame()
    assert frame.size > 0
    again = load(saved(samples, kind, folder)).to_frame()
    # Names and frequencies of what a prediction is for are in the statistics, not in the saved prediction.
    named = [name for name in ("frequency", "contexts") if name in frame.columns and name not in again.columns]
    assert list(again.columns) == [name for name in frame.columns if name not in named]
    assert again.shape == (len(frame), frame.shape[1] - len(named))
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'tokengeom\[pandas\]'"):
        samples[kind].to_frame()


def test_the_frame_of_statistics_has_a_row_per_context_and_next_token(samples: Samples) -> None:
    stats = tg.count(["the cat sat", "the dog sat", "the cat ran"], context=1)
    frame = stats.to_frame().set_index(["context", "token"])
    assert frame.loc[("the", "cat")].to_dict() == {"count": 2.0, "probability": pytest.approx(2 / 3)}
    assert len(frame) == stats.table.nnz
    pairs = samples["pairs"].to_frame()
    assert pairs["count"].sum() == 8
    assert set(pairs["token"]) == {"a", "b", "c"}
    probabilities = tg.NextTokenStatistics.from_probabilities(np.array([[0.5, 1.0], [0.5, 0.0]])).to_frame()
    assert list(probabilities.columns) == ["context", "token", "probability"]


def test_frames_of_runs_and_findings_have_more_than_one_table(samples: Samples) -> None:
    run, findings = samples["run"], samples["findings"]
    assert isinstance(run, tg.Run)
    assert isinstance(findings, Findings)
    assert list(run.to_frame()["step"]) == list(run.trajectory.steps)
    np.testing.assert_array_equal(run.to_frame("contexts"), run.H.T)
    for name, table in findings.tables.items():
        assert list(findings.to_frame(name).columns) == list(table)
    with pytest.raises(InputError, match="has no table 'nothing'"):
        findings.to_frame("nothing")


def plain(data: dict[str, object]) -> dict[str, object]:
    """Flat numbers and texts by path, without what tells how long a page took to make."""
    found: dict[str, object] = {}

    def walk(name: str, value: object) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                walk(f"{name}/{key}", item)
        elif isinstance(value, list | tuple):
            for index, item in enumerate(value):
                walk(f"{name}/{index}", item)
        else:
            found[name] = value

    walk("", {key: value for key, value in data.items() if key not in ("seconds", "made")})
    return found


@pytest.mark.parametrize("kind", SHORT)
def test_a_result_is_plain_data_a_summary_a_short_repr_and_a_table(samples: Samples, kind: str) -> None:
    result = samples[kind]
    json.dumps(result.to_dict())
    assert result.summary().strip()
    assert repr(result).startswith(f"{type(result).__name__}(")
    assert len(repr(result)) < 300
    assert "array(" not in repr(result)
    assert "table" in read(result._repr_html_()).tags


@pytest.mark.parametrize("kind", SHORT)
def test_a_saved_result_passes_and_a_changed_byte_is_named(samples: Samples, kind: str, folder: Path) -> None:
    target = saved(samples, kind, folder)
    found = verify(target)
    assert found.ok, found.failed
    file = max(
        (one for one in target.rglob("*") if one.is_file() and one.name != "manifest.json"), key=lambda f: f.name
    )
    before = file.read_bytes()
    file.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    assert not verify(target)
    with pytest.raises(InputError, match="damaged") as refused:
        load(target)
    assert file.name in str(refused.value)
    file.write_bytes(before)
    assert verify(target)


def test_a_folder_of_results_is_checked_one_by_one(samples: Samples, tmp_path: Path) -> None:
    for name in ("statistics", "run"):
        samples[name].save(tmp_path / name)
    found = verify(tmp_path)
    assert found.ok
    assert {sentence.partition(":")[0] for sentence in found.checked} == {"statistics", "run"}
    with pytest.raises(InputError, match="does not exist"):
        verify(tmp_path / "run" / "nothing")


def test_a_hash_that_was_kept_shows_what_new_hashes_hide(samples: Samples, tmp_path: Path) -> None:
    run = samples["run"]
    folder = run.save(tmp_path / "run")
    kept = saved_hash(run)
    assert kept == saved_hash(load(folder)) == read_seal(folder) == verify(folder).hash
    untouched = verify(folder, expect=f" {str(kept).upper()} ")
    assert (untouched.ok, "untouched" in untouched.summary()) == (True, True)
    assert "consistent" in verify(folder).summary()
    assert "untouched" not in verify(folder).summary()
    forge(folder, lambda manifest: manifest["machine"].update(cores=1000))
    assert verify(folder).ok, "nothing in the result depends on the machine"
    assert verify(folder, expect=kept).failed == ("the result's hash is the expected one",)
    with pytest.raises(InputError, match="belongs to one result"):
        verify(tmp_path, expect=kept)


def test_a_computed_result_has_no_hash_until_it_is_saved(samples: Samples, tmp_path: Path) -> None:
    run = samples["run"]
    assert isinstance(run, tg.Run)
    copy = dataclasses.replace(run)
    assert saved_hash(copy) is None
    copy.save(tmp_path / "run")
    assert saved_hash(copy) == read_seal(tmp_path / "run")


def test_results_beside_a_result_are_found_by_what_their_manifests_say(samples: Samples, tmp_path: Path) -> None:
    run, stats = samples["run"], samples["statistics"]
    for name, one in (("one/run", run), ("one/stats", stats), ("two/stats", stats)):
        one.save(tmp_path / name)
    seal = read_seal(tmp_path / "one/stats")
    (tmp_path / "one/.hidden").mkdir()
    (tmp_path / "one/file").write_text("x")
    beside = NearbyResults(tmp_path / "one/run")
    assert beside.find(tg.NextTokenStatistics, seal=seal) is beside.find(tg.NextTokenStatistics, seal=seal)
    assert beside.find(tg.NextTokenStatistics, seal=seal) is not None
    assert beside.find(tg.NextTokenStatistics, seal=None) is None, "an unknown hash fits nothing"
    assert beside.find(tg.Run, seal=seal) is None
    assert ALONE.find(tg.NextTokenStatistics, seal=seal) is None
    two = tmp_path / "two/stats"
    assert NearbyResults(None, [two]).find(tg.NextTokenStatistics, seal=read_seal(two))
    damaged = next(path for path in (tmp_path / "one/stats").iterdir() if path.suffix == ".safetensors")
    damaged.write_bytes(b"")
    assert NearbyResults(tmp_path / "one/run").find(tg.NextTokenStatistics, seal=seal) is None


def test_what_is_not_a_result_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="manifest"):
        load(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": "tokengeom-poem", "format_version": 1}')
    with pytest.raises(InputError, match="tokengeom-poem"):
        load(tmp_path)
    with pytest.raises(InputError, match="'tokengeom-poem', not 'tokengeom-run'"):
        tg.Run.load(tmp_path)


def test_a_target_is_refused_before_the_work(samples: Samples, tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters/dear.txt").write_text("dear")
    with pytest.raises(InputError, match=r"dear\.txt"):
        tg.Run.require_target(tmp_path / "letters")
    tg.Run.require_target(tmp_path / "new")


def test_a_verification_is_true_when_nothing_failed() -> None:
    found = Verification.of({"a holds": True, "b holds": False, "c: not kept": None})
    assert (bool(found), found.failed, found.not_checked) == (False, ("b holds",), ("c: not kept",))
    assert found.summary() == "2 checks, 1 failed; 1 claim not checked."
    assert under("x", {"a holds": True, "b holds": False}) == {"x: a holds": True, "x: b holds": False}
    assert same(1.0, 1.0 + 1e-12, SAME)
    assert not same(1.0, 1.0 + 1e-6, SAME)
    assert same(np.inf, np.inf, SAME)


def test_first_facts_of_statistics_are_their_repr() -> None:
    stats = tg.NextTokenStatistics.from_counts([[1, 2], [3, 0]])
    names = [name for name, _ in islice(stats._facts(), 3)]
    assert all(name in repr(stats) for name in names)
    assert html_table("T", [("a", "<b>")]).count("&lt;b&gt;") == 1
