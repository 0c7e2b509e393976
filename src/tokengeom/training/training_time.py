"""Time and memory of training: memory from the sizes of its arrays, time from the first second of the run itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tokengeom.core.resources import fewer_contexts, require_memory
from tokengeom.models.devices import threads_for
from tokengeom.models.networks.base import import_torch

if TYPE_CHECKING:
    from tokengeom.models.network import Network
    from tokengeom.training.objective import SoftLabels

ENOUGH = 2.0
"""Seconds of training after which the rest of it is estimated."""
PASSED = 64
"""Contexts with which the memory of a network's activations is measured."""
LOGIT_ARRAYS, FACTOR_ARRAYS = 7, 8
"""Arrays of float64 held at the peak: V x m, and (V + m) x d."""
BLOCK_WORK, MOST_BLOCKS = 16e6, 64
"""Work of a block of contexts on the CPU and the largest number of blocks: each has its own V x d gradient."""
ACTIVATIONS = 1.5
"""Peak of the activations over what is kept of them for the backward pass."""
CODE, NETWORK_CODE = 10**8, 4 * 10**8
"""Bytes of compiled code and of the libraries themselves, for factored models and for networks."""


@dataclass
class Pace:
    """Seconds per step and per record of a run, measured on what has been done of it.

    The first portion of steps and the first record are left out: they may compile and load code. Of the portions, only
    the later half counts: a GPU records its steps in the earlier ones.
    """

    enough: float = ENOUGH
    portions: list[tuple[int, float]] = field(default_factory=list)
    records: list[float] = field(default_factory=list)
    measured: float = 0.0

    @property
    def known(self) -> bool:
        """Whether ``enough`` seconds of steps have been measured."""
        return self.measured >= self.enough

    def add_steps(self, count: int, seconds: float) -> None:
        """Add a portion of steps, unless the pace is known already."""
        if not self.known:
            self.measured += seconds if self.portions else 0.0
            self.portions.append((count, seconds))

    def add_record(self, seconds: float) -> None:
        """Add a record, unless the pace is known already."""
        if not self.known:
            self.records.append(seconds)

    def seconds(self, steps: int, records: int) -> float:
        """Expected seconds of so many steps and records."""
        portions = self.portions[1:] or self.portions
        half = sum(seconds for _, seconds in portions) / 2.0
        made, spent = 0, 0.0
        for count, seconds in reversed(portions):
            made, spent = made + count, spent + seconds
            if spent >= half:
                break
        kept = self.records[1:] or self.records
        return steps * spent / max(made, 1) + (records * float(np.mean(kept)) if kept else 0.0)


def factored_bytes(labels: SoftLabels, dims: Sequence[int], *, device: str = "cpu", itemsize: int = 8) -> int:
    """Bytes that training of factored models holds at its peak, on its device; ``itemsize`` is that of a GPU's."""
    V, m, d = labels.V, labels.m, sum(dims)
    if device == "cpu":
        blocks = min(max(round(6.0 * V * m * d / BLOCK_WORK), 1), MOST_BLOCKS)
        return 8 * (LOGIT_ARRAYS * V * m + FACTOR_ARRAYS * (V + m) * d + blocks * V * d) + CODE
    return itemsize * (4 * len(dims) * V * m + FACTOR_ARRAYS * (V + m) * d) + CODE


def network_bytes(model: Network, labels: SoftLabels, batch: int | None) -> int:
    """Bytes that training of a network holds at its peak, from the activations of a few contexts."""
    parameters = sum(p.numel() * p.element_size() for p in model.decoder.parameters())
    largest = max((part.stop - part.start for part in model.portions()), default=0)
    together = min(largest, batch or largest)
    activations = ACTIVATIONS * together * _bytes_per_context(model)
    logits = 4 * 4 * labels.V * together
    measured = 8 * LOGIT_ARRAYS * labels.V * labels.m
    return int(max(activations + logits, measured) + 5 * parameters + NETWORK_CODE)


def _bytes_per_context(model: Network) -> float:
    """Bytes that a forward pass keeps per context for the backward pass."""
    torch = import_torch()
    contexts = min(PASSED, int(model.inputs.row.size))
    parameters = {p.untyped_storage().data_ptr() for p in model.decoder.parameters()}
    kept = {}

    def keep(tensor: object) -> object:
        storage = tensor.untyped_storage()  # type: ignore[attr-defined]
        # The tensor is kept too, so that no other one gets its address while the pass goes on.
        kept[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with torch.random.fork_rng(devices=[]), threads_for(torch, 0.0), hooks:
        model.decoder(torch.arange(contexts))
    return float(sum(size for place, (size, _) in kept.items() if place not in parameters)) / contexts


def require_training_memory(labels: SoftLabels, needed: int, dims: Sequence[int], device: str) -> None:
    """Refuse a run that would not fit in memory, with an offer of one that does."""
    require_memory(
        needed,
        f"Training on V={labels.V:,} tokens and m={labels.m:,} contexts in {sum(dims):,} dimensions",
        lambda share: f"{fewer_contexts(share, labels.m)}, or use a smaller vocabulary or fewer dimensions.",
        device=device,
    )
