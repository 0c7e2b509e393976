"""The memory guard: refuse work that does not fit in memory, with the size needed, the size free and an alternative."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from tokengeom.core.errors import ResourceError

ASSUMED_FREE = 4 * 2**30
"""Bytes assumed to be free where the system does not say."""
SAFETY = 0.9
"""Share of the free memory that a smaller size on offer may take."""

_MEMORY_OF_LINUX = Path("/proc/meminfo")


def free_memory(device: str | None = None) -> int:
    """Bytes of memory that programs can have now, on this machine or on a GPU such as ``"cuda"``.

    On the machine, files that the system merely caches are included; on a GPU, what PyTorch has reserved and not used.
    """
    if device is not None and device.startswith("cuda") and (there := _free_on_gpu(device)) is not None:
        return there
    if _MEMORY_OF_LINUX.is_file() and (found := re.search(r"MemAvailable:\s+(\d+) kB", _MEMORY_OF_LINUX.read_text())):
        return int(found[1]) * 1024
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return ASSUMED_FREE


def _free_on_gpu(device: str) -> int | None:
    """Bytes free on a GPU; None where there is none, which whoever uses the device will say."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    free, _ = torch.cuda.mem_get_info(device)
    return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))


def require_memory(
    needed: int,
    what: str,
    alternative: str | Callable[[float], str],
    limit: int | None = None,
    device: str | None = None,
) -> None:
    """Raise an error that offers the alternative, unless ``needed`` bytes are within ``limit`` (default: free now).

    An alternative that depends on how much fits is a function of the share of the work that does, between 0 and 1.
    ``device`` is where the memory is needed; None for the machine's own.
    """
    available, verb = (free_memory(device), "free") if limit is None else (limit, "allowed")
    if needed > available:
        where = f"the memory of {device}" if device is not None and device.startswith("cuda") else "memory"
        offered = alternative if isinstance(alternative, str) else alternative(SAFETY * available / needed)
        raise ResourceError(
            f"{what} must fit in {where}: {needed / 2**30:.3g} GiB are needed and {available / 2**30:.3g} GiB are "
            f"{verb}. {offered}"
        )


def fewer_contexts(share: float, contexts: int) -> str:
    """An offer to keep as many of the contexts as fit, rounded down to two digits."""
    size = int(share * contexts)
    rounded = size - size % 10 ** max(len(str(size)) - 2, 0)
    if rounded < 1:
        return "Keep fewer contexts (stats.limited(top_contexts=...))"
    return f"Keep {rounded:,} of the {contexts:,} contexts (stats.limited(top_contexts={rounded}))"
