"""Torch engine of factored models: many replicates in one batch, recorded as a CUDA graph on a GPU.

Replicates (seeds, dimensions) are stacked: W is R x V x d and K, the transpose of H, is R x m x d, with d the largest
dimension. Smaller dimensions are padded with zero columns, whose gradients are zero, so they stay zero under every
rule. All parameters are in one flat buffer, so an elementwise rule is one pass over all of them.

What all training in torch shares is here: `FlatParameters`, `PlacedLabels`, and `StepGraph`, which records steps once
as a CUDA graph and replays them, so that a step costs the host little. The module needs only torch and NumPy, and runs
on the CPU too, where it serves the tests.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
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


class FlatParameters:
    """Trained parameters of some replicates, their gradient and the optimizer's slots: R x n each, flat buffers.

    ``shapes``
        Rows and columns of each parameter by name, in their order in the buffers.
    ``theta``, ``gradient``, ``first``, ``second``
        The buffers; a slot that the optimizer does not keep has no columns.
    """

    def __init__(
        self, optimizer: AbstractOptimizer, replicates: int, shapes: Mapping[str, tuple[int, int]], **kind: Any
    ) -> None:
        torch = import_torch()
        self.optimizer, self.shapes = optimizer, shapes
        size, slots = sum(rows * columns for rows, columns in shapes.values()), optimizer.slots
        widths = size, size, size if slots > 0 else 0, size if slots > 1 else 0
        self.theta, self.gradient, self.first, self.second = (torch.zeros((replicates, n), **kind) for n in widths)

    @property
    def changed(self) -> dict[str, Any]:
        """What a step changes and the next one depends on, by name."""
        return {"theta": self.theta, "first": self.first, "second": self.second}

    def matrices(self, flat: Any) -> dict[str, Any]:
        """The part of a buffer that each parameter has, R x rows x columns, as views."""
        found, at = {}, 0
        for name, (rows, columns) in self.shapes.items():
            found[name] = flat[:, at : at + rows * columns].unflatten(1, (rows, -1))
            at += rows * columns
        return found

    def update(self, c: Any) -> None:
        """Apply the optimizer's rule to the gradient, with the coefficients of a step."""
        rule = self.optimizer
        if not rule.decoupled:
            self.gradient.add_(c[0] * self.theta)
        if rule.matrixwise:
            of_each = (self.matrices(flat).values() for flat in (self.theta, self.gradient, self.first))
            for x, g, first in zip(*of_each, strict=True):
                rule.torch_update(x, g, first, None, c, None)
            return
        norm = self.gradient.norm(dim=1, keepdim=True) if rule.needs_norm else None
        rule.torch_update(self.theta, self.gradient, self.first, self.second, c, norm)

    def keep(self, which: Any) -> None:
        """Go on with some of the replicates."""
        self.theta, self.gradient, self.first, self.second = (
            flat[which] for flat in (self.theta, self.gradient, self.first, self.second)
        )


class PlacedLabels:
    """Soft labels on a device, times the scale of the loss.

    ``context``, ``token``  Context and next token of each pair.
    """

    def __init__(self, labels: SoftLabels, scale: float, **kind: Any) -> None:
        self._torch = torch = import_torch()
        self._labels, self._kind = labels, kind
        self._weight = labels.weight * scale
        self._target = labels.share * self._weight[labels.context]
        self.context = torch.as_tensor(labels.context, device=kind["device"])
        self.token = torch.as_tensor(labels.token, device=kind["device"])

    def block(self, which: slice) -> tuple[Any, Any, Any]:
        """Weights of some contexts, k; place of each of their pairs in k x V logits, flat; and their shares."""
        torch, labels = self._torch, self._labels
        pairs = slice(int(labels.start[which.start]), int(labels.start[which.stop]))
        flat = (labels.context[pairs] - which.start) * labels.V + labels.token[pairs]
        weight, share = (torch.as_tensor(x, **self._kind) for x in (self._weight[which], self._target[pairs]))
        return weight, torch.as_tensor(flat, device=self._kind["device"]), share


