"""Saved folders: a manifest that names format, version and files, and writing that never leaves half a result."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from tokengeom.errors import InputError, ResourceError

MANIFEST = "manifest.json"
_HASH_CHUNK = 1 << 22
_COMMAND: ContextVar[dict[str, Any] | None] = ContextVar("command", default=None)


@contextmanager
def written_by(command: dict[str, Any]) -> Iterator[None]:
    """Put ``command`` (name, arguments, settings) into every manifest that is written meanwhile."""
    token = _COMMAND.set(command)
    try:
        yield
    finally:
        _COMMAND.reset(token)


def current_command() -> dict[str, Any] | None:
    """The command that is at work; None where Python code is."""
    return _COMMAND.get()


@contextmanager
def written_beside(target: Path, kind: str) -> Iterator[Path]:
    """A new folder beside ``target`` that takes its name only if everything went well.

    An older result of the same kind stays until the new one is whole; anything else under that name is left alone.
    A link to a folder stays a link: what it leads to is replaced.
    """
    check_target(target, kind)
    target = _led_to(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except OSError as error:
        raise ResourceError(f"Cannot write to {target.parent}: {error.strerror}. Choose another folder.") from error
    try:
        yield work
        _take_place(work, target, kind)
    # The library of safetensors wraps a full disk in an error of its own.
    except (OSError, SafetensorError) as error:
        raise ResourceError(
            f"{target} could not be written: {error}. Free some space or choose another folder; "
            "what was saved before is intact."
        ) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def check_target(target: Path, kind: str) -> None:
    """Refuse to replace anything but nothing, an empty folder, or an older result of the same kind and no more."""
    try:
        place = _led_to(target)
        if place.exists():
            with _alone_in(place.parent):
                _refuse_foreign(place, kind)
    except OSError as error:
        raise ResourceError(f"Cannot look at {target}: {error.strerror}. Choose another folder.") from error


def _refuse_foreign(target: Path, kind: str) -> None:
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    ours = target.is_dir() and (target / MANIFEST).is_file() and read_kind(target) == kind
    foreign = new_files(target) if ours else _some_names(target)
    if foreign:
        raise InputError(
            f"{target} exists and holds something else than a result of the kind '{kind}' (such as {foreign[0]}); "
            "it is left alone. Choose another folder."
        )


def _take_place(work: Path, target: Path, kind: str) -> None:
    """Take the name; of several that save to it at the same time, the last one keeps it, and each is whole."""
    old = work.with_name(work.name + ".old")
    umask = os.umask(0)
    os.umask(umask)
    work.chmod(0o777 & ~umask)
    with _alone_in(target.parent):
        _refuse_foreign(target, kind)
        if target.exists():
            target.rename(old)
        try:
            work.rename(target)
        except BaseException:
            if old.exists():
                old.rename(target)
            raise
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Let one saver at a time look at names in a folder and change them, where the system knows such locks."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        # Some network file systems have no locks; there a rename is still whole.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _led_to(target: Path) -> Path:
    """Where a link leads, so that the link itself stays."""
    return Path(os.path.realpath(target)) if target.is_symlink() else target


def _some_names(target: Path) -> list[str]:
    names = sorted(path.name for path in target.iterdir()) if target.is_dir() else [target.name]
    return [name for name in names if name != MANIFEST] or names


def file_hash(path: Path) -> str:
    """SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_HASH_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def write_manifest(folder: Path, kind: str, format_version: int, content: dict[str, Any]) -> None:
    """Write the manifest last: it carries the hash of every file that is there."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    manifest = {
        **manifest_head(kind, format_version),
        **content,
        "files": {path.relative_to(folder).as_posix(): file_hash(path) for path in files},
    }
    (folder / MANIFEST).write_bytes(as_json(manifest))


def manifest_head(kind: str, format_version: int) -> dict[str, Any]:
    """What every manifest begins with: what this is, and who made it where."""
    return {
        "format": kind,
        "format_version": format_version,
        "tokengeom": _version(),
        "machine": {"system": platform.platform(), "python": platform.python_version(), "cores": os.cpu_count()},
        **({} if (command := current_command()) is None else {"command": command}),
    }


def as_json(content: dict[str, Any]) -> bytes:
    """Plain data as the bytes of a JSON file."""
    # File names need not be UTF-8; an escape is valid JSON.
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


def replace_file(target: Path, content: bytes) -> None:
    """Write a single file beside its place and rename it: the old one or the new one is there, never half of one."""
    work = target.with_name(f".{target.name}-{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        work.write_bytes(content)
        work.replace(target)
    except OSError as error:
        raise ResourceError(
            f"{target} could not be written: {error}. Free some space or choose another place."
        ) from error
    finally:
        work.unlink(missing_ok=True)


def changed_files(folder: Path) -> list[str]:
    """Names of the files that are gone, changed or new since the manifest was written."""
    stored = _stored_files(folder)
    gone = [name for name in stored if not (folder / name).is_file()]
    changed = [name for name in stored if name not in gone and file_hash(folder / name) != stored[name]]
    return sorted([*gone, *changed, *new_files(folder)])


def new_files(folder: Path) -> list[str]:
    """Names of the files that were added since the manifest was written."""
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    return sorted(present - {MANIFEST} - set(_stored_files(folder)))


def _stored_files(folder: Path) -> dict[str, str]:
    files = _read(folder).get("files")
    return dict(files) if isinstance(files, dict) else {}


def read_kind(folder: Path) -> str:
    """What a saved folder holds."""
    return str(_read(folder).get("format"))


def read_manifest(folder: Path, kind: str, newest: int) -> dict[str, Any]:
    """Read a manifest and refuse what is not of this kind, or from a newer version."""
    manifest = _read(folder)
    if manifest.get("format") != kind:
        raise InputError(f"{folder} holds '{manifest.get('format')}', not '{kind}'. Was another folder meant?")
    found = manifest.get("format_version")
    if not isinstance(found, int):
        raise InputError(f"{folder / MANIFEST} is damaged: its format_version must be a number; got {found!r}.")
    if found > newest:
        raise InputError(
            f"{folder} is written in version {found} of '{kind}', by tokengeom "
            f"{manifest.get('tokengeom')}; this one reads up to version {newest}. Update tokengeom to read it."
        )
    return manifest


def _read(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{folder} holds no saved result: there is no {MANIFEST} in it.") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    if not isinstance(manifest, dict):
        raise InputError(f"{path} cannot be read: it must hold an object, and holds a {type(manifest).__name__}.")
    return manifest


def _version() -> str:
    try:
        return version("tokengeom")
    except PackageNotFoundError:
        return "not installed"
