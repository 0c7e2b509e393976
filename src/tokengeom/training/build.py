"""A model at its start, and the engine that trains it, from settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from tokengeom.errors import ProblemError
from tokengeom.models.base import AbstractFactoredModel
from tokengeom.models.linear import Linear
from tokengeom.models.ufm import UFM
from tokengeom.numerics import Float
from tokengeom.training.engine import AbstractEngine
from tokengeom.training.objective import SoftLabels
from tokengeom.training.settings import TrainingSettings

if TYPE_CHECKING:
    from tokengeom.models.network import Network

    Model: TypeAlias = AbstractFactoredModel | Network


def build_model(stats: Any, labels: SoftLabels, settings: TrainingSettings, embeddings: Float | None) -> Model:
    """Model at its start; the seed's first stream draws it."""
    if settings.is_network:
        return build_network(stats, settings, embeddings)
    generator = generators(settings.seed)[0]
    if settings.model == "linear":
        if embeddings is None:
            raise ProblemError("model 'linear' needs embeddings=H, a d x m matrix; got None. Or use model='ufm'.")
        learn = settings.learn_embeddings
        linear = Linear(
            labels.V, embeddings, m=labels.m, init=settings.init, generator=generator, learn_embeddings=learn
        )
        if settings.dim not in (None, linear.dim):
            raise ProblemError(f"dim must be left out or equal the embeddings' d={linear.dim}; got {settings.dim}.")
        return linear
    if embeddings is not None:
        raise ProblemError("model 'ufm' learns its embeddings; leave embeddings out, or use model='linear'.")
    if settings.dim is None:
        raise ProblemError("model 'ufm' needs dim=d, a whole number >= 1; got None.")
    return UFM(labels.V, labels.m, settings.dim, init=settings.init, generator=generator)


def build_network(stats: Any, settings: TrainingSettings, embeddings: Float | None = None) -> Network:
    """Network at its start, over the contexts of the statistics."""
    from tokengeom.models.network import Network
    from tokengeom.models.networks import architecture_named

    if embeddings is not None:
        raise ProblemError(f"model {settings.model!r} learns its embeddings; leave embeddings out.")
    return Network(
        architecture_named(settings.model),
        stats,
        dim=settings.dim or 0,
        layers=settings.layers,
        heads=settings.heads,
        positions=settings.positions,
        tied=settings.tied,
        attention_dropout=settings.attention_dropout,
        seed=_network_seed(settings.seed, 0),
    )


def _network_seed(seed: int, stream: int) -> int:
    """Seed for torch from the run's seed: stream 0 draws the weights, stream 1 dropout."""
    return int(np.random.SeedSequence(seed, spawn_key=(7, stream)).generate_state(1, np.uint64)[0] >> 1)


def build_engine(labels: SoftLabels, first: TrainingSettings, models: list[Model], backend: str) -> AbstractEngine:
    """Engine of a backend: "cpu" (compiled) or "torch" (batched) for matrices, "network" for networks."""
    scale = float(labels.windows) if first.reduction == "sum" else 1.0
    optimizer = first.pace().optimizer
    if backend == "network":
        from tokengeom.training.network_engine import NetworkEngine

        seed = _network_seed(first.seed, 1)
        network, precision = cast("Network", models[0]), first.precision or "float32"
        return NetworkEngine(
            network,
            labels,
            optimizer,
            scale=scale,
            precision=precision,
            device=first.device,
            seed=seed,
            compiled=first.compiled,
        )
    return _factored_engine(labels, first, cast("list[AbstractFactoredModel]", models), backend, scale)


def _factored_engine(
    labels: SoftLabels, first: TrainingSettings, models: list[AbstractFactoredModel], backend: str, scale: float
) -> AbstractEngine:
    optimizer, dtype = first.pace().optimizer, np.dtype(first.precision or "float64")
    if backend == "torch":
        from tokengeom.training.gpu import TorchEngine

        return TorchEngine(models, labels, optimizer, scale=scale, batch=first.batch, dtype=dtype, device=first.device)
    if backend != "cpu" or first.device != "cpu":
        raise ProblemError(f"backend must be 'cpu' (on device 'cpu') or 'torch'; got {backend!r} on {first.device!r}.")
    from tokengeom.training.cpu import CpuEngine

    return CpuEngine(models[0], labels, optimizer, scale=scale, batch=first.batch, dtype=dtype)


def generators(seed: int) -> list[np.random.Generator]:
    """Two independent streams: initialisation, sampled windows."""
    return [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(2)]
