"""The memory guard: refuse work that does not fit in memory, with the size needed, the size free and an alternative."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tokengeom.errors import ResourceError

ASSUMED_FREE = 4 * 2**30
"""Bytes assumed to be free where the system does not say."""

_MEMORY_OF_LINUX = Path("/proc/meminfo")


def free_memory() -> int:
    """Bytes of memory that programs can have now, files that the system merely caches included."""
    if _MEMORY_OF_LINUX.is_file() and (found := re.search(r"MemAvailable:\s+(\d+) kB", _MEMORY_OF_LINUX.read_text())):
        return int(found[1]) * 1024
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return ASSUMED_FREE


def require_memory(needed: int, what: str, alternative: str, limit: int | None = None) -> None:
    """Raise an error that offers the alternative, unless ``needed`` bytes are within ``limit`` (default: free now)."""
    available, verb = (free_memory(), "free") if limit is None else (limit, "allowed")
    if needed > available:
        raise ResourceError(
            f"{what} must fit in memory: {needed / 2**30:.3g} GiB are needed and {available / 2**30:.3g} GiB are "
            f"{verb}. {alternative}"
        )
