"""Which code made a result: its hash goes into the keys, so that other code makes the result again.

Results that are kept between runs of a report: one folder a stage, found again by the hash of what went in.

::

    manifest.json     kind, version, machine; key, inputs, seconds and manifest's hash of each stage; the page's hash;
                      seal, the hash of all this
    choice/           settings and why
    statistics/  prediction/  run-.../  comparison-.../      as their own commands save them
    unfinished/       snapshots of training that was stopped, by key

A key is the SHA-256 of the stage's inputs: options, the package's version and code, and the keys of the stages before
it. What was made from an older key is taken away when its stage is made anew, so that a folder never mixes two reports.

Where a report may be written: a page that takes no one's place, and one report at a time in it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from tokengeom.errors import InputError, ResourceError
from tokengeom.folders import MANIFEST, as_json, changed_files, file_hash, manifest_head, read_manifest, replace_file

PACKAGE = Path(__file__).parents[1]
SHOWING = ("cli", "figures", "page/sections", "page/templates", "studies")
"""Parts of the package that show results, and do not make them."""


@cache
def code_hash(*, showing: bool = False) -> str:
    """Hash of the package's files; those that only show results count when asked for."""
    files = sorted(path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    names = [path.relative_to(PACKAGE).as_posix() for path in files]
    kept = [name for name in names if showing or not name.startswith(tuple(f"{part}/" for part in SHOWING))]
    content = "".join(f"{name} {file_hash(PACKAGE / name)}\n" for name in kept)
    return hashlib.sha256(content.encode()).hexdigest()


FORMAT, FORMAT_VERSION = "tokengeom-report", 1
UNFINISHED, SEAL = "unfinished", "seal"
Kept = TypeVar("Kept")


class Results:
    """The folder of one report.

    ``stages``
        Name -> key, inputs, seconds, hash of the manifest, in the order of making.
    ``page``
        Name relative to the folder, key, inputs and hash of the page; empty until it is written.
    """

    def __init__(self, folder: Path, version: str) -> None:
        self.folder, self.version = folder, version
        self.stages: dict[str, dict[str, Any]] = {}
        self.page: dict[str, Any] = {}
        self.made: list[str] = []
        self._open()

    def _open(self) -> None:
        if (self.folder / MANIFEST).is_file():
            record = read_record(self.folder)
            self.stages, self.page = record["stages"], record["page"]
            self._sweep()
        elif self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise InputError(
                f"{self.folder} exists and holds something else than the results of a report; it is left alone. "
                "Choose another --out, which the folder is named after."
            )
        else:
            self._write()

    def _sweep(self) -> None:
        """Take away what a killed process was writing: hidden folders beside the stages."""
        for path in self.folder.iterdir():
            if path.is_dir() and path.name.startswith("."):
                shutil.rmtree(path, ignore_errors=True)

    def key(self, name: str, inputs: Mapping[str, Any]) -> str:
        """What a stage's result is found by."""
        return key_of(name, self._complete(inputs))

    def keep(
        self, name: str, inputs: Mapping[str, Any], make: Callable[[Path], Kept], load: Callable[[Path], Kept]
    ) -> Kept:
        """A stage's result: loaded if it was made from the same inputs and is unharmed, else made and entered.

        ``make`` saves its result in the folder that it is given and returns it.
        """
        folder = self.folder / name
        if self._holds(name, self.key(name, inputs)):
            return load(folder)
        began = time.monotonic()
        value = make(folder)
        self._enter(name, inputs, time.monotonic() - began)
        return value

    def _holds(self, name: str, key: str) -> bool:
        entry, folder = self.stages.get(name), self.folder / name
        if entry is None or entry["key"] != key or not (folder / MANIFEST).is_file():
            return False
        return file_hash(folder / MANIFEST) == entry["manifest"] and not changed_files(folder)

    def _enter(self, name: str, inputs: Mapping[str, Any], seconds: float) -> None:
        before = self.stages.pop(name, None)
        entry = {
            "key": self.key(name, inputs),
            "seconds": seconds,
            "manifest": file_hash(self.folder / name / MANIFEST),
            "inputs": self._complete(inputs),
        }
        if before is not None and before["key"] != entry["key"]:
            self._drop_what_came_from(before["key"])
        self.stages[name] = entry
        self.made.append(name)
        self._write()

    def _drop_what_came_from(self, key: str) -> None:
        waiting = [key]
        while waiting:
            old = waiting.pop()
            for name, entry in list(self.stages.items()):
                if old in entry["inputs"].get("stages", {}).values():
                    waiting.append(self.stages.pop(name)["key"])
                    shutil.rmtree(self.folder / name, ignore_errors=True)

    def snapshots(self, name: str, inputs: Mapping[str, Any]) -> Path:
        """Where a long stage keeps what it has so far; snapshots of other inputs are taken away."""
        mine = self.folder / UNFINISHED / f"{name}-{self.key(name, inputs)}"
        for other in (self.folder / UNFINISHED).glob(f"{name}-*"):
            if other != mine:
                shutil.rmtree(other, ignore_errors=True)
        return mine

    def forget_snapshots(self, name: str, inputs: Mapping[str, Any]) -> None:
        """The stage is finished."""
        shutil.rmtree(self.snapshots(name, inputs), ignore_errors=True)
        waiting = self.folder / UNFINISHED
        if waiting.is_dir() and not any(waiting.iterdir()):
            waiting.rmdir()

    def keep_page(self, target: Path, inputs: Mapping[str, Any], make: Callable[[], str]) -> None:
        """Write the page, unless it is there as it was made from the same inputs."""
        key = self.key("page", inputs)
        if self.page.get("key") == key and target.is_file() and file_hash(target) == self.page["sha256"]:
            return
        content = make().encode("utf-8", "backslashreplace")
        replace_file(target, content)
        digest = hashlib.sha256(content).hexdigest()
        self.page = {"name": target.name, "key": key, "sha256": digest, "inputs": self._complete(inputs)}
        self.made.append("page")
        self._write()

    def _complete(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {**inputs, "tokengeom": self.version}

    def _write(self) -> None:
        record = {**manifest_head(FORMAT, FORMAT_VERSION), "stages": self.stages, "page": self.page}
        replace_file(self.folder / MANIFEST, as_json(sealed(record)))


def key_of(name: str, inputs: Mapping[str, Any]) -> str:
    """SHA-256 of a stage's name and inputs."""
    return hashlib.sha256(json.dumps([name, inputs], sort_keys=True).encode()).hexdigest()


def sealed(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record with the SHA-256 of all the rest of it, since no other file holds its hash."""
    rest = {name: value for name, value in record.items() if name != SEAL}
    return {**rest, SEAL: hashlib.sha256(as_json(rest)).hexdigest()}


def read_record(folder: Path) -> dict[str, Any]:
    """The manifest of a report's results, refused in words if it is damaged or from a newer version."""
    record = read_manifest(folder, FORMAT, FORMAT_VERSION)
    stages, page = record.get("stages"), record.get("page")
    fields = {"key", "inputs", "seconds", "manifest"}
    entries = list(stages.values()) if isinstance(stages, dict) and isinstance(page, dict) else [None]
    if not all(isinstance(entry, dict) and fields <= set(entry) for entry in entries):
        raise InputError(f"{folder / MANIFEST} is damaged: its list of stages cannot be read. Remove {folder}.")
    return record


def results_folder(page: Path) -> Path:
    """Where the results of a page lie: ``report.html`` has ``report-results`` beside it."""
    return page.with_name(f"{page.stem}-results")


MADE_BY_US = b'<meta name="generator" content="tokengeom'
HEAD_BYTES = 4096
"""Of a file, enough to see who made it."""


def require_place(page: Path) -> None:
    """Before minutes of work, not after: the page must be a file that can be written, and no one's work but ours."""
    if page.is_dir():
        raise InputError(f"The page is one file, such as report.html; {page} is a folder. Give a file's name.")
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        ours = not page.exists() or _is_ours(page)
    except OSError as error:
        raise ResourceError(f"Cannot write to {page.parent}: {error.strerror}. Choose another place.") from error
    if not ours:
        raise InputError(
            f"{page} exists and is not a page of tokengeom; it is left alone. Choose another --out, or remove it first."
        )


def _is_ours(page: Path) -> bool:
    """Whether a page says so itself, or the results beside it name it; an empty file is no one's work."""
    with page.open("rb") as file:
        head = file.read(HEAD_BYTES)
    if not head or MADE_BY_US in head:
        return True
    results = results_folder(page)
    return (results / MANIFEST).is_file() and read_record(results)["page"].get("name") == page.name


def require_apart(page: Path, files: Sequence[Path]) -> None:
    """The text must not be what the page replaces, even if it looks like a page."""
    for path in files:
        if page.exists() and path.exists() and page.samefile(path):
            raise InputError(f"{page} is the text itself, which the page would replace. Choose another --out.")


@contextmanager
def only_writer(results: Path) -> Iterator[None]:
    """Hold a folder of results for one report; a second one is refused while the first is at work.

    The system lets go of the lock when its process ends in any way; what is left of a killed one is an empty hidden
    file, which the next report takes over and removes.
    """
    if find_spec("fcntl") is None:
        yield
        return
    lock = results.with_name(f".{results.name}.lock")
    descriptor = _locked(lock, results)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(descriptor)


def _locked(lock: Path, results: Path) -> int:
    import fcntl

    while True:
        try:
            descriptor = os.open(lock, os.O_CREAT | os.O_RDWR, 0o666)
        except OSError as error:
            raise ResourceError(f"Cannot write to {lock.parent}: {error.strerror}. Choose another place.") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise InputError(
                f"Another report is being written to {results} at this moment. Wait until it has ended, or choose "
                "another --out."
            ) from None
        except OSError:
            # Some network file systems have no locks; there reports are only kept whole, not apart.
            return descriptor
        # A report that just ended may have removed the file after it was opened here: then it guards nothing.
        if lock.exists() and os.fstat(descriptor).st_ino == lock.stat().st_ino:
            return descriptor
        os.close(descriptor)
