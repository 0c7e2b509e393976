"""The package as a whole: what it exports, what importing it costs, what a wheel holds."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from types import FunctionType

import pytest

import minimal_install
import tokengeom
import tokengeom_studies

ROOT = Path(__file__).parents[1]
MODULES = [
    module.name
    for package in (tokengeom, tokengeom_studies)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
]


def test_every_public_name_can_be_imported() -> None:
    for name in tokengeom.__all__:
        assert getattr(tokengeom, name) is not None
    assert set(tokengeom.__all__) == set(tokengeom._MODULES)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        tokengeom.nonsense  # noqa: B018


def test_importing_loads_nothing_heavy() -> None:
    code = "import sys, json, tokengeom; print(json.dumps(sorted(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in json.loads(found.stdout)}
    assert not loaded & {"torch", "matplotlib", "plotly", "numpy", "scipy", "ibis", "duckdb", "pyarrow", "pandas"}


@pytest.mark.parametrize("name", MODULES)
def test_every_module_imports(name: str) -> None:
    assert importlib.import_module(name).__doc__


def without_docstrings(kind: type) -> list[str]:
    """Public methods and properties of a class where neither it nor a base says what they do."""
    fields = vars(kind).get("__annotations__", {})
    defined = [
        name
        for name, value in vars(kind).items()
        if isinstance(value, FunctionType | property | classmethod | staticmethod) and name not in fields
    ]
    return [
        f"{kind.__name__}.{name}"
        for name in defined
        if not name.startswith("_") and not any(vars(base)[name].__doc__ for base in kind.__mro__ if name in vars(base))
    ]


@pytest.mark.parametrize("name", MODULES)
def test_public_methods_have_docstrings_or_those_that_they_override(name: str) -> None:
    members = vars(importlib.import_module(name)).values()
    classes = [kind for kind in members if isinstance(kind, type) and kind.__module__ == name]
    assert [method for kind in classes if kind.__name__[0] != "_" for method in without_docstrings(kind)] == []


def test_the_wheel_is_typed_and_whole(tmp_path: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    command = [str(part) for part in (uv, "build", "--wheel", "--quiet", "--out-dir", tmp_path, ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    source = [path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert inside == {path.relative_to(ROOT / "src").as_posix() for path in source}
    assert "tokengeom/py.typed" in inside
    assert any(name.startswith("tokengeom/page/templates/") for name in inside)


def test_what_needs_an_extra_names_it() -> None:
    script = Path(minimal_install.__file__)
    found = subprocess.run([sys.executable, script, "--hide-extras"], capture_output=True, text=True, check=True)
    said = json.loads(found.stdout)["extras"]
    assert len(said) >= 11
    assert minimal_install.not_named(said) == {}


def test_the_version_is_the_changelogs_newest() -> None:
    headings = [line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")]
    released = [heading for heading in headings if heading != "## Unreleased"]
    assert tokengeom.__version__ in released[0]


def test_every_locked_package_has_a_hash_and_what_builds_this_one_is_locked() -> None:
    entries = re.split(r"\n(?=\w)", (ROOT / "requirements.lock").read_text())[1:]
    locked = {entry.partition("==")[0]: "--hash=sha256:" in entry for entry in entries}
    assert len(locked) > 100
    assert [name for name, has_hash in locked.items() if not has_hash] == []
    built_with = {
        re.split(r"[^\w.-]", one)[0]
        for folder in (ROOT, ROOT / "studies")
        for one in tomllib.loads((folder / "pyproject.toml").read_text())["build-system"]["requires"]
    }
    assert built_with <= set(locked)
    installs = re.findall(r"uv pip install .*", (ROOT / "Makefile").read_text())
    assert installs
    assert all("-c $(LOCK) --build-constraint $(LOCK)" in one for one in installs)


def test_pre_commit_runs_what_make_check_runs() -> None:
    recipe = re.search(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    checks = [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe[1].splitlines()]
    assert re.findall(r"entry: (.*)", (ROOT / ".pre-commit-config.yaml").read_text()) == checks
