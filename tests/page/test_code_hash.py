"""A result is made again when the code that made it changes, and not when only its showing does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokengeom.page import cache as module


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("theory/predict.py", "figures/path.py", "page/templates/page.css", "theory/__pycache__/x.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(module, "PACKAGE", tmp_path)
    return tmp_path


def hashes() -> tuple[str, str]:
    module.code_hash.cache_clear()
    found = module.code_hash(), module.code_hash(showing=True)
    module.code_hash.cache_clear()
    return found


@pytest.mark.parametrize(
    ("name", "makes", "shows"),
    [
        ("theory/predict.py", True, True),
        ("figures/path.py", False, True),
        ("page/templates/page.css", False, True),
        ("theory/__pycache__/x.pyc", False, False),
    ],
)
def test_the_hash_follows_the_code_that_matters(package: Path, name: str, makes: bool, shows: bool) -> None:
    before = hashes()
    (package / name).write_text("changed")
    after = hashes()
    assert (before[0] != after[0], before[1] != after[1]) == (makes, shows)
