"""Signals that end a process: what they raise, and that training saves what it has."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tokengeom.core.system import Interruption, interrupt, interrupts
from waiting import PATIENCE

TRAINING = """
import signal, sys
import numpy as np
import tokengeom as tg
from tokengeom.core.system import handle_signals

if "ignored" in sys.argv:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
handle_signals()
stats = tg.NextTokenStatistics.from_counts(np.eye(3, dtype=int) + 1)
run = tg.train(stats, dim=2, steps=100_000, on_record=lambda step, steps, row: signal.raise_signal(signal.SIGTERM))
print(run.status, signal.getsignal(signal.SIGINT) is signal.SIG_IGN)
"""


@pytest.mark.parametrize(("given", "said"), [([], "interrupted False"), (["ignored"], "interrupted True")])
def test_sigterm_ends_training_early_and_returns_the_run(given: list[str], said: str) -> None:
    done = subprocess.run([sys.executable, "-c", TRAINING, *given], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout.strip() == said, done.stderr


def test_an_interruption_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Interruption, "arrived", False)
    with pytest.raises(KeyboardInterrupt):
        interrupt(signal.SIGTERM, None)
    assert Interruption.arrived


def test_handlers_of_other_programs_are_left_alone() -> None:
    assert interrupts(signal.default_int_handler)
    assert interrupts(interrupt)
    assert not interrupts(signal.SIG_DFL)
    assert not interrupts(lambda number, frame: None)
