"""Writing that never leaves half a result, never replaces what is not ours, and is cleaned up after a kill.

Everything is written inside a *work folder* beside its target::

    .tokengeom-XXXXXXXX/    private, with an unpredictable name
        owner.json          name of the target; locked while the process that works here lives
        new/                the result, until it is complete
        old/                the older result, where names cannot be exchanged in one step

A complete result and the older one exchange their names in one step. Where the system cannot do that, a kill between
the two renames is repaired at the next use: `sweep` puts the older result back. It also removes the work folders whose
owner is gone; they are recognised by the owner file, and a folder without one is left alone. A process that is
interrupted removes its own, also where the interruption came before the block that uses them.

Files are written to the disk itself before a result gets its name, and the name after it: after a power loss, as after
a kill, there is the older result or the new one. Their modes follow the umask, whichever library wrote them.
"""

from __future__ import annotations

import atexit
import ctypes
import errno
import json
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Container, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from safetensors import SafetensorError

from tokengeom.core.errors import CorpusError, InputError, ResourceError
from tokengeom.core.system import open_plain
from tokengeom.results.manifests import MANIFEST, added, as_json, read_kind

MADE_BY_US = b'<meta name="generator" content="tokengeom'
FIGURE_BY_US = b"tokengeom figure"
HEAD_BYTES = 4096
"""What pages and pictures of ours say of themselves, and how many bytes at the beginning of a page have it."""
_PREFIX, _OWNER, _NEW, _OLD, _WORK = ".tokengeom-", "owner.json", "new", "old", "tokengeom-work"
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)
"""The beginning of an address, also after ``Path`` has merged its slashes; one letter is a drive of Windows."""
_HAS_LOCKS = find_spec("fcntl") is not None
_CLAIMED: dict[Path, tuple[int, str | None]] = {}
"""Work folders of this process (its number, since a child inherits this) with the names of their targets."""


@contextmanager
def atomic_folder(target: Path, kind: str) -> Iterator[Path]:
    """A new folder that becomes ``target`` when the block ends without an error.

    An older result of the same kind is replaced only then; anything else under that name is refused and kept.
    A symbolic link stays a link, and the folder that it points to is replaced.
    """
    check_target(target, kind)
    target = _link_target(target)
    with _full_disk_explained(target), made(target.parent) as parent, work_folder(parent, target.name) as work:
        (work / _NEW).mkdir()
        yield work / _NEW
        _settle(work / _NEW)
        _move_into_place(work, target, kind)
        _sync(parent)


@contextmanager
def atomic_file(target: Path) -> Iterator[Path]:
    """A path to write a file to, which becomes ``target`` when the block ends without an error.

    A link under that name is replaced and not followed.
    """
    with _full_disk_explained(target), made(target.parent) as parent, work_folder(parent) as work:
        yield work / _NEW
        _sync(work / _NEW)
        (work / _NEW).replace(target)
        _sync(parent)


def _settle(folder: Path) -> None:
    """Give every file the mode that the umask gives, which the new folder has, and write everything to the disk."""
    mode = folder.stat().st_mode & 0o666
    for path in (*folder.rglob("*"), folder):
        if path.is_file() and path.stat().st_mode & 0o777 != mode:
            path.chmod(mode)
        _sync(path)


def _sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk, where the system and the file system can."""
    if not _HAS_LOCKS:
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def replace_file(target: Path, content: bytes) -> None:
    """Write a file, which is always either the old or the new one."""
    with atomic_file(target) as new:
        new.write_bytes(content)


def refuse_address(name: str | Path) -> None:
    """Refuse an address such as ``s3://...``, unless it is the name of a file: nothing is downloaded or uploaded."""
    if _ADDRESS.match(str(name)) and not os.path.lexists(name):
        # A path has one slash where an address has two.
        address = re.sub(":/+", "://", str(name), count=1)
        raise CorpusError(
            f"Files and folders must be local; got the address '{address}'. Nothing is downloaded or uploaded: copy it "
            "to this machine and give its path. Only Parquet files of token ids may be at an address, with --engine "
            "spark."
        )


def require_ours(target: Path, *marks: bytes) -> None:
    """Refuse to replace a file that does not have one of our marks; an empty file may be replaced."""
    if not os.path.lexists(target):
        return
    try:
        with open_plain(target) as file:
            ours = not (content := file.read()) or any(mark in content for mark in marks)
    except InputError:
        ours = False
    if not ours:
        raise InputError(
            f"{target} exists and was not written by tokengeom; it was not changed. Choose another name, or remove the "
            "file first."
        )


def require_name(target: Path) -> None:
    """Refuse the current folder, the root and an empty path as the place of a result: they cannot be exchanged."""
    if not target.name:
        raise InputError(f"A result needs a folder of its own; got '{target}'. Name one, such as {target / 'results'}.")


