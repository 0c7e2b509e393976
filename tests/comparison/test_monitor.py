"""A monitor's numbers: those of `compare` and of brute force, left out where they are not defined, without effect."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import tokengeom as tg
from callback_cases import equal_weights, exact_loss_gap, model, one_thread, prediction, texts, tokenizer
from tokengeom.comparison.monitor import NAMES, Monitor, PredictionsAtLoss, check_interval, norm_of_optimizer
from tokengeom.core.errors import CheckpointError, InputError, ProblemError
from tokengeom.theory.loss_path import LossPath


@pytest.fixture(scope="module")
def trained() -> Any:
    """A model after 60 steps of AdamW."""
    import torch

    module = model()
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
    ids = torch.tensor(texts())
    with one_thread():
        for step in range(60):
            batch = ids[(16 * step) % 128 :][:16]
            optimizer.zero_grad()
            module(batch, labels=batch).loss.backward()
            optimizer.step()
    return module


@pytest.mark.parametrize("norm", ["nuclear", "gamma2", None])
def test_numbers_are_those_of_compare_and_of_brute_force(trained: Any, norm: str | None) -> None:
    monitor = Monitor(prediction(), norm=norm, tokenizer=tokenizer())
    found = monitor(trained)
    assert list(found) == [f"tokengeom/{name}" for name in NAMES]
    found = {name.removeprefix("tokengeom/"): value for name, value in found.items()}
    if norm is None:
        gaps = [exact_loss_gap(trained, bos) for bos in (False, True)]
        assert found["loss_gap"] == pytest.approx(min(gaps), rel=1e-4)
    at = list(monitor._predictions(found["loss_gap"], norm).values())
    assert all(one.loss_gap == pytest.approx(found["loss_gap"], rel=0.022) for one in at)
    same = tg.compare(prediction(), trained, at=at, permutations=0)
    assert found["context_agreement"] == pytest.approx(same.context_agreement.value, abs=1e-10)
    assert found["token_agreement"] == pytest.approx(same.token_agreement.value, abs=1e-10)
    assert found["limit_context_agreement"] == pytest.approx(same["limit_context_agreement"].value, abs=1e-10)
    assert found["limit_token_agreement"] == pytest.approx(same["limit_token_agreement"].value, abs=1e-10)
    assert found["collapse"] == pytest.approx(same["collapse"].value, abs=1e-10)
    assert found["efficiency"] == pytest.approx(same.efficiency, abs=1e-10)


def test_a_language_model_is_measured_like_its_module(trained: Any) -> None:
    monitor = Monitor(prediction(), at_loss=False, bos=False)
    assert monitor(tg.language_model(trained)) == monitor(trained)


def test_a_measurement_has_no_effect_on_the_training(trained: Any) -> None:
    import torch

    module = copy.deepcopy(trained)
    module.train()
    module.model.layers[0].eval()
    module(torch.tensor(texts()[:2]), labels=torch.tensor(texts()[:2])).loss.backward()
    gradients = [one.grad.clone() for one in module.parameters()]
    modes = [part.training for part in module.modules()]
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    Monitor(prediction(), at_loss=False)(module)
    assert equal_weights(module, trained)
    assert [part.training for part in module.modules()] == modes
    assert all(torch.equal(one.grad, g) for one, g in zip(module.parameters(), gradients, strict=True))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    assert all(not part._forward_hooks and not part._forward_pre_hooks for part in module.modules())


def test_what_is_not_defined_is_left_out(trained: Any) -> None:
    import torch

    p = prediction()
    W, H = 9 * np.random.default_rng(0).standard_normal((p.W.shape[0], 4)), np.ones((4, p.H.shape[1]))
    H += np.random.default_rng(1).standard_normal(H.shape)
    found = Monitor(p, prefix="")((W, H))
    assert found["loss_gap"] > p.largest_gap
    assert set(NAMES) - set(found) == {"context_agreement", "token_agreement", "efficiency"}
    near = Monitor(p, prefix="")((0.3 * p.W, 0.3 * p.H))
    assert 0.9 * p.largest_gap < near["loss_gap"] < p.largest_gap
    assert "context_agreement" not in near
    assert "efficiency" not in Monitor(p, prefix="", at_loss=False)((p.W, p.H))
    diverged = copy.deepcopy(trained)
    with torch.no_grad():
        diverged.lm_head.weight[0, 0] = float("nan")
    assert Monitor(p)(diverged) == {}


def test_a_prediction_is_solved_for_once_per_loss_and_few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    original = LossPath.at

    def counting(self: LossPath, gap: float) -> Any:
        asked.append(gap)
        return original(self, gap)

    monkeypatch.setattr(LossPath, "at", counting)
    monkeypatch.setattr("tokengeom.theory.loss_path.MOST_STATES", 3)
    path = PredictionsAtLoss(prediction(), "nuclear", per_decade=100, tolerance=1e-3)
    first = path.at(0.5)
    assert path.at(0.5001) is first
    assert len(asked) == 1
    for gap in np.geomspace(0.5, 0.1, 12):
        path.at(float(gap))
    assert len(path._solved) == 8
    assert sum(state is not None for _, state in path._path._solved.values()) == 3
    again, alone = path.at(0.5), prediction().at(0.5, tolerance=1e-3)
    assert again is not None
    assert again is not first
    assert again.norm_value == pytest.approx(alone.norm_value, rel=0.02)


def test_the_norm_is_that_of_the_optimizer() -> None:
    import torch

    one = [torch.nn.Parameter(torch.zeros(2))]
    assert norm_of_optimizer(None) is None
    assert norm_of_optimizer(torch.optim.SGD(one, lr=0.1, weight_decay=0.1)) is None, "networks do not follow it"
    assert norm_of_optimizer(torch.optim.AdamW(one, weight_decay=0.1)) == "gamma2"
    assert norm_of_optimizer(torch.optim.Adam(one)) == "gamma2"
    assert norm_of_optimizer(torch.optim.Adam(one, weight_decay=0.1)) is None
    assert norm_of_optimizer(torch.optim.RMSprop(one)) is None
    wrapped = type("Wrapped", (), {"optimizer": torch.optim.Adam(one, lr=0.1)})()
    assert norm_of_optimizer(wrapped) == "gamma2"


def test_what_cannot_be_monitored_is_refused(trained: Any) -> None:
    p = prediction()
    with pytest.raises(ProblemError, match=r"predict\(stats\) returns; got LossPrediction"):
        Monitor(p.at(0.5, tolerance=1e-2))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="norm must be one of nuclear, gamma2"):
        Monitor(p, norm="gamma")
    with pytest.raises(CheckpointError, match="another tokenizer"):
        Monitor(p, tokenizer="word", at_loss=False)(trained)
    with pytest.raises(ProblemError, match="must have the same contexts"):
        Monitor(p)((p.W, p.H[:, 1:]))
    with pytest.raises(InputError, match="every must be at least 1"):
        check_interval(0)


def test_a_large_problem_is_not_predicted_at_the_loss_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tokengeom.comparison.target.AT_LOSS_ENTRIES", dict.fromkeys(("nuclear", "gamma2"), 10))
    monitor = Monitor(prediction())
    assert not monitor.at_loss
    assert "at_loss=True" in monitor.limitations[0]
    assert Monitor(prediction(), at_loss=True).limitations == ()
    assert repr(monitor) == f"Monitor(V=30, m={prediction().H.shape[1]}, norm=chosen, at_loss=False)"
