"""Saved folders: links are kept, simultaneous saves do not mix, and other files are never replaced."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from tokengeom.core.errors import InputError, ResourceError
from tokengeom.results import folders
from tokengeom.results.folders import (
    atomic_folder,
    check_target,
    exchange,
    only_writer,
    remove_result,
    replace_file,
    require_ours,
    sweep,
    work_folder,
)
from tokengeom.results.manifests import changed_files, current_command, recording_command, write_manifest

KIND = "tokengeom-test"


def save(target: Path, text: str, kind: str = KIND) -> None:
    with atomic_folder(target, kind) as work:
        for name in ("a", "b"):
            (work / name).write_text(text)
        write_manifest(work, kind, 1, {"text": text})


def test_a_link_is_kept_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    save(tmp_path / "disk/result", "old")
    (tmp_path / "link").symlink_to(tmp_path / "disk/result")
    save(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "disk/result/a").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disk", "link"]
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["result"]


def test_a_link_to_a_missing_or_empty_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("absent", "empty"):
        (tmp_path / f"to-{name}").symlink_to(name)
        save(tmp_path / f"to-{name}", name)
        assert (tmp_path / name / "a").read_text() == name
        assert (tmp_path / f"to-{name}").is_symlink()


def test_a_link_to_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own/letter.txt").write_text("dear")
    (tmp_path / "link").symlink_to("own")
    with pytest.raises(InputError, match="letter"):
        save(tmp_path / "link", "x")
    assert (tmp_path / "own/letter.txt").read_text() == "dear"


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ResourceError):
        save(tmp_path / "loop", "x")


def test_simultaneous_saves_do_not_mix(tmp_path: Path) -> None:
    """Many threads, each with its own lock on the folder as processes have, save to one name."""
    target, failures = tmp_path / "result", list[Exception]()
    start = threading.Barrier(6)

    def work(name: str) -> None:
        start.wait()
        try:
            for number in range(8):
                save(target, f"{name}{number}")
                check_target(target, KIND)
        except (InputError, ResourceError) as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in "uvwxyz"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    texts = {(target / name).read_text() for name in ("a", "b")}
    assert (failures, changed_files(target), len(texts)) == ([], [], 1)
    assert texts == {json.loads((target / "manifest.json").read_text())["text"]}
    assert [path.name for path in tmp_path.iterdir()] == ["result"], "no temporary folder remains"


def test_a_result_of_another_kind_that_was_saved_meanwhile_is_kept(tmp_path: Path) -> None:
    def slow() -> None:
        with atomic_folder(tmp_path / "r", KIND) as work:
            write_manifest(work, KIND, 1, {})
            save(tmp_path / "r", "quick", kind="tokengeom-other")

    with pytest.raises(InputError, match="something other"):
        slow()
    assert (tmp_path / "r/a").read_text() == "quick"
    assert [path.name for path in tmp_path.iterdir()] == ["r"]


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_failed_rename_keeps_the_old_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "r", "old")
    real = Path.rename

    def refuse(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise OSError(28, "No space left on device")
        return real(self, target)

    monkeypatch.setattr(folders, "exchange", lambda *names: False)
    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(ResourceError, match="saved before is intact"):
        save(tmp_path / "r", "new")
    assert ((tmp_path / "r/a").read_text(), names_in(tmp_path)) == ("old", ["r"])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems may lack the exchange of names")
def test_two_folders_exchange_their_names_in_one_step(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    assert exchange(tmp_path / "a", tmp_path / "b")
    assert (names_in(tmp_path / "a"), names_in(tmp_path / "b")) == (["b"], ["a"])
    assert not exchange(tmp_path / "a", tmp_path / "missing")


KILLED = """
import os, signal, sys
from pathlib import Path
from tokengeom.results import folders
from tokengeom.results.manifests import changed_files, write_manifest

home, how = Path(sys.argv[1]), sys.argv[2]
WATCHED = ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "shutil.", "tempfile.", "ctypes.dlsym")
if how == "two renames":
    folders.exchange = lambda *names: False

def save(text):
    with folders.atomic_folder(home / "r", "tokengeom-test") as work:
        (work / "a").write_text(text)
        write_manifest(work, "tokengeom-test", 1, {"text": text})

def save_and_be_killed(number):
    seen = 0
    def count(event, arguments):
        nonlocal seen
        if event.startswith(WATCHED) or (event == "open" and "r" not in str(arguments[1] or "w")):
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(count)
    save("new")
    os._exit(0)

number, status = 0, 1
while status:
    number += 1
    save("old")
    child = os.fork()
    if child == 0:
        save_and_be_killed(number)
    status = os.waitpid(child, 0)[1]
    folders.sweep(home)
    left = sorted(path.name for path in home.iterdir())
    print((home / "r/a").read_text(), left == ["r"], changed_files(home / "r") == [])
