"""Time and memory: what work is expected to take (`Estimate`), and whether it fits (`require_memory`).

An estimate is the amount of work, which is known, times a speed that is measured on the same device moments before:
constants that were measured on one machine are wrong on the next.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokengeom.core.errors import ResourceError
from tokengeom.core.progress import AbstractProgress

LONG = 5.0
"""Seconds from which on work is announced."""
NARROW = 2.0
"""Ratio of the longest to the shortest expected time up to which one number is stated for both."""

NOTABLE = 5e7
"""Bytes from which on memory is stated."""


@dataclass(frozen=True)
class Estimate:
    """The time and memory that work is expected to take.

    ``what``
        The work and its size, as the beginning of a sentence.
    ``shortest``, ``longest``
        Range of the expected seconds; the two are equal where the amount of work is known exactly.
    ``bytes``
        Largest memory at any time, on the device that does the work; 0 where it is negligible.
    ``parts``
        The parts of the work, one after the other, where it has several.
    """

    what: str
    shortest: float
    longest: float
    bytes: int = 0
    parts: tuple[Estimate, ...] = ()

    @classmethod
    def total(cls, what: str, parts: Sequence[Estimate]) -> Estimate:
        """The estimate of work whose parts are done one after the other."""
        shortest, longest = (sum(getattr(part, end) for part in parts) for end in ("shortest", "longest"))
        return cls(what, shortest, longest, max((part.bytes for part in parts), default=0), tuple(parts))

    @property
    def seconds(self) -> float:
        """Typical duration: the geometric mean of the shortest and the longest."""
        return math.sqrt(self.shortest * self.longest)

    @property
    def is_long(self) -> bool:
        """Whether the work is long enough to be announced."""
        return self.longest >= LONG

    @property
    def time(self) -> str:
        """The expected time, such as "about 90 s", or "30 s to 2 min" where it varies more."""
        if self.longest <= NARROW * self.shortest:
            return f"about {duration(self.seconds)}"
        return f"{duration(self.shortest)} to {duration(self.longest)}"

    @property
    def sentence(self) -> str:
        """Time and memory, such as "L_mm of 1,004 x 3,980: about 90 s and 0.6 GB."; one more line per long part."""
        memory = f" and {self.bytes / 1e9:.2g} GB" if self.bytes >= NOTABLE else ""
        parts = [f"  {part.what}: {part.time}." for part in self.parts if part.is_long]
        return "\n".join([f"{self.what}: {self.time}{memory}.", *parts])

    def announce(self, progress: AbstractProgress) -> None:
        """Show the sentence, where the work is long."""
        if self.is_long:
            progress.say(self.sentence)

    def to_dict(self) -> dict[str, Any]:
        """The estimate as plain data."""
        return {
            "what": self.what,
            "seconds": self.seconds,
            "shortest_seconds": self.shortest,
            "longest_seconds": self.longest,
            "bytes": self.bytes,
            "parts": [part.to_dict() for part in self.parts],
        }


def duration(seconds: float) -> str:
    """Seconds with two digits, in the unit that suits them."""
    unit, size = ("s", 1.0) if seconds < 99.5 else ("min", 60.0) if seconds < 99.5 * 60 else ("h", 3600.0)
    return f"{float(f'{seconds / size:.2g}'):g} {unit}"


ASSUMED_FREE = 4 * 2**30
"""Bytes assumed to be free where the system does not say."""
SAFETY = 0.9
"""Share of the free memory that a smaller size on offer may take."""

_MEMORY_OF_LINUX, _PAGES_OF_LINUX = Path("/proc/meminfo"), Path("/proc/self/statm")


def free_memory(device: str | None = None) -> int:
    """Bytes of memory that programs can have now, on this machine or on a GPU such as ``"cuda"``.

    On the machine, files that the system merely caches are included, and a limit of this process (``ulimit -v``)
    counts; on a GPU, what PyTorch has reserved and not used is included.
    """
    if device is not None and device.startswith("cuda") and (there := _free_on_gpu(device)) is not None:
        return there
    left = left_to_this_process()
    return _free_on_machine() if left is None else min(left, _free_on_machine())


def left_to_this_process() -> int | None:
    """Bytes of address space that are left under the limit of this process; None where there is none, or not known."""
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        pages = 0 if limit == resource.RLIM_INFINITY else int(_PAGES_OF_LINUX.read_text().split()[0])
    except (ImportError, OSError, ValueError):
        return None
    return max(limit - pages * os.sysconf("SC_PAGE_SIZE"), 0) if pages else None


def _free_on_machine() -> int:
    if _MEMORY_OF_LINUX.is_file() and (match := re.search(r"MemAvailable:\s+(\d+) kB", _MEMORY_OF_LINUX.read_text())):
        return int(match[1]) * 1024
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
