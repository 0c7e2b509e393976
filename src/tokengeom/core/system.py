"""The operating system: plain files, signals, and processes that a launcher such as ``torchrun`` starts together."""

from __future__ import annotations

import atexit
import hashlib
import os
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

from tokengeom.core.errors import InputError, ResourceError

_KINDS_OF_FILE = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link",
}


def require_regular(path: Path) -> None:
    """Refuse a pipe, a socket, a device or a folder where a file is needed; opening one of them may wait for ever.

    A file that this user may not read is refused too: libraries call it damaged or say that it does not exist.
    A link to a file is accepted. A path where nothing is passes: opening it gives the usual error.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return
    if not stat.S_ISREG(mode):
        raise InputError(f"A file is needed; {path} is {kind_of_file(mode)}. Check the path.")
    if not os.access(path, os.R_OK):
        raise not_permitted(path)


def kind_of_file(mode: int) -> str:
    """What a path is, such as "a named pipe", from its mode."""
    return _KINDS_OF_FILE.get(stat.S_IFMT(mode), "a plain file")


@contextmanager
def open_plain(path: Path, *, links: bool = False) -> Iterator[BinaryIO]:
    """Open a plain file for reading; a pipe and everything else is refused, without waiting for it.

    ``links``  Whether the path may be a link to a plain file, as a file that a user names may be.
    """
    try:
        follow = 0 if links else getattr(os, "O_NOFOLLOW", 0)
        descriptor = os.open(path, os.O_RDONLY | follow | getattr(os, "O_NONBLOCK", 0))
    except (FileNotFoundError, NotADirectoryError):
        raise
    except PermissionError as error:
        raise not_permitted(path) from error
    except OSError as error:
        why = kind_of_file(path.lstat().st_mode)
        raise InputError(f"{path} cannot be read: it is {why} ({error.strerror}).") from error
    with os.fdopen(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise InputError(f"{path} cannot be read: it is {kind_of_file(mode)}, and a plain file is needed.")
        yield file


def not_permitted(path: Path) -> InputError:
    """The error for a file or folder that is there and that this user may not read."""
    return InputError(
        f"{path} may not be read by this user (permission denied). Change its permissions (chmod u+r, for a folder "
        "chmod u+rx), or ask its owner."
    )


def file_hash(path: Path, *, links: bool = True) -> str:
    """SHA-256 of a plain file, or, with ``links``, of the one that a link points to."""
    with open_plain(path, links=links) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def is_plain_name(name: str) -> bool:
    """Whether a text is the name of a file or folder, without a path."""
    return name not in ("", ".", "..") and not set(name) & {"/", "\\", "\0"}


class Interruption:
    """Whether a signal asked this process to end; any error after that is a consequence of it.

    ``too_late``  Whether the process is ending anyway: a signal then changes the exit code alone.
    ``ends_all``  Whether a training is one of several in one result, which must not be made from an unfinished one.
    """

    arrived = False
    too_late = False
    ends_all = False


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


@contextmanager
def interruption_ends_all() -> Iterator[None]:
    """A context in which an interrupted training raises KeyboardInterrupt instead of returning the run so far."""
    Interruption.ends_all = True
    try:
        yield
    finally:
        Interruption.ends_all = False


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
