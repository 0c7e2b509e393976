"""Kernels of networks at their start: autograd's Jacobians, the closed form of an MLP, and use in other verbs."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tokengeom as tg
from tokengeom.core.errors import InputError, StatisticsError
from tokengeom.corpus.stories import stories
from tokengeom.statistics.mlp_kernel import kernel_of_overlaps
from tokengeom.training import kernel_features as module
from tokengeom.training.kernel_features import gradients, kernel_features
from tokengeom.training.settings import TrainingSettings
from tokengeom.training.train import build_network


@pytest.fixture(scope="module")
def stats() -> tg.NextTokenStatistics:
    return tg.count(list(islice(stories(), 12)), context=2)


def cosines_of(G: np.ndarray) -> np.ndarray:
    G = G / np.linalg.norm(G, axis=1, keepdims=True)
    return np.asarray(G @ G.T)


@pytest.mark.parametrize("model", ["mlp", "transformer", "lstm"])
def test_gradients_are_those_of_jacobians_along_the_direction(model: str, stats: tg.NextTokenStatistics) -> None:
    heads = 2 if model == "transformer" else None
    network = build_network(stats, TrainingSettings(model=model, dim=6, layers=1, heads=heads))
    found = cosines_of(gradients(network, 3, contexts=5))
    v = torch.randn(6, generator=torch.Generator().manual_seed(3)).numpy() / 6**0.5
    body = list(network.decoder.body.parameters())
    jacobians = []
    for j in range(5):
        h = network.decoder.states(torch.tensor([j]))[0]
        rows = [torch.autograd.grad(h[k], body, retain_graph=True, materialize_grads=True) for k in range(6)]
        jacobians.append(np.stack([np.concatenate([part.numpy().ravel() for part in row]) for row in rows]))
    # A gradient with more numbers than the sketch has sums loses a little.
    loses = jacobians[0].shape[1] > module.SKETCH
    assert found == pytest.approx(cosines_of(np.stack([v @ J for J in jacobians])), abs=0.05 if loses else 1e-4)


def test_the_kernel_of_a_wide_mlp_is_that_of_the_closed_form(stats: tg.NextTokenStatistics) -> None:
    some = stats.limited(top_contexts=40)
    assert some.contexts is not None
    Phi = kernel_features(some, "mlp", dim=48, layers=1, starts=8).matrix.toarray()
    shared = (some.contexts[:, None, :] == some.contexts[None, :, :]).sum(axis=2)
    assert Phi.T @ Phi == pytest.approx(kernel_of_overlaps(2, 1)[shared], abs=0.12)
    assert abs((Phi.T @ Phi - kernel_of_overlaps(2, 1)[shared]).mean()) < 0.01


def test_a_run_names_its_network_and_the_prediction_is_proven(stats: tg.NextTokenStatistics, tmp_path: Path) -> None:
    some = stats.limited(top_contexts=40)
    tg.train(some, "transformer", dim=8, heads=2, layers=1, steps=1).save(tmp_path / "run")
    features = kernel_features(some, tmp_path / "run", starts=1)
    again = kernel_features(some, "transformer", dim=8, heads=2, layers=1, starts=1)
    assert (features.matrix != again.matrix).nnz == 0
    tied = tg.predict(some, loss_gap=0.5, ties=features)
    assert tied.relative_gap <= 5e-3
    assert tied.loss_gap == pytest.approx(0.5, rel=0.01)


@pytest.mark.parametrize("norm", ["nuclear", "gamma2"])
def test_the_kernel_of_an_mlp_is_for_every_verb_that_takes_ties(
    norm: str, stats: tg.NextTokenStatistics, tmp_path: Path
) -> None:
    some = stats.limited(top_contexts=60)
    tied = tg.predict(some, loss_gap=0.6, ties="kernel", norm=norm, tolerance=2e-2)
    tied.save(tmp_path / "tied")
    loaded = tg.load(tmp_path / "tied")
    assert isinstance(loaded, tg.TiedPrediction)
    first, again = tied.place("the old"), loaded.place("the old", stats=some)
    assert pytest.approx(again.H) == first.H
    assert tg.verify(tmp_path / "tied").failed == ()


def test_a_simulation_has_the_kernel_of_the_mlp_that_it_is_like(stats: tg.NextTokenStatistics) -> None:
    run = tg.train(stats, "mlp", dim=8, layers=1, steps=30, learning_rate=1e-2)
    simulated = tg.simulate(stats, like=run, ties="kernel", replicates=1, learning_rate=3e-2)
    assert simulated.ties == "kernel:1"
    assert simulated.shortfall == ""
    assert stats.contexts is not None
    np.testing.assert_allclose(simulated.place(stats.contexts[:4]).H, simulated.H[:, :4])


def test_features_of_ones_own_are_simulated_saved_and_verified(stats: tg.NextTokenStatistics, tmp_path: Path) -> None:
    some = stats.limited(top_contexts=40)
    features = kernel_features(some, "transformer", dim=8, heads=2, layers=1, starts=1)
    assert features.matrix.min() < 0
    made = tg.simulate(some, ties=features, loss_gap=0.8, dim=6, replicates=2, learning_rate=1e-2, last_norm=True)
    assert (made.ties, made.shortfall) == ("own", "")
    some.save(tmp_path / "statistics")
    for name, result in (("simulation", made), ("tied", tg.predict(some, loss_gap=0.8, ties=features))):
        result.save(tmp_path / name)
        loaded = tg.load(tmp_path / name)
        assert isinstance(loaded, tg.Simulation | tg.TiedPrediction)
        np.testing.assert_array_equal(loaded.H, result.H)
        assert tg.verify(tmp_path / name).failed == ()
        with pytest.raises(StatisticsError, match="not known for other contexts"):
            loaded.place("the old", stats=some)
        assert loaded.explain(some.context_text(3), 2, "contexts", some).features[0].rows[0][0] == "own"
    with pytest.raises(InputError, match="features of these 40 contexts; got ContextFeatures"):
        tg.simulate(some, ties=tg.ContextFeatures.from_matrix(np.eye(39)), loss_gap=0.8)


@pytest.mark.parametrize("how", [{}, {"batch": 32, "last_norm": True}, {"optimizer": "gradient-flow"}])
def test_a_simulation_with_a_matrix_of_features_is_the_one_with_their_names(
    how: dict[str, Any], stats: tg.NextTokenStatistics
) -> None:
    some, ties = stats.limited(top_contexts=30), "2*positions+self"
    assert some.contexts is not None
    features = tg.ContextFeatures.of_contexts(some.contexts, ties)
    settings: dict[str, Any] = {"loss_gap": 0.9, "dim": 6, "replicates": 2, "learning_rate": 1e-2, "head_start": 0.5}
    settings |= {name: value for name, value in how.items() if name != "batch"}
    if "batch" in how:
        settings["like"] = tg.train(some, "mlp", dim=6, steps=3, batch=how["batch"], learning_rate=1e-2)
    named = tg.simulate(some, ties=ties, **settings)
    same = tg.simulate(some, ties=features, **settings)
    own = tg.simulate(some, ties=tg.ContextFeatures.from_matrix(features.matrix), **settings)
    np.testing.assert_array_equal(same.A, named.A)
    assert (same.own, same.ties, own.ties) == (None, ties, "own")
    # Sums of a sparse and of a full product differ by rounding in float32.
    assert own.steps == named.steps
    np.testing.assert_allclose(own.A, named.A, atol=1e-3)
    np.testing.assert_allclose(own.context_cosines, named.context_cosines, atol=1e-3)


def test_what_has_no_kernel_is_refused(stats: tg.NextTokenStatistics, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("ufm", "tied"):
        with pytest.raises(InputError, match="that of a network"):
            kernel_features(stats, wrong)
    monkeypatch.setattr(module, "MOST_CONTEXTS", 10)
    with pytest.raises(InputError, match=r"up to 10 contexts.*ties='kernel'"):
        kernel_features(stats, "mlp")
