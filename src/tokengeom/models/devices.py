"""Devices of torch: asked for by name, refused in words where they are not there; how many threads work on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tokengeom.errors import ProblemError, ResourceError


def checked_device(torch: Any, device: str) -> Any:
    """Return the torch device of that name, if this machine has it."""
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise ProblemError(f"device must be 'cpu' or 'cuda' (or 'cuda:1'); got {device!r}.") from error
    if found.type == "cuda" and not torch.cuda.is_available():
        raise ResourceError(
            f"device {device!r} was asked for, but torch {torch.__version__} sees no CUDA device. Use device='cpu', "
            f"or install a CUDA build of torch on a machine with a GPU."
        )
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        raise ResourceError(
            f"device {device!r} was asked for, but this machine has {torch.cuda.device_count()} CUDA device(s), "
            f"counted from cuda:0."
        )
    try:
        torch.empty(1, device=found)
    # A kind of device that this build lacks is told in many ways, of which these are three.
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ResourceError(f"device {device!r} cannot be used: {reason}. Use device='cpu'.") from error
    return found


THREADED_WORK = 3e9
"""Multiplications of one step from which more than one thread pays.

Measured on 2 busy cores: a step of 0.3e9 takes 19 ms with one thread and 2.0 s with two, which wait for one another by
spinning.
"""


@contextmanager
def threads_for(torch: Any, work: float) -> Iterator[None]:
    """Let torch use one thread, within this context, where a step's work is small."""
    before = torch.get_num_threads()
    if work < THREADED_WORK:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
