"""A model on the contexts of statistics: its loss, the choice about BOS, and statistics that do not fit it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokengeom as tg
from tiny_models import BOS, ROWS, TOKENS, build, save, save_tokenizer
from tokengeom.comparison import model_states as module
from tokengeom.comparison.inputs import is_model
from tokengeom.comparison.model_states import read_model, states_of
from tokengeom.core.errors import CheckpointError, InputError, StatisticsError
from tokengeom.core.numerics import Float
from tokengeom.core.progress import SilentProgress
from tokengeom.models.checkpoint import load_checkpoint
from tokengeom.models.language_model import FunctionModel, ModuleModel, language_model
from tokengeom.statistics.cuts import MostFrequentContexts
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.training.objective import SoftLabels


def text() -> list[str]:
    rng = np.random.default_rng(0)
    return [" ".join(f"w{z}" for z in rng.integers(3, 9, size=40)) for _ in range(10)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModuleModel:
    return load_checkpoint(save(build("phi"), tmp_path_factory.mktemp("states") / "model"))


@pytest.fixture(scope="module")
def stats(model: ModuleModel) -> NextTokenStatistics:
    return tg.count(text(), context=2, tokenizer=model.tokenizer, vocabulary_size=ROWS)


def whole_softmax(model: ModuleModel, stats: NextTokenStatistics, bos: bool) -> float:
    """Loss gap from the model's own logits over all its rows, by scipy."""
    import torch
    from scipy.special import log_softmax

    assert stats.contexts is not None
    texts = [([BOS] if bos else []) + row for row in stats.contexts.tolist()]
    with torch.no_grad():
        logits = model.module(torch.tensor(texts)).logits[:, -1].double().numpy()
    entropy = -float(np.sum(stats.P.multiply(stats.pi).toarray().T * log_softmax(logits, axis=1)[:, : stats.V]))
    return entropy - stats.entropy


@pytest.mark.parametrize("bos", [False, True])
def test_the_loss_is_that_of_the_softmax_over_all_rows(
    model: ModuleModel, stats: NextTokenStatistics, bos: bool
) -> None:
    found = read_model(model, stats, bos=bos)
    assert found.W.shape == (ROWS, 16)
    assert found.loss_gap == pytest.approx(whole_softmax(model, stats, bos), rel=1e-5)
    assert (found.bos, found.other_gap, found.statistics_hash) == (bos, None, stats.hash)


def test_rows_without_a_token_count_in_the_loss_alone(model: ModuleModel) -> None:
    fewer = tg.count(text(), context=2, tokenizer=model.tokenizer)
    assert fewer.V == TOKENS
    found = read_model(model, fewer, bos=False)
    assert (found.W.shape, None if found.bias is None else found.bias.shape) == ((TOKENS, 16), (TOKENS,))
    assert found.loss_gap == pytest.approx(whole_softmax(model, fewer, False), rel=1e-5)
    alone = SoftLabels.from_statistics(fewer).loss_gap_of(found.factors)
    assert alone < found.loss_gap


def test_bos_is_decided_on_the_most_frequent_contexts(
    model: ModuleModel, stats: NextTokenStatistics, monkeypatch: pytest.MonkeyPatch
) -> None:
    gaps = {bos: whole_softmax(model, stats, bos) for bos in (False, True)}
    both = read_model(model, stats)
    assert both.bos == (gaps[True] < gaps[False])
    assert both.other_gap == pytest.approx(max(gaps.values()), rel=1e-5), "all contexts were read both ways"
    read: list[int] = []

    def count_texts(_: object, inputs: tuple[Float]) -> None:
        read.append(int(inputs[0].shape[0]))

    monkeypatch.setattr(module, "BOS_CONTEXTS", 10)
    handle = model.module.register_forward_pre_hook(count_texts)
    some = read_model(model, stats)
    handle.remove()
    assert sum(read) == 10 + stats.m
    np.testing.assert_allclose(some.H, read_model(model, stats, bos=some.bos).H, atol=1e-5)
    assert some.loss_gap == pytest.approx(gaps[some.bos], rel=1e-5)
    frequent = stats.cut(MostFrequentContexts(10))
    on_frequent = {bos: whole_softmax(model, frequent, bos) for bos in (False, True)}
    assert some.bos == (on_frequent[True] < on_frequent[False])
    assert some.other_gap is not None
    excess = on_frequent[not some.bos] - on_frequent[some.bos]
    assert some.other_gap - some.loss_gap == pytest.approx(excess, rel=1e-4)


