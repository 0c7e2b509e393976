"""Manifests: a seal that covers everything, and files that are opened only where they are plain files of the folder."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokengeom.core.errors import InputError
from tokengeom.results.contract import require_unchanged
from tokengeom.results.folders import atomic_folder
from tokengeom.results.manifests import (
    LARGEST_MANIFEST,
    MANIFEST,
    added,
    as_json,
    changed_files,
    is_sealed,
    read_json,
    read_seal,
    sealed,
    write_manifest,
)

KIND = "tokengeom-test"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with atomic_folder(tmp_path / "r", KIND) as work:
        (work / "inside").mkdir()
        (work / "inside/a").write_text("content")
        write_manifest(work, KIND, 1, {"number": 0.1, "name": "na\u00efve \udcff"})
    return tmp_path / "r"


def test_the_seal_is_the_hash_of_the_rest_of_the_manifest(folder: Path) -> None:
    written = (folder / MANIFEST).read_text(encoding="utf-8")
    before, _, seal = written.rpartition(',\n  "seal": ')
    assert hashlib.sha256(f"{before}\n}}\n".encode()).hexdigest() == read_seal(folder) == json.loads(seal[:66])
    assert is_sealed(folder)
    assert changed_files(folder) == []


@pytest.mark.parametrize("change", [("0.1", "0.2"), ("  ", " "), ('"number"', '"nunber"'), ("}\n", "}")])
def test_any_change_of_the_manifest_is_noticed(folder: Path, change: tuple[str, str]) -> None:
    written = (folder / MANIFEST).read_text(encoding="utf-8")
    (folder / MANIFEST).write_text(written.replace(*change, 1), encoding="utf-8")
    assert changed_files(folder) == [MANIFEST]


def test_a_changed_and_a_missing_file_are_named(folder: Path) -> None:
    (folder / "inside/a").write_text("Content")
    assert changed_files(folder) == ["inside/a"]
    (folder / "inside/a").unlink()
    assert changed_files(folder) == ["inside", "inside/a"]


@pytest.mark.parametrize(
    "name", ["../secret", "/etc/passwd", "a/../../secret", "", "a//b", "./a", "a\\b", MANIFEST, "a\0"]
)
def test_names_outside_the_folder_are_refused(folder: Path, name: str) -> None:
    (folder.parent / "secret").write_text("secret")
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    hashes = {name: hashlib.sha256(b"secret").hexdigest()}
    (folder / MANIFEST).write_bytes(as_json(sealed({**manifest, "files": hashes})))
    with pytest.raises(InputError, match="not a file inside the folder"):
        changed_files(folder)


@pytest.mark.parametrize("files", [["a"], {"inside/a": 3}, "inside/a", None])
def test_a_list_of_files_of_the_wrong_type_is_refused(folder: Path, files: object) -> None:
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    (folder / MANIFEST).write_bytes(as_json({**manifest, "files": files}))
    with pytest.raises(InputError, match="list of files cannot be read"):
        changed_files(folder)


def test_links_and_special_files_are_neither_followed_nor_waited_for(folder: Path) -> None:
    content = (folder / "inside/a").read_bytes()
    (folder.parent / "copy").write_bytes(content)
    (folder / "inside/a").unlink()
    (folder / "inside/a").symlink_to(folder.parent / "copy")
    assert changed_files(folder) == ["inside/a"], "the same content behind a link is not the file that was saved"
    (folder / "inside/a").unlink()
    os.mkfifo(folder / "inside/a")
    assert changed_files(folder) == ["inside/a"]
    (folder / "inside/a").unlink()
    (folder / "inside").rmdir()
    (folder.parent / "elsewhere").mkdir()
    (folder.parent / "elsewhere/a").write_bytes(content)
    (folder / "inside").symlink_to(folder.parent / "elsewhere")
    with pytest.raises(InputError, match="inside is a link"):
        changed_files(folder)


def test_a_manifest_that_is_a_pipe_is_refused_at_once(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    os.mkfifo(folder / MANIFEST)
    with pytest.raises(InputError, match="a named pipe"):
        read_seal(folder)


def test_everything_that_was_added_is_named(folder: Path) -> None:
    (folder / "deep/er").mkdir(parents=True)
    (folder / "link").symlink_to("/")
    os.mkfifo(folder / "pipe")
    assert added(folder) == ["deep/er", "link", "pipe"]


@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b'{"a": ' * 50_000, b"\xff", b"[]", b"3", b'{"a": 1' + b"0" * 5000 + b"}", b""]
)
def test_json_that_is_deep_or_damaged_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(InputError, match=r"x\.json cannot be read"):
        read_json(tmp_path / "x.json")


def test_an_enormous_manifest_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "x.json").open("wb") as file:
        file.truncate(LARGEST_MANIFEST + 1)
    with pytest.raises(InputError, match="larger than 256 MiB"):
        read_json(tmp_path / "x.json")


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """The system refuses to open a file, as it does for a user without permission; the superuser may open all."""
    real = os.open

    def refuse(path: Path) -> None:
        def refusing(name: object, *arguments: Any, **named: Any) -> int:
            if isinstance(name, Path | str) and Path(name) == path:
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return real(name, *arguments, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(os, "open", refusing)

    return refuse


@pytest.mark.parametrize("name", ["inside/a", MANIFEST])
def test_a_file_that_may_not_be_read_is_not_called_damaged(
    folder: Path, refusing: Callable[[Path], None], name: str
) -> None:
    refusing(folder / name)
    with pytest.raises(InputError, match=r"may not be read by this user \(permission denied\)") as said:
        require_unchanged(folder)
    assert name in str(said.value)
    assert "damaged" not in str(said.value)


def test_a_missing_file_is_still_damage(folder: Path) -> None:
    (folder / "inside/a").unlink()
    with pytest.raises(InputError, match="is damaged"):
        require_unchanged(folder)
