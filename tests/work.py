"""Counting the work of a computation, which takes the same number however busy the machine is."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable


def calls_in(computation: Callable[[], object]) -> int:
    """How many calls of functions, of Python and of libraries, a computation makes."""
    profile = cProfile.Profile()
    profile.runcall(computation)
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]
