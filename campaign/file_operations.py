"""File operations of a process, counted one by one, with a signal at a chosen one.

Python reports files opened for writing, renames, folders and removals to audit hooks *before* they happen. Functions
of `os` that change names are wrapped as well, for a signal *after* they have happened. What compiled libraries write
is not seen here; signals at random times reach that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Literal

When = Literal["before", "after"]

_CHANGES = ("rename", "replace", "mkdir", "rmdir", "unlink", "remove", "link", "symlink", "truncate", "write", "fsync")
"""Functions of `os` that change names or write; the last two take an open file."""
_EVENTS = ("os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.link", "os.symlink", "os.truncate", "os.chmod")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_NO_FOLDER = -1
RECORD = "record of training"


class FileOperations:
    """Counts the operations below some folders.

    Parameters
    ----------
    folders
        Operations elsewhere, such as writing Python's caches, are not counted.
    when
        Count operations before or after they happen.
    strike
        Called at operation number ``at``, counted from 0.
    log
        Descriptor of a file that gets the name of each operation; None for none.
    """

    def __init__(
        self, folders: list[Path], when: When, at: int | None, strike: Callable[[], object], log: int | None = None
    ) -> None:
        self._roots = tuple(os.path.realpath(folder) for folder in folders)
        self._when, self._at, self._strike, self._log = when, at, strike, log
        self._count, self._write, self._busy = 0, os.write, False

    def install(self) -> None:
        """Watch this process until it ends."""
        if self._when == "before":
            sys.addaudithook(self._audit)
        else:
            for name in _CHANGES:
                setattr(os, name, self._wrapped(name, getattr(os, name)))
        self._watch_exchange()

    def reached(self, name: str) -> None:
        """Count one operation."""
        if self._busy:
            return
        self._busy = True
        try:
            if self._log is not None:
                self._write(self._log, f"{name}\n".encode())
            self._count += 1
            if self._count - 1 == self._at:
                self._strike()
        finally:
            self._busy = False

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            writing = any(letter in mode for letter in "wax+") if isinstance(mode, str) else bool(flags & _WRITING)
            if writing and self._is_below(path):
                self.reached("open")
        elif (event.startswith(("shutil.", "tempfile.")) or event in _EVENTS) and (
            any(map(self._is_below, arguments)) or self._names_a_folder(event, arguments)
        ):
            self.reached(event)

    def _is_below(self, path: object) -> bool:
        if not isinstance(path, str | bytes | os.PathLike):
            return False
        return os.path.abspath(os.fsdecode(path)).startswith(self._roots)  # noqa: PTH100  (links are not followed)

    @staticmethod
    def _names_a_folder(event: str, arguments: tuple[Any, ...]) -> bool:
        """Whether the path is relative to an open folder, as when a tree is removed."""
        return event in ("os.remove", "os.rmdir", "os.mkdir") and arguments[-1] not in (_NO_FOLDER, None)

    def _wrapped(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def wrapper(*arguments: Any, **named: Any) -> Any:
            result = function(*arguments, **named)
            if any(map(self._is_below, arguments)) or named.get("dir_fd") is not None or name in _CHANGES[-2:]:
                self.reached(f"os.{name}")
            return result

        return wrapper

    def _watch_exchange(self) -> None:
        """The exchange of two names is a call of the system's library, which is not audited."""
        from tokengeom.results import folders

        function = folders.exchange

        def exchange(first: Path, second: Path) -> bool:
            if self._when == "before":
                self.reached("exchange")
            done = function(first, second)
            if self._when == "after":
                self.reached("exchange")
            return done

        folders.exchange = exchange
