"""Refusing what would not fit in memory, with the size needed and the alternative."""

from __future__ import annotations

import os

from tokengeom.errors import ResourceError

ASSUMED_FREE = 4 * 2**30
"""Bytes taken to be free where the system does not say."""


def free_memory() -> int:
    """Bytes of memory that the system says are free now."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return ASSUMED_FREE


def require_memory(needed: int, what: str, alternative: str, limit: int | None = None) -> None:
    """Raise unless ``needed`` bytes are within ``limit`` (by default what is free now)."""
    available = free_memory() if limit is None else limit
    if needed > available:
        raise ResourceError(
            f"{what} must fit in memory: it needs {needed / 2**30:.3g} GiB and {available / 2**30:.3g} GiB "
            f"are free. {alternative}"
        )
