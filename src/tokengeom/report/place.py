"""Where a report may be written: a page that takes no one's place, and one report at a time in it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from tokengeom.errors import InputError, ResourceError
from tokengeom.folders import MANIFEST
from tokengeom.report.cache import read_record, results_folder

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
