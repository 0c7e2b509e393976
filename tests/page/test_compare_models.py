"""Trained models compared with a text: the loss on its windows, the whole vocabulary, the numbers of compare."""

from __future__ import annotations

import gc
import json
import weakref
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiny_models import BOS, ROWS, TOKENS, build, fit_head, save, save_tokenizer, sentences
from tokengeom.comparison.checkpoints import CheckpointCurve
from tokengeom.comparison.compare import compare
from tokengeom.comparison.inputs import CompareSettings
from tokengeom.comparison.model_states import ModelStates, read_model
from tokengeom.comparison.rivals import rivals
from tokengeom.core.errors import CheckpointError, InputError
from tokengeom.core.factors import Factors
from tokengeom.core.progress import AbstractStage, SilentProgress
from tokengeom.corpus.locate import ReadingSettings
from tokengeom.models.checkpoint import load_checkpoint
from tokengeom.models.language_model import language_model
from tokengeom.page import compare_models as module
from tokengeom.page.compare_models import TextStates, compare_models, model_rivals, prepare_text
from tokengeom.page.settings import ModelTextSettings
from tokengeom.problems.nuclear_svm import NuclearSVM
from tokengeom.problems.supports import SupportReduction
from tokengeom.solvers.nuclear_admm import NuclearADMM
from tokengeom.statistics.count import count
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.features import FeaturePrediction
from tokengeom.training import objective
from tokengeom.training.objective import SoftLabels

L = 2
FEW: dict[str, Any] = {"permutations": 20, "context": L}


class Recorded(SilentProgress):
    """Remembers the titles of all stages."""

    def __init__(self) -> None:
        self.titles: list[str] = []

    def stage(self, title: str, total: float | None) -> AbstractContextManager[AbstractStage]:
        """Remember the title."""
        self.titles.append(title)
        return super().stage(title, total)


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
    monkeypatch.setattr(objective, "BLOCK_ENTRIES", 7 * checkpoint.head.rows)
    assert found.stats is not None
    gap = read_model(checkpoint, found.stats, bos=False).loss_gap
    assert gap == pytest.approx(found.points[0].loss_gap, rel=1e-7), "sums of products in float32"


def test_rows_and_columns_are_those_of_the_head_and_of_the_contexts(folder: Path, found: CheckpointCurve) -> None:
    (point,) = found
    checkpoint, stats = load_checkpoint(folder), found.stats
    assert stats is not None
    assert (stats.V, point.V) == (ROWS, ROWS)
    assert [stats.vocabulary[z] for z in range(TOKENS)] == [f"w{z}" for z in range(TOKENS)]
    np.testing.assert_array_equal(point.W, checkpoint.head.W)
    contexts = [[int(token[1:]) for token in stats.context_text(j).split()] for j in range(point.m)]
    np.testing.assert_allclose(point.H, checkpoint.readout(np.array(contexts)).H, atol=1e-6)


def test_the_whole_vocabulary_takes_part(folder: Path, found: CheckpointCurve) -> None:
    """Unseen rows count in the softmax, and merging them gives the prediction that all rows give."""
    prediction, stats = found.prediction, found.stats
    assert isinstance(prediction, FeaturePrediction)
    assert stats is not None
    seen = np.unique(stats.P.indices)
    assert (seen.size, prediction.W.shape[0]) == (12, ROWS)
    (point,) = found
    fewer = SoftLabels.from_dense(stats.P.toarray()[seen], stats.pi).loss_gap(np.asarray(point.W[seen] @ point.H))
    assert fewer < 0.9 * point.loss_gap, "tokens that do not occur take probability from those that do"
    unmerged = np.unique(prediction.W.round(6), axis=0)
    assert unmerged.shape[0] <= 13, "28 rows are one"
    # The optimality of the merged solution among all rows: its dual, with every row of its own, proves the same norm.
    S = stats.S.toarray() > 0
    problem = NuclearSVM(SupportReduction(S, np.arange(ROWS), np.arange(stats.m)))
    solved = NuclearADMM(tolerance=1e-5)(problem)
    assert solved.certificate.relative_gap < 1e-4
    assert solved.certificate.value == pytest.approx(prediction.nuclear_norm, rel=2e-4)
    np.testing.assert_allclose(problem.backend.whole(solved.x), prediction.W @ prediction.H, atol=0.02)


