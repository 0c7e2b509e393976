"""Every optimizer passes the same tests, and equals torch's own where torch has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tokengeom.core.errors import InputError, ProblemError
from tokengeom.core.numerics import Float
from tokengeom.models.factored import UFM, AbstractFactoredModel, Linear
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.training.cpu_engine import CpuEngine
from tokengeom.training.objective import SoftLabels
from tokengeom.training.optimizers.adam import Adam
from tokengeom.training.optimizers.adamw import AdamW
from tokengeom.training.optimizers.base import AbstractOptimizer, optimizer_named, optimizer_names
from tokengeom.training.optimizers.gd import GD
from tokengeom.training.optimizers.ngd import NGD
from tokengeom.training.optimizers.signgd import SignGD
from tokengeom.training.optimizers.spectral import Spectral
from tokengeom.training.torch_engine import TorchEngine
from training_problems import random_statistics

STEPS = 25
VARIANTS = [
    *map(optimizer_named, optimizer_names()),
    GD(momentum=0.9),
    Spectral(momentum=0.9, nesterov=True),
    Spectral(method="newton-schulz"),
]


def test_six_optimizers_are_found_by_the_names_of_their_files() -> None:
    assert optimizer_names() == ["adam", "adamw", "gd", "ngd", "signgd", "spectral"]
    assert [type(optimizer_named(name)) for name in optimizer_names()] == [Adam, AdamW, GD, NGD, SignGD, Spectral]
    assert [optimizer_named(name).name for name in optimizer_names()] == optimizer_names()


@pytest.fixture
def stats() -> NextTokenStatistics:
    return random_statistics(0)


@pytest.fixture
def embeddings() -> Float:
    return np.random.default_rng(1).standard_normal((5, 9))


def model_of(kind: str, embeddings: Float) -> AbstractFactoredModel:
    rng = np.random.default_rng(3)
    if kind == "ufm":
        return UFM(7, 9, 4, generator=rng)
    return Linear(7, embeddings, init="lecun", generator=rng, learn_embeddings=kind == "learned")


def table_of(optimizer: AbstractOptimizer, rate: float, decay: float, steps: int = STEPS) -> Float:
    return optimizer.coefficients(np.arange(1.0, steps + 1), np.full(steps, rate), np.full(steps, decay))


def trained_by_torch(
    model: AbstractFactoredModel, stats: NextTokenStatistics, make: Callable[[Any], torch.optim.Optimizer]
) -> tuple[Float, Float]:
    W, H = torch.tensor(model.W), torch.tensor(model.H)
    leaves = [x.requires_grad_() for name, x in (("W", W), ("H", H)) if name in model.trainable]
    P, pi = torch.tensor(stats.P.toarray()), torch.tensor(stats.pi.copy())
    peer = make(leaves)
    for _ in range(STEPS):
        peer.zero_grad()
        loss = -(pi * (P * torch.log_softmax(W @ H, 0)).sum(0)).sum()
        loss.backward()
        peer.step()
    return W.detach().numpy(), H.detach().numpy()


PEERS = [
    (GD(), 0.5, 0.0, lambda p: torch.optim.SGD(p, lr=0.5)),
    (GD(momentum=0.9), 0.2, 0.01, lambda p: torch.optim.SGD(p, lr=0.2, momentum=0.9, weight_decay=0.01)),
    (Adam(betas=(0.9, 0.99)), 0.01, 0.0, lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.9, 0.99))),
    (Adam(eps=1e-6), 0.01, 0.02, lambda p: torch.optim.Adam(p, lr=0.01, eps=1e-6, weight_decay=0.02)),
    (AdamW(), 0.01, 0.1, lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1)),
]


@pytest.mark.parametrize("kind", ["linear", "learned", "ufm"])
@pytest.mark.parametrize(("optimizer", "rate", "decay", "make"), PEERS)
def test_steps_equal_those_of_torch_optim(
    stats: NextTokenStatistics,
    embeddings: Float,
    kind: str,
    optimizer: AbstractOptimizer,
    rate: float,
    decay: float,
    make: Callable[[Any], torch.optim.Optimizer],
) -> None:
    model = model_of(kind, embeddings)
    W, H = trained_by_torch(model, stats, make)
    engine = CpuEngine(model, SoftLabels.from_statistics(stats), optimizer)
    engine.advance(table_of(optimizer, rate, decay), None)
    np.testing.assert_allclose(engine.readout(0).W, W, atol=1e-10)
    np.testing.assert_allclose(engine.readout(0).H, H, atol=1e-10)


@pytest.mark.parametrize("kind", ["linear", "ufm"])
@pytest.mark.parametrize(
    ("optimizer", "batch"), [*((variant, None) for variant in VARIANTS), (GD(), 6), (AdamW(), 6)], ids=str
)
def test_both_engines_make_the_same_steps(
    stats: NextTokenStatistics, embeddings: Float, kind: str, optimizer: AbstractOptimizer, batch: int | None
) -> None:
    labels, model = SoftLabels.from_statistics(stats), model_of(kind, embeddings)
    windows = None if batch is None else [np.random.default_rng(0).integers(0, labels.token.size, (STEPS, batch))]
    engines = (
        CpuEngine(model, labels, optimizer, scale=2.0, batch=batch),
        TorchEngine([model], labels, optimizer, scale=2.0, batch=batch),
    )
    for engine in engines:
        engine.advance(table_of(optimizer, 0.01, 0.05), windows)
    for name in ("W", "H"):
        ours, theirs = (getattr(engine.readout(0), name) for engine in engines)
        np.testing.assert_allclose(ours, theirs, atol=1e-10)


@pytest.mark.parametrize("name", optimizer_names())
def test_optimizer_lowers_the_loss_and_makes_no_step_at_a_zero_gradient(
    stats: NextTokenStatistics, embeddings: Float, name: str
) -> None:
    optimizer = optimizer_named(name)
    labels = SoftLabels.from_statistics(stats)
    engine = CpuEngine(Linear(7, embeddings), labels, optimizer)
    before = labels.loss_gap(engine.readout(0).logits)
    engine.advance(table_of(optimizer, optimizer.default_rate, 0.0, 50), None)
    assert labels.loss_gap(engine.readout(0).logits) < before
    update, x = optimizer.kernel(), np.ones((3, 2))
    slots = [np.zeros((3, 2)), np.zeros((3, 2))]
    update(x, np.zeros((3, 2)), *slots, table_of(optimizer, 0.1, 0.0, 1)[0], 0.0)
    np.testing.assert_array_equal(x, np.ones((3, 2)))


def test_spectral_step_is_orthogonal() -> None:
    rng = np.random.default_rng(5)
    for shape in ((4, 6), (6, 4), (1, 5)):
        g, x = rng.standard_normal(shape), np.zeros(shape)
        Spectral().kernel()(x, g, np.zeros(shape), np.zeros((0, shape[1])), table_of(Spectral(), 0.3, 0.0, 1)[0], 1.0)
        np.testing.assert_allclose(np.linalg.svd(x, compute_uv=False), 0.3, atol=1e-12)
        assert np.sum(-x * g) == pytest.approx(0.3 * np.linalg.svd(g, compute_uv=False).sum())


def test_spectral_step_does_not_follow_rounding_noise() -> None:
    rng = np.random.default_rng(6)
    g = rng.standard_normal((5, 2)) @ rng.standard_normal((2, 4))
    x = np.zeros((5, 4))
    Spectral().kernel()(x, g, np.zeros((5, 4)), np.zeros((0, 4)), table_of(Spectral(), 1.0, 0.0, 1)[0], 1.0)
    np.testing.assert_allclose(np.linalg.svd(x, compute_uv=False), [1, 1, 0, 0], atol=1e-10)


def test_newton_schulz_is_close_to_the_polar_factor() -> None:
    g = np.random.default_rng(7).standard_normal((6, 9))
    settings = Spectral(method="newton-schulz")
    x = np.zeros((6, 9))
    settings.kernel()(x, g, np.zeros((6, 9)), np.zeros((0, 9)), table_of(settings, 1.0, 0.0, 1)[0], 1.0)
    values = np.linalg.svd(x, compute_uv=False)
    # The quintic is tuned for speed: it ends between about 0.7 and 1.2, not at 1.
    assert values.min() > 0.5
    assert values.max() < 1.3


def test_replicates_of_several_dimensions_in_one_batch_equal_single_runs(stats: NextTokenStatistics) -> None:
    labels = SoftLabels.from_statistics(stats)
    for optimizer in (AdamW(), Spectral(method="svd"), optimizer_named("ngd")):
        models = [UFM(7, 9, d, generator=np.random.default_rng(d)) for d in (1, 3, 8)]
        batch = TorchEngine(models, labels, optimizer)
        batch.advance(table_of(optimizer, 0.01, 0.01), None)
        for r, model in enumerate(models):
            single = CpuEngine(model, labels, optimizer)
            single.advance(table_of(optimizer, 0.01, 0.01), None)
            np.testing.assert_allclose(batch.readout(r).W, single.readout(0).W, atol=1e-10)
            np.testing.assert_allclose(batch.readout(r).H, single.readout(0).H, atol=1e-10)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: GD(momentum=1.0), "momentum of gd .* got 1.0"),
        (lambda: Adam(betas=(0.9, -0.1)), r"betas\[1\] of adam .* got -0.1"),
        (lambda: AdamW(eps=0.0), "eps of adamw .* got 0.0"),
        (lambda: Spectral(method="qr"), "got 'qr'"),  # type: ignore[arg-type]
    ],
)
def test_invalid_settings_are_refused(make: Callable[[], object], says: str) -> None:
    with pytest.raises(ProblemError, match=says):
        make()


def test_an_unknown_optimizer_is_refused_with_the_names_that_exist() -> None:
    with pytest.raises(InputError, match=r"must be one of adam, adamw, .*got 'sgdd'"):
        optimizer_named("sgdd")
