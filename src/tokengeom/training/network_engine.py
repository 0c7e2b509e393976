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
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from tokengeom.core.errors import ProblemError, ResourceError
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import Arrays, Float, Int
from tokengeom.core.system import join_processes
from tokengeom.models.network import Network
from tokengeom.models.networks.base import checked_device, import_torch, threads_for
from tokengeom.training.loop import AbstractEngine
from tokengeom.training.objective import SoftLabels
from tokengeom.training.optimizers.base import AbstractOptimizer
from tokengeom.training.torch_engine import FlatParameters, PlacedLabels, StepGraph


class NetworkEngine(AbstractEngine):
    """One network on one device.

    ``precision``  ``float32`` or ``float64``; ``bfloat16`` keeps weights, logits, their gradient and the optimizer in
                   float32 and computes the products of the body in bfloat16, so gradients have about three digits. W
                   and H are computed in a pass without bfloat16.
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
        self._model, self._scale = model, scale
        self._kind = {"dtype": self._dtype, "device": self._device}
        model.decoder.to(**self._kind).train()
        if compiled:
            _require_compiler(self._device.type)
            model.decoder.body.compile()
        self._place_parameters(optimizer)
        self._labels = PlacedLabels(labels, scale, **self._kind)
        portions = model.portions(self.processes.part(labels.m))
        self._parts = [(which, *self._labels.block(which)) for which in portions]
        self._work = model.work
        self._alone = self.processes.world == 1
        if not self._alone:
            torch.distributed.broadcast(self._parameters.theta, 0)
        # Seeded in any case, since the state is saved; only dropout draws from it.
        own = torch.Generator(self._device).manual_seed(seed + self.processes.rank)
        self._random = own.get_state().numpy().copy()
        capture = self._alone and model.shape.attention_dropout == 0
        self._graph = StepGraph(self._step, self._parameters, capture=capture)

    def advance(self, table: Float, windows: list[Int] | None) -> None:
        """Make the steps one by one, or replay them from the recorded graph."""
        with self._own_random(), threads_for(self._torch, self._work):
            self._graph.run(table, None if windows is None else self._own_part(windows[0]))

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
        arrays = {name: flat[0].cpu().numpy().copy() for name, flat in self._parameters.changed.items()}
        return arrays | {"random": self._random}

    def load(self, state: Arrays) -> None:
        """Copy the state into the engine's own buffers, which parameters and graph refer to."""
        for name, flat in self._parameters.changed.items():
            flat[0].copy_(self._torch.as_tensor(np.array(state[name])))
        self._random = np.array(state["random"])

    @contextmanager
    def _own_random(self) -> Iterator[None]:
        """The engine's own state of torch's generator; afterwards, that of the caller is restored."""
        torch = self._torch
        generator = torch.default_generator
        if self._device.type == "cuda":
            generator = torch.cuda.default_generators[self._parameters.theta.device.index]
        before = generator.get_state()
        generator.set_state(torch.as_tensor(self._random))
        try:
            yield
        finally:
            self._random = generator.get_state().numpy().copy()
            generator.set_state(before)

    def _place_parameters(self, optimizer: AbstractOptimizer) -> None:
        """Make the network's parameters, and their gradients, views into the flat buffers."""
        own = dict(self._model.decoder.named_parameters())
        shapes = {name: (len(each), each.numel() // len(each)) for name, each in own.items()}
        flat = self._parameters = FlatParameters(optimizer, 1, shapes, **self._kind)
        theta, gradient = flat.matrices(flat.theta), flat.matrices(flat.gradient)
        for name, parameter in own.items():
            theta[name].copy_(parameter.detach().reshape(theta[name].shape))
            parameter.data, parameter.grad = (x[name].view_as(parameter) for x in (theta, gradient))

    def _step(self, c: Any, drawn: Any) -> None:
        """One step: compute the gradients of all parameters, then apply the rule."""
        gradient = self._parameters.gradient
        gradient.zero_()
        if drawn is None:
            for which, weight, flat, share in self._parts:
                self._propagate(which, lambda q, w=weight, f=flat, s=share: _minus_target(q.mul_(w[:, None]), f, s))
        else:
            token = self._labels.token[drawn].unsqueeze(1)
            share = self._scale / (drawn.shape[0] * self.processes.world)
            self._propagate(
                self._labels.context[drawn],
                lambda q: q.scatter_add_(1, token, q.new_full(token.shape, -1.0)).mul_(share),
            )
        if not self._alone:
            # One sum of the flat buffer, on this thread. A DistributedDataParallel would keep threads of its group
            # until the interpreter ends, which now and then aborts the process.
            self._torch.distributed.all_reduce(gradient)
        with self._torch.no_grad():
            self._parameters.update(c)

    def _propagate(self, which: Any, gradient_of: Any) -> None:
        """Run the chosen contexts and propagate ``gradient_of(softmax(L))`` back to the parameters."""
        torch = self._torch
        mixed = torch.autocast(self._device.type, torch.bfloat16) if self._mixed else nullcontext()
        with mixed:
            logits = self._model.decoder(which)
        with torch.no_grad():
            gradient = gradient_of(torch.softmax(logits, 1))
        logits.backward(gradient)


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
