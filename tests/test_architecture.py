"""Imports point one way: from each room to the rooms on its left, and never between prediction and observation."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "tokengeom"
GROUND = {"errors", "folders", "html_table", "memory", "numerics", "progress"}
TEXT = GROUND | {"corpus", "statistics"}
PREDICTION = {"problems", "solvers", "theory"}
OBSERVATION = {"models", "training"}
MAY_IMPORT = {
    "errors": set(),
    "folders": {"errors"},
    "html_table": set(),
    "memory": {"errors"},
    "numerics": set(),
    "progress": set(),
    "corpus": GROUND,
    "statistics": GROUND | {"corpus"},
    "problems": TEXT,
    "solvers": TEXT | {"problems"},
    "theory": TEXT | {"problems", "solvers"},
    "models": TEXT,
    "training": TEXT | {"models"},
    "geometry": TEXT | PREDICTION | OBSERVATION,
    "figures": TEXT | PREDICTION | OBSERVATION | {"geometry"},
    "page": TEXT | PREDICTION | OBSERVATION | {"geometry", "figures"},
    "studies": TEXT | PREDICTION | OBSERVATION | {"geometry", "figures", "page"},
    "cli": TEXT | PREDICTION | OBSERVATION | {"geometry", "figures", "page", "studies"},
}
HEAVY = {"torch", "matplotlib", "plotly", "transformers", "jinja2", "pyspark", "datasets", "pandas"}
FILES = sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(tree: ast.AST) -> set[str]:
    modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    modules += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    return {module.split(".")[1] for module in modules if module.startswith("tokengeom.")}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_room_imports_only_rooms_on_its_left(path: Path) -> None:
    room = room_of(path)
    if room in ("__init__", "__main__"):
        return
    foreign = imported_rooms(ast.parse(path.read_text())) - MAY_IMPORT[room] - {room}
    assert not foreign, f"{room} must not import {foreign}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_heavy_packages_are_imported_where_they_are_used(path: Path) -> None:
    top = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name.split(".")[0] for node in top if isinstance(node, ast.Import) for alias in node.names}
    names |= {(node.module or "").split(".")[0] for node in top if isinstance(node, ast.ImportFrom)}
    assert not names & HEAVY


def test_every_room_is_on_the_plan() -> None:
    assert {room_of(path) for path in FILES} - {"__init__", "__main__"} <= set(MAY_IMPORT)
