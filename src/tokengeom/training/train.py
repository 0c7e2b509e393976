"""The verb `train`: from statistics and a model to a run.

It builds the model at its start and the engine that trains it, restores a snapshot where a run is resumed, and hands
over to the loop. `train_many` trains replicates in one batch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

import numpy as np
from numpy.typing import ArrayLike

from tokengeom.core.errors import InputError, ProblemError
from tokengeom.core.factors import HasFactors, check_duplicates, check_embeddings
from tokengeom.core.numerics import Float
from tokengeom.core.progress import AbstractProgress, SilentProgress, is_main_process
from tokengeom.core.resources import Estimate, fewer_contexts, require_memory
from tokengeom.core.settings import make, takes
from tokengeom.models.factored import UFM, AbstractFactoredModel, Linear, factored_bytes
from tokengeom.models.network import Network, network_bytes
from tokengeom.models.networks.base import architecture_named
from tokengeom.results.folders import only_writer
from tokengeom.results.manifests import MANIFEST
from tokengeom.training.loop import ENOUGH, AbstractEngine, Loop, OnRecord, Probe, TrainingHooks
from tokengeom.training.objective import SoftLabels, WindowSampler
from tokengeom.training.run import Checkpoints, Run, Snapshot, fits_state
from tokengeom.training.settings import TrainingSettings
from tokengeom.training.start import PredictedStart, require_startable

if TYPE_CHECKING:
    from tokengeom.keywords import TrainKeywords
    from tokengeom.statistics.context_features import ContextFeatures
    from tokengeom.statistics.next_token import NextTokenStatistics

Model = AbstractFactoredModel | Network
_PER_WINDOW = 8
"""Numbers held per sampled window beside its logits: random numbers, the pair that is drawn, its context and token."""


@takes(TrainingSettings)
def train(
    stats: NextTokenStatistics | SoftLabels | str | Path,
    model: str = "ufm",
    *,
    embeddings: ArrayLike | None = None,
    start: HasFactors | str | Path | None = None,
    probes: Mapping[str, Probe] | None = None,
    on_record: OnRecord | None = None,
    progress: AbstractProgress | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 30.0,
    resume: bool = False,
    **settings: Unpack[TrainKeywords],
) -> Run:
    """Train a model on the exact soft-label loss and measure it during training.

    Ctrl-C ends the run early: what was done is returned, and saved where there is a ``checkpoint``.

    Parameters
    ----------
    stats
        Next-token statistics, the path of a folder that holds saved ones, or `SoftLabels`.
    model
        "linear", "ufm", or the name of a network.
    embeddings
        H (d x m) for the linear model.
    start
        A prediction for the same statistics, or the folder of a saved one. W of a network (not a tied one) starts from
        its tokens instead of random ones, and the ufm from its tokens and contexts: in a random orientation, at the
        norm of the usual start. Where ``dim`` is smaller than the prediction's rank, its leading directions are used.
        For example ``tg.train(stats, "transformer", start=tg.predict(stats, loss_gap=0.05))``.
    probes
        Measurements of the caller: name -> function of the `State`, called at each record.
    on_record
        Called with (step, steps, row) at each record.
    progress
        Where a bar with steps, time left and loss gap is shown.
    checkpoint, checkpoint_seconds
        Folder of snapshots, one every ``checkpoint_seconds`` and one at the end.
    resume
        Continue from the newest snapshot in ``checkpoint``, where there is one.
    """
    chosen = make(TrainingSettings, {"model": model, **settings}, "train")
    hooks = TrainingHooks(probes, on_record, progress or SilentProgress(), checkpoint, checkpoint_seconds, resume)
    return train_many(stats, [chosen], embeddings=embeddings, start=start, hooks=hooks)[0]


def train_many(
    stats: NextTokenStatistics | SoftLabels | str | Path,
    settings: Sequence[TrainingSettings],
    *,
    embeddings: ArrayLike | None = None,
    start: HasFactors | str | Path | None = None,
    hooks: TrainingHooks | None = None,
    backend: str | None = None,
) -> list[Run]:
    """Train replicates that differ only in ``seed`` and ``dim``, side by side in one batch.

    ``backend`` is "cpu" (compiled, one replicate after the other) or "torch" (batched); None means "cpu" for one
    replicate on the CPU and "torch" for a GPU or several replicates. A network has its own.
    """
    hooks = TrainingHooks() if hooks is None else hooks
    _check_replicates(settings)
    first = settings[0]
    if first.is_network:
        backend = "network"
    backend = backend or ("cpu" if first.device == "cpu" and len(settings) == 1 else "torch")
    if backend != "torch" and len(settings) > 1:
        if hooks.checkpoint is not None:
            raise ProblemError("checkpoint of several replicates needs backend='torch', which trains them together.")
        return [
            train_many(stats, [replicate], embeddings=embeddings, start=start, hooks=hooks, backend=backend)[0]
            for replicate in settings
        ]
    loop = _build_loop(stats, settings, embeddings, start, hooks, backend)
    with _only_trainer(hooks.checkpoints):
        resume_from_checkpoint(loop, settings)
        return loop.run()


@contextmanager
def _only_trainer(checkpoints: Checkpoints | None) -> Iterator[None]:
    """Refuse to train into a folder while another process does; of processes that train together, one writes."""
    if checkpoints is None or not is_main_process():
        yield
        return
    with only_writer(checkpoints.folder):
        yield


@takes(TrainingSettings)
def estimate_training(
    stats: NextTokenStatistics | SoftLabels | str | Path,
    model: str = "ufm",
    *,
    embeddings: ArrayLike | None = None,
    start: HasFactors | str | Path | None = None,
    probes: Mapping[str, Probe] | None = None,
    rehearsal: float = ENOUGH,
    **settings: Unpack[TrainKeywords],
) -> Estimate:
    """The time and memory that `train` is expected to take, from its first seconds, which are trained and dropped.

    Parameters
    ----------
    stats, model, embeddings, start, probes
        As in `train`.
    rehearsal
        Seconds to train for; a step that takes longer is made once or twice.
    """
    chosen = make(TrainingSettings, {"model": model, **settings}, "estimate")
    backend = "network" if chosen.is_network else "cpu" if chosen.device == "cpu" else "torch"
    return _build_loop(stats, [chosen], embeddings, start, TrainingHooks(probes), backend).estimate(rehearsal)


def _build_loop(
    stats: NextTokenStatistics | SoftLabels | str | Path,
    settings: Sequence[TrainingSettings],
    embeddings: ArrayLike | None,
    start: HasFactors | str | Path | None,
    hooks: TrainingHooks,
    backend: str,
) -> Loop:
    """The loop of a run, at its start; a run that does not fit in memory is refused."""
    first, (statistics, labels) = settings[0], _statistics_and_labels(stats)
    if first.batch:
        drawn = 8 * first.batch * (labels.V + _PER_WINDOW) * len(settings)
        require_memory(drawn, f"A step on batch={first.batch:,} sampled windows", "Take a smaller batch.")
    H = None if embeddings is None else _checked_embeddings(embeddings, statistics, labels)
    held = 0 if first.is_network else _factored_memory(labels, settings, H)
    if first.is_network:
        # The least that there is, before it is built: W and a vector per layer, their gradients, and two slots.
        dim = first.dim or 0
        _available(4 * 4 * (labels.V + (first.layers or 0)) * dim, labels, [dim], first.device)
    predicted = None if start is None else _predicted_start(start, labels, settings, hooks.progress)
    models = [_build_model(statistics, labels, replicate, H, predicted) for replicate in settings]
    if first.is_network:
        held = _network_memory(cast(Network, models[0]), labels, first)
    return Loop(
        engine=_build_engine(labels, first, models, backend),
        labels=labels,
        optimization=first.optimization(),
        settings=[_recorded(chosen, model.dim, predicted) for chosen, model in zip(settings, models, strict=True)],
        samplers=[WindowSampler(labels, generators(s.seed)[1]) for s in settings] if first.batch else None,
        batch=first.batch,
        records_per_decade=first.records_per_decade,
        hooks=hooks,
        held=held,
    )


def _predicted_start(
    given: HasFactors | str | Path, labels: SoftLabels, settings: Sequence[TrainingSettings], progress: AbstractProgress
) -> PredictedStart:
    """A start that fits labels and settings; says where some dimension is too small for all of its directions."""
    require_startable(settings[0])
    start = PredictedStart.of(given, labels)
    smallest = min(replicate.dim or 0 for replicate in settings)
    if smallest < start.directions:
        progress.say(
            f"The start has the leading {smallest} of the prediction's {start.directions} directions, since "
            f"dim={smallest}."
        )
    return start


def _recorded(settings: TrainingSettings, dim: int, start: PredictedStart | None) -> dict[str, Any]:
    """The settings of a run as it keeps them."""
    plain = {**settings.to_dict(), "dim": dim}
    return plain if start is None else {**plain, "start": start.record(dim)}


def resume_from_checkpoint(loop: Loop, settings: Sequence[TrainingSettings]) -> None:
    """Restore the newest snapshot; refuse one of other data or settings, and a folder that would be overwritten."""
    checkpoints, resume = loop.hooks.checkpoints, loop.hooks.resume
    if checkpoints is None:
        if resume:
            raise ProblemError("resume=True needs checkpoint=FOLDER, the folder of the earlier run.")
        return
    folder = checkpoints.folder
    if (folder / MANIFEST).is_file():
        raise InputError(f"{folder} holds a saved result, without the state to continue from. Give another folder.")
    snapshot = checkpoints.load()
    if snapshot is None:
        return
    if not resume:
        raise InputError(
            f"{folder} already holds a run. Pass resume=True (--resume) to continue it, or choose another folder "
            "for a new run."
        )
    if snapshot.data != loop.labels.hash or len(snapshot.runs) != len(settings):
        raise InputError(f"{folder} holds a run on other statistics or of other replicates. Give another folder.")
    for mine, recorded, run in zip(settings, loop.settings, snapshot.runs, strict=True):
        filled = dataclasses.replace(mine, dim=run.settings.get("dim")) if mine.dim is None else mine
        differing = filled.differs_from(run.settings)
        if recorded.get("start") != run.settings.get("start"):
            differing.append("start")
        if differing:
            raise InputError(
                f"A resumed run must have the settings that it was started with; {', '.join(differing)} differ from "
                f"those in {folder}."
            )
    _require_same_state(loop, snapshot, folder)
    try:
        loop.resume(snapshot)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        # States of generators are checked by the libraries that they belong to.
        raise InputError(f"{folder} is damaged: its state cannot be restored ({error}). Train again.") from error
    engine = loop.engine
    for r, run in enumerate(snapshot.runs):
        if not run.diverged and not fits_state(run, engine.readout(r), engine.kept(r)):
            raise InputError(
                f"{folder} is damaged: its W and H are not those of the state that training would continue from. It "
                "was not changed. Train again, in another folder."
            )


def _require_same_state(loop: Loop, snapshot: Snapshot, folder: Path) -> None:
    """Refuse a state whose arrays are not those of the engine: compiled code does not check them."""
    mine, theirs = loop.engine.state(), snapshot.state
    for name in sorted({*mine, *theirs}):
        known = name in mine and name in theirs
        if not known or mine[name].shape != theirs[name].shape or mine[name].dtype != theirs[name].dtype:
            raise InputError(
                f"{folder} is damaged: the array {name!r} of its state is not that of this model. Train again."
            )


def build_network(
    stats: NextTokenStatistics,
    settings: TrainingSettings,
    start: PredictedStart | None = None,
    features: ContextFeatures | None = None,
) -> Network:
    """A network at its start, on the contexts of the statistics; its W is random, or a predicted one.

    ``features`` take the place of those that ``settings.ties`` names.
    """
    architecture = architecture_named(settings.model)
    options = {name: getattr(settings, name) for name in architecture.defaults}
    options |= {} if features is None else {"ties": features}
    seed = _network_seed(settings.seed, 0)
    network = Network(architecture, stats, dim=settings.dim or 0, tied=settings.tied, seed=seed, **options)
    if start is not None:
        start.put_into_network(network, settings.seed)
    return network


def _statistics_and_labels(
    stats: NextTokenStatistics | SoftLabels | str | Path,
) -> tuple[NextTokenStatistics | None, SoftLabels]:
    if isinstance(stats, SoftLabels):
        return None, stats
    # GPU machines may lack scipy, which statistics need and labels do not.
    from tokengeom.statistics.next_token import statistics_of

    statistics = statistics_of(stats, "train")
    return statistics, SoftLabels.from_statistics(statistics)


def _build_model(
    stats: NextTokenStatistics | None,
    labels: SoftLabels,
    settings: TrainingSettings,
    H: Float | None,
    start: PredictedStart | None,
) -> Model:
    """A model at its start, drawn from the first generator of the seed, or predicted."""
    if settings.model == "linear" and H is None:
        raise ProblemError("model 'linear' needs embeddings=H, a d x m matrix; got None. Or use model='ufm'.")
    if settings.model != "linear" and H is not None:
        raise ProblemError(f"model {settings.model!r} learns its embeddings; leave embeddings out, or use 'linear'.")
    if settings.is_network:
        if stats is None:
            raise ProblemError("A network reads the tokens of contexts, and SoftLabels have none. Pass statistics.")
        return build_network(stats, settings, start)
    generator = generators(settings.seed)[0]
    if H is None:
        ufm = UFM(labels.V, labels.m, settings.dim or 0, init=settings.init, generator=generator)
        if start is not None:
            start.put_into_factors(ufm, settings.seed)
        return ufm
    if settings.dim not in (None, H.shape[0]):
        raise ProblemError(f"dim must be left out or equal the embeddings' d={H.shape[0]}; got {settings.dim}.")
    learn = settings.learn_embeddings
    return Linear(labels.V, H, init=settings.init, generator=generator, learn_embeddings=learn)


def _build_engine(labels: SoftLabels, first: TrainingSettings, models: list[Model], backend: str) -> AbstractEngine:
    """The engine of a backend: "cpu" (compiled) or "torch" (batched) for matrices, "network" for networks."""
    scale = float(labels.windows) if first.reduction == "sum" else 1.0
    optimizer, precision = first.optimization().optimizer, first.precision or ""
    if backend == "network":
        from tokengeom.training.network_engine import NetworkEngine

        return NetworkEngine(
            cast(Network, models[0]),
            labels,
            optimizer,
            scale=scale,
            precision=precision,
            device=first.device,
            seed=_network_seed(first.seed, 1),
            compiled=first.compiled,
        )
    factored, dtype = cast(list[AbstractFactoredModel], models), np.dtype(precision)
    if backend == "torch":
        from tokengeom.training.torch_engine import TorchEngine

        return TorchEngine(
            factored, labels, optimizer, scale=scale, batch=first.batch, dtype=dtype, device=first.device
        )
    if backend != "cpu" or first.device != "cpu":
        raise ProblemError(f"backend must be 'cpu' (on device 'cpu') or 'torch'; got {backend!r} on {first.device!r}.")
    from tokengeom.training.cpu_engine import CpuEngine

    return CpuEngine(factored[0], labels, optimizer, scale=scale, batch=first.batch, dtype=dtype)


def generators(seed: int) -> list[np.random.Generator]:
    """Two independent generators: initialisation, sampled windows."""
    return [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(2)]


def _network_seed(seed: int, stream: int) -> int:
    """Seed for torch from the seed of the run: stream 0 draws the weights, stream 1 dropout."""
    return int(np.random.SeedSequence(seed, spawn_key=(7, stream)).generate_state(1, np.uint64)[0] >> 1)


def _checked_embeddings(embeddings: ArrayLike, stats: NextTokenStatistics | None, labels: SoftLabels) -> Float:
    H = check_embeddings(embeddings, labels.m)
    if stats is not None and stats.contexts is not None:
        check_duplicates(stats.contexts, H)
    return H


def _factored_memory(labels: SoftLabels, settings: Sequence[TrainingSettings], H: Float | None) -> int:
    """Bytes that factored models need; refused, before anything is allocated, where there is not as much memory."""
    dims = [replicate.dim or (0 if H is None else H.shape[0]) for replicate in settings]
    device, itemsize = settings[0].device, np.dtype(settings[0].precision or "float64").itemsize
    needed = factored_bytes(labels.V, labels.m, dims, device=device, itemsize=itemsize)
    return _available(needed, labels, dims, device)


def _network_memory(network: Network, labels: SoftLabels, settings: TrainingSettings) -> int:
    """Bytes that a network needs; refused where there is not as much memory."""
    needed = network_bytes(network, labels.V, labels.m, settings.batch)
    return _available(needed, labels, [network.dim], settings.device)


def _available(needed: int, labels: SoftLabels, dims: Sequence[int], device: str) -> int:
    """The bytes needed; a run that would not fit in memory is refused, with an offer of one that does."""
    require_memory(
        needed,
        f"Training on V={labels.V:,} tokens and m={labels.m:,} contexts in {sum(dims):,} dimensions",
        lambda share: f"{fewer_contexts(share, labels.m)}, or use a smaller vocabulary or fewer dimensions.",
        device=device,
    )
    return needed


def _check_replicates(settings: Sequence[TrainingSettings]) -> None:
    if not settings:
        raise ProblemError("train_many needs at least one TrainingSettings; got none.")
    plain = [{k: v for k, v in s.to_dict().items() if k not in ("seed", "dim")} for s in settings]
    if any(other != plain[0] for other in plain):
        raise ProblemError("Replicates of one batched run may differ only in seed and dim.")