def check_target(target: Path, kind: str) -> None:
    """Refuse a target that exists, unless it is an empty folder or holds only an older result of the same kind."""
    require_name(target)
    try:
        folder = _link_target(target)
        if folder.parent.is_dir():
            sweep(folder.parent)
        if folder.exists():
            with _locked(folder.parent):
                _refuse_other_content(folder, kind)
    except OSError as error:
        raise ResourceError(f"Cannot read {target}: {error.strerror}. Choose another folder.") from error


def remove_result(folder: Path, kinds: Container[str]) -> bool:
    """Remove a saved result of these kinds in one step; False where the folder holds anything else, which stays."""
    try:
        ours = not folder.is_symlink() and read_kind(folder) in kinds and not added(folder)
    except (InputError, OSError):
        return False
    if ours:
        with work_folder(folder.parent) as work:
            folder.rename(work / _NEW)
    return ours


@contextmanager
def made(folder: Path) -> Iterator[Path]:
    """The folder, which is made where there is none; where the block fails, what was made is removed if it is empty."""
    refuse_address(folder)
    new = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            file = next((path for path in (folder, *folder.parents) if path.exists() and not path.is_dir()), None)
            why = error.strerror if file is None else f"{file} is a file"
            raise ResourceError(f"Cannot make the folder {folder}: {why}. Choose another folder.") from error
        for path in new:
            _sync(path.parent)
        yield folder
    except BaseException:
        for path in new:
            with suppress(OSError):
                path.rmdir()
        raise


@contextmanager
def work_folder(parent: Path, target: str | None = None) -> Iterator[Path]:
    """A private folder inside ``parent``, which is removed when the block ends; what dead processes left is swept.

    ``target``  Name in ``parent`` of the result that is being written there.
    """
    try:
        sweep(parent)
        work, descriptor = _claim(parent, target)
    except OSError as error:
        raise ResourceError(f"Cannot write to {parent}: {error.strerror}. Choose another folder.") from error
    try:
        yield work
    finally:
        _release(work)
        os.close(descriptor)


@atexit.register
def remove_work_folders() -> None:
    """Remove the work folders of this process, where an interruption has kept it from doing so."""
    for work, (process, _) in list(_CLAIMED.items()):
        if process == os.getpid():
            _release(work)


def _release(work: Path) -> None:
    """Remove a work folder of this process; an older result that was moved there, and not replaced, is put back."""
    _put_back(work, _CLAIMED.get(work, (0, None))[1])
    _remove_work(work)
    _CLAIMED.pop(work, None)


def _put_back(work: Path, target: str | None) -> None:
    if target and (work / _OLD).is_dir() and not os.path.lexists(work.parent / target):
        (work / _OLD).rename(work.parent / target)


@contextmanager
def only_writer(results: Path) -> Iterator[None]:
    """Hold a lock on a folder of results; a second command that writes to the same folder is refused meanwhile.

    The lock lies beside the folder: the folder that holds both is made where there is none.
    The system releases the lock when the process ends; the next command uses and removes the file of a killed one.
    """
    with made(results.parent), ExitStack() as stack:
        if _HAS_LOCKS:
            lock = lock_of(results)
            stack.callback(os.close, _lock_file(lock, results))
            stack.callback(lock.unlink, missing_ok=True)
        yield


def lock_of(results: Path) -> Path:
    """The file that `only_writer` locks, beside the folder."""
    require_name(results)
    return results.with_name(f".{results.name}.lock")


def _lock_file(lock: Path, results: Path) -> int:
    import fcntl

    while True:
        try:
            descriptor = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o666)
            about = os.fstat(descriptor)
            if about.st_size or not stat.S_ISREG(about.st_mode):
                os.close(descriptor)
                raise InputError(f"{lock} is not a lock of tokengeom; it was not changed. Choose another --out.")
        except OSError as error:
            raise ResourceError(f"Cannot write to {lock.parent}: {error.strerror}. Choose another folder.") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise InputError(
                f"Another command is writing to {results}. Wait until it has finished, or choose another --out."
            ) from None
        except OSError:
            # Some network file systems have no locks; there, two writers at a time are not prevented.
            return descriptor
        # A command that has just finished may have removed the file after it was opened here; such a lock is void.
        if lock.exists() and os.fstat(descriptor).st_ino == lock.stat().st_ino:
            return descriptor
        os.close(descriptor)


def sweep(parent: Path) -> None:
    """Remove the work folders of processes that are gone, and put back an older result that one of them had moved."""
    for path in parent.glob(f"{_PREFIX}*"):
        # A folder that someone else owns, or that disappears meanwhile, is left alone.
        with suppress(OSError):
            _sweep_one(path)


