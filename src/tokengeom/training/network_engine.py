"""Torch engine of networks: exact soft-label gradients, one flat buffer, a recorded step on a GPU, several processes.

All parameters are views into one flat buffer, and their gradients into another, so an elementwise rule is one pass over
everything; a rule for matrices gets each parameter in its own shape (a vector as a matrix of one column). The gradient
of the loss by the logits is computed explicitly, ``(softmax(L) - P) diag(pi)``, and propagated back from there.

``torchrun --nproc-per-node 4 -m tokengeom train STATS --model transformer --device cuda`` trains one network in four
processes, one per GPU. Each process takes a part of the contexts (or of a batch), their gradients
are added up, and only the first process writes files and prints.
"""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import nullcontext
from typing import Any

import numpy as np

from tokengeom.core.errors import ProblemError, ResourceError
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import Arrays, Float, Int
from tokengeom.core.processes import join_processes
from tokengeom.models.network import Network
from tokengeom.models.networks.base import checked_device, import_torch, threads_for
from tokengeom.training.loop import AbstractEngine
from tokengeom.training.objective import SoftLabels
from tokengeom.training.optimizers.base import AbstractOptimizer
from tokengeom.training.torch_engine import StepGraph

_BUFFERS = ("theta", "first", "second")


class NetworkEngine(AbstractEngine):
    """One network on one device.

    ``precision``
        ``float32`` or ``float64``; ``bfloat16`` keeps weights, logits, their gradient and the optimizer in float32 and
        computes the products of the body in bfloat16, so gradients have about three digits. W and H are computed in a
        pass without bfloat16.
    """

    replicates = 1

    def __init__(
        self,
        model: Network,
        labels: SoftLabels,
        optimizer: AbstractOptimizer,
        *,
        scale: float = 1.0,
        precision: str = "float32",
        device: str = "cpu",
        seed: int = 0,
        compiled: bool = False,
    ) -> None:
        self._torch = torch = import_torch()
        self.processes = join_processes(torch, device)
        self._device = checked_device(torch, self.processes.device)
        self._mixed = precision == "bfloat16"
        self._dtype = torch.float32 if self._mixed else getattr(torch, precision)
        self._model, self._optimizer = model, optimizer
        self._scale = scale
        model.decoder.to(device=self._device, dtype=self._dtype).train()
        if compiled:
            _require_compiler(self._device.type)
            model.decoder.body.compile()
        self._place_parameters()
        self._place_labels(labels)
        self._work = model.work
        self._alone = self.processes.world == 1
        if not self._alone:
            torch.distributed.broadcast(self._theta, 0)
        self._random = _RandomState(torch, self._device, seed + self.processes.rank)
        dropout = model.shape.attention_dropout > 0
        capture = self._device.type == "cuda" and optimizer.capturable and self._alone and not dropout
        changed = [self._flat(name) for name in _BUFFERS]
        self._graph = StepGraph(torch, self._device, self._step, changed) if capture else None

    def advance(self, table: Float, windows: list[Int] | None) -> None:
        """Make the steps one by one, or replay them from the recorded graph."""
        torch = self._torch
        rows = torch.as_tensor(table, dtype=self._dtype, device=self._device)
        drawn = None if windows is None else torch.as_tensor(self._own_part(windows[0]), device=self._device)
        with self._random, threads_for(torch, self._work):
            if self._graph is not None:
                self._graph.run(rows, drawn)
                return
            for t in range(table.shape[0]):
                self._step(rows[t], None if drawn is None else drawn[t])

    def _own_part(self, windows: Int) -> Int:
        """The windows of each step that this process takes, as many as every other process."""
        size, world = windows.shape[1], self.processes.world
        if size % world:
            raise ProblemError(f"batch must be a multiple of the {world} processes; got {size}.")
        return windows[:, self.processes.part(size)]

    def readout(self, replicate: int) -> Factors:
        """W and H, checked to reproduce the network's own logits."""
        with threads_for(self._torch, self._work):
            return self._model.readout()

    def kept(self, replicate: int) -> Arrays:
        return self._model.kept()

    def state(self) -> Arrays:
        """Parameters, optimizer slots, and the state of the generator that draws dropout."""
        arrays = {name: self._flat(name).cpu().numpy().copy() for name in _BUFFERS}
        return arrays | {"random": self._random.state}

    def load(self, state: Arrays) -> None:
        """Copy the state into the engine's own buffers, which parameters and graph refer to."""
        for name in _BUFFERS:
            self._flat(name).copy_(self._torch.as_tensor(np.array(state[name])))
        self._random.state = np.array(state["random"])

    def _flat(self, name: str) -> Any:
        return {"theta": self._theta, "first": self._first, "second": self._second}[name]

    def _place_parameters(self) -> None:
        torch = self._torch
        named = dict(self._model.decoder.named_parameters())
        size = sum(p.numel() for p in named.values())
        slots = self._optimizer.slots
        self._theta, self._gradient = self._zeros(size), self._zeros(size)
        self._first = self._zeros(size if slots > 0 else 0)
        self._second = self._zeros(size if slots > 1 else 0)
        self._spans: list[tuple[int, int, Any]] = []
        at = 0
        for parameter in named.values():
            span = slice(at, at + parameter.numel())
            with torch.no_grad():
                self._theta[span].copy_(parameter.reshape(-1))
            parameter.data = self._theta[span].view_as(parameter)
            parameter.grad = self._gradient[span].view_as(parameter)
            rows = parameter.shape[0]
            self._spans.append((span.start, span.stop, (rows, parameter.numel() // rows)))
            at = span.stop

    def _zeros(self, size: int) -> Any:
        return self._torch.zeros(size, dtype=self._dtype, device=self._device)

    def _place_labels(self, labels: SoftLabels) -> None:
        torch, device = self._torch, self._device
        self._context = torch.as_tensor(labels.context, device=device)
        self._token = torch.as_tensor(labels.token, device=device)
        weight = labels.weight * self._scale
        target = labels.share * weight[labels.context]
        self._parts = []
        for which in self._model.portions(self.processes.part(labels.m)):
            pairs = slice(int(labels.start[which.start]), int(labels.start[which.stop]))
            flat = (labels.context[pairs] - which.start) * labels.V + labels.token[pairs]
            column = torch.as_tensor(weight[which], dtype=self._dtype, device=device).unsqueeze(1)
            share = torch.as_tensor(target[pairs], dtype=self._dtype, device=device)
            self._parts.append((which, column, torch.as_tensor(flat, device=device), share))

    def _step(self, c: Any, drawn: Any) -> None:
        """One step: compute the gradients of all parameters, then apply the rule."""
        self._gradient.zero_()
        if drawn is None:
            for which, weight, flat, share in self._parts:
                self._propagate(which, lambda q, w=weight, f=flat, s=share: _minus_target(q.mul_(w), f, s))
        else:
            token = self._token[drawn].unsqueeze(1)
            share = self._scale / (drawn.shape[0] * self.processes.world)
            self._propagate(
                self._context[drawn],
                lambda q: q.scatter_add_(1, token, q.new_full(token.shape, -1.0)).mul_(share),
            )
        if not self._alone:
            # One sum of the flat buffer, on this thread. A DistributedDataParallel would keep threads of its group
            # until the interpreter ends, which now and then aborts the process.
            self._torch.distributed.all_reduce(self._gradient)
        if not self._optimizer.decoupled:
            self._gradient.add_(c[0] * self._theta)
        self._update(c)

    def _propagate(self, which: Any, gradient_of: Any) -> None:
        """Run the chosen contexts and propagate ``gradient_of(softmax(L))`` back to the parameters."""
        torch = self._torch
        mixed = torch.autocast(self._device.type, torch.bfloat16) if self._mixed else nullcontext()
        with mixed:
            logits = self._model.decoder(which)
        with torch.no_grad():
            gradient = gradient_of(torch.softmax(logits, 1))
        logits.backward(gradient)

    def _update(self, c: Any) -> None:
        rule = self._optimizer.torch_update
        with self._torch.no_grad():
            if not self._optimizer.matrixwise:
                norm = self._gradient.norm().view(1, 1) if self._optimizer.needs_norm else None
                theta, gradient = self._theta.unsqueeze(0), self._gradient.unsqueeze(0)
                rule(theta, gradient, self._first.unsqueeze(0), self._second.unsqueeze(0), c, norm)
                return
            for begin, end, shape in self._spans:
                x, g, first = (flat[begin:end].view(1, *shape) for flat in (self._theta, self._gradient, self._first))
                rule(x, g, first, None, c, None)


def _minus_target(q: Any, flat: Any, share: Any) -> Any:
    """``q - P diag(pi)``; each entry of P appears once, so no entry is subtracted twice."""
    entries = q.view(-1)
    entries[flat] = entries[flat] - share
    return q


def _require_compiler(device: str) -> None:
    """Refuse ``compiled`` before the first step where torch.compile would not find a compiler."""
    if device == "cpu":
        language, variable, usual = "C++", "CXX", ["clang++" if sys.platform == "darwin" else "g++"]
    else:
        language, variable, usual = "C", "CC", ["gcc", "clang"]
    names = [os.environ[variable]] if os.environ.get(variable) else usual
    if not any(map(shutil.which, names)):
        raise ResourceError(
            f"compiled needs a {language} compiler, and {' or '.join(names)} was not found. Install one, name yours in "
            f"the environment variable {variable}, or train without compiled."
        )


class _RandomState:
    """The engine's own state of torch's generator, in place while the engine works; the caller's is restored."""

    def __init__(self, torch: Any, device: Any, seed: int) -> None:
        self._torch, self._device = torch, device
        with self._forked():
            torch.manual_seed(seed)
            self.state = self._current()

    def __enter__(self) -> None:
        self._fork = self._forked()
        self._fork.__enter__()
        state = self._torch.as_tensor(self.state)
        if self._device.type == "cuda":
            self._torch.cuda.set_rng_state(state, self._device)
        else:
            self._torch.set_rng_state(state)

    def __exit__(self, *problem: Any) -> None:
        self.state = self._current()
        self._fork.__exit__(*problem)

    def _forked(self) -> Any:
        devices = [self._device] if self._device.type == "cuda" else []
        return self._torch.random.fork_rng(devices=devices)

    def _current(self) -> Any:
        cuda = self._device.type == "cuda"
        state = self._torch.cuda.get_rng_state(self._device) if cuda else self._torch.get_rng_state()
        return state.numpy().copy()
