"""Operations are counted before and after they happen, and a signal comes at the chosen one."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = """
import os, sys
from pathlib import Path
from campaign.file_operations import FileOperations

folder, when, at = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
FileOperations([folder], when, at, lambda: os.kill(os.getpid(), 9), log=1).install()
(folder / "a").mkdir()
(folder / "a").rename(folder / "b")
(folder / "b").rmdir()
Path(os.devnull).write_text("elsewhere")
"""


def run(folder: Path, when: str, at: int) -> tuple[int, list[str]]:
    command = [sys.executable, "-c", CODE, str(folder), when, str(at)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout.split()


@pytest.mark.parametrize("when", ["before", "after"])
def test_operations_below_a_folder_are_counted(tmp_path: Path, when: str) -> None:
    assert run(tmp_path, when, -1) == (0, ["os.mkdir", "os.rename", "os.rmdir"])


@pytest.mark.parametrize(("when", "names"), [("before", ["a"]), ("after", ["b"])])
def test_a_kill_comes_before_or_after_the_operation(tmp_path: Path, when: str, names: list[str]) -> None:
    code, seen = run(tmp_path, when, 1)
    assert code == -signal.SIGKILL
    assert seen == ["os.mkdir", "os.rename"]
    assert [path.name for path in tmp_path.iterdir()] == names
