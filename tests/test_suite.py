"""Rules for the tests themselves: they are quick, and none passes or fails by chance."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted([*ROOT.glob("tests/**/*.py"), *ROOT.glob("studies/tests/**/*.py")])
CLOCKS = {"monotonic", "perf_counter", "sleep", "time"}
MAY_LOOK_AT_A_CLOCK = {
    "tests/waiting.py": "stops waiting for a process that hangs",
    "tests/spark_cluster.py": "stops waiting for a cluster that hangs",
}
"""File -> why no result depends on it."""


def calls(tree: ast.AST) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_test_measures_seconds_or_waits_for_them(path: Path) -> None:
    """CPU time (`time.process_time`) does not depend on how busy the machine is, and a process shows what it does."""
    if path.relative_to(ROOT).as_posix() in MAY_LOOK_AT_A_CLOCK:
        return
    named = [ast.unparse(call.func) for call in calls(ast.parse(path.read_text(encoding="utf-8")))]
    assert not [name for name in named if name.startswith("time.") and name[5:] in CLOCKS]
    # A function that runs between fork and exec deadlocks now and then in a process with threads.
    assert "preexec_fn" not in path.read_text(encoding="utf-8") or path == Path(__file__)


def fixtures(path: Path) -> dict[str, str]:
    """Name -> code of the fixtures of a file that are made once."""
    found = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        once = isinstance(node, ast.FunctionDef) and any("scope=" in ast.unparse(one) for one in node.decorator_list)
        if isinstance(node, ast.FunctionDef) and once:
            found[node.name] = "\n".join(ast.unparse(one) for one in node.body)
    return found


def test_no_report_page_or_study_is_made_in_the_same_way_in_two_files() -> None:
    """What several files need, and what takes seconds, is a fixture of a conftest, made once."""
    makers: dict[str, list[str]] = {}
    for path in FILES:
        for name, code in fixtures(path).items():
            if re.search(r"\b(quick|report|render|run_study)\(", code):
                makers.setdefault(code, []).append(f"{path.relative_to(ROOT)}::{name}")
    assert [places for places in makers.values() if len(places) > 1] == []


def test_the_longest_files_exist() -> None:
    names = re.findall(r'"((?:studies/)?tests/[\w/]+\.py)"', (ROOT / "tests/conftest.py").read_text(encoding="utf-8"))
    assert names
    assert [name for name in names if not (ROOT / name).is_file()] == []
