"""Results that are kept between runs of a report: one folder a stage, found again by the hash of what went in.

::

    manifest.json     kind, version, machine; key, inputs, seconds and manifest's hash of each stage; the page's hash;
                      seal, the hash of all this
    choice/           settings and why
    statistics/  prediction/  run-.../  comparison-.../      as their own commands save them
    unfinished/       snapshots of training that was stopped, by key

A key is the SHA-256 of the stage's inputs: options, the package's version and code, and the keys of the stages before
it. What was made from an older key is taken away when its stage is made anew, so that a folder never mixes two reports.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tokengeom.errors import InputError
from tokengeom.folders import MANIFEST, as_json, changed_files, file_hash, manifest_head, read_manifest, replace_file

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
