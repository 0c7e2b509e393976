"""A training that its caller advances, a few steps at a time, and whose factors stay on the device.

`train` runs to its last step and records on the way. Where the next steps depend on what the last ones gave (a loss
that is to be met, a learning rate that follows the loss, windows in an order of the caller's own) the caller makes them
with the same engines.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tokengeom import NextTokenStatistics, TrainingSettings
from tokengeom.extending import (
    UFM,
    Network,
    NetworkEngine,
    SoftLabels,
    TorchEngine,
    WindowSampler,
    build_network,
    import_torch,
    threads_for,
)


class SteppedTraining:
    """A training on one torch device: networks in the precision of the settings, other models in float32.

    ``settings``
        Settings of `train`; ``steps``, records and checkpoints have no meaning here.
    ``network``
        A network of the caller's own; by default that of the settings.
    ``start_scale``
        Factor on the random start of unconstrained features.
    ``labels``
        What is trained on; by default everything that the statistics have.
    """

    def __init__(
        self,
        stats: NextTokenStatistics,
        settings: TrainingSettings,
        *,
        device: str = "cpu",
        network: Network | None = None,
        start_scale: float = 1.0,
        labels: SoftLabels | None = None,
    ) -> None:
        self.torch = import_torch()
        self.settings, self.step, self.network = settings, 0, network
        labels, self.optimization = labels or SoftLabels.from_statistics(stats), settings.optimization()
        optimizer = self.optimization.optimizer
        scale = float(labels.windows) if settings.reduction == "sum" else 1.0
        streams = [np.random.default_rng(child) for child in np.random.SeedSequence(settings.seed).spawn(2)]
        self._sampler = WindowSampler(labels, streams[1]) if settings.batch else None
        self._work = 3.0 * labels.V * labels.m * (settings.dim or 0)
        if settings.is_network and self.network is None:
            self.network = build_network(stats, settings)
        if self.network is not None:
            self.engine: NetworkEngine | TorchEngine = NetworkEngine(
                self.network,
                labels,
                optimizer,
                scale=scale,
                precision=settings.precision or "float32",
                device=device,
                seed=settings.seed,
                compiled=settings.compiled,
            )
            return
        model = UFM(labels.V, labels.m, settings.dim or 0, init=settings.init, generator=streams[0])
        model.W, model.H = start_scale * model.W, start_scale * model.H
        self.engine = TorchEngine(
            [model], labels, optimizer, scale=scale, batch=settings.batch, dtype=np.float32, device=device
        )

    def advance(self, steps: int, *, rate: float = 1.0, windows: Any = None) -> None:
        """Make steps; ``rate`` multiplies the learning rate, ``windows`` (steps x batch) replaces sampled ones."""
        table = np.array(self.optimization.coefficients(self.step, self.step + steps))
        if rate != 1.0:
            done = np.arange(self.step, self.step + steps, dtype=np.float64)
            rates = rate * self.optimization.learning_rate * np.ones(steps)
            table = self.optimization.optimizer.coefficients(done + 1.0, rates, 0.0 * rates)
        if windows is None and self._sampler is not None:
            windows = self._sampler.draw(steps, self.settings.batch or 0)
        with _fast_products(self.torch, self.network is not None), threads_for(self.torch, self._work):
            self.engine.advance(table, None if windows is None else [windows])
        self.step += steps

    def factors(self) -> tuple[Any, Any]:
        """W (V x d) and H (d x m) on the device; views of the parameters where they are parameters."""
        if self.network is None:
            assert isinstance(self.engine, TorchEngine), "only networks have another engine"
            return self.engine.tensors(0)
        decoder = self.network.decoder
        decoder.eval()
        with self.torch.no_grad():
            K = self.torch.cat([decoder.states(which) for which in self.network.portions()])
        decoder.train()
        return decoder.W.detach().float(), K.float().mT


@contextmanager
def _fast_products(torch: Any, wanted: bool) -> Iterator[None]:
    """Products with 10 bits of mantissa (TF32) on a GPU, where wanted; measurements are made without them."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = wanted
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
