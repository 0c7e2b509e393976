"""Two processes that train together end where one process ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from network_cases import small_stories
from tokengeom.core.system import Processes
from tokengeom.training.network_engine import NetworkEngine
from tokengeom.training.run import Run
from tokengeom.training.train import train
from waiting import PATIENCE

LAUNCHER = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


COMMAND = """
import atexit, os, sys
from pathlib import Path

def note_threads():
    # It runs after the process has left the others: what was registered first runs last.
    names = [Path(f"/proc/self/task/{one}/comm").read_text() for one in os.listdir("/proc/self/task")]
    Path(sys.argv[-1], f"threads-{os.environ['RANK']}").write_text("".join(names))

atexit.register(note_threads)
from tokengeom.cli.app import run_command
sys.exit(run_command(sys.argv[1:-1]))
"""


def test_all_processes_train_one_network() -> None:
    assert NetworkEngine.replicates == 1


def test_parts_cover_everything_once() -> None:
    parts = [Processes(rank, 3, "cpu").part(10) for rank in range(3)]
    assert [(part.start, part.stop) for part in parts] == [(0, 3), (3, 6), (6, 10)]


@pytest.mark.parametrize("batch", [None, pytest.param(16, marks=pytest.mark.slow)])
def test_two_processes_end_where_one_does_and_only_one_of_them_prints(tmp_path: Path, batch: int | None) -> None:
    stats = small_stories("prefixes")
    stats.save(tmp_path / "stats")
    options = ["--model", "lstm", "--dim", "8", "--layers", "1", "--steps", "5", "--learning-rate", "0.01"]
    options += ["--batch", str(batch)] if batch else []
    (tmp_path / "command.py").write_text(COMMAND)
    command = [*LAUNCHER, str(tmp_path / "command.py"), "train", str(tmp_path / "stats"), *options, "--json"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "run"), str(tmp_path)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    alone = train(stats, "lstm", dim=8, layers=1, steps=5, learning_rate=0.01, batch=batch)
    together = Run.load(tmp_path / "run")
    np.testing.assert_allclose(together.W, alone.W, atol=1e-5)
    np.testing.assert_allclose(together.H, alone.H, atol=1e-5)
    for rank in range(2):
        # A thread of the group that lives on when the interpreter ends now and then aborts the process.
        assert "gloo" not in (tmp_path / f"threads-{rank}").read_text()
