"""Manifests of saved folders: kind, version, command, the hash of every file, and a seal, which is its own hash.

A saved folder holds plain files and a ``manifest.json``, which ends in its seal: the SHA-256 of everything else in it.
Since the manifest has the hash of every file, the seal stands for the whole folder; it is the *hash of a result*.

Reading trusts nothing: only plain files are opened, never a link, a pipe or a name outside the folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tokengeom.core.errors import InputError
from tokengeom.core.system import file_hash, not_permitted, open_plain

MANIFEST, SEAL = "manifest.json", "seal"
OF_EVERY_MANIFEST = ("format", "format_version", "tokengeom", "machine", "command", "files", SEAL)
"""Entries of the manifest of a result of any kind."""
LARGEST_MANIFEST = 1 << 28
"""Bytes of the largest manifest that is read."""
_COMMAND: ContextVar[dict[str, Any] | None] = ContextVar("command", default=None)


@contextmanager
def recording_command(command: dict[str, Any]) -> Iterator[None]:
    """Put ``command`` (name, arguments, settings) into every manifest that is written within the block."""
    token = _COMMAND.set(command)
    try:
        yield
    finally:
        _COMMAND.reset(token)


def current_command() -> dict[str, Any] | None:
    """The command that is running; None outside the command line."""
    return _COMMAND.get()


def write_manifest(folder: Path, kind: str, format_version: int, content: dict[str, Any]) -> str:
    """Write the manifest of a folder and return its seal; call it last, because it has the hash of every file."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    manifest = sealed(
        {
            **manifest_head(kind, format_version),
            **content,
            "files": {path.relative_to(folder).as_posix(): file_hash(path, links=False) for path in files},
        }
    )
    (folder / MANIFEST).write_bytes(as_json(manifest))
    return str(manifest[SEAL])


def manifest_head(kind: str, format_version: int) -> dict[str, Any]:
    """Beginning of every manifest: kind and version of the folder, tokengeom's version, machine and command."""
    return {
        "format": kind,
        "format_version": format_version,
        "tokengeom": package_version("tokengeom"),
        "machine": {"system": platform.platform(), "python": platform.python_version(), "cores": os.cpu_count()},
        **({} if (command := current_command()) is None else {"command": command}),
    }


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest's content with its seal: the SHA-256 of the rest of it, as written."""
    rest = {name: value for name, value in content.items() if name != SEAL}
    return {**rest, SEAL: hashlib.sha256(as_json(rest)).hexdigest()}


def as_json(content: Mapping[str, Any]) -> bytes:
    """Plain data as the bytes of a JSON file."""
    # File names may not be valid UTF-8; they are written as escapes, which is valid JSON.
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


def changed_files(folder: Path) -> list[str]:
    """Names of files that are missing, changed or new since the manifest was written; also the manifest itself."""
    stored = _stored_files(folder)
    changed = [] if is_sealed(folder) else [MANIFEST]
    return changed + sorted([*(name for name in stored if not _has_hash(folder / name, stored[name])), *added(folder)])


def added(folder: Path) -> list[str]:
    """Names of what was put into a saved folder later: files, links, and folders without files."""
    return sorted({*_names_inside(folder)} - {MANIFEST, *_stored_files(folder)})


def _names_inside(folder: Path) -> Iterator[str]:
    """Names of files, links, special files and empty folders below a folder; links are not followed."""
    waiting = [folder]
    while waiting:
        place = waiting.pop()
        inside = list(place.iterdir())
        if not inside and place != folder:
            yield place.relative_to(folder).as_posix()
        for path in inside:
            if path.is_dir() and not path.is_symlink():
                waiting.append(path)
            else:
                yield path.relative_to(folder).as_posix()


def is_sealed(folder: Path) -> bool:
    """Whether the manifest is, byte for byte, what its content and its seal give."""
    manifest = _read(folder)
    with open_plain(folder / MANIFEST) as file:
        return file.read() == as_json(sealed(manifest))


def _has_hash(path: Path, expected: str) -> bool:
    try:
        return file_hash(path, links=False) == expected
    except (OSError, InputError) as error:
        if isinstance(error.__cause__, PermissionError):
            raise
        return False


def _stored_files(folder: Path) -> dict[str, str]:
    """Names and hashes in the manifest; a name that leads out of the folder is refused."""
    files = _read(folder).get("files", {})
    if not isinstance(files, dict) or not all(isinstance(value, str) for value in files.values()):
        raise InputError(f"{folder / MANIFEST} is damaged: its list of files cannot be read. Make the result again.")
    for name in files:
        parts = name.split("/")
        if name == MANIFEST or "\\" in name or "\0" in name or any(part in ("", ".", "..") for part in parts):
            raise InputError(
                f"{folder / MANIFEST} is damaged: it names {name!r}, which is not a file inside the folder. "
                "Make the result again."
            )
        for depth in range(1, len(parts)):
            if (folder / "/".join(parts[:depth])).is_symlink():
                raise InputError(f"{folder} is damaged: {'/'.join(parts[:depth])} is a link. Make the result again.")
    return dict(files)


def read_kind(folder: Path) -> str:
    """Kind of a saved folder, such as "tokengeom-run"."""
    return str(_read(folder).get("format"))


def read_seal(folder: Path) -> str:
    """The seal in a folder's manifest: the hash of the result, where nothing was changed."""
    return str(_read(folder).get(SEAL))


def read_manifest(folder: Path, kind: str, newest: int) -> dict[str, Any]:
    """The manifest of a folder of this kind and a version up to ``newest``; other folders are refused."""
    manifest = _read(folder)
    if (other := manifest.get("format")) != kind:
        raise InputError(f"{folder} holds a result of the kind '{other}', not '{kind}'. Choose another folder.")
    stated = manifest.get("format_version")
    if not isinstance(stated, int):
        raise InputError(f"{folder / MANIFEST} is damaged: its format_version must be a number; got {stated!r}.")
    if stated > newest:
        raise InputError(
            f"{folder} has version {stated} of the format '{kind}', written by tokengeom {manifest.get('tokengeom')}; "
            f"this tokengeom reads up to version {newest}. Update tokengeom to read it."
        )
    return manifest


def _read(folder: Path) -> dict[str, Any]:
    try:
        return read_json(folder / MANIFEST)
    except FileNotFoundError:
        no_result = f"contains no saved result: it has no {MANIFEST}."
        raise InputError(f"{folder} {no_result if folder.exists() else 'does not exist. Check the path.'}") from None
    except NotADirectoryError:
        raise InputError(f"{folder} is a file; a saved result is a folder with a {MANIFEST}.") from None
    except PermissionError as error:
        raise not_permitted(folder) from error
    except OSError as error:
        raise InputError(f"{folder / MANIFEST} cannot be read: {error}") from error


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file of ours; one that is damaged, too deep or too large is refused."""
    with open_plain(path) as file:
        if os.fstat(file.fileno()).st_size > LARGEST_MANIFEST:
            raise InputError(f"{path} cannot be read: it is larger than {LARGEST_MANIFEST >> 20} MiB.")
        try:
            content = json.loads(file.read().decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise InputError(f"{path} cannot be read: it must contain an object and contains a {type(content).__name__}.")
    return content


def package_version(package: str) -> str:
    """Version of an installed package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
