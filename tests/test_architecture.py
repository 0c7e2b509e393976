"""Imports follow the order of the packages, prediction and observation never meet, and tests mirror the source."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from command_line import all_commands

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "tokengeom"
BASE = {"core", "results"}
TEXT = BASE | {"corpus", "statistics", "ask"}
PREDICTION = {"problems", "solvers", "theory"}
OBSERVATION = {"models", "training"}
MEETING = TEXT | PREDICTION | OBSERVATION | {"comparison"}
VERBS = {"ask.verbs"}
"""The module of `ask` that takes any result, folder or model. The others need W, H and statistics; results use them."""
MAY_IMPORT = {
    "core": set(),
    "results": {"core"},
    "corpus": BASE,
    "statistics": BASE | {"corpus"},
    "ask": BASE | {"corpus", "statistics"},
    "problems": TEXT,
    "solvers": TEXT | {"problems"},
    "theory": TEXT | {"problems", "solvers"},
    "models": TEXT,
    "training": TEXT | {"models"},
    "comparison": TEXT | PREDICTION | OBSERVATION,
    "ask.verbs": MEETING,
    "callbacks": MEETING,
    "figures": MEETING,
    "page": MEETING | VERBS | {"figures"},
    "verification": MEETING | VERBS | {"figures", "page"},
    "cli": MEETING | VERBS | {"figures", "page", "verification"},
    "extending": MEETING | VERBS | {"figures", "page", "cli"},
}
HEAVY = {
    "torch", "matplotlib", "plotly", "transformers", "jinja2", "pyspark", "datasets", "pandas", "lightning",
    "accelerate",
}  # fmt: skip
FILES = sorted(SOURCE.rglob("*.py"))
PACKAGES = sorted(path.name for path in SOURCE.iterdir() if (path / "__init__.py").is_file())


def package_of(path: Path) -> str:
    return placed(dotted(path))


def placed(module: str) -> str:
    """The package of a module in the import order; the verbs of `ask` have places of their own."""
    parts = module.split(".")[1:3]
    return ".".join(parts) if ".".join(parts) in VERBS else "".join(parts[:1])


def imported_packages(tree: ast.AST) -> set[str]:
    modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    modules += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    return {placed(module) for module in modules if module.startswith("tokengeom.")}


def dotted(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(["tokengeom", *(part for part in parts if part != "__init__")])


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_package_imports_only_packages_on_its_left(path: Path) -> None:
    package = package_of(path)
    if package in ("", "__main__"):
        return
    # Keywords are imported for type checking alone, which tests/test_keywords.py checks.
    foreign = imported_packages(ast.parse(path.read_text())) - MAY_IMPORT[package] - {package, "keywords"}
    assert not foreign, f"{package} must not import {foreign}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_heavy_dependencies_are_imported_where_they_are_used(path: Path) -> None:
    top = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name.split(".")[0] for node in top if isinstance(node, ast.Import) for alias in node.names}
    names |= {(node.module or "").split(".")[0] for node in top if isinstance(node, ast.ImportFrom)}
    assert not names & HEAVY


def test_every_package_has_its_place_in_the_import_order() -> None:
    assert {package_of(path) for path in FILES} - {"", "__main__"} == set(MAY_IMPORT)


def test_every_module_is_named_by_a_test() -> None:
    """A module is named where a test imports it; a command also where the tests of all commands run it."""
    sources = "\n".join(path.read_text() for path in TESTS.rglob("*.py"))

    def is_named(path: Path) -> bool:
        package, _, module = dotted(path).rpartition(".")
        forms = [f"{dotted(path)} import", f"{dotted(path)}.", f'"{dotted(path)}"', f"from {package} import {module}"]
        command = path.parent.name == "cli" and path.stem.replace("_", "-") in all_commands()
        return command or any(form in sources for form in forms)

    modules = [path for path in FILES if path.name not in ("__init__.py", "__main__.py")]
    assert [dotted(path) for path in modules if not is_named(path)] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_test_files_are_named_after_modules(package: str) -> None:
    modules = [path.stem for path in (SOURCE / package).rglob("*.py")]
    modules += [path.name for path in (SOURCE / package).iterdir() if path.is_dir()]
    for test in sorted((TESTS / package).glob("test_*.py")):
        topic = test.stem.removeprefix("test_")
        assert any(topic == module or topic.startswith(f"{module}_") for module in modules), test.name
