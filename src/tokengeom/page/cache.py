"""Results kept between runs of a report: their folder and keys, its lock, and where a page may be written.

::

    manifest.json     kind, version, machine; key, inputs, seconds and manifest's hash of each stage; name, key, hash
                      and provenance of the page; seal, the hash of all this
    choice/  statistics/  prediction/  run-.../  model-.../  at-loss-.../  comparison-.../  rivals-.../
                      one result per stage
    unfinished/       snapshots of interrupted training, one folder per key

A key is the SHA-256 of a stage's inputs: settings, the version of tokengeom, the hash of the code that runs in the
stage, and the keys of the stages that it was made from. When a stage is made again from other inputs, everything that
was made from its old result is removed, so a folder never mixes two reports.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tokengeom.core.errors import InputError, ResourceError
from tokengeom.core.system import file_hash, is_plain_name, open_plain
from tokengeom.results.contract import AbstractResult
from tokengeom.results.convert import Digest, damaged, from_entries, from_plain
from tokengeom.results.folders import HEAD_BYTES, MADE_BY_US, check_target, remove_result, replace_file, sweep
from tokengeom.results.manifests import (
    MANIFEST,
    as_json,
    changed_files,
    is_sealed,
    manifest_head,
    read_kind,
    read_manifest,
    sealed,
)
from tokengeom.results.registry import KINDS, load
from tokengeom.training.run import Checkpoints

PACKAGE = Path(__file__).parents[1]
KIND, FORMAT_VERSION = "tokengeom-report", 1
UNFINISHED = "unfinished"
PAGE_SUFFIXES = (".html", ".htm")


@cache
def code_hash(names: tuple[str, ...] = ()) -> str:
    """Hash of the files of some packages and modules, such as ``("core", "page.stages")``; by default of all files."""
    files = sorted(path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    places = [name.replace(".", "/") for name in names]
    paths = [path.relative_to(PACKAGE).as_posix() for path in files]
    kept = [path for path in paths if not names or any(path == f"{p}.py" or path.startswith(f"{p}/") for p in places)]
    content = "".join(f"{path} {file_hash(PACKAGE / path)}\n" for path in kept)
    return hashlib.sha256(content.encode()).hexdigest()


class ResultsFolder:
    """The results of one report on disk.

    ``stages``  Key, inputs, seconds and hash of the manifest by name of the stage, in the order in which they were
                made.
    ``page``    Name, key, inputs, hash, seconds and provenance of the page; empty until it is written.
    ``made``    Names of what was made since the folder was opened; the rest was found.
    """

    def __init__(self, folder: Path, version: str) -> None:
        self.folder, self.version = folder, version
        self.stages: dict[str, dict[str, Any]] = {}
        self.page: dict[str, Any] = {}
        self.made: list[str] = []
        self._open()

    def _open(self) -> None:
        # Also where there is no record yet: a report may be killed while it writes the first one.
        if self.folder.is_dir():
            sweep(self.folder)
        if (self.folder / MANIFEST).is_file():
            record = read_record(self.folder)
            self.stages, self.page = record["stages"], record["page"]
        elif self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise InputError(
                f"{self.folder} exists and does not hold the results of a report; it was not changed. Choose another "
                "--out: the folder is named after the page."
            )

    def key(self, name: str, inputs: Mapping[str, Any]) -> str:
        """The key of a stage with these inputs."""
        return key_of(name, self._with_version(inputs))

    def keep(
        self, name: str, inputs: Mapping[str, Any], make: Callable[[], AbstractResult | None]
    ) -> AbstractResult | None:
        """A stage's result: loaded where it was made from the same inputs and is undamaged, else made and saved.

        ``make`` returns None where there is nothing to make; then nothing is saved.
        """
        folder = self.folder / name
        if self.is_current(name, self.key(name, inputs)):
            result: AbstractResult | None = load(folder)
        else:
            self._require_ours(folder)
            began = time.monotonic()
            result = make()
            if result is None:
                return None
            self._forget(name)
            result.save(folder)
            self._enter(name, inputs, time.monotonic() - began)
        self._remove_snapshots(name)
        return result

    def _require_ours(self, folder: Path) -> None:
        """Refuse a stage's folder with something else in it, before the work instead of after it."""
        if folder.is_symlink():
            raise InputError(
                f"{folder} is a link; results are not written through it. Remove it, or choose another --out."
            )
        if (folder / MANIFEST).is_file():
            check_target(folder, read_kind(folder))

    def is_current(self, name: str, key: str) -> bool:
        """Whether the result of a stage was made with this key and is undamaged."""
        entry, folder = self.stages.get(name), self.folder / name
        if entry is None or entry["key"] != key or not (folder / MANIFEST).is_file():
            return False
        return file_hash(folder / MANIFEST) == entry["manifest"] and not changed_files(folder)

    def _enter(self, name: str, inputs: Mapping[str, Any], seconds: float) -> None:
        entry = {
            "key": self.key(name, inputs),
            "seconds": seconds,
            "manifest": file_hash(self.folder / name / MANIFEST),
            "inputs": self._with_version(inputs),
        }
        self.stages[name] = entry
        self.made.append(name)
        self._write()

    def _forget(self, name: str) -> None:
        """Take a stage that is about to be replaced out of the record, with the page and what was made from it.

        The record is written before the files are, so that after a kill it never claims what is not there.
        """
        before = self.stages.pop(name, None)
        # What was made from the older result names it by its hash, also where the key stays the same.
        if before is not None:
            self._remove_dependents(before["key"])
        self.page = {}
        self._write()

    def _remove_dependents(self, key: str) -> None:
        """Remove what was made from the result with this key, directly or through other stages."""
        waiting = [key]
        while waiting:
            old = waiting.pop()
            for name, entry in list(self.stages.items()):
                if old in entry["inputs"].get("stages", {}).values():
                    waiting.append(self.stages.pop(name)["key"])
                    remove_result(self.folder / name, KINDS)

    def snapshots(self, name: str, key: str) -> Path:
        """Folder for the snapshots of a long stage; snapshots made under other keys are removed."""
        self._write()
        own = self.folder / UNFINISHED / f"{name}-{key}"
        self._remove_snapshots(name, keep=own)
        return own

    def _remove_snapshots(self, name: str, keep: Path | None = None) -> None:
        waiting = self.folder / UNFINISHED
        for other in waiting.glob(f"{name}-*"):
            # The name of another stage may begin with this one's: run-ufm and run-ufm-2.
            if other != keep and other.name.rpartition("-")[0] == name:
                Checkpoints(other).remove()
        if waiting.is_dir() and not any(waiting.iterdir()):
            waiting.rmdir()

    def keep_page(
        self,
        target: Path,
        inputs: Mapping[str, Any],
        render: Callable[[], str],
        provenance: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the page, unless it is there and was made from the same inputs."""
        key = self.key("page", inputs)
        if self.page.get("key") == key and target.is_file() and file_hash(target) == self.page["sha256"]:
            return
        began = time.monotonic()
        content = page_bytes(render())
        self.page = {}
        self._write()
        replace_file(target, content)
        self.page = {
            "name": target.name,
            "key": key,
            "sha256": hashlib.sha256(content).hexdigest(),
            "inputs": self._with_version(inputs),
            "seconds": time.monotonic() - began,
            "provenance": dict(provenance or {}),
        }
        self.made.append("page")
        self._write()

    def _with_version(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {**inputs, "tokengeom": self.version}

    def _write(self) -> None:
        record = {**manifest_head(KIND, FORMAT_VERSION), "stages": self.stages, "page": self.page}
        replace_file(self.folder / MANIFEST, as_json(sealed(record)))


@dataclass(frozen=True)
class _StageEntry:
    """What the record has of a stage."""

    key: Digest
    seconds: float
    manifest: Digest
    inputs: Mapping[str, Any]

    def __post_init__(self) -> None:
        made_from = self.inputs.get("stages", {})
        if not isinstance(made_from, dict) or not all(isinstance(key, str) for key in made_from.values()):
            raise ValueError("inputs, stages must be names with keys")


@dataclass(frozen=True)
class _PageEntry:
    """What the record has of the page."""

    name: str
    key: Digest
    sha256: Digest
    inputs: Mapping[str, Any]
    seconds: float
    provenance: Mapping[str, Any]


@dataclass(frozen=True)
class _Shown:
    """Inputs of the page that loading a report needs."""

    title: str
    missing: tuple[str, ...]
    stages: Mapping[str, str]


def page_bytes(page: str) -> bytes:
    """The page as it is written: text that is not valid Unicode is escaped."""
    return page.encode("utf-8", "backslashreplace")


def key_of(name: str, inputs: Mapping[str, Any]) -> str:
    """SHA-256 of a stage's name and inputs."""
    return hashlib.sha256(json.dumps([name, inputs], sort_keys=True).encode()).hexdigest()


def read_record(folder: Path) -> dict[str, Any]:
    """The manifest of a report's results, or an error if it is damaged or was written by a newer version."""
    record = read_manifest(folder, KIND, FORMAT_VERSION)
    if not is_sealed(folder):
        raise InputError(f"{folder / MANIFEST} was changed after it was saved. Restore it, or remove {folder}.")
    if not isinstance(record.get("stages"), dict):
        raise damaged(folder, "stages must be an object with names")
    for name, entry in record["stages"].items():
        from_plain(_StageEntry, entry, folder, f"stages, {name}")
        # Only folders of stages are read: a link or a path could lead anywhere.
        if not is_plain_name(name) or (folder / name).is_symlink() or (folder / name).is_file():
            raise damaged(folder, f"the stage {name!r} is not a folder inside it, or is a link")
    if record.get("page") != {}:
        page = from_plain(_PageEntry, record.get("page"), folder, "page")
        if not is_plain_name(page.name):
            raise damaged(folder, f"the page's name must be a plain name, without a path; got {page.name!r}")
    return record


def read_finished(folder: Path) -> dict[str, Any]:
    """The record of a report whose page was written, with the title, notes and stages of the page."""
    record = read_record(folder)
    if not record["page"]:
        raise InputError(
            f"The report in {folder} is not finished. Run the same command again; finished stages are reused."
        )
    for name, key in from_entries(_Shown, record["page"]["inputs"], folder).stages.items():
        if name not in record["stages"] or record["stages"][name]["key"] != key:
            raise damaged(folder, f"its page shows a stage {name!r}, which is not there")
    return record


def results_folder(page: Path) -> Path:
    """Folder of the results of a page: ``report-results`` beside ``report.html``."""
    return page.with_name(f"{page.stem}-results")


def require_place(page: Path) -> None:
    """Refuse, before minutes of work, a page that cannot be written or would replace a file that is not ours."""
    if page.is_dir():
        raise InputError(f"The page must be a file, such as report.html; {page} is a folder. Give a file name.")
    if page.suffix.lower() not in PAGE_SUFFIXES:
        raise InputError(f"The page must end in {' or '.join(PAGE_SUFFIXES)}; got {page}. Choose another --out.")
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        ours = not page.exists() or _is_ours(page)
    except OSError as error:
        raise ResourceError(f"Cannot write to {page.parent}: {error.strerror}. Choose another folder.") from error
    if not ours:
        raise InputError(
            f"{page} exists and is not a page of tokengeom; it was not changed. Choose another --out, or remove the "
            "file first."
        )


def _is_ours(page: Path) -> bool:
    """Whether a file is empty, says that it is a page of ours, or is named by the results beside it."""
    try:
        with open_plain(page, links=True) as file:
            head = file.read(HEAD_BYTES)
    except InputError:
        return False
    if not head or MADE_BY_US in head:
        return True
    results = results_folder(page)
    return (results / MANIFEST).is_file() and read_record(results)["page"].get("name") == page.name


def require_apart(page: Path, files: Sequence[Path]) -> None:
    """Refuse a page that would replace the text itself, which may look like a page of ours."""
    for path in files:
        if page.exists() and path.exists() and page.samefile(path):
            raise InputError(f"{page} is the text itself, which the page would replace. Choose another --out.")
