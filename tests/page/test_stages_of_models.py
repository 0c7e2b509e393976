"""A report about trained models: what is read, what is kept, and that nothing is trained."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokengeom as tg
from forging import forge, forge_report
from pipeline_cases import plain_page, results_of
from tiny_models import ROWS, build, fit_head, save, sentences
from tokengeom.core.errors import CheckpointError, InputError
from tokengeom.page.compare_models import compare_models
from tokengeom.page.read_model import ReadModel, find_models
from tokengeom.page.report import Report, report
from tokengeom.page.settings import ReportSettings
from tokengeom.page.source_text import find_text
from tokengeom.page.stages import model_stages
from tokengeom.theory.proxy import ProxyPrediction

FEW: dict[str, Any] = {"permutations": 20, "context": 2}
JUDGED = ("at-loss-{}-nuclear", "at-loss-{}-gamma2", "comparison-{}")
OF_ONE = ("statistics", "prediction", "path", "model-1", *(name.format("model-1") for name in JUDGED), "rivals-model-1")


@pytest.fixture(autouse=True)
def _plain_page(monkeypatch: pytest.MonkeyPatch) -> None:
    plain_page(monkeypatch)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two checkpoints of a small model; the second one has the lower loss."""
    folder = tmp_path_factory.mktemp("training")
    for step, share in ((10, 0.3), (200, 1.0)):
        saved = save(build("llama"), folder / f"checkpoint-{step}")
        fit_head(saved, tg.count(sentences(), context=2, tokenizer=saved, vocabulary_size=ROWS), share)
    return folder


@pytest.fixture(scope="module")
def finished(checkpoints: Path, tmp_path_factory: pytest.TempPathFactory) -> Report:
    with pytest.MonkeyPatch.context() as patch:
        plain_page(patch)
        out = tmp_path_factory.mktemp("finished") / "page.html"
        return report(sentences(), out, model=checkpoints, bos=False, **FEW)


@pytest.fixture
def one(checkpoints: Path, tmp_path: Path) -> Path:
    """A copy of one checkpoint, which a test may change."""
    return Path(shutil.copytree(checkpoints / "checkpoint-200", tmp_path / "model"))


def test_checkpoints_are_read_and_nothing_is_trained(finished: Report) -> None:
    contents = finished.contents
    assert list(contents.models) == ["checkpoint-10", "checkpoint-200"]
    assert list(contents.runs) == ["checkpoint-200"]
    assert contents.trained == {}
    assert not list(results_of(finished).glob("run-*"))
    assert finished.made[:5] == ("statistics", "prediction", "path", "model-2", "model-1"), (
        "the last one decides about BOS"
    )
    assert list(contents.rivals) == ["checkpoint-200"]
    assert contents.title == "checkpoint-10, checkpoint-200 on 40 documents"
    assert contents.curve is not None
    assert contents.curve.steps.tolist() == [10, 200]
    gaps = finished.to_dict()["loss_gap"]
    assert gaps["checkpoint-10"] > gaps["checkpoint-200"] > 0
    assert "training" not in contents.provenance["settings"]
    assert contents.provenance["seeds"] == {"seed": 0}
    assert "checkpoint-10: loss gap" in finished.summary()
    assert " run" not in finished.summary().splitlines()[1]


def test_numbers_are_those_of_compare_models(finished: Report, checkpoints: Path) -> None:
    direct = compare_models(checkpoints, sentences(), bos=False, **FEW)
    assert finished.contents.curve is not None
    for mine, theirs in zip(finished.contents.curve, direct, strict=True):
        assert (mine.model, mine.step, mine.windows, mine.context) == (
            theirs.model, theirs.step, theirs.windows, theirs.context,
        )  # fmt: skip
        assert mine.loss_gap == pytest.approx(theirs.loss_gap, rel=1e-9)
        assert mine.comparison.verdict == theirs.comparison.verdict
        for name in ("context_agreement", "token_agreement"):
            value = getattr(theirs.comparison, name).value
            assert getattr(mine.comparison, name).value == pytest.approx(value, abs=2e-3), name