def test_a_model_without_bos_is_read_once(stats: NextTokenStatistics) -> None:
    rng = np.random.default_rng(0)
    states = rng.standard_normal((ROWS, 5))
    function = language_model(lambda ids: states[ids[:, -1]], head=rng.standard_normal((ROWS, 5)))
    assert isinstance(function, FunctionModel)
    found = read_model(function, stats)
    assert stats.contexts is not None
    np.testing.assert_array_equal(found.H, states[stats.contexts[:, -1]].T)
    assert (found.bos, found.other_gap) == (False, None)


def test_contexts_as_long_as_the_model_allows_leave_no_room_for_bos(model: ModuleModel) -> None:
    assert model.positions == 32
    longest = tg.count(text(), context=32, tokenizer=model.tokenizer, vocabulary_size=ROWS, top_contexts=5)
    found = read_model(model, longest)
    assert (found.bos, found.other_gap) == (False, None)
    assert found.loss_gap == pytest.approx(whole_softmax(model, longest, False), rel=1e-5)


def test_statistics_of_another_tokenizer_are_refused(
    model: ModuleModel, stats: NextTokenStatistics, tmp_path: Path
) -> None:
    save_tokenizer(tmp_path, tokens=TOKENS - 1)
    other = tg.count(text(), context=2, tokenizer=tmp_path / "tokenizer.json", vocabulary_size=ROWS)
    with pytest.raises(CheckpointError, match="counted with another tokenizer than that of model"):
        read_model(model, other)
    with pytest.raises(CheckpointError, match="another tokenizer than that of PhiForCausalLM"):
        tg.compare(tg.predict(stats), build("phi"), tokenizer=tmp_path / "tokenizer.json")


def test_statistics_that_do_not_have_the_models_tokens_are_refused(
    model: ModuleModel, stats: NextTokenStatistics
) -> None:
    cut = stats.limited(vocabulary=4)
    with pytest.raises(InputError, match=r"4 tokens and model has 40 rows.*without a cut"):
        read_model(model, cut)
    with pytest.raises(StatisticsError, match="not known here"):
        read_model(model, NextTokenStatistics.from_counts(stats.table))
    words = tg.count(text(), context=2, tokenizer="word")
    with pytest.raises(CheckpointError, match="another tokenizer"):
        read_model(model, words)


def test_only_models_are_read(model: ModuleModel, stats: NextTokenStatistics) -> None:
    assert is_model(model)
    assert not is_model((np.eye(3), np.eye(3)))
    found = states_of(model, stats, None, SilentProgress())
    assert found.H.shape == (16, stats.m)
    with pytest.raises(InputError, match="which this prediction does not have"):
        states_of(model, None, None, SilentProgress())


def test_a_loaded_prediction_needs_its_statistics_to_read_a_model(
    model: ModuleModel, stats: NextTokenStatistics, tmp_path: Path
) -> None:
    prediction = tg.predict(stats)
    folder = prediction.save(tmp_path / "prediction")
    few: dict[str, Any] = {"permutations": 20, "at_loss": False}
    with pytest.raises(StatisticsError, match="stats=stats"):
        tg.compare(folder, model, **few)
    found, wanted = tg.compare(folder, model, stats=stats, **few), tg.compare(prediction, model, **few)
    assert found.context_agreement.value == pytest.approx(wanted.context_agreement.value, abs=1e-12)
    with pytest.raises(InputError, match="different statistics"):
        tg.compare(folder, model, stats=stats.limited(top_contexts=3), **few)
