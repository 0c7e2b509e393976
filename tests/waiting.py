"""Waiting for another process, however busy the machine is."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Any

PATIENCE = 600.0
"""Seconds after which a process is taken to hang. No test measures with it: what is waited for comes in seconds."""


def wait_until(holds: Callable[[], bool], process: subprocess.Popen[Any] | None = None) -> None:
    """Wait until a condition holds; the process that is to bring it about must not end before."""
    limit = time.monotonic() + PATIENCE
    while not holds():
        assert process is None or process.poll() is None, "the process ended before"
        assert time.monotonic() < limit, "the process hangs"
        time.sleep(0.02)