"""


@pytest.mark.parametrize("how", ["exchange", "two renames"])
def test_a_kill_at_any_file_operation_leaves_the_old_result_or_the_new_one(tmp_path: Path, how: str) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path), how]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert len(lines) > 8, "as many kills as there are file operations"
    assert set(lines) == {"old True True", "new True True"}


def test_only_the_work_folders_of_dead_processes_are_swept(tmp_path: Path) -> None:
    (tmp_path / ".mine").mkdir()
    (tmp_path / ".tokengeom-notes").mkdir()
    (tmp_path / ".tokengeom-notes/letter").write_text("dear")
    (tmp_path / ".tokengeom-forged").mkdir()
    (tmp_path / ".tokengeom-forged/owner.json").write_text('{"format": "another program"}')
    (tmp_path / ".tokengeom-link").symlink_to(tmp_path / ".mine")
    with work_folder(tmp_path) as living:
        sweep(tmp_path)
        assert living.is_dir()
        assert living.stat().st_mode & 0o77 == 0, "only its owner may read it"
    (tmp_path / ".tokengeom-dead").mkdir()
    (tmp_path / ".tokengeom-dead/owner.json").write_text('{"format": "tokengeom-work", "target": "../r"}')
    (tmp_path / ".tokengeom-empty").mkdir()
    sweep(tmp_path)
    assert ".tokengeom-dead" in names_in(tmp_path), "a target outside the folder is not one of ours"
    (tmp_path / ".tokengeom-dead/owner.json").write_text('{"format": "tokengeom-work", "target": "r"}')
    sweep(tmp_path)
    assert names_in(tmp_path) == [".mine", ".tokengeom-forged", ".tokengeom-link", ".tokengeom-notes"]


@pytest.mark.parametrize("put", ["folder", "link", "file", "nested/folder"])
def test_what_was_put_into_a_result_keeps_it_from_being_replaced(tmp_path: Path, put: str) -> None:
    save(tmp_path / "r", "old")
    place = tmp_path / "r" / put
    place.parent.mkdir(exist_ok=True)
    if put == "link":
        place.symlink_to(tmp_path)
    elif put == "file":
        place.write_text("mine")
    else:
        place.mkdir()
    with pytest.raises(InputError, match=put):
        save(tmp_path / "r", "new")
    assert not remove_result(tmp_path / "r", {KIND})
    assert ((tmp_path / "r/a").read_text(), os.path.lexists(place)) == ("old", True)


def test_a_result_is_removed_by_its_kind(tmp_path: Path) -> None:
    save(tmp_path / "r", "x")
    assert not remove_result(tmp_path / "r", {"tokengeom-other"})
    assert not remove_result(tmp_path / "missing", {KIND})
    (tmp_path / "link").symlink_to(tmp_path / "r")
    assert not remove_result(tmp_path / "link", {KIND})
    assert remove_result(tmp_path / "r", {KIND})
    assert names_in(tmp_path) == ["link"]


def test_a_file_replaces_a_planted_link_and_not_what_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "page").symlink_to(tmp_path / "secret")
    replace_file(tmp_path / "page", b"page")
    assert ((tmp_path / "secret").read_text(), (tmp_path / "page").read_text()) == ("secret", "page")
    assert not (tmp_path / "page").is_symlink()


def test_a_file_that_is_not_ours_is_not_replaced(tmp_path: Path) -> None:
    require_ours(tmp_path / "new", b"mark")
    for name, content in (("ours", b"a mark here"), ("empty", b"")):
        (tmp_path / name).write_bytes(content)
        require_ours(tmp_path / name, b"mark")
    (tmp_path / "thesis").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "ours")
    os.mkfifo(tmp_path / "pipe")
    for name in ("thesis", "link", "pipe"):
        with pytest.raises(InputError, match="was not written by tokengeom"):
            require_ours(tmp_path / name, b"mark")


def test_the_running_command_is_in_manifests_and_then_forgotten(tmp_path: Path) -> None:
    with recording_command({"name": "count", "settings": {"context": 4}}):
        save(tmp_path / "r", "x")
    assert json.loads((tmp_path / "r/manifest.json").read_text())["command"]["settings"] == {"context": 4}
    assert current_command() is None


def test_modes_follow_the_umask_whichever_library_writes(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    before = os.umask(0o027)
    try:
        with atomic_folder(tmp_path / "r", KIND) as work:
            save_file({"W": np.eye(2)}, work / "arrays.safetensors")
            (work / "inside").mkdir()
            (work / "inside/private").touch(0o600)
            write_manifest(work, KIND, 1, {})
        replace_file(tmp_path / "page", b"page")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    assert {modes.pop("r"), modes.pop("inside")} == {0o750}
    assert modes == dict.fromkeys(("arrays.safetensors", "private", "manifest.json", "page"), 0o640)


def test_everything_is_on_the_disk_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real, rename = os.fsync, Path.rename

    def noted(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        real(descriptor)

    def renamed(self: Path, target: Path) -> Path:
        synced.append(f"rename to {Path(target).name}")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(Path, "rename", renamed)
    save(tmp_path / "r", "new")
    assert sorted(synced[:4]) == ["a", "b", "manifest.json", "new"]
    assert synced[4:] == ["rename to r", tmp_path.name]


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_fails_while_it_writes_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: int
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(fault, os.strerror(fault))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ResourceError, match=os.strerror(fault)):
        save(tmp_path / "deep/er/r", "new")
    assert names_in(tmp_path) == [], "folders that were made for it are removed"


def test_a_file_system_that_cannot_sync_folders_is_used_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(descriptor: int) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", cannot)
    save(tmp_path / "r", "new")
    assert (tmp_path / "r/a").read_text() == "new"


def test_a_file_where_a_folder_is_needed_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ResourceError, match=r"Cannot make the folder .*file/x: .*file is a file\. Choose another"):
        save(tmp_path / "file/x/r", "new")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("target", [".", "", "/"])
def test_the_current_folder_the_root_and_an_empty_path_are_not_places_of_a_result(target: str) -> None:
    with pytest.raises(InputError, match="needs a folder of its own"), only_writer(Path(target)):
        raise AssertionError("no lock is held")
    with pytest.raises(InputError, match="needs a folder of its own"), atomic_folder(Path(target), "kind"):
        raise AssertionError("no folder is made")
