"""A model at its start, and the engine that trains it, from settings.

The verb: statistics and a model in, a run out.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from tokengeom.errors import InputError, ProblemError, ResourceError
from tokengeom.models.base import AbstractFactoredModel
from tokengeom.models.factored import UFM, Init, Linear
from tokengeom.numerics import Float
from tokengeom.progress import AbstractProgress, SilentProgress
from tokengeom.training.loop import AbstractEngine, Loop, OnRecord, Probe
from tokengeom.training.objective import SoftLabels, WindowSampler
from tokengeom.training.optimizers import AbstractOptimizer
from tokengeom.training.optimizers.base import Given
from tokengeom.training.run import Checkpoints, Run
from tokengeom.training.settings import Reduction, TrainingSettings

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
        from tokengeom.training.torch_engine import TorchEngine

        return TorchEngine(models, labels, optimizer, scale=scale, batch=first.batch, dtype=dtype, device=first.device)
    if backend != "cpu" or first.device != "cpu":
        raise ProblemError(f"backend must be 'cpu' (on device 'cpu') or 'torch'; got {backend!r} on {first.device!r}.")
    from tokengeom.training.cpu import CpuEngine

    return CpuEngine(models[0], labels, optimizer, scale=scale, batch=first.batch, dtype=dtype)


def generators(seed: int) -> list[np.random.Generator]:
    """Two independent streams: initialisation, sampled windows."""
    return [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(2)]


@dataclass(frozen=True)
class Attendance:
    """What goes on around the steps: measuring, reporting, saving.

    where
        probes               name -> function of the :class:`~tokengeom.training.loop.State`, at each record
        on_record            called with (step, steps, row) at each record
        progress             where a bar with steps, time left and ``CE - H`` is shown
        checkpoint           folder of snapshots, one each ``checkpoint_seconds`` and one at the end
        resume               go on from the newest snapshot, if there is one
    """

    probes: Mapping[str, Probe] | None = None
    on_record: OnRecord | None = None
    progress: AbstractProgress = field(default_factory=SilentProgress)
    checkpoint: str | Path | None = None
    checkpoint_seconds: float = 30.0
    resume: bool = False


def train(
    stats: Any,
    model: str = "ufm",
    *,
    embeddings: Float | None = None,
    dim: int | None = None,
    layers: int | None = None,
    heads: int | None = None,
    positions: bool = False,
    tied: bool = False,
    attention_dropout: float = 0.0,
    optimizer: str | AbstractOptimizer | None = None,
    steps: int = 10_000,
    learning_rate: float | None = None,
    weight_decay: float = 0.0,
    rate_schedule: Given | None = None,
    decay_schedule: Given = "constant",
    init: Init = "lecun",
    seed: int = 0,
    batch: int | None = None,
    reduction: Reduction | None = None,
    precision: str | None = None,
    device: str = "cpu",
    compiled: bool = False,
    learn_embeddings: bool = False,
    records_per_decade: int = 10,
    probes: Mapping[str, Probe] | None = None,
    on_record: OnRecord | None = None,
    progress: AbstractProgress | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 30.0,
    resume: bool = False,
) -> Run:
    """Minimise the exact soft-label loss ``CE(W H)`` and record the way.

    ``stats`` are next-token statistics (``V, m, P, pi``; for a network also ``contexts``) or :class:`SoftLabels`;
    ``model`` is "linear", "ufm", or a network: "transformer", "mamba", "xlstm", "lstm", "mlp";
    ``embeddings`` is H (d x m) for the linear model. The other arguments are the fields of :class:`TrainingSettings`
    and :class:`Attendance`.
    Ctrl-C ends the run early: what was done is returned, and saved where ``checkpoint`` says.
    """
    settings = TrainingSettings(
        model=model,
        dim=dim,
        layers=layers,
        heads=heads,
        positions=positions,
        tied=tied,
        attention_dropout=attention_dropout,
        optimizer=optimizer,
        steps=steps,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        rate_schedule=rate_schedule,
        decay_schedule=decay_schedule,
        init=init,
        seed=seed,
        batch=batch,
        reduction=reduction,
        precision=precision,
        device=device,
        compiled=compiled,
        learn_embeddings=learn_embeddings,
        records_per_decade=records_per_decade,
    )
    around = Attendance(probes, on_record, progress or SilentProgress(), checkpoint, checkpoint_seconds, resume)
    return train_many(stats, [settings], embeddings=embeddings, around=around)[0]


def train_many(
    stats: Any,
    settings: Sequence[TrainingSettings],
    *,
    embeddings: Float | None = None,
    around: Attendance | None = None,
    backend: str | None = None,
) -> list[Run]:
    """Train replicates that differ in ``seed`` and ``dim`` alone, side by side in one batch.

    ``backend`` is ``"cpu"`` (compiled; one replicate after the other) or ``"torch"`` (batched); None takes the first
    for one replicate on the CPU and the second for a GPU or several replicates.
    """
    around = Attendance() if around is None else around
    labels = stats if isinstance(stats, SoftLabels) else SoftLabels.from_statistics(stats)
    _check_alike(settings)
    _check_contexts(stats, embeddings)
    if settings[0].is_network:
        backend = "network"
    backend = backend or ("cpu" if settings[0].device == "cpu" and len(settings) == 1 else "torch")
    if backend != "torch" and len(settings) > 1:
        if around.checkpoint is not None:
            raise ProblemError("checkpoint of several replicates needs backend='torch', which runs them as one.")
        alone = [(s, Attendance(around.probes, around.on_record, around.progress)) for s in settings]
        return [train_many(stats, [s], embeddings=embeddings, around=a, backend=backend)[0] for s, a in alone]
    given = 0 if embeddings is None else np.shape(embeddings)[0]
    _check_memory(labels, sum(s.dim or given for s in settings))
    models = [build_model(stats, labels, s, embeddings) for s in settings]
    loop = _loop(labels, settings, models, around, backend)
    _take_up(loop, settings, around)
    return loop.run()


def _loop(
    labels: SoftLabels,
    settings: Sequence[TrainingSettings],
    models: list[Model],
    around: Attendance,
    backend: str,
) -> Loop:
    first = settings[0]
    samplers = [WindowSampler(labels, generators(s.seed)[1]) for s in settings]
    return Loop(
        engine=build_engine(labels, first, models, backend),
        labels=labels,
        pace=first.pace(),
        settings=[{**s.to_dict(), "dim": model.dim} for s, model in zip(settings, models, strict=True)],
        samplers=samplers if first.batch else None,
        batch=first.batch,
        probes=around.probes,
        per_decade=first.records_per_decade,
        on_record=around.on_record,
        progress=around.progress,
        checkpoints=None if around.checkpoint is None else Checkpoints(Path(around.checkpoint)),
        interval=around.checkpoint_seconds,
    )


def _take_up(loop: Loop, settings: Sequence[TrainingSettings], around: Attendance) -> None:
    """Load the newest snapshot when resuming; refuse one of other data or settings, or one that would be lost."""
    if loop.checkpoints is None:
        if around.resume:
            raise ProblemError("resume=True needs checkpoint=FOLDER, where the earlier run was kept.")
        return
    stored = loop.checkpoints.load()
    if stored is None:
        return
    where = loop.checkpoints.folder
    if not around.resume:
        raise InputError(
            f"{where} already holds a run. Pass resume=True (--resume) to go on, or another folder to start anew."
        )
    results = stored.manifest["results"]
    if stored.manifest["data"] != loop.labels.digest or len(results) != len(settings):
        raise InputError(f"{where} holds a run on other statistics or of other replicates; give another folder.")
    for mine, result in zip(settings, results, strict=True):
        filled = dataclasses.replace(mine, dim=result["settings"]["dim"]) if mine.dim is None else mine
        differing = filled.differs_from(result["settings"])
        if differing:
            raise InputError(
                f"A resumed run must have the settings it was started with; {', '.join(differing)} differ from those "
                f"in {where}."
            )
    loop.resume(stored)


def _check_alike(settings: Sequence[TrainingSettings]) -> None:
    if not settings:
        raise ProblemError("train_many needs at least one TrainingSettings; got none.")
    plain = [{k: v for k, v in s.to_dict().items() if k not in ("seed", "dim")} for s in settings]
    if any(other != plain[0] for other in plain):
        raise ProblemError("Replicates of one batched run may differ in seed and dim alone.")


def _check_contexts(stats: Any, embeddings: Float | None) -> None:
    """Refuse equal contexts with different embeddings: no single column could serve both."""
    contexts = getattr(stats, "contexts", None)
    if embeddings is None or contexts is None or np.ndim(contexts) != 2:
        return
    rows = np.asarray(contexts)
    _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    twin = first[inverse.ravel()]
    H = np.asarray(embeddings)
    for j in np.flatnonzero(twin != np.arange(rows.shape[0])):
        if H.ndim == 2 and H.shape[1] == rows.shape[0] and not np.array_equal(H[:, j], H[:, twin[j]]):
            raise ProblemError(
                f"Contexts {twin[j]} and {j} are the same tokens {rows[j].tolist()} but have different embeddings. "
                f"Merge them in the statistics, or give both the same column."
            )


def _check_memory(labels: SoftLabels, dims: int) -> None:
    """Refuse a run whose dense matrices would not fit, before anything is allocated."""
    needed = 8.0 * (6.0 * labels.V * labels.m + 8.0 * (labels.V + labels.m) * dims)
    try:
        present = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):  # not every system says
        return
    if needed > present:
        raise ResourceError(
            f"Training on V={labels.V} tokens and m={labels.m} contexts in {dims} dimensions needs about "
            f"{needed / 2**30:.1f} GiB for dense matrices; this machine has {present / 2**30:.1f} GiB. Keep the most "
            f"frequent contexts, a smaller vocabulary, or fewer dimensions."
        )