def test_a_module_in_memory_gives_the_numbers_of_its_folder(folder: Path, found: CheckpointCurve) -> None:
    (point,) = found
    assert isinstance(found.prediction, FeaturePrediction)
    assert found.stats is not None
    given: dict[str, Any] = {"tokenizer": folder / "tokenizer.json", "permutations": 20}
    module_in_memory = language_model(build("llama"), tokenizer=folder / "tokenizer.json")
    (either,) = compare_models(folder, sentences(), top_contexts=1000, **FEW)
    memory = compare(found.prediction, build("llama"), **given)
    assert str(memory.agreements) == str(either.comparison.agreements)
    assert memory.loss_gap == pytest.approx(either.loss_gap, rel=1e-9)
    states = read_model(module_in_memory, found.stats, bos=False)
    assert str(compare(found.prediction, states, permutations=20).agreements) == str(point.comparison.agreements)
    quick: dict[str, Any] = {"explanations": ("probabilities", "proxy"), "permutations": 20}
    table = rivals(found.stats, module_in_memory, found.prediction, **quick)
    assert str(table.rows) == str(rivals(found.stats, read_model(module_in_memory, found.stats), **quick).rows)


def test_numbers_are_those_of_compare(found: CheckpointCurve) -> None:
    (point,) = found
    assert found.prediction is not None
    assert found.stats is not None
    gap = SoftLabels.from_statistics(found.stats).loss_gap(point.W @ point.H)
    assert point.comparison.loss_gap == point.loss_gap == pytest.approx(gap, rel=1e-6)
    expected = compare(found.prediction, (point.W, point.H), loss_gap=point.loss_gap, permutations=20)
    assert str(point.comparison.agreements) == str(expected.agreements)
    assert point.comparison.reasons == expected.reasons
    data = point.to_dict()
    assert {"verdict", "context_agreement", "token_agreement", "loss_gap", "entropy", "convention", "bos"} <= set(data)
    assert {"value", "low", "high", "floor", "attainable", "explained"} <= set(data["context_agreement"])
    assert f"{point.loss_gap:.4f} above the text's entropy floor {point.entropy:.4f}" in point.summary()
    assert any("nats above its floor" in sentence for sentence in point.comparison.limitations)


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
    monkeypatch.setattr(module, "LIMIT_ENTRIES", 10)
    (point,) = compare_models(folder, sentences(), bos=False, **FEW)
    assert point.is_proxy
    assert str(point.to_dict()["context_agreement"]) == str(point.comparison["proxy_context_agreement"].to_dict())
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


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two models with different weights, whose heads are fitted to the text, saved at the same step."""
    folder = tmp_path_factory.mktemp("trainings")
    saved = [save(build("llama", seed), folder / name / "checkpoint-7") for seed, name in ((1, "b"), (2, "a"))]
    stats = count(sentences(), context=L, tokenizer=saved[0], vocabulary_size=ROWS)
    return [fit_head(one, stats) for one in saved]


def test_separate_trainings_say_what_is_reproducible(trainings: list[Path]) -> None:
    given: dict[str, Any] = {"bos": False, "top_contexts": 60, **FEW}
    curve = compare_models(trainings, sentences(), separate_trainings=True, **given)
    apart = compare_models(trainings, sentences(), **given)
    assert [point.loss_gap for point in curve] == [point.loss_gap for point in apart], "in the given order"
    first, second = (point.comparison for point in curve)
    assert [point.comparison.runs for point in (*curve, *apart)] == [2, 2, 1, 1]
    assert curve.prediction is not None
    states = [(point.W, point.H) for point in curve]
    expected = compare(
        curve.prediction, states, at=first.at, loss_gap=curve.points[0].loss_gap, permutations=FEW["permutations"]
    )
    assert str(first.agreements) == str(expected.agreements)
    for name in ("limit_support_agreement", "limit_context_agreement", "limit_token_agreement"):
        assert first[name].reproducible == pytest.approx(second[name].reproducible), "the same two models"
        assert np.isfinite([first[name].explained, second[name].explained]).all()
        for one in (first, second):
            assert one[name].mean == pytest.approx((first[name].value + second[name].value) / 2)
        assert np.isnan(apart.points[0].comparison[name].reproducible)
    with pytest.raises(CheckpointError, match="two models or more; got checkpoint-7 alone"):
        compare_models(trainings[0], sentences(), separate_trainings=True, **given)


def test_rivals_of_separate_trainings_are_those_of_several_runs(trainings: list[Path]) -> None:
    given: dict[str, Any] = {"bos": False, "top_contexts": 60, "explanations": ("proxy",), **FEW}
    table = model_rivals(trainings, sentences(), separate_trainings=True, **given)
    assert table.runs == 2
    assert np.isfinite([row.agreement.explained for row in table.rows]).all()
    alone = model_rivals(trainings[0], sentences(), **given)
    assert [row.agreement.value for row in table.rows] == [row.agreement.value for row in alone.rows], "of the first"


def test_predictions_at_the_losses_of_several_models_are_those_of_each(folder: Path) -> None:
    chosen = ModelTextSettings(context=L, top_contexts=30)
    text = prepare_text(sentences(), load_checkpoint(folder), chosen, ReadingSettings(), SilentProgress())
    prediction, labels = text.prediction, SoftLabels.from_statistics(text.stats)
    assert isinstance(prediction, FeaturePrediction)
    models = []
    for scale in (-1.0, 0.5, 2.0):
        factors = Factors(scale * prediction.W, prediction.H)
        gap = labels.loss_gap(factors.logits)
        states = ModelStates("model", None, "", factors, gap, False, None, text.stats.hash)
        models.append(TextStates(states, states))

    def predicted(settings: CompareSettings) -> list[list[LossPrediction] | None]:
        return module._predictions_at(text, models, settings, "cpu", SilentProgress())

    found = predicted(CompareSettings())
    assert found[0] is None, "a loss above that of a uniform guess"
    for model, given in zip(models[1:], found[1:], strict=True):
        assert given is not None
        assert [one.norm for one in given] == ["nuclear", "gamma2"]
        for one in given:
            alone = prediction.at(model.compared.loss_gap, norm=one.norm, tolerance=1e-3)
            assert one.loss_gap == pytest.approx(alone.loss_gap, rel=0.02)
            assert one.norm_value == pytest.approx(alone.norm_value, rel=0.02)
    assert predicted(CompareSettings(at_loss=False)) == [None] * 3


def test_models_are_held_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 5 checkpoints, no two modules are alive together, and progress names the one being read."""
    alive: list[weakref.ref[Any]] = []
    counts: list[int] = []

    def load(path: Path, **settings: Any) -> Any:
        gc.collect()
        counts.append(sum(one() is not None for one in alive))
        found = load_checkpoint(path, **settings)
        alive.append(weakref.ref(found.module))
        return found

    for step in range(1, 6):
        save(build("llama", step), tmp_path / f"checkpoint-{step}")
    monkeypatch.setattr(module, "load_checkpoint", load)
    shown = Recorded()
    curve = compare_models(tmp_path, sentences(), bos=False, top_contexts=30, progress=shown, **FEW)
    assert counts == [0] * 5
    assert curve.steps.tolist() == [1, 2, 3, 4, 5]
    for step in range(1, 6):
        assert f"Loading checkpoint-{step}" in shown.titles
        assert f"Reading checkpoint-{step}" in shown.titles


