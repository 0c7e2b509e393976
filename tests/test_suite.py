"""Rules for the tests themselves: they are quick, and none passes or fails by chance."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted([*ROOT.glob("tests/**/*.py"), *ROOT.glob("studies/tests/**/*.py")])
TRIED_FILES = [*FILES, *sorted(ROOT.glob("campaign/*.py"))]
CLOCKS = {"monotonic", "perf_counter", "process_time", "sleep", "thread_time", "time"}
CLOCKS |= {f"{name}_ns" for name in CLOCKS}
READS_A_CLOCK = re.compile(rf"\b(?:time|asyncio)\.(?:{'|'.join(CLOCKS)})\(|\bfrom time import\b")
MAY_LOOK_AT_A_CLOCK = {
    "tests/waiting.py": "stops waiting for a process that hangs",
    "tests/spark_cluster.py": "stops waiting for a cluster that hangs",
    "campaign/forks.py": "ends a command that hangs",
    "campaign/tries.py": "says how long the tries took",
    "campaign/__main__.py": "says how long the campaign took",
}
"""File -> why no result depends on it."""


def looks_at_a_clock(code: str) -> list[str]:
    """Where code, or a program in one of its strings, reads a clock, waits, or lets the clock of a page run on."""
    tree, found = ast.parse(code), list[str]()
    named = {one.asname or one.name: one.name for node in imports(tree, ast.Import) for one in node.names}
    modules = {name for name, module in named.items() if module in ("time", "asyncio")}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in ("time", "asyncio"):
            found += [f"{node.module}.{one.name}" for one in node.names if one.name in CLOCKS]
        elif isinstance(node, ast.Attribute) and node.attr in CLOCKS and ast.unparse(node.value) in modules:
            found.append(ast.unparse(node))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += READS_A_CLOCK.findall(node.value)
    called = [ast.unparse(node.func).rpartition("clock.")[2] for node in ast.walk(tree) if isinstance(node, ast.Call)]
    # A page's clock runs on by itself until it is paused.
    return found + ["clock.install"] * (called.count("install") - called.count("pause_at"))


def imports(tree: ast.AST, kind: type[ast.Import]) -> list[ast.Import]:
    return [node for node in ast.walk(tree) if isinstance(node, kind)]


@pytest.mark.parametrize("path", TRIED_FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_test_measures_seconds_or_waits_for_them(path: Path) -> None:
    """Work can be counted (`work.calls_in`), a process shows what it does, and a page's clock can be stopped."""
    code = path.read_text(encoding="utf-8")
    # A function that runs between fork and exec deadlocks now and then in a process with threads.
    assert "preexec_fn" not in code or path == Path(__file__)
    if path.relative_to(ROOT).as_posix() not in MAY_LOOK_AT_A_CLOCK and path != Path(__file__):
        assert looks_at_a_clock(code) == []


@pytest.mark.parametrize("name", sorted(MAY_LOOK_AT_A_CLOCK))
def test_every_exception_is_needed(name: str) -> None:
    assert looks_at_a_clock((ROOT / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "code",
    [
        "import time\ntime.sleep(1)",
        "import time as clock\nbegan = clock.perf_counter()",
        "from time import sleep\nsleep(1)",
        "from time import monotonic as now",
        "import time\nwait = time.sleep",
        "from asyncio import sleep",
        "page.clock.install()",
        "CODE = 'import time; time.sleep(1)'",
        "run(f'import time\\ntime.time()\\n{more}')",
        "CODE = 'from time import sleep'",
    ],
)
def test_every_way_to_look_at_a_clock_is_seen(code: str) -> None:
    assert looks_at_a_clock(code)


def test_other_calls_are_no_clocks() -> None:
    assert looks_at_a_clock("import time\nstamp = time.gmtime(0)\nclock.run_for(10)\ntext = 'this time'") == []
    assert looks_at_a_clock("page.clock.install()\npage.clock.pause_at(1)") == []


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
