"""What every command prints: progress, its result as text or as JSON, and its figure."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console

from tokengeom.errors import InputError
from tokengeom.folders import current_command
from tokengeom.progress import AbstractProgress, SentenceProgress, SilentProgress, TerminalProgress, is_main_process

if TYPE_CHECKING:
    from tokengeom.estimates import Estimate
    from tokengeom.figures.base import Figure
    from tokengeom.results import AbstractResult

WEB_PAGE = ".html"
FIGURE_SUFFIXES = (WEB_PAGE, ".png", ".svg", ".pdf")
_RESULT_TO: ContextVar[TextIO | None] = ContextVar("result_to", default=None)


@contextmanager
def stdout_for_result_only() -> Iterator[None]:
    """Let nothing but the result reach the standard output; what libraries print goes to the standard error."""
    token = _RESULT_TO.set(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _RESULT_TO.reset(token)


@contextmanager
def progress_shown(quiet: bool) -> Iterator[AbstractProgress]:
    """Progress bars on a terminal, only sentences such as estimates in a pipe, and nothing with ``--quiet``."""
    console = Console(stderr=True)
    if quiet or not is_main_process():
        yield SilentProgress()
    elif not console.is_terminal:
        yield SentenceProgress(console)
    else:
        with TerminalProgress(console) as progress:
            yield progress


def print_result(data: Mapping[str, Any], print_text: Callable[[Console], None], *, as_json: bool, quiet: bool) -> None:
    """Print one JSON object, or text for a reader, or nothing.

    The object has the command's ``settings``, unless ``data`` has its own under that name.
    """
    if not is_main_process():
        return
    if as_json:
        command = current_command()
        data = data if command is None else {"settings": command["settings"], **data}
        (_RESULT_TO.get() or sys.stdout).write(json.dumps(_plain(data), ensure_ascii=False) + "\n")
    elif not quiet:
        print_text(_ResultConsole(highlight=False, soft_wrap=True))


def print_estimate(estimate: Estimate, *, as_json: bool, quiet: bool) -> None:
    """Print the expected time and memory of a command."""
    data = estimate.to_dict()
    print_result(data, lambda console: console.print(estimate.sentence, markup=False), as_json=as_json, quiet=quiet)


def print_summary(
    result: AbstractResult,
    *,
    began: float,
    out: Path | None,
    as_json: bool,
    quiet: bool,
    print_text: Callable[[Console], None] | None = None,
    more: Mapping[str, Any] | None = None,
) -> None:
    """Print a result, how long it took, and where it was saved.

    ``print_text``
        Prints the result for a reader; its summary by default.
    ``more``
        Further entries of the JSON object.
    """
    seconds = time.monotonic() - began

    def text(console: Console) -> None:
        if print_text is None:
            console.print(result.summary(), markup=False)
        else:
            print_text(console)
        saved = "Not saved; give --out FOLDER to save it." if out is None else f"Saved in {out}."
        console.print(f"{seconds:.1f} s. {saved}", markup=False)

    data = {**result.to_dict(), **(more or {}), "out": None if out is None else str(out), "seconds": seconds}
    print_result(data, text, as_json=as_json, quiet=quiet)


class _ResultConsole(Console):
    def on_broken_pipe(self) -> None:
        """Let the one handler of failures end the program, instead of Rich."""
        raise BrokenPipeError


def _plain(value: Any) -> Any:
    """JSON has no infinity and no NumPy arrays: they become null, lists and numbers."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def require_figure_path(path: Path | None) -> None:
    """Refuse a path where no figure can be written, before the work instead of after it."""
    if path is not None and path.suffix.lower() not in FIGURE_SUFFIXES:
        raise InputError(f"--figure must end in .html, .png, .svg or .pdf; got {path}.")
    if path is not None and not path.parent.is_dir():
        raise InputError(f"The folder of --figure must exist; {path.parent} does not. Create it first.")


def save_figure(figure: Figure, path: Path) -> None:
    """Write an interactive page where the name ends in .html, else a picture."""
    from tokengeom.figures.interactive import save_interactive
    from tokengeom.figures.static import save_static

    (save_interactive if path.suffix.lower() == WEB_PAGE else save_static)(figure, path)
