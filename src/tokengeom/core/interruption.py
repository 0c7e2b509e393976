"""Interruptions: SIGTERM, which schedulers send, does what Ctrl-C does."""

from __future__ import annotations

import signal
from types import FrameType


class Interruption:
    """Whether a signal asked this process to end; any error after that is a consequence of it."""

    arrived = False


def interrupt(number: int, frame: FrameType | None) -> None:
    """Handle a signal that ends the process: raise KeyboardInterrupt, and remember it."""
    Interruption.arrived = True
    raise KeyboardInterrupt


def handle_signals() -> None:
    """Let SIGTERM and Ctrl-C interrupt this process; Ctrl-C stays ignored where a shell has it ignored."""
    signal.signal(signal.SIGTERM, interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)


def interrupts(handler: object) -> bool:
    """Whether a handler of signals raises KeyboardInterrupt; other programs have handlers of their own."""
    return handler in (signal.default_int_handler, interrupt)
