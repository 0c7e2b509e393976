"""Saved folders as the campaign sees them: fingerprints without times, lists of names, and hashes made anew."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
_OF_ONE_RUN = {"seconds", "machine", "command", "tokengeom", "files", "seal", "made_from"}
"""Keys whose values depend on when, where and how a result was made, or on hashes of such values."""


def fingerprint(folder: Path) -> dict[str, str]:
    """Hash of each file of a saved folder, without what differs between two runs of the same command."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            found[path.relative_to(folder).as_posix()] = hashlib.sha256(_content(path)).hexdigest()
    return found


def _content(path: Path) -> bytes:
    if path.suffix == ".json":
        content = json.loads(path.read_bytes())
        if isinstance(content.get("stages"), dict):
            # The record of a report: keys of its stages are hashes of hashes.
            return repr((sorted(content["stages"]), content["page"].get("name"))).encode()
        return json.dumps(_without_times(content), sort_keys=True).encode()
    if path.name == "trajectory.parquet":
        import pyarrow.parquet as pq

        return repr(pq.read_table(path, use_threads=False).drop_columns(["seconds"]).to_pydict()).encode()
    return path.read_bytes()


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_times(item) for name, item in value.items() if name not in _OF_ONE_RUN}
    return [_without_times(item) for item in value] if isinstance(value, list) else value


def listing(*folders: Path) -> list[str]:
    """Everything below the folders, with what it is and, for links, where they point to."""
    found = []
    for folder in folders:
        for root, names, files in os.walk(folder):
            for name in (*names, *files):
                path = Path(root) / name
                kind = f" -> {path.readlink()}" if path.is_symlink() else "/" if path.is_dir() else ""
                found.append(f"{folder.name}/{path.relative_to(folder).as_posix()}{kind}")
    return sorted(found)


def edit_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a manifest in place; its hashes are left as they are."""
    path = folder / MANIFEST
    manifest = json.loads(path.read_bytes())
    change(manifest)
    path.write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def rehash(folder: Path, seals: dict[str, str] | None = None) -> str:
    """Write the hash of every file and the seal anew, as a forger would; returns the seal.

    In the results of a report every stage comes first, with the hashes by which it names other stages, then the record
    of the stages and of the page.

    ``seals``
        Old seals and the new ones, which are written wherever the old ones are named.
    """
    from tokengeom.results.manifests import as_json, sealed

    path, seals = folder / MANIFEST, {} if seals is None else seals
    manifest = json.loads(path.read_bytes())
    if isinstance(stages := manifest.get("stages"), dict):
        _rehash_stages(folder, stages)
        if (page := manifest.get("page")) and (shown := folder.parent / page["name"]).is_file():
            page["sha256"] = _hash(shown)
    else:
        manifest = _renamed(manifest, seals)
        files = sorted(one for one in folder.rglob("*") if one.is_file() and one != path)
        for one in files:
            if one.suffix == ".json" and seals:
                one.write_bytes(as_json(_renamed(json.loads(one.read_bytes()), seals)))
        manifest["files"] = {one.relative_to(folder).as_posix(): _hash(one) for one in files}
    whole = sealed(manifest)
    path.write_bytes(as_json(whole))
    return str(whole["seal"])


def _rehash_stages(folder: Path, stages: dict[str, Any]) -> None:
    seals: dict[str, str] = {}
    for name, entry in stages.items():
        if (folder / name / MANIFEST).is_file():
            old = str(json.loads((folder / name / MANIFEST).read_bytes()).get("seal"))
            seals[old] = rehash(folder / name, seals)
            entry["manifest"] = _hash(folder / name / MANIFEST)


def _renamed(value: Any, names: dict[str, str]) -> Any:
    """Plain data with some strings replaced by others."""
    if isinstance(value, dict):
        return {key: _renamed(one, names) for key, one in value.items()}
    if isinstance(value, list):
        return [_renamed(one, names) for one in value]
    return names.get(value, value) if isinstance(value, str) else value


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
