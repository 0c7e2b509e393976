"""Whether the machine was quiet while a side was timed.

Before and after each side a fixed computation is timed, and it is counted how much processor time other programs took
in between. Load averages do not tell: they include the benchmark itself.
"""

from __future__ import annotations

import math
import os
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

LARGEST_SLOWDOWN = 1.25
"""Time of the reference over the best that is known of such a machine, above which the machine is busy."""
LARGEST_SHARE = 0.3
"""Cores that other programs used on average, above which the machine is busy. A daemon of the kernel, which no program
can stop, takes 0.2 of one; where it costs time, the reference shows it."""


@dataclass(frozen=True)
class Look:
    """One look at the machine.

    ``reference``
        Seconds of the reference computation.
    ``others``
        Cores that other programs used on average since the last look; None where the system does not tell.
    """

    reference: float
    others: float | None


class Watch:
    """The looks of a session, the first at its beginning.

    ``kept``
        Seconds of the reference in earlier sessions on such a machine.
    """

    def __init__(self, kept: Sequence[float] = ()) -> None:
        self.looks, self._kept = [Look(reference_seconds(), None)], tuple(kept)
        self._before = (time.perf_counter(), processor_seconds_of_others())

    def look(self) -> None:
        """Time the reference, and count what other programs used since the last look."""
        (began, before), reference = self._before, reference_seconds()
        self._before = now, used = (time.perf_counter(), processor_seconds_of_others())
        share = None if used is None or before is None else max(0.0, used - before) / (now - began)
        self.looks.append(Look(reference, share))

    def busy_since(self, first: int) -> str:
        """Why what was measured since the look ``first`` should not be kept; empty on quiet cores."""
        best = min(*self._kept, *(look.reference for look in self.looks), math.inf)
        slowdown = max(look.reference for look in self.looks[first:]) / best
        used = max((look.others or 0.0 for look in self.looks[first + 1 :]), default=0.0)
        found = []
        if used > LARGEST_SHARE:
            found.append(f"other programs used {used:.1f} of {os.cpu_count()} cores")
        if slowdown > LARGEST_SLOWDOWN:
            found.append(f"a fixed computation took {slowdown:.1f} times as long as at best")
        return ", and ".join(found)


def reference_seconds() -> float:
    """Seconds of matrix products and of a loop of the interpreter, best of three."""
    M = np.full((600, 600), 0.5)
    return min(_once(M) for _ in range(3))


def _once(M: np.ndarray) -> float:
    began = time.perf_counter()
    for _ in range(3):
        M @ M
    total = 0
    for k in range(300_000):
        total += k
    return time.perf_counter() - began


def processor_seconds_of_others() -> float | None:
    """Processor time that all programs but this one and its ended children have used; None where it is not known."""
    try:
        line = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
    except OSError:
        return None
    user, nice, system, _, _, interrupts, soft_interrupts, stolen = map(int, line.split()[1:9])
    used = (user + nice + system + interrupts + soft_interrupts + stolen) / os.sysconf("SC_CLK_TCK")
    return used - sum(
        one.ru_utime + one.ru_stime
        for one in (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )
