"""Several processes that train one network together, as PyTorch's own launcher starts them.

``torchrun --nproc-per-node 4 -m tokengeom train STATS --model transformer --device cuda`` starts four of them, one a
GPU. Each takes a part of the contexts (or of a batch), PyTorch's DistributedDataParallel averages the gradients, and
the first alone writes and speaks.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Processes:
    """One process among others: its number from 0, how many there are, and the device it works on."""

    rank: int
    world: int
    device: str

    def part(self, size: int) -> slice:
        """Share of ``size`` things, in order, that falls to this process; shares differ by one at most."""
        return slice(self.rank * size // self.world, (self.rank + 1) * size // self.world)


def join_processes(torch: Any, device: str) -> Processes:
    """Join the processes that the launcher named in the environment; alone where there is none."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        return Processes(0, 1, device)
    cuda = device.startswith("cuda")
    if cuda:
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("nccl" if cuda else "gloo")
    return Processes(torch.distributed.get_rank(), world, device)
