"""`kernel_features`: the kernel of a network at its random start, as features of contexts.

``K(x, y) = <g(x), g(y)> / (|g(x)| |g(y)|)``,   ``g(x) = d<v, h(x)> / dtheta``,   ``Phi = K^(1/2)``

for a random direction v of the state h and all weights theta before the head; mean over random starts, each with its
own direction. While weights move little, a step on the loss of context y moves h(x) by K(x, y): with ``Phi^T Phi = K``
tied features are the network, linearised at its start. For an MLP of infinite width the kernel and its features are
known exactly (`statistics.mlp_kernel`): ``ties="kernel"``.

A gradient has as many numbers as the network has weights. Each is added to or subtracted from one of `SKETCH` sums, at
random: inner products of what is left are the same but for an error of about ``1 / sqrt(SKETCH)``, 0.8%, which is less
than starts of a network differ by.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from tokengeom.core.errors import InputError
from tokengeom.core.numerics import Float
from tokengeom.core.progress import AbstractProgress, SilentProgress
from tokengeom.core.resources import Estimate, require_memory
from tokengeom.core.settings import make, takes
from tokengeom.models.network import Network
from tokengeom.models.networks.base import import_torch, threads_for
from tokengeom.results.registry import load
from tokengeom.statistics.context_features import ContextFeatures
from tokengeom.statistics.next_token import NextTokenStatistics, statistics_of
from tokengeom.training.run import Run
from tokengeom.training.settings import TrainingSettings
from tokengeom.training.train import build_network

if TYPE_CHECKING:
    from tokengeom.keywords import TrainKeywords

MOST_CONTEXTS = 10_000
"""Contexts up to which the root of a kernel is taken: its time grows with their cube."""
SKETCH = 1 << 14
TIMED = 20
"""Contexts whose gradients are timed."""
READ = ("dim", "layers", "heads", "positions", "tied")
"""Settings of a run that make its network."""


@takes(TrainingSettings)
def kernel_features(
    stats: NextTokenStatistics | str | Path,
    like: Run | str | Path = "transformer",
    *,
    starts: int = 4,
    progress: AbstractProgress | None = None,
    **settings: Unpack[TrainKeywords],
) -> ContextFeatures:
    """Features whose inner products are the kernel of a network at its start, for up to 10,000 contexts.

    For example ``tg.predict(stats, loss_gap=0.5, ties=tg.kernel_features(stats, like=run))``. They are known for the
    contexts of these statistics alone; those of ``ties="kernel"``, for an MLP, are known for any context.

    Parameters
    ----------
    stats
        Next-token statistics with the tokens of contexts, or the folder of saved ones.
    like
        A run of a network, its folder, or the name of a network, of which ``settings`` are those of `train`.
    starts
        Random starts over which the kernel is averaged.
    progress
        Where the work is shown.
    """
    given = statistics_of(stats, "kernel_features")
    chosen, m = _network(like, dict(settings)), given.m
    if m > MOST_CONTEXTS:
        raise InputError(
            f"The kernel of a network is made for up to {MOST_CONTEXTS:,} contexts; got {m:,}. Take the most frequent "
            "ones, stats.limited(top_contexts=10000), or ties='kernel', the kernel of an MLP, which has no such limit."
        )
    needed = 4 * m * SKETCH + 4 * 8 * m**2
    require_memory(needed, f"The kernel of a network on {m:,} contexts", "Take fewer contexts.")
    shown, K = progress or SilentProgress(), np.zeros((m, m))
    with shown.stage("Kernel of a network at its start", starts * m) as stage:
        for start in range(starts):
            network = build_network(given, replace(chosen, seed=chosen.seed + start))
            if start == 0:
                seconds = starts * m / TIMED * _seconds(network) + 1e-9 * m**3
                Estimate(f"Kernel of {chosen.model} on {m:,} contexts", seconds, seconds, needed).announce(shown)
            G = gradients(network, chosen.seed + start, stage.advance)
            G /= np.maximum(np.linalg.norm(G, axis=1, keepdims=True), 1e-30)
            K += (G @ G.T) / starts
    return ContextFeatures.from_matrix(_root(K))


def _network(like: Run | str | Path, settings: dict[str, Any]) -> TrainingSettings:
    """Settings of the network that is meant."""
    run = load(like) if isinstance(like, Path) or (isinstance(like, str) and Path(like).is_dir()) else like
    known = {} if isinstance(run, str) else getattr(run, "settings", {})
    model = run if isinstance(run, str) else known.get("model", "")
    read = {name: known[name] for name in READ if known.get(name) is not None}
    chosen = make(TrainingSettings, {"model": model, **read, **settings}, "kernel_features")
    if not chosen.is_network or chosen.model == "tied":
        raise InputError(f"The kernel is that of a network, such as mlp or transformer; got {model!r}.")
    return chosen


def gradients(network: Network, seed: int, advance: Any = None, contexts: int | None = None) -> Float:
    """Gradients of a random direction of the state of each context, sketched, m x `SKETCH` in float32."""
    torch = import_torch()
    decoder, head = network.decoder.eval(), getattr(network.decoder, "weight", None)
    weights = [weight for weight in decoder.parameters() if weight is not head]
    size, draws = sum(weight.numel() for weight in weights), torch.Generator().manual_seed(seed)
    v = torch.randn(network.dim, generator=draws) / network.dim**0.5
    place, sign = torch.randint(SKETCH, (size,), generator=draws), 2.0 * torch.randint(2, (size,), generator=draws) - 1
    m = contexts or int(network.inputs.row.size)
    G = torch.zeros(m, min(SKETCH, size))
    with threads_for(torch, 0.0):
        for j in range(m):
            state = decoder.states(torch.tensor([j]))
            parts = torch.autograd.grad((state * v).sum(), weights, allow_unused=True, materialize_grads=True)
            g = torch.cat([part.flatten() for part in parts])
            if size > SKETCH:
                G[j].index_add_(0, place, sign * g)
            else:
                G[j] = g
            if advance is not None:
                advance(1.0)
    return np.asarray(G.numpy())


def _seconds(network: Network) -> float:
    """Seconds that the gradients of some contexts take."""
    contexts, began = min(TIMED, int(network.inputs.row.size)), time.perf_counter()
    gradients(network, 0, contexts=contexts)
    return (time.perf_counter() - began) * TIMED / contexts


def _root(K: Float) -> Float:
    """The symmetric root of a positive semidefinite matrix."""
    eigenvalues, Q = np.linalg.eigh(K)
    return np.asarray((Q * np.sqrt(np.maximum(eigenvalues, 0.0))) @ Q.T)
