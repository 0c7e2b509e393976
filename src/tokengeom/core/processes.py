"""Processes: signals that end this one, and those that a launcher such as ``torchrun`` starts to work together."""

from __future__ import annotations

import atexit
import os
import signal
from dataclasses import dataclass
from types import FrameType
from typing import Any

from tokengeom.core.errors import ResourceError


class Interruption:
    """Whether a signal asked this process to end; any error after that is a consequence of it.

    ``too_late``  Whether the process is ending anyway: a signal then changes the exit code alone.
    """

    arrived = False
    too_late = False


def interrupt(number: int, frame: FrameType | None) -> None:
    """Handle a signal that ends the process: raise KeyboardInterrupt, and remember it."""
    Interruption.arrived = True
    if not Interruption.too_late:
        raise KeyboardInterrupt


def handle_signals() -> None:
    """Let SIGTERM and Ctrl-C interrupt this process; Ctrl-C stays ignored where a shell has it ignored."""
    signal.signal(signal.SIGTERM, interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)


def interrupts(handler: object) -> bool:
    """Whether a handler of signals raises KeyboardInterrupt; other programs have handlers of their own."""
    return handler in (signal.default_int_handler, interrupt)


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
