"""Saved folders: links are kept, simultaneous saves do not mix, and other files are never replaced."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from tokengeom.errors import InputError, ResourceError
from tokengeom.folders import (
    atomic_folder,
    changed_files,
    check_target,
    current_command,
    recording_command,
    write_manifest,
)

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


def test_a_failed_rename_keeps_the_old_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "r", "old")
    real = Path.rename

    def refuse(self: Path, target: Path) -> Path:
        if self.name.startswith(".r-") and not self.name.endswith(".old"):
            raise OSError(28, "No space left on device")
        return real(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(ResourceError, match="saved before is intact"):
        save(tmp_path / "r", "new")
    assert (tmp_path / "r/a").read_text() == "old"


def test_the_running_command_is_in_manifests_and_then_forgotten(tmp_path: Path) -> None:
    with recording_command({"name": "count", "settings": {"context": 4}}):
        save(tmp_path / "r", "x")
    assert json.loads((tmp_path / "r/manifest.json").read_text())["command"]["settings"] == {"context": 4}
    assert current_command() is None
