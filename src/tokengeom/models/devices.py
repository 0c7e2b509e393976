"""Torch devices that this machine has, and the number of threads on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tokengeom.core.errors import ProblemError, ResourceError


def checked_device(torch: Any, device: str) -> Any:
    """The torch device of a name, or an error where this machine does not have it."""
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise ProblemError(f"device must be 'cpu' or 'cuda' (or 'cuda:1'); got {device!r}.") from error
    if found.type == "cuda" and not torch.cuda.is_available():
        raise ResourceError(
            f"device {device!r} is not available: torch {torch.__version__} sees no CUDA device. Use device='cpu', "
            "or install a CUDA build of torch on a machine with a GPU."
        )
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        raise ResourceError(
            f"device {device!r} is not available: this machine has {torch.cuda.device_count()} CUDA device(s), "
            "numbered from cuda:0."
        )
    try:
        torch.empty(1, device=found)
    # A build of torch without this kind of device raises one of these.
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ResourceError(f"device {device!r} cannot be used: {reason}. Use device='cpu'.") from error
    return found


THREADED_WORK = 3e9
"""Multiplications per step from which more than one thread is faster.

Measured on 2 busy cores: a step of 0.3e9 takes 19 ms with one thread and 2.0 s with two, which spin while they wait for
each other.
"""


@contextmanager
def threads_for(torch: Any, work: float) -> Iterator[None]:
    """A context in which torch uses one thread where the work of a step is small."""
    before = torch.get_num_threads()
    if work < THREADED_WORK:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
