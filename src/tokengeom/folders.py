"""Saved folders: a manifest with kind, version and file hashes, and writing that never leaves half a result."""

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
MADE_BY_US = b'<meta name="generator" content="tokengeom'
HEAD_BYTES = 4096
"""What a page says of itself, and the number of bytes at its beginning in which it does."""
_HASH_CHUNK = 1 << 22
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


@contextmanager
def atomic_folder(target: Path, kind: str) -> Iterator[Path]:
    """A new folder that is renamed to ``target`` when the block ends without an error.

    An older result of the same kind is replaced only then; anything else under that name is refused and kept.
    A symbolic link stays a link, and the folder that it points to is replaced.
    """
    check_target(target, kind)
    target = _link_target(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except OSError as error:
        raise ResourceError(f"Cannot write to {target.parent}: {error.strerror}. Choose another folder.") from error
    try:
        yield work
        _move_into_place(work, target, kind)
    # On a full disk safetensors raises its own error instead of an OSError.
    except (OSError, SafetensorError) as error:
        raise ResourceError(
            f"{target} could not be written: {error}. Free some space or choose another folder; "
            "the result that was saved before is intact."
        ) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def check_target(target: Path, kind: str) -> None:
    """Refuse a target that exists, unless it is an empty folder or holds only an older result of the same kind."""
    try:
        folder = _link_target(target)
        if folder.exists():
            with _locked(folder.parent):
                _refuse_other_content(folder, kind)
    except OSError as error:
        raise ResourceError(f"Cannot read {target}: {error.strerror}. Choose another folder.") from error


def _refuse_other_content(target: Path, kind: str) -> None:
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    ours = target.is_dir() and (target / MANIFEST).is_file() and read_kind(target) == kind
    other = new_files(target) if ours else _names_in(target)
    if other:
        raise InputError(
            f"{target} exists and contains something other than a result of the kind '{kind}' (such as {other[0]}); "
            "it was not changed. Choose another folder."
        )


def _move_into_place(work: Path, target: Path, kind: str) -> None:
    """Rename the finished folder to its target; if several processes save to it at once, the last one wins."""
    old = work.with_name(work.name + ".old")
    umask = os.umask(0)
    os.umask(umask)
    work.chmod(0o777 & ~umask)
    with _locked(target.parent):
        _refuse_other_content(target, kind)
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
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder while names in it are checked and changed, where the system has such locks."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        # Some network file systems have no locks; a rename is atomic there too.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _link_target(target: Path) -> Path:
    """The path that a symbolic link points to; any other path itself."""
    return Path(os.path.realpath(target)) if target.is_symlink() else target


def _names_in(target: Path) -> list[str]:
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
    """Write the manifest of a folder; call it last, because the manifest has the hash of every file."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    manifest = {
        **manifest_head(kind, format_version),
        **content,
        "files": {path.relative_to(folder).as_posix(): file_hash(path) for path in files},
    }
    (folder / MANIFEST).write_bytes(as_json(manifest))


def manifest_head(kind: str, format_version: int) -> dict[str, Any]:
    """Beginning of every manifest: kind and version of the folder, tokengeom's version, machine and command."""
    return {
        "format": kind,
        "format_version": format_version,
        "tokengeom": _version(),
        "machine": {"system": platform.platform(), "python": platform.python_version(), "cores": os.cpu_count()},
        **({} if (command := current_command()) is None else {"command": command}),
    }


def as_json(content: dict[str, Any]) -> bytes:
    """Plain data as the bytes of a JSON file."""
    # File names may not be valid UTF-8; they are written as escapes, which is valid JSON.
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


def replace_file(target: Path, content: bytes) -> None:
    """Write a file under a temporary name and rename it, so that it is always either the old or the new one."""
    work = target.with_name(f".{target.name}-{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        work.write_bytes(content)
        work.replace(target)
    except OSError as error:
        raise ResourceError(
            f"{target} could not be written: {error}. Free some space or choose another folder."
        ) from error
    finally:
        work.unlink(missing_ok=True)


def changed_files(folder: Path) -> list[str]:
    """Names of files that are missing, changed or new since the manifest was written."""
    stored = _stored_files(folder)
    missing = [name for name in stored if not (folder / name).is_file()]
    changed = [name for name in stored if name not in missing and file_hash(folder / name) != stored[name]]
    return sorted([*missing, *changed, *new_files(folder)])


def new_files(folder: Path) -> list[str]:
    """Names of files that were added since the manifest was written."""
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    return sorted(present - {MANIFEST} - set(_stored_files(folder)))


def _stored_files(folder: Path) -> dict[str, str]:
    files = _read(folder).get("files")
    return dict(files) if isinstance(files, dict) else {}


def read_kind(folder: Path) -> str:
    """Kind of a saved folder, such as "tokengeom-run"."""
    return str(_read(folder).get("format"))


def read_manifest(folder: Path, kind: str, newest: int) -> dict[str, Any]:
    """The manifest of a folder of this kind and a version up to ``newest``; other folders are refused."""
    manifest = _read(folder)
    if manifest.get("format") != kind:
        other = manifest.get("format")
        raise InputError(f"{folder} holds a result of the kind '{other}', not '{kind}'. Choose another folder.")
    found = manifest.get("format_version")
    if not isinstance(found, int):
        raise InputError(f"{folder / MANIFEST} is damaged: its format_version must be a number; got {found!r}.")
    if found > newest:
        raise InputError(
            f"{folder} has version {found} of the format '{kind}', written by tokengeom {manifest.get('tokengeom')}; "
            f"this tokengeom reads up to version {newest}. Update tokengeom to read it."
        )
    return manifest


def _read(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{folder} {_why_no_result(folder)}") from None
    except NotADirectoryError:
        raise InputError(f"{folder} is a file; a saved result is a folder with a {MANIFEST}.") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    if not isinstance(manifest, dict):
        raise InputError(f"{path} cannot be read: it must contain an object and contains a {type(manifest).__name__}.")
    return manifest


def _why_no_result(folder: Path) -> str:
    if not folder.exists():
        return "does not exist. Check the path."
    return f"contains no saved result: it has no {MANIFEST}."


def _version() -> str:
    try:
        return version("tokengeom")
    except PackageNotFoundError:
        return "not installed"