def test_long_contexts_are_those_that_repeat_and_a_random_choice_of_the_others(folder: Path) -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{z}" for z in rng.integers(3, 15, size=20)) for _ in range(60)]
    texts += [texts[0], texts[0]]
    curve = compare_models(folder, texts, bos=False, context=16, top_contexts=50, permutations=20)
    stats = curve.stats
    assert stats is not None
    assert stats.m == 50
    assert sorted(stats.context_counts.tolist()) == [1] * 46 + [3] * 4
    (point,) = curve
    assert point.occur_once == 46
    assert "46 of these contexts occur once in the text, and 4 repeat" in point.summary()
    assert stats.contexts is not None
    distinct = [np.unique(column).size for column in stats.contexts.T]
    assert min(distinct) > 9, "not only the contexts that sort first, of which 7 first tokens are distinct"
    again = compare_models(folder, iter(texts), bos=False, context=16, top_contexts=50, permutations=20)
    assert again.stats is not None
    assert again.stats.equals(stats), "an iterator is read once, and the choice has a fixed seed"
    (short,) = compare_models(folder, sentences(), bos=False, top_contexts=10, **FEW)
    assert short.occur_once == 0
    assert "occur once" not in short.summary()


def test_numbers_do_not_depend_on_the_precision_of_the_limit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"bos": False, "top_contexts": 60, "at_loss": False, **FEW}
    (usual,) = compare_models(folder, sentences(), **settings)
    monkeypatch.setattr(module, "LIMIT_TOLERANCE", 1e-7)
    (exact,) = compare_models(folder, sentences(), **settings)
    for name, one in exact.headline().items():
        assert usual.headline()[name].value == pytest.approx(one.value, abs=2e-3)


def test_rivals_of_a_model_are_those_of_its_rows_and_states(folder: Path, found: CheckpointCurve) -> None:
    quick: dict[str, Any] = {"explanations": ("probabilities", "proxy")}
    (point,) = found
    assert found.stats is not None
    assert isinstance(found.prediction, FeaturePrediction)
    given = (point.W, point.H)
    expected = rivals(found.stats, given, found.prediction, loss_gap=point.loss_gap, permutations=20, **quick)
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
        compare_models(folder, path, contexts=10)  # type: ignore[call-arg]
    with pytest.raises(InputError, match="precision must be one of"):
        compare_models(folder, path, precision="half")


def test_texts_without_a_geometry_are_refused(folder: Path) -> None:
    with pytest.raises(InputError, match=r"shorter|window|context"):
        compare_models(folder, ["w3 w4"], context=4)
    with pytest.raises(InputError, match="at least two tokens"):
        compare_models(folder, ["w3 w3 w3 w3 w3"], **FEW)
    with pytest.raises(CheckpointError, match="At least one model"):
        compare_models([], sentences())
    with pytest.raises(CheckpointError, match="longer than the 32 positions"):
        compare_models(folder, [" ".join(["w3 w4"] * 60)], context=40)
