"""The wheel and the source distribution: what they contain, and what the wheel does in an empty environment.

These are the only tests that install packages, so they are slow. `make wheel` runs them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

import minimal_install
import tokengeom

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
UV = Path(sys.executable).with_name("uv")
ENVIRONMENTS = [("3.11", "highest"), ("3.12", "highest"), ("3.13", "highest"), ("3.11", "lowest"), ("3.13", "lowest")]
"""Versions of Python, and whether dependencies are the newest or the oldest that pyproject.toml allows."""
MEGABYTE = 1_000_000
EXTRAS = ("report", "networks", "huggingface", "lightning", "spark", "pandas")
TORCH = "torch==2.13.0"
"""The PyTorch that the extras are tried with here: the one version whose CPU build is at hand (constraints.txt)."""
TRIED_WITH_EXTRAS = (
    "callbacks",
    "corpus/test_in_memory.py",
    "figures/test_static.py",
    "figures/test_interactive.py",
    "models/test_networks.py",
    "models/test_checkpoint.py",
    "page/test_report.py",
    "training/test_network_engine.py",
    "statistics/test_spark_engine.py",
)
"""Tests of what the extras are for: callbacks, data sets, figures, networks, checkpoints, the page, Spark."""


def run(*command: object, folder: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    alone = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    alone |= {"UV_PYTHON_DOWNLOADS": "never", **variables}
    return subprocess.run([str(part) for part in command], cwd=folder, env=alone, capture_output=True, text=True)


def done(*command: object, folder: Path | None = None) -> str:
    """Standard output of a command that must succeed."""
    found = run(*command, folder=folder)
    assert found.returncode == 0, found.stderr
    return found.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the source distribution, and with the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    done(UV, "build", "--quiet", "--out-dir", folder, ROOT)
    return folder


@dataclass(frozen=True)
class Installed:
    """An environment that has the wheel and what it needs, without extras."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def command(self) -> Path:
        return self.folder / "bin" / "tokengeom"


@pytest.fixture(scope="module", params=ENVIRONMENTS, ids=lambda pair: f"{pair[0]}-{pair[1]}")
def installed(request: pytest.FixtureRequest, built: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    version, bound = request.param
    found = run(UV, "python", "find", "--no-project", version)
    if found.returncode != 0:
        pytest.skip(f"No Python {version} on the path: install it to try the wheel with it.")
    environment = Installed(tmp_path_factory.mktemp("environment") / "venv")
    install = (UV, "pip", "install", "--quiet", "--python", environment.python)
    done(UV, "venv", "--quiet", "--python", found.stdout.strip(), environment.folder)
    (wheel,) = built.glob("*.whl")
    if bound == "lowest":
        # Of a wheel that is given by its path, uv does not see the requirements as direct ones.
        done(*install, "--resolution", "lowest-direct", "--requirement", ROOT / "pyproject.toml")
        done(*install, "--no-deps", wheel)
    else:
        done(*install, wheel)
    return environment


def test_the_source_distribution_has_the_package_and_nothing_else(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        inside = {name.partition("/")[2] for name in file.getnames()}
    source = [path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    expected = {path.relative_to(ROOT).as_posix() for path in source}
    about = {"README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE", "SECURITY.md", "pyproject.toml", "PKG-INFO"}
    assert inside - {".gitignore"} == expected | about


def test_wheel_and_source_distribution_are_small(built: Path) -> None:
    sizes = {path.suffix: path.stat().st_size for path in built.iterdir() if path.suffix in (".whl", ".gz")}
    assert sizes.keys() == {".whl", ".gz"}
    assert max(sizes.values()) < 2 * MEGABYTE, sizes


def test_without_extras_every_module_imports_and_extras_are_named(installed: Installed, tmp_path: Path) -> None:
    script = Path(minimal_install.__file__)
    found = json.loads(done(installed.python, script, "--modules", folder=tmp_path))
    assert Path(found["place"]).is_relative_to(installed.folder)
    assert found["modules"] == {}
    assert minimal_install.not_named(found["extras"]) == {}


def test_the_installed_command_counts_predicts_and_verifies(installed: Installed, tmp_path: Path) -> None:
    command = installed.command
    assert done(command, "--version") == f"tokengeom {tokengeom.__version__}\n"
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat and the dog sat on the rug .\n\n" * 5)
    counted = json.loads(done(command, "count", text, "--context", 2, "--out", "stats", "--json", folder=tmp_path))
    assert counted["windows"] > 0
    done(command, "predict", "stats", "--out", "prediction", folder=tmp_path)
    assert "0 failed" in done(command, "verify", "prediction", folder=tmp_path)
    refused = run(command, "report", text, folder=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "pip install 'tokengeom[report]'" in refused.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_installed_command_completes(installed: Installed, tmp_path: Path, shell: str) -> None:
    # The command finds out which shell it is called from; this variable is for tests of that.
    given = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    shown = run(installed.command, "--show-completion", shell, folder=tmp_path, **given).stdout
    assert "_TOKENGEOM_COMPLETE=complete_" + shell in shown
    words = {"bash": {"COMP_WORDS": "tokengeom co", "COMP_CWORD": "1"}, "zsh": {"_TYPER_COMPLETE_ARGS": "tokengeom co"}}
    found = run(installed.command, folder=tmp_path, _TOKENGEOM_COMPLETE=f"complete_{shell}", **words[shell])
    assert found.returncode == 0, found.stderr
    for command in ("count", "compare", "compare-texts"):
        assert command in found.stdout


def test_the_installed_package_is_typed(installed: Installed) -> None:
    (marker,) = installed.folder.glob("lib/python*/site-packages/tokengeom/py.typed")
    assert marker.is_file()


def test_the_lowest_versions_of_the_extras_work(built: Path, tmp_path: Path) -> None:
    environment = Installed(tmp_path / "venv")
    found = run(UV, "python", "find", "--no-project", "3.11")
    if found.returncode != 0:
        pytest.skip("No Python 3.11 on the path: install it to try the lowest versions of the extras.")
    done(UV, "venv", "--quiet", "--python", found.stdout.strip(), environment.folder)
    install = (UV, "pip", "install", "--quiet", "--python", environment.python)
    (tmp_path / "torch.txt").write_text(f"{_local_build() or TORCH}\n")
    asked = [part for extra in EXTRAS for part in ("--extra", extra)]
    lowest = ("--resolution", "lowest-direct", "--constraint", tmp_path / "torch.txt")
    done(*install, *lowest, *asked, "--requirement", ROOT / "pyproject.toml")
    (wheel,) = built.glob("*.whl")
    done(*install, "--no-deps", wheel)
    done(*install, "hypothesis", "pytest")
    # Older packages call what newer ones have deprecated; only failures count here.
    lenient = ("-q", "-p", "no:cacheprovider", "-o", "filterwarnings=default", "-m", "not slow")
    tests = [ROOT / "tests" / name for name in TRIED_WITH_EXTRAS]
    tried = run(environment.python, "-m", "pytest", *lenient, "--rootdir", ROOT, *tests, folder=tmp_path)
    assert tried.returncode == 0, tried.stdout[-5000:]


def _local_build() -> str | None:
    """The CPU build of PyTorch in the folder of wheels, where there is one; the lowest version would be another."""
    places = [Path(place) for place in os.environ.get("UV_FIND_LINKS", os.environ.get("PIP_FIND_LINKS", "")).split()]
    return f"{TORCH}+cpu" if any(list(place.glob("torch-*+cpu-*.whl")) for place in places) else None
