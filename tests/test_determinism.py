"""The same input gives the same bytes on one thread and on two, with any order of hashes; time stamps apart."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from command_line import MAIN
from tokengeom.corpus.stories import write_stories
from tokengeom.page.formatting import MINUS, TIMES

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
# The commands of one process: their order and their settings are the same in both.
COMMANDS = [
    ["count", "text.txt", "--context", "2", "--top-contexts", "160", "--out", "stats", "-q"],
    ["count", "text.txt", "--context", "2", "--pairs", "pairs", "-q"],
    ["predict", "stats", "--loss-gap", "0.5", "--norm", "gamma2", "--tolerance", "0.01", "--out", "at-loss", "-q"],
    ["count", "text.txt", "--context", "1", "--top-contexts", "25", "--out", "few", "-q"],
    ["report", "few", "--no-transformer", "--steps", "20", "--dim", "8", "--out", "page.html", "-q"],
]
TIMED = {"seconds", "seal", "made_from", "files", "sha256", "manifest"}
"""Entries of manifests that are time stamps, or hashes of files and manifests with time stamps."""


def started(folder: Path, threads: int) -> subprocess.Popen[bytes]:
    folder.mkdir()
    write_stories(folder / "text.txt", 3000, 0)
    code = f"{MAIN.split(';')[0]}\nfrom tokengeom.cli.app import run_command\n"
    code += f"for line in {COMMANDS!r}:\n    assert run_command(line) == 0, line\n"
    env = os.environ | dict.fromkeys(THREADS, str(threads)) | {"PYTHONHASHSEED": str(threads)}
    return subprocess.Popen([sys.executable, "-c", code], cwd=folder, env=env)


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Folders with the results of the same commands on one thread and on two."""
    folders = [tmp_path_factory.mktemp("work") / "same-name" for _ in range(2)]
    running = [started(folder, threads) for threads, folder in enumerate(folders, start=1)]
    assert [process.wait() for process in running] == [0, 0]
    return folders


def files(folder: Path) -> dict[str, Path]:
    return {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}


def untimed(value: Any) -> Any:
    """JSON data without its time stamps."""
    if isinstance(value, dict):
        return {name: untimed(item) for name, item in value.items() if name not in TIMED}
    return [untimed(item) for item in value] if isinstance(value, list) else value


def test_counts_are_the_same_bytes(both: list[Path]) -> None:
    one, two = (files(folder) for folder in both)
    assert list(one) == list(two)
    for name in one:
        if name.startswith(("stats/", "few/", "pairs/")):
            assert one[name].read_bytes() == two[name].read_bytes(), name


def test_results_are_the_same_bytes_apart_from_their_times(both: list[Path]) -> None:
    one, two = (files(folder) for folder in both)
    for name in one:
        if name.endswith(".json"):
            first, second = (untimed(json.loads(folder[name].read_bytes())) for folder in (one, two))
            assert first == second, name
        elif name.endswith(".parquet"):
            first, second = (pq.read_table(folder[name]).to_pandas() for folder in (one, two))
            for column in set(first.columns) - {"seconds"}:
                np.testing.assert_array_equal(first[column], second[column], err_msg=f"{name}: {column}")
        elif not name.endswith(".html"):
            assert one[name].read_bytes() == two[name].read_bytes(), name


def test_the_page_is_the_same_apart_from_its_times(both: list[Path]) -> None:
    # Durations stand in cells of tables, and hashes of results depend on them.
    one, two = (re.sub(r"[0-9a-f]{64}", "", (folder / "page.html").read_text()) for folder in both)
    # Those below a millisecond have a power of ten.
    cells = re.compile(rf"<td[^<>]*>[0-9.]+(?:{TIMES}10<sup>{MINUS}[0-9]+</sup>)?</td>")
    assert cells.sub("", one) == cells.sub("", two)
    differ = [(a, b) for a, b in zip(cells.findall(one), cells.findall(two), strict=True) if a != b]
    assert len(differ) < 30, "the seconds of about a dozen stages and trainings"
