"""The tied model ``L = W f(A Phi)``: unconstrained features as a special case, exact gradients, contexts never seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from network_cases import small_stories
from tokengeom.core.errors import ProblemError, StatisticsError
from tokengeom.core.numerics import Float
from tokengeom.models.factored import UFM
from tokengeom.models.network import Network
from tokengeom.models.networks.tied import Tied, tied_states
from tokengeom.statistics.context_features import ContextFeatures
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.training.cpu_engine import CpuEngine
from tokengeom.training.network_engine import NetworkEngine
from tokengeom.training.objective import SoftLabels
from tokengeom.training.run import Run
from tokengeom.training.settings import TrainingSettings
from tokengeom.training.train import build_network, train

TINY: dict[str, Any] = {"dim": 6, "seed": 2, "precision": "float64"}


def features_of(stats: NextTokenStatistics, ties: str) -> ContextFeatures:
    assert stats.contexts is not None
    return ContextFeatures.of_contexts(stats.contexts, ties)


@pytest.mark.parametrize("windows", ["sliding", "prefixes"])
@pytest.mark.parametrize("ties", ["self", "positions+suffixes+self", "3*positions+0.5*pairs+self"])
@pytest.mark.parametrize("last_norm", [False, True])
def test_states_are_sums_of_weighted_feature_embeddings(windows: Any, ties: str, last_norm: bool) -> None:
    stats = small_stories(windows)
    model = Network(Tied(), stats, dim=5, ties=ties, last_norm=last_norm, seed=1)
    A, Phi = model.kept()["A"], features_of(stats, ties).matrix.toarray()
    H = A @ Phi
    if last_norm:
        model.decoder.body.norm.weight.data = torch.arange(1.0, 6.0)
        H = np.arange(1.0, 6.0)[:, None] * H / np.sqrt((H**2).mean(axis=0) + 1e-6)
    np.testing.assert_allclose(model.readout().H, H, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(tied_states(A, model.kept().get("gain"), Phi), H, rtol=1e-5, atol=1e-6)


def test_starts_have_the_scales_of_the_settings() -> None:
    model = Network(Tied(), small_stories(), dim=400, head_start=0.3, feature_start=2.0)
    assert model.W.std() * np.sqrt(400) == pytest.approx(0.3, rel=0.05)
    assert model.kept()["A"].std() * np.sqrt(400) == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize("optimizer", ["gd", "ngd", "signgd", "adam", "adamw", "spectral"])
def test_with_the_context_itself_alone_it_trains_as_unconstrained_features_do(optimizer: str) -> None:
    stats = small_stories()
    settings = TrainingSettings(
        model="tied", ties="self", optimizer=optimizer, learning_rate=0.02, rate_schedule="constant", **TINY
    )
    tied, labels = build_network(stats, settings), SoftLabels.from_statistics(stats)
    tied.decoder.double()
    ufm, rule = UFM(stats.V, stats.m, 6), settings.optimization()
    ufm.W, ufm.H = tied.readout().W, tied.readout().H
    engines = (
        NetworkEngine(tied, labels, rule.optimizer, precision="float64"),
        CpuEngine(ufm, labels, rule.optimizer, batch=None, dtype=np.dtype(np.float64)),
    )
    for engine in engines:
        engine.advance(rule.coefficients(0, 30), None)
    mine, theirs = (engine.readout(0) for engine in engines)
    np.testing.assert_allclose(mine.W, theirs.W, atol=1e-8)
    np.testing.assert_allclose(mine.H, theirs.H, atol=1e-8)
    assert not np.allclose(mine.W, ufm.W, atol=1e-3), "it moved"


@pytest.mark.parametrize("last_norm", [False, True])
def test_a_step_of_gradient_descent_follows_the_slope_of_the_exact_loss(last_norm: bool) -> None:
    stats, rate, step = small_stories(), 1e-6, 1e-5
    options: dict[str, Any] = {"ties": "2*positions+self", "last_norm": last_norm, "optimizer": "gd", **TINY}
    before = train(stats, "tied", steps=0, **options)
    after = train(stats, "tied", steps=1, learning_rate=rate, **options)
    labels, Phi = SoftLabels.from_statistics(stats), features_of(stats, "2*positions+self").matrix
    start = {"W": before.W, **before.weights}
    moved = {name: (start[name] - x) / rate for name, x in {"W": after.W, **after.weights}.items()}

    def loss(parameters: dict[str, Float]) -> float:
        return labels.loss_gap(parameters["W"] @ tied_states(parameters["A"], parameters.get("gain"), Phi))

    rng = np.random.default_rng(0)
    for name in start:
        direction = rng.standard_normal(start[name].shape)
        ahead, behind = (loss({**start, name: start[name] + sign * step * direction}) for sign in (1, -1))
        assert np.sum(moved[name] * direction) == pytest.approx((ahead - behind) / (2 * step), rel=1e-4), name


def test_the_order_of_contexts_does_not_matter() -> None:
    stats = small_stories()
    order = np.random.default_rng(3).permutation(stats.m)
    assert stats.contexts is not None
    counts, contexts = stats.counts.toarray(), stats.contexts
    both = [NextTokenStatistics.from_counts(counts[:, at], contexts=contexts[at]) for at in (np.arange(stats.m), order)]
    one, other = (train(each, "tied", steps=20, learning_rate=1e-2, **TINY) for each in both)
    np.testing.assert_allclose(other.W, one.W, atol=1e-9)
    np.testing.assert_allclose(other.H, one.H[:, order], atol=1e-9)


@pytest.mark.parametrize("last_norm", [False, True])
def test_a_saved_run_places_contexts_that_it_never_saw(last_norm: bool, tmp_path: Path) -> None:
    stats = small_stories()
    assert stats.contexts is not None
    run = train(stats, "tied", steps=5, learning_rate=1e-2, ties="positions+self", last_norm=last_norm, **TINY)
    run.save(tmp_path / "run")
    loaded = Run.load(tmp_path / "run")
    np.testing.assert_allclose(loaded.place(stats.contexts, stats).H, run.H, atol=1e-12)
    known = {tuple(context) for context in stats.contexts.tolist()}
    a, b = next((a, b) for a in stats.contexts for b in stats.contexts if (a[0], *b[1:]) not in known)
    mixed = np.array([a[0], *b[1:]])
    names, A = features_of(stats, "positions+self"), run.weights["A"]
    parts = [
        A[:, names.numbers[stats.contexts.tolist().index(list(c)), place]] for c, place in ((a, 2), (b, 0), (b, 1))
    ]
    expected = np.sum(parts, axis=0)
    if last_norm:
        expected = expected / np.sqrt(np.mean(expected**2) + 1e-6) * run.weights["gain"]
    placed = loaded.place(mixed[None, :], stats)
    np.testing.assert_allclose(placed.H[:, 0], expected, atol=1e-9)
    logits = run.W @ expected
    np.testing.assert_allclose(placed.logits[:, 0] - placed.logits[0, 0], logits - logits[0], atol=1e-9)
    ((name, cosine),) = placed.neighbours(0, 1)
    cosines = expected @ run.H / np.linalg.norm(expected) / np.linalg.norm(run.H, axis=0)
    assert name == stats.context_text(int(cosines.argmax()))
    assert cosine == pytest.approx(cosines.max())


def test_what_it_cannot_be_or_do_is_refused() -> None:
    stats = small_stories()
    with pytest.raises(ProblemError, match="tied is not a setting of model 'tied', which has ties, last_norm"):
        train(stats, "tied", tied=True)
    with pytest.raises(ProblemError, match="ties is not a setting of model 'mlp'"):
        train(stats, "mlp", ties="self")
    with pytest.raises(ProblemError, match=r"feature_start must be a number > 0; got 0"):
        train(stats, "tied", feature_start=0)
    with pytest.raises(StatisticsError, match="Did you mean 'suffixes'"):
        train(stats, "tied", ties="sufixes", steps=1)
    with pytest.raises(ProblemError, match=r"in a tied model, .* this is model 'ufm'"):
        train(stats, "ufm", steps=1).place(np.zeros((1, 3), int), stats)
    run = train(stats, "tied", steps=1)
    with pytest.raises(ProblemError, match=r"of the statistics \w+, with \w+"):
        run.place(np.zeros((1, 3), int), small_stories(contexts=30))