def test_an_unchanged_model_is_not_read_again_and_a_changed_one_is(one: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert report(sentences(), page, model=one, **FEW).made == (*OF_ONE, "page")
    (one / "optimizer.pt").write_bytes(b"not read")
    assert report(sentences(), page, model=one, **FEW).made == ()
    stats = tg.count(sentences(), context=2, tokenizer=one, vocabulary_size=ROWS)
    fit_head(one, stats, 0.5)
    assert report(sentences(), page, model=one, **FEW).made == (*OF_ONE[3:], "page")
    again = report(sentences(), page, model=one, **{**FEW, "permutations": 30})
    assert again.made == ("comparison-model-1", "rivals-model-1", "page")


def test_an_interrupted_report_continues(one: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*given: object, **settings: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("tokengeom.page.stages.compare", stopped)
        with pytest.raises(KeyboardInterrupt):
            report(sentences(), tmp_path / "page.html", model=one, **FEW)
    assert report(sentences(), tmp_path / "page.html", model=one, **FEW).made == (*OF_ONE[6:], "page")


def test_a_report_about_models_is_loaded_and_verified(finished: Report) -> None:
    again = tg.load(results_of(finished))
    assert isinstance(again, Report)
    assert list(again.contents.models) == list(finished.contents.models)
    differ = ("page", "results", "seconds", "made")
    mine, theirs = ({k: v for k, v in made.to_dict().items() if k not in differ} for made in (again, finished))
    assert str(mine) == str(theirs)
    found = tg.verify(results_of(finished))
    assert found.ok, found.failed
    assert "model-1: the loss gap is that of W and H" in found.checked
    assert "comparison-model-2: computed again, it has the same agreements" in found.checked
    assert any("only reading the model again would show them" in sentence for sentence in found.not_checked)


def test_a_forged_model_is_found(finished: Report, tmp_path: Path) -> None:
    shutil.copytree(finished.page.parent, tmp_path / "copy")
    folder = tmp_path / "copy/page-results/model-2"
    read = ReadModel.load(folder)
    forged = replace(read, factors=replace(read.factors, W=2 * read.W))
    forged.save(folder)
    assert tg.verify(folder.parent).failed == ("model-2: its manifest is the one in the record",)
    forge_report(folder.parent, forge, "model-2")
    assert {
        "model-2: the loss gap is that of W and H",
        "comparison-model-2: the results that it names are those beside it",
    } <= set(tg.verify(folder.parent).failed)


def test_the_proxy_is_kept_where_it_is_asked_for(one: Path, tmp_path: Path) -> None:
    made = report(sentences(), tmp_path / "page.html", model=one, proxy=True, **FEW)
    assert isinstance(made.contents.prediction, ProxyPrediction)
    assert {at.norm for loss in made.contents.at_loss.values() for at in loss} == {"nuclear", "gamma2"}
    again = tg.load(results_of(made))
    assert isinstance(again, Report)
    assert again.contents.prediction.stats is not None
    assert tg.verify(results_of(made)).ok


def test_given_statistics_must_be_those_of_the_model(one: Path, tmp_path: Path) -> None:
    stats = tg.count(sentences(), context=2, tokenizer=one, vocabulary_size=ROWS)
    made = report(stats, tmp_path / "page.html", model=one, **FEW)
    assert made.contents.stats.equals(stats)
    other = tg.count(sentences(), context=2, tokenizer="word")
    with pytest.raises(CheckpointError, match="another tokenizer"):
        report(other, tmp_path / "other.html", model=one, **FEW)


def test_a_model_in_memory_has_a_page(one: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    stats = tg.count(sentences(), context=2, tokenizer=one, vocabulary_size=ROWS)
    model = AutoModelForCausalLM.from_pretrained(one)
    made = report(tg.compare(tg.predict(stats), model, permutations=20), tmp_path / "page.html")
    assert list(made.contents.models) == ["LlamaForCausalLM"]
    assert made.contents.models["LlamaForCausalLM"].info is None


def test_texts_without_a_geometry_are_refused(one: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"shorter|window|context"):
        report(["w3 w4"], tmp_path / "page.html", model=one)
    with pytest.raises(InputError, match="at least two tokens"):
        report(["w3 w3 w3 w3 w3 w3"], tmp_path / "page.html", model=one, context=2)


def test_every_stage_is_made_from_earlier_ones(checkpoints: Path) -> None:
    models = find_models([checkpoints])
    stages = model_stages(find_text(["a b"], tg.ReadingSettings()), ReportSettings(), models)
    for place, stage in enumerate(stages):
        assert {*stage.needs, *stage.uses} <= {before.name for before in stages[:place]}
    assert [stage.name for stage in stages if stage.name.startswith("rivals")] == ["rivals-model-2"]
    assert ReportSettings(model=checkpoints).model_cuts == {"context": 4, "top_contexts": 400, "support": "raw"}
    assert ReportSettings(model=checkpoints, context=3).model_cuts["context"] == 3


def test_heat_maps_show_the_tokens_that_follow_and_their_mean_is_removed(finished: Report) -> None:
    from tokengeom.page.sections.figures import geometry_figures, page_order

    contents = finished.contents
    order = page_order(contents)
    seen = np.unique(contents.stats.P.indices)
    assert sorted(order.tokens.indices.tolist()) == seen.tolist()
    (panel,) = [
        panel
        for figure in geometry_figures(contents, order)
        if figure.name == "token-cosines"
        for panel in figure.panels
        if panel.title == "checkpoint-200"
    ]
    W = np.asarray(contents.runs["checkpoint-200"].W[seen], np.float64)
    W = (W - W.mean(axis=0))[np.searchsorted(seen, order.tokens.indices)]
    W /= np.linalg.norm(W, axis=1, keepdims=True)
    np.testing.assert_allclose(panel.values, W @ W.T, atol=1e-5)  # type: ignore[union-attr]
