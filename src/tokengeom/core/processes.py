"""Processes that compute one result together, started by a launcher such as ``torchrun``."""

from __future__ import annotations

import atexit
import os
from dataclasses import dataclass
from typing import Any

from tokengeom.core.errors import ResourceError


@dataclass(frozen=True)
class Processes:
    """One process among others: its number from 0, how many there are, and the device that it uses."""

    rank: int
    world: int
    device: str

    def part(self, size: int) -> slice:
        """The part of ``size`` items that this process takes; parts differ in size by one at most."""
        return slice(self.rank * size // self.world, (self.rank + 1) * size // self.world)


def launched_processes() -> int:
    """Number of processes that a launcher has started; 1 without a launcher."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def join_processes(torch: Any, device: str) -> Processes:
    """Join the processes that a launcher has started; without a launcher there is one process."""
    world = launched_processes()
    if world == 1:
        return Processes(0, 1, device)
    cuda = device.startswith("cuda")
    if cuda:
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        torch.cuda.set_device(device)
    if not torch.distributed.is_initialized():
        try:
            torch.distributed.init_process_group("nccl" if cuda else "gloo")
        except ValueError as error:
            raise ResourceError(
                f"WORLD_SIZE={world} asks for {world} processes, and they cannot be joined: {error}. Start them with "
                "torchrun, or unset WORLD_SIZE."
            ) from error
        atexit.register(_leave, torch)
    return Processes(torch.distributed.get_rank(), world, device)


def _leave(torch: Any) -> None:
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