def _sweep_one(work: Path) -> None:
    about = work.lstat()
    if not stat.S_ISDIR(about.st_mode) or (hasattr(os, "getuid") and about.st_uid != os.getuid()):
        return
    if not os.path.lexists(work / _OWNER):
        # A process may be killed before it has written its owner file; only an empty folder is removed.
        work.rmdir()
        return
    with open_plain(work / _OWNER) as file:
        if not _lock(file.fileno(), wait=False):
            return
        content = file.read(HEAD_BYTES)
        target = _target_of(content)
        if content and target is None:
            return
        _put_back(work, target)
        _remove_work(work)


def _target_of(content: bytes) -> str | None:
    """Name of the target in an owner file, "" for none; None where the file is not one of ours."""
    try:
        owner = json.loads(content)
        name = owner.get("target") or ""
        ours = owner["format"] == _WORK and isinstance(name, str) and Path(name).name == name
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return name if ours else None


def _claim(parent: Path, target: str | None) -> tuple[Path, int]:
    """A new work folder and the descriptor of its locked owner file."""
    while True:
        # Noted before it is there: a signal may come after any of these lines.
        work = parent / f"{_PREFIX}{secrets.token_hex(8)}"
        _CLAIMED[work] = os.getpid(), target
        try:
            work.mkdir(0o700)
        except OSError:
            _CLAIMED.pop(work)
            raise
        try:
            descriptor = os.open(work / _OWNER, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        except FileNotFoundError:
            _CLAIMED.pop(work)
            # Another process swept it while it was empty.
            continue
        except OSError:
            _release(work)
            raise
        _lock(descriptor)
        try:
            os.write(descriptor, as_json({"format": _WORK, "target": target, "process": os.getpid()}))
        except OSError:
            os.close(descriptor)
            _release(work)
            raise
        if os.fstat(descriptor).st_nlink:
            return work, descriptor
        os.close(descriptor)
        _CLAIMED.pop(work)


def _remove_work(work: Path) -> None:
    """Remove a work folder, the owner file last, so that a kill in between leaves a folder that can be recognised."""
    with suppress(FileNotFoundError):
        for path in work.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != _OWNER:
                path.unlink(missing_ok=True)
    (work / _OWNER).unlink(missing_ok=True)
    with suppress(OSError):
        work.rmdir()


def _refuse_other_content(target: Path, kind: str) -> None:
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    ours = target.is_dir() and (target / MANIFEST).is_file() and read_kind(target) == kind
    inside = sorted(path.name for path in target.iterdir()) if target.is_dir() else [target.name]
    other = added(target) if ours else [name for name in inside if name != MANIFEST] or inside
    if other:
        raise InputError(
            f"{target} exists and contains something other than a result of the kind '{kind}' (such as {other[0]}); "
            "it was not changed. Choose another folder."
        )


def _move_into_place(work: Path, target: Path, kind: str) -> None:
    """Give the finished folder its name; if several processes save to it at once, the last one wins."""
    new, old = work / _NEW, work / _OLD
    with _locked(target.parent):
        _refuse_other_content(target, kind)
        if not target.exists():
            new.rename(target)
        elif exchange(new, target):
            # What was put into the old folder at this very moment is not removed with it.
            try:
                _refuse_other_content(new, kind)
            except InputError:
                exchange(new, target)
                raise
        else:
            # Where the second one fails, the older result is put back with the end of the work folder.
            target.rename(old)
            new.rename(target)


def exchange(first: Path, second: Path) -> bool:
    """Exchange the names of two folders in one step; False where the system or the file system cannot."""
    try:
        library = ctypes.CDLL(None, use_errno=True)
        names = os.fsencode(first), os.fsencode(second)
        if sys.platform == "darwin":
            return bool(library.renamex_np(*names, 2) == 0)
        return bool(library.renameat2(-100, names[0], -100, names[1], 2) == 0)  # -100: from here, 2: exchange
    except (AttributeError, OSError, TypeError):
        return False


@contextmanager
def _full_disk_explained(target: Path) -> Iterator[None]:
    try:
        yield
    # On a full disk safetensors raises its own error instead of an OSError.
    except (OSError, SafetensorError) as error:
        raise ResourceError(
            f"{target} could not be written: {error}. Free some space or choose another folder; "
            "the result that was saved before is intact."
        ) from error


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder while names in it are checked and changed, where the system has such locks."""
    with ExitStack() as stack:
        if _HAS_LOCKS:
            descriptor = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            _lock(descriptor)
        yield


def _lock(descriptor: int, *, wait: bool = True) -> bool:
    """Lock an open file until it is closed; False where another process holds it or the file system has no locks."""
    if not _HAS_LOCKS:
        return False
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def _link_target(target: Path) -> Path:
    """The path that a symbolic link points to; any other path itself."""
    return Path(os.path.realpath(target)) if target.is_symlink() else target
