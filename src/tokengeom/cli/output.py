"""How every command shows progress and gives its result: to a person, or to a machine.

``--figure PATH``: asked for before minutes of work, written after them, as a picture or as a page.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console

from tokengeom.errors import InputError
from tokengeom.folders import current_command
from tokengeom.progress import AbstractProgress, SilentProgress, TerminalProgress, speaks

if TYPE_CHECKING:
    from tokengeom.figures.base import Figure


_RESULT_TO: ContextVar[TextIO | None] = ContextVar("result_to", default=None)


@contextmanager
def kept_for_the_result() -> Iterator[None]:
    """Let nothing but what `give` gives reach the standard output; what others print goes to the standard error."""
    token = _RESULT_TO.set(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _RESULT_TO.reset(token)


@contextmanager
def progress_shown(quiet: bool) -> Iterator[AbstractProgress]:
    """Bars on a terminal; nothing in a pipe or when quiet."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal or not speaks():
        yield SilentProgress()
    else:
        with TerminalProgress(console) as progress:
            yield progress


def give(data: Mapping[str, Any], person: Callable[[Console], None], as_json: bool, quiet: bool) -> None:
    """Print one JSON object, or what a person reads, or nothing.

    The object has the command's ``settings``, unless ``data`` has its own under that name.
    """
    if not speaks():
        return
    if as_json:
        command = current_command()
        data = data if command is None else {"settings": command["settings"], **data}
        (_RESULT_TO.get() or sys.stdout).write(json.dumps(_plain(data), ensure_ascii=False) + "\n")
    elif not quiet:
        person(_ResultConsole(highlight=False, soft_wrap=True))


class _ResultConsole(Console):
    def on_broken_pipe(self) -> None:
        """Let the one place for failures end the program, instead of Rich."""
        raise BrokenPipeError


def _plain(value: Any) -> Any:
    """JSON knows no infinity and no NumPy: they become null, lists and numbers."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


PAGE = ".html"
SUFFIXES = (PAGE, ".png", ".svg", ".pdf")


def require_picture(path: Path | None) -> None:
    """Refuse a place where no picture can be written."""
    if path is not None and path.suffix.lower() not in SUFFIXES:
        raise InputError(f"--figure must end in .html, .png, .svg or .pdf; got {path}.")
    if path is not None and not path.parent.is_dir():
        raise InputError(f"--figure goes into a folder that is there; {path.parent} is not. Make it first.")


def save_picture(figure: Figure, path: Path) -> None:
    """Write a page where the name says so, else a picture."""
    from tokengeom.figures.interactive import save_interactive
    from tokengeom.figures.static import save_static

    (save_interactive if path.suffix.lower() == PAGE else save_static)(figure, path)
