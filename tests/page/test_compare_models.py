"""Trained models compared with a text: the loss on its windows, the rows of its tokens, the numbers of compare."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiny_models import BOS, build, save, save_tokenizer
from tokengeom.corpus.locate import ReadingSettings
from tokengeom.errors import CheckpointError, InputError
from tokengeom.factors import Factors
from tokengeom.geometry.checkpoints import CheckpointCurve
from tokengeom.geometry.compare import compare
from tokengeom.geometry.inputs import CompareSettings
from tokengeom.geometry.rivals import rivals
from tokengeom.models.checkpoint import load_checkpoint
from tokengeom.page import compare_models as module
from tokengeom.page.compare_models import ModelTextSettings, compare_models, model_rivals, prepare_text
from tokengeom.progress import SilentProgress
from tokengeom.theory.features import FeaturePrediction
from tokengeom.training.objective import SoftLabels

L = 2
FEW: dict[str, Any] = {"permutations": 20, "context": L}


def sentences(seed: int = 0) -> list[str]:
    """Documents over 12 tokens in which each token has few followers."""
    rng = np.random.default_rng(seed)
    followers = {z: rng.choice(np.arange(3, 15), size=3, replace=False) for z in range(3, 15)}
    documents = []
    for _ in range(40):
        tokens = [int(rng.integers(3, 15))]
        while len(tokens) < 12:
            tokens.append(int(rng.choice(followers[tokens[-1]])))
        documents.append(" ".join(f"w{z}" for z in tokens))
    return documents


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(build("llama"), tmp_path_factory.mktemp("one") / "checkpoint-10")


@pytest.fixture(scope="module")
def found(folder: Path) -> CheckpointCurve:
    return compare_models(folder, sentences(), bos=False, top_contexts=1000, **FEW)


def raw_loss(model: Any, before: tuple[int, ...] = ()) -> float:
    """Mean cross-entropy over every raw window, one by one, by torch."""
    import torch

    rows, targets = [], []
    for document in sentences():
        ids = [int(token[1:]) for token in document.split()]
        rows += [[*before, *ids[at - L : at]] for at in range(L, len(ids))]
        targets += ids[L:]
    with torch.no_grad():
        logits = model(input_ids=torch.tensor(rows)).logits[:, -1].double()
    return float(torch.nn.functional.cross_entropy(logits, torch.tensor(targets)))


@pytest.mark.parametrize("family", ["llama", "phi", "granite", "gemma2"])
def test_the_loss_on_distinct_contexts_is_the_loss_on_raw_windows(tmp_path: Path, family: str) -> None:
    model = build(family)
    curve = compare_models(save(model, tmp_path / "model"), sentences(), bos=False, top_contexts=1000, **FEW)
    (point,) = curve
    assert point.windows == 40 * (12 - L)
    assert point.entropy + point.loss_gap == pytest.approx(raw_loss(model), rel=1e-5)


def test_the_loss_is_the_sum_over_blocks_of_contexts(
    folder: Path, found: CheckpointCurve, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = load_checkpoint(folder)
    chosen = ModelTextSettings(context=L, top_contexts=1000)
    text = prepare_text(sentences(), checkpoint.tokenizer, chosen, ReadingSettings(), SilentProgress())
    monkeypatch.setattr(module, "_BLOCK_ENTRIES", 7 * checkpoint.head.rows)
    gap = text.loss_gap(checkpoint.readout(text.contexts), checkpoint.head)
    assert gap == pytest.approx(found.points[0].loss_gap, rel=1e-12)


@pytest.mark.parametrize("vocabulary", [None, 3])
def test_rows_and_columns_are_those_of_the_tokens_and_contexts(folder: Path, vocabulary: int | None) -> None:
    curve = compare_models(folder, sentences(), bos=False, top_contexts=1000, vocabulary=vocabulary, **FEW)
    (point,) = curve
    checkpoint, stats = load_checkpoint(folder), curve.stats
    assert stats is not None
    ids = np.array([checkpoint.tokenizer.id_of(name) for name in stats.vocabulary], dtype=np.int64)
    np.testing.assert_array_equal(point.W, checkpoint.head.W[ids])
    contexts = [[int(token[1:]) for token in stats.context_text(j).split()] for j in range(point.m)]
    np.testing.assert_allclose(point.H, checkpoint.readout(np.array(contexts)).H, atol=1e-6)


def test_numbers_are_those_of_compare(found: CheckpointCurve) -> None:
    (point,) = found
    assert found.prediction is not None
    expected = compare(found.prediction, (point.W, point.H), permutations=20)
    assert str(point.comparison.agreements) == str(expected.agreements)
    assert point.comparison.reasons == expected.reasons
    assert found.stats is not None
    gap = SoftLabels.from_statistics(found.stats).loss_gap(point.W @ point.H)
    assert point.comparison.loss_gap == pytest.approx(gap, rel=1e-12)
    assert gap < point.loss_gap, "tokens that do not occur take probability from those that do"
    data = point.to_dict()
    assert {"verdict", "context_agreement", "token_agreement", "loss_gap", "entropy", "convention", "bos"} <= set(data)
    assert {"value", "low", "high", "floor", "ceiling"} <= set(data["context_agreement"])
    assert f"{point.loss_gap:.4f} above the text's entropy floor {point.entropy:.4f}" in point.summary()
    assert any("nats above its floor" in sentence for sentence in point.comparison.limitations)


def test_fewer_tokens_change_the_geometry_but_not_the_loss(folder: Path, found: CheckpointCurve) -> None:
    (point,) = compare_models(folder, sentences(), bos=False, top_contexts=1000, vocabulary=3, **FEW)
    (whole,) = found
    assert (point.V, whole.V) == (3, 12)
    assert point.m < whole.m, "contexts that no kept token follows are left out"
    assert (point.loss_gap, point.entropy) == (whole.loss_gap, whole.entropy)


def test_a_support_policy_changes_the_prediction_but_not_the_loss(folder: Path, found: CheckpointCurve) -> None:
    cut = compare_models(folder, sentences(), bos=False, top_contexts=1000, support="count:3", **FEW)
    assert cut.stats is not None
    assert found.stats is not None
    assert cut.stats.S.nnz < found.stats.S.nnz
    assert cut.points[0].loss_gap == found.points[0].loss_gap


def test_bos_is_read_where_that_lowers_the_loss(folder: Path) -> None:
    model = build("llama")
    losses = {False: raw_loss(model), True: raw_loss(model, (BOS,))}
    (point,) = compare_models(folder, sentences(), top_contexts=1000, **FEW)
    assert point.bos == (losses[True] < losses[False])
    assert point.entropy + point.loss_gap == pytest.approx(min(losses.values()), rel=1e-5)
    assert point.other_gap is not None
    assert point.entropy + point.other_gap == pytest.approx(max(losses.values()), rel=1e-5)
    assert "which gives the lower loss" in point.summary()


def test_the_proxy_is_used_where_the_solver_would_take_long(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EXACT_ENTRIES", 10)
    (point,) = compare_models(folder, sentences(), bos=False, **FEW)
    assert point.is_proxy
    assert point.to_dict()["context_agreement"] == point.comparison["proxy_context_agreement"].to_dict()
    assert list(point.headline()) == ["contexts, with the proxy", "tokens, with the proxy"]
    (exact,) = compare_models(folder, sentences(), bos=False, proxy=False, **FEW)
    assert not exact.is_proxy


def test_checkpoints_are_in_the_order_of_their_steps(tmp_path: Path) -> None:
    for step, seed in ((100, 1), (20, 2), (3, 3)):
        save(build("llama", seed), tmp_path / f"checkpoint-{step}")
    curve = compare_models(tmp_path, sentences(), bos=False, top_contexts=30, **FEW)
    assert curve.steps.tolist() == [3, 20, 100]
    named = [tmp_path / f"checkpoint-{step}" for step in (100, 3, 20)]
    again = compare_models(named, sentences(), bos=False, top_contexts=30, **FEW)
    assert [point.loss_gap for point in again] == [point.loss_gap for point in curve]
    assert len({point.loss_gap for point in curve}) == 3
    assert [one["step"] for one in curve.to_dict()["checkpoints"]] == [3, 20, 100]
    assert "checkpoint-20: loss gap" in curve.summary()
    save_tokenizer(tmp_path / "checkpoint-20", tokens=29)
    with pytest.raises(CheckpointError, match="the same tokenizer"):
        compare_models(tmp_path, sentences(), bos=False, top_contexts=30, **FEW)


def test_predictions_at_the_losses_of_several_models_are_those_of_each(folder: Path) -> None:
    chosen = ModelTextSettings(context=L, top_contexts=30)
    tokenizer = load_checkpoint(folder).tokenizer
    text = prepare_text(sentences(), tokenizer, chosen, ReadingSettings(), SilentProgress())
    prediction = text.prediction
    assert isinstance(prediction, FeaturePrediction)
    models = [Factors(scale * prediction.W, prediction.H) for scale in (-1.0, 0.5, 2.0)]
    found = module._predictions_at(text, models, CompareSettings(), SilentProgress())
    assert found[0] is None, "a loss above that of a uniform guess"
    labels = SoftLabels.from_statistics(text.stats)
    for model, given in zip(models[1:], found[1:], strict=True):
        assert given is not None
        assert [one.norm for one in given] == ["nuclear", "gamma2"]
        for one in given:
            alone = prediction.at(labels.loss_gap(model.logits), norm=one.norm, tolerance=1e-3)
            assert one.loss_gap == pytest.approx(alone.loss_gap, rel=0.02)
            assert one.norm_value == pytest.approx(alone.norm_value, rel=0.02)
    assert module._predictions_at(text, models, CompareSettings(at_loss=False), SilentProgress()) == [None] * 3


def test_rivals_of_a_model_are_those_of_its_rows_and_states(folder: Path, found: CheckpointCurve) -> None:
    quick: dict[str, Any] = {"held_out": 0, "explanations": ("probabilities", "proxy")}
    (point,) = found
    assert found.stats is not None
    expected = rivals(found.stats, (point.W, point.H), found.prediction, permutations=20, **quick)
    table = model_rivals(folder, sentences(), bos=False, top_contexts=1000, **FEW, **quick)
    assert str(table.rows) == str(expected.rows)
    with pytest.raises(CheckpointError, match="At least one model"):
        model_rivals([], sentences())


def test_reading_settings_are_passed_on(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "text.jsonl"
    path.write_text("".join(json.dumps({"story": document}) + "\n" for document in sentences()))
    (point,) = compare_models(folder, path, bos=False, top_contexts=1000, column="story", **FEW)
    assert point.windows == 40 * (12 - L)
    with pytest.raises(InputError, match="compare_models has no setting 'contexts'"):
        compare_models(folder, path, contexts=10)


def test_texts_without_a_geometry_are_refused(folder: Path) -> None:
    with pytest.raises(InputError, match=r"shorter|window|context"):
        compare_models(folder, ["w3 w4"], context=4)
    with pytest.raises(InputError, match="at least two tokens"):
        compare_models(folder, ["w3 w3 w3 w3 w3"], **FEW)
    with pytest.raises(CheckpointError, match="At least one model"):
        compare_models([], sentences())
    with pytest.raises(CheckpointError, match="longer than the 32 positions"):
        compare_models(folder, [" ".join(["w3 w4"] * 60)], context=40)