class StepGraph:
    """Makes ``step(coefficients, windows)`` many times: on a GPU from a recording, where the optimizer allows one.

    Graphs of one step and of many are recorded when they are first needed; recording restores the parameters.
    """

    def __init__(self, step: Callable[[Any, Any], None], parameters: FlatParameters, *, capture: bool = True) -> None:
        self._torch, self._step, self._changed = import_torch(), step, list(parameters.changed.values())
        self._device, self._dtype = parameters.theta.device, parameters.theta.dtype
        self._capture = capture and self._device.type == "cuda" and parameters.optimizer.capturable
        self._recorded: dict[int, tuple[Any, Any, Any]] = {}

    def run(self, table: Float, windows: Int | None) -> None:
        """Make one step per row of coefficients; ``windows`` are those of each step, or None."""
        rows = self._torch.as_tensor(table, dtype=self._dtype, device=self._device)
        drawn = None if windows is None else self._torch.as_tensor(windows, device=self._device)
        done, steps = 0, rows.shape[0]
        if not self._capture:
            for t in range(steps):
                self._step(rows[t], None if drawn is None else drawn[t])
            return
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
        torch = import_torch("torch", "Training on a GPU, or many replicates in one batch,")
        self._torch, self._device = torch, checked_device(torch, device)
        if len({model.trainable for model in models}) != 1:
            raise ProblemError("All replicates of one batched run must train the same parameters.")
        self._batch, self._scale = batch, scale
        self._dims = [model.dim for model in models]
        self.replicates = len(models)
        self._kind = {"dtype": getattr(torch, np.dtype(dtype).name), "device": self._device}
        self._place_parameters(models, labels, optimizer)
        self._place_labels(labels)
        self._graph = StepGraph(self._step, self._parameters)

    def advance(self, table: Float, windows: list[Int] | None) -> None:
        """Replay the recorded graph, or make the steps one by one where nothing can be recorded."""
        self._graph.run(table, None if windows is None else np.stack(windows, 1))

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

    @property
    def _buffers(self) -> dict[str, Any]:
        return {**self._parameters.changed, "fixed": self._fixed}

    def state(self) -> Arrays:
        return {name: tensor.cpu().numpy().copy() for name, tensor in self._buffers.items()}

    def load(self, state: Arrays) -> None:
        for name, tensor in self._buffers.items():
            tensor.copy_(self._torch.as_tensor(np.array(state[name])))

    def _place_parameters(
        self, models: Sequence[AbstractFactoredModel], labels: SoftLabels, optimizer: AbstractOptimizer
    ) -> None:
        d, trained = max(self._dims), models[0].trainable
        shapes = {"W": (labels.V, d), "H": (labels.m, d)}
        self._parameters = FlatParameters(
            optimizer, self.replicates, {name: shapes[name] for name in trained}, **self._kind
        )
        self._gradients = self._parameters.matrices(self._parameters.gradient)
        fixed = {name: shape for name, shape in shapes.items() if name not in trained}
        size = sum(rows * columns for rows, columns in fixed.values())
        self._fixed = self._torch.zeros((self.replicates, size), **self._kind)
        matrices = self._parameters.matrices(self._parameters.theta)
        matrices |= {name: self._fixed.unflatten(1, shape) for name, shape in fixed.items()}
        self._W, self._K = matrices["W"], matrices["H"]
        for r, model in enumerate(models):
            self._W[r, :, : model.dim] = self._torch.as_tensor(model.W)
            self._K[r, :, : model.dim] = self._torch.as_tensor(model.H.T.copy())

    def _place_labels(self, labels: SoftLabels) -> None:
        self._labels = PlacedLabels(labels, self._scale, **self._kind)
        weight, flat, share = self._labels.block(slice(0, labels.m))
        self._weight = weight.unsqueeze(1)
        self._minus_target = self._torch.zeros((labels.m, labels.V), **self._kind)
        self._minus_target.view(-1)[flat] = -share

    def _step(self, c: Any, drawn: Any) -> None:
        """One step of all replicates: write the gradient into the flat buffer, then apply the rule."""
        if drawn is None:
            q = self._torch.softmax(self._K @ self._W.mT, -1)
            G = self._torch.addcmul(self._minus_target, q, self._weight)
            self._write_gradient(G, self._K, None)
        else:
            self._sampled_gradient(drawn)
        self._parameters.update(c)

    def _sampled_gradient(self, drawn: Any) -> None:
        context, token = self._labels.context[drawn], self._labels.token[drawn]
        index = context.unsqueeze(-1).expand(-1, -1, self._K.shape[2])
        K = self._K.gather(1, index)
        G = self._torch.softmax(K @ self._W.mT, -1)
        G.scatter_add_(2, token.unsqueeze(-1), self._torch.full_like(G[..., :1], -1.0))
        self._write_gradient(G.mul_(self._scale / drawn.shape[1]), K, index)

    def _write_gradient(self, G: Any, K: Any, index: Any) -> None:
        if "W" in self._gradients:
            self._torch.bmm(G.mT, K, out=self._gradients["W"])
        if "H" in self._gradients:
            gK = self._gradients["H"]
            if index is None:
                self._torch.bmm(G, self._W, out=gK)
            else:
                gK.zero_().scatter_add_(1, index, G @ self._W)
