"""Forged results: a saved folder is edited, and its hashes and seal are written anew, as a forger would.

Only what `checks` computes again can show such an edit; a damaged file or an edit without new hashes is refused before.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from tokengeom.core.system import file_hash
from tokengeom.results.manifests import MANIFEST, as_json, read_seal, sealed

Entry = tuple[str | int, ...]
"""Where a value is in a manifest: names of objects and places in lists, from the outside in."""


def forge(folder: Path, change: Callable[[dict[str, Any]], object] = lambda manifest: None) -> Path:
    """Change the manifest in place, then write the hash of every file and the seal; files may be edited before."""
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    change(manifest)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    manifest["files"] = {path.relative_to(folder).as_posix(): file_hash(path) for path in files}
    (folder / MANIFEST).write_bytes(as_json(sealed(manifest)))
    return folder


def forge_entry(folder: Path, entry: Entry | str, change: Callable[[Any], Any]) -> Path:
    """Replace one value of the manifest by what ``change`` makes of it."""
    *outer, last = (entry,) if isinstance(entry, str) else entry

    def replace(manifest: dict[str, Any]) -> None:
        inside: Any = manifest
        for name in outer:
            inside = inside[name]
        inside[last] = change(inside[last])

    return forge(folder, replace)


def forge_array(folder: Path, file: str, name: str, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Path:
    """Replace one array of a safetensors file by what ``change`` makes of a copy of it."""
    arrays = load_file(folder / file)
    changed = change(arrays[name].copy())
    save_file(arrays | {name: np.ascontiguousarray(changed)}, folder / file)
    return forge(folder)


def forge_json(folder: Path, file: str, entry: Entry | str, change: Callable[[Any], Any]) -> Path:
    """Replace one value of a JSON file, and the same entry of the manifest where that repeats it."""
    *outer, last = (entry,) if isinstance(entry, str) else entry
    content = inside = json.loads((folder / file).read_text(encoding="utf-8"))
    for name in outer:
        inside = inside[name]
    inside[last] = change(inside[last])
    (folder / file).write_bytes(as_json(content))
    repeats = not outer and last in json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    return forge_entry(folder, str(last), lambda before: inside[last]) if repeats else forge(folder)


def forge_report(results: Path, forged: Callable[[Path], object], stage: str) -> Path:
    """Forge one stage of a report, then every hash that depends on it: in later stages and in the report's record."""
    before = read_seal(results / stage)
    forged(results / stage)
    after = read_seal(results / stage)
    for file in (*results.glob("comparison-*/comparison.json"), *results.glob("rivals-*/rivals.json")):
        file.write_text(file.read_text(encoding="utf-8").replace(before, after), encoding="utf-8")
        forge(file.parent)

    def renew(record: dict[str, Any]) -> None:
        for name, one in record["stages"].items():
            one["manifest"] = file_hash(results / name / MANIFEST)

    return forge_record(results, renew)


def forge_record(results: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Change the record of a report in place, and seal it again."""
    record = json.loads((results / MANIFEST).read_text(encoding="utf-8"))
    change(record)
    (results / MANIFEST).write_bytes(as_json(sealed(record)))
    return results
