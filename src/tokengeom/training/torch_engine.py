"""Torch engine of factored models: many replicates in one batch, recorded as a CUDA graph on a GPU.

Replicates (seeds, dimensions) are stacked: W is R x V x d and K, the transpose of H, is R x m x d, with d the largest
dimension. Smaller dimensions are padded with zero columns, whose gradients are zero, so they stay zero under every
rule. All parameters are in one flat buffer, so an elementwise rule is one pass over all of them.

`StepGraph` records training steps once as a CUDA graph and replays them, which costs the host little per step. The
module needs only torch and NumPy, and runs on the CPU too, where it serves the tests.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tokengeom.core.errors import ProblemError
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import Arrays, Float, Int
from tokengeom.models.factored import AbstractFactoredModel
from tokengeom.models.networks.base import checked_device, import_torch
from tokengeom.training.loop import AbstractEngine
from tokengeom.training.objective import SoftLabels
from tokengeom.training.optimizers.base import AbstractOptimizer

# Steps per replay of the long graph.
_UNROLL = 16
# Steps made on a side stream before recording, which CUDA requires.
_WARM_UP = 3


class StepGraph:
    """Replays ``step(coefficients, windows)``; ``changed`` are the tensors that a step changes.

    Graphs of one step and of many are recorded when they are first needed; recording restores the changed tensors.
    """

    def __init__(self, torch: Any, device: Any, step: Callable[[Any, Any], None], changed: Sequence[Any]) -> None:
        self._torch, self._device, self._step, self._changed = torch, device, step, changed
        self._recorded: dict[int, tuple[Any, Any, Any]] = {}

    def run(self, rows: Any, drawn: Any) -> None:
        """Make one step per row of coefficients; ``drawn`` has the windows of each step, or is None."""
        done, steps = 0, rows.shape[0]
        while done < steps:
            count = _UNROLL if steps - done >= _UNROLL else 1
            part = slice(done, done + count)
            self._replay(rows[part], None if drawn is None else drawn[part])
            done += count
        self._torch.cuda.synchronize(self._device)

    def _replay(self, rows: Any, drawn: Any) -> None:
        count = rows.shape[0]
        if count not in self._recorded:
            self._recorded[count] = self._record(rows, drawn)
        graph, static_rows, static_drawn = self._recorded[count]
        static_rows.copy_(rows)
        if drawn is not None:
            static_drawn.copy_(drawn)
        graph.replay()

    def _record(self, rows: Any, drawn: Any) -> tuple[Any, Any, Any]:
        torch = self._torch
        static_rows, static_drawn = rows.clone(), None if drawn is None else drawn.clone()
        kept = [x.clone() for x in self._changed]
        stream = torch.cuda.Stream(self._device)
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP):
                self._step(static_rows[0], None if static_drawn is None else static_drawn[0])
        torch.cuda.current_stream(self._device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with _no_collection(), torch.cuda.graph(graph):
            for t in range(rows.shape[0]):
                self._step(static_rows[t], None if static_drawn is None else static_drawn[t])
        for x, old in zip(self._changed, kept, strict=True):
            x.copy_(old)
        return graph, static_rows, static_drawn


@contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage collection: it could free the graph of an earlier run, which would invalidate the recording."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class TorchEngine(AbstractEngine):
    """Several replicates of one kind of factored model, on any torch device."""

    def __init__(
        self,
        models: Sequence[AbstractFactoredModel],
        labels: SoftLabels,
        optimizer: AbstractOptimizer,
        *,
        scale: float = 1.0,
        batch: int | None = None,
        dtype: Any = np.float64,
        device: str = "cpu",
    ) -> None:
        self._torch = torch = import_torch("torch", "Training on a GPU, or many replicates in one batch,")
        self._device = checked_device(torch, device)
        if len({model.trainable for model in models}) != 1:
            raise ProblemError("All replicates of one batched run must train the same parameters.")
        self._optimizer, self._batch, self._scale = optimizer, batch, scale
        self._dtype = getattr(torch, np.dtype(dtype).name)
        self._dims = [model.dim for model in models]
        self._trainable = models[0].trainable
        self.replicates = len(models)
        self._place_parameters(models, labels)
        self._place_labels(labels)
        capture = self._device.type == "cuda" and optimizer.capturable
        changed = (self._theta, self._first, self._second)
        self._graph = StepGraph(torch, self._device, self._step, changed) if capture else None

    def advance(self, table: Float, windows: list[Int] | None) -> None:
        """Replay the recorded graph, or make the steps one by one where nothing can be recorded."""
        torch = self._torch
        rows = torch.as_tensor(table, dtype=self._dtype, device=self._device)
        drawn = None if windows is None else torch.as_tensor(np.stack(windows, 1), device=self._device)
        if self._graph is not None:
            self._graph.run(rows, drawn)
            return
        for t in range(table.shape[0]):
            self._step(rows[t], None if drawn is None else drawn[t])

    def tensors(self, replicate: int) -> tuple[Any, Any]:
        """W (V x d) and H (d x m) of one replicate where they are, as views that change with the next step."""
        d = self._dims[replicate]
        return self._W[replicate, :, :d], self._K[replicate, :, :d].mT

    def readout(self, replicate: int) -> Factors:
        """W and H of one replicate, without the padding."""
        d = self._dims[replicate]
        # Without a copy, arrays on a CPU would go on changing with the parameters.
        W = self._W[replicate, :, :d].cpu().double().numpy().copy()
        K = self._K[replicate, :, :d].cpu().double().numpy().copy()
        return Factors(W, np.ascontiguousarray(K.T))

    def state(self) -> Arrays:
        flat = {"theta": self._theta, "fixed": self._fixed, "first": self._first, "second": self._second}
        return {name: tensor.cpu().numpy().copy() for name, tensor in flat.items()}

    def load(self, state: Arrays) -> None:
        flat = {"theta": self._theta, "fixed": self._fixed, "first": self._first, "second": self._second}
        for name, tensor in flat.items():
            tensor.copy_(self._torch.as_tensor(np.array(state[name])))

    def _place_parameters(self, models: Sequence[AbstractFactoredModel], labels: SoftLabels) -> None:
        d = max(self._dims)
        rows = {"W": labels.V, "H": labels.m}
        size = {name: count * d for name, count in rows.items()}
        trained = sum(size[name] for name in self._trainable)
        slots = self._optimizer.slots
        self._theta, self._gradient = self._zeros(trained), self._zeros(trained)
        self._fixed = self._zeros(sum(size.values()) - trained)
        self._first = self._zeros(trained if slots > 0 else 0)
        self._second = self._zeros(trained if slots > 1 else 0)
        self._spans: dict[str, tuple[int, int, int]] = {}
        at = 0
        for name in self._trainable:
            self._spans[name] = (at, at + size[name], rows[name])
            at += size[name]
        self._W = self._matrix("W", self._theta) if "W" in self._spans else self._fixed.view(-1, rows["W"], d)
        self._K = self._matrix("H", self._theta) if "H" in self._spans else self._fixed.view(-1, rows["H"], d)
        for r, model in enumerate(models):
            self._W[r, :, : model.dim] = self._torch.as_tensor(model.W, dtype=self._dtype)
            self._K[r, :, : model.dim] = self._torch.as_tensor(model.H.T.copy(), dtype=self._dtype)

    def _place_labels(self, labels: SoftLabels) -> None:
        torch, device = self._torch, self._device
        self._context = torch.as_tensor(labels.context, device=device)
        self._token = torch.as_tensor(labels.token, device=device)
        weight = torch.as_tensor(labels.weight * self._scale, dtype=self._dtype, device=device)
        self._weight = weight.unsqueeze(1)
        self._minus_target = torch.zeros((labels.m, labels.V), dtype=self._dtype, device=device)
        share = torch.as_tensor(labels.share, dtype=self._dtype, device=device)
        self._minus_target[self._context, self._token] = -share * weight[self._context]

    def _zeros(self, size: int) -> Any:
        return self._torch.zeros((self.replicates, size), dtype=self._dtype, device=self._device)

    def _matrix(self, name: str, flat: Any) -> Any:
        begin, end, rows = self._spans[name]
        return flat[:, begin:end].unflatten(1, (rows, -1))

    def _step(self, c: Any, drawn: Any) -> None:
        """One step of all replicates: write the gradient into the flat buffer, then apply the rule."""
        if drawn is None:
            q = self._torch.softmax(self._K @ self._W.mT, -1)
            G = self._torch.addcmul(self._minus_target, q, self._weight)
            self._write_gradient(G, self._K, None)
        else:
            self._sampled_gradient(drawn)
        if not self._optimizer.decoupled:
            self._gradient.add_(c[0] * self._theta)
        norm = self._gradient.norm(dim=1, keepdim=True) if self._optimizer.needs_norm else None
        if self._optimizer.matrixwise:
            self._update_matrices(c)
        else:
            self._optimizer.torch_update(self._theta, self._gradient, self._first, self._second, c, norm)

    def _sampled_gradient(self, drawn: Any) -> None:
        context, token = self._context[drawn], self._token[drawn]
        index = context.unsqueeze(-1).expand(-1, -1, self._K.shape[2])
        K = self._K.gather(1, index)
        G = self._torch.softmax(K @ self._W.mT, -1)
        G.scatter_add_(2, token.unsqueeze(-1), self._torch.full_like(G[..., :1], -1.0))
        self._write_gradient(G.mul_(self._scale / drawn.shape[1]), K, index)

    def _write_gradient(self, G: Any, K: Any, index: Any) -> None:
        if "W" in self._spans:
            self._torch.bmm(G.mT, K, out=self._matrix("W", self._gradient))
        if "H" in self._spans:
            gK = self._matrix("H", self._gradient)
            if index is None:
                self._torch.bmm(G, self._W, out=gK)
            else:
                gK.zero_().scatter_add_(1, index, G @ self._W)

    def _update_matrices(self, c: Any) -> None:
        for name in self._spans:
            x, g, first = (self._matrix(name, flat) for flat in (self._theta, self._gradient, self._first))
            self._optimizer.torch_update(x, g, first, None, c, None)
