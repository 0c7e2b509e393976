"""What every command prints: progress, its result as text or as JSON, and its figure.

Tokens, labels, file names and messages of libraries may hold control characters, which could move the cursor of a
terminal, hide text or set its title. Text reaches a terminal only through `TerminalConsole`, or through the standard
streams inside `escaped_streams`: both show such characters as escapes (ESC as its code, x1b, after a backslash), and
neither interprets Rich's markup.
"""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from rich.console import Console, ConsoleOptions, OverflowMethod, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from tokengeom.core.errors import InputError
from tokengeom.core.progress import (
    AbstractProgress,
    SentenceProgress,
    SilentProgress,
    TerminalProgress,
    is_main_process,
)
from tokengeom.results.folders import FIGURE_BY_US, require_ours
from tokengeom.results.manifests import current_command, read_seal

if TYPE_CHECKING:
    from tokengeom.core.resources import Estimate
    from tokengeom.figures.base import Figure
    from tokengeom.results.contract import AbstractResult

R = TypeVar("R", bound="AbstractResult")
WEB_PAGE = ".html"
FIGURE_SUFFIXES = (WEB_PAGE, ".png", ".svg", ".pdf")
_JSON_TO: ContextVar[TextIO | None] = ContextVar("json_to", default=None)
_QUIET: ContextVar[bool] = ContextVar("quiet", default=False)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters (C0, DEL, C1), line separators, overrides of the writing direction, and lone surrogates."""


def printable(text: str) -> str:
    """A text on one line, with control characters as escapes: a backslash and its code."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def _printable_lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


class TerminalConsole(Console):
    """The console of every command: strings are plain text on one line, and control characters are escaped."""

    def __init__(self, *, stderr: bool = False, soft_wrap: bool = True) -> None:
        stream: Any = sys.stderr if stderr else sys.stdout
        while hasattr(stream, "rich_proxied_file"):
            stream = stream.rich_proxied_file
        super().__init__(file=stream, markup=False, emoji=False, highlight=False, soft_wrap=soft_wrap)

    def print_lines(self, text: str) -> None:
        """Print a text of several lines."""
        for line in text.split("\n"):
            self.print(line)

    def render_str(self, text: str, **how: Any) -> Text:
        """A string as Rich's text."""
        return super().render_str(printable(text), **how)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of anything that is printed, also of texts that were not made from strings here."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(_printable_lines(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """Let the one handler of failures end the program, instead of Rich."""
        raise BrokenPipeError


class _EscapedStream:
    """A standard stream that escapes control characters; Rich's consoles find the stream behind it."""

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        self.rich_proxied_file.write(_printable_lines(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


@contextmanager
def escaped_streams() -> Iterator[None]:
    """Escape control characters in what warnings, loggers, libraries and tracebacks write to the standard streams."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(_EscapedStream, before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


@contextmanager
def chosen_output(*, as_json: bool = False, quiet: bool = False) -> Iterator[None]:
    """Print results as ``--json`` and ``--quiet`` say.

    With ``--json`` nothing but the result reaches the standard output; what libraries print goes to the standard error.
    """
    json_to, be_quiet = _JSON_TO.set(sys.stdout if as_json else None), _QUIET.set(quiet)
    try:
        with redirect_stdout(sys.stderr) if as_json else nullcontext():
            yield
    finally:
        _JSON_TO.reset(json_to)
        _QUIET.reset(be_quiet)


def is_quiet() -> bool:
    """Whether the command was asked with ``--quiet`` to print no progress and no summary."""
    return _QUIET.get()


@contextmanager
def progress_shown() -> Iterator[AbstractProgress]:
    """Progress bars on a terminal, only sentences such as estimates in a pipe, and nothing with ``--quiet``."""
    console = TerminalConsole(stderr=True, soft_wrap=False)
    if is_quiet() or not is_main_process():
        yield SilentProgress()
    elif not console.is_terminal:
        yield SentenceProgress(console)
    else:
        # Rich shows what is written to the standard streams above its bars, and interprets colours in it.
        with TerminalProgress(console) as progress, escaped_streams():
            yield progress


def print_result(data: Mapping[str, Any], print_text: Callable[[TerminalConsole], None]) -> None:
    """Print one JSON object, or text for a reader, or nothing, as `chosen_output` says.

    The object has the command's ``settings``, unless ``data`` has its own under that name.
    """
    if not is_main_process():
        return
    json_to = _JSON_TO.get()
    if json_to is not None:
        command = current_command()
        data = data if command is None else {"settings": command["settings"], **data}
        json_to.write(_json(_plain(data)) + "\n")
    elif not is_quiet():
        print_text(TerminalConsole())


def plain_table(title: str, columns: Sequence[str], names: int, overflow: OverflowMethod = "ellipsis") -> Table:
    """An empty table without lines: the first columns are names, the others numbers."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place < names else "right", overflow=overflow)
    return table


def print_estimate(estimate: Estimate) -> None:
    """Print the expected time and memory of a command."""
    print_result(estimate.to_dict(), lambda console: console.print_lines(estimate.sentence))


def print_summary(
    result: AbstractResult,
    *,
    began: float,
    out: Path | None,
    print_text: Callable[[TerminalConsole], None] | None = None,
    more: Mapping[str, Any] | None = None,
) -> None:
    """Print a result, how long it took, where it was saved, and the hash that `verify --expect` takes.

    ``print_text``  Prints the result for a reader; its summary by default.
    ``more``        Further entries of the JSON object.
    """
    seconds = time.monotonic() - began
    if not is_main_process():
        return
    saved_hash = None if out is None else hash_of_saved(out)

    def text(console: TerminalConsole) -> None:
        if print_text is None:
            console.print_lines(result.summary())
        else:
            print_text(console)
        saved = "Not saved; give --out FOLDER to save it." if out is None else f"Saved in {out}, hash {saved_hash}."
        console.print(f"{seconds:.1f} s. {saved}")

    place = {"out": None if out is None else str(out), "hash": saved_hash}
    data = {**result.to_dict(), **(more or {}), **place, "seconds": seconds}
    print_result(data, text)


def make_and_print(
    kind: type[R],
    make: Callable[[AbstractProgress], R],
    out: Path | None,
    *,
    print_text: Callable[[R, TerminalConsole], None] | None = None,
    more: Mapping[str, Any] | None = None,
) -> R:
    """Make a result, save it in ``out`` and print it; where it cannot be saved, that is said before the work."""
    began = time.monotonic()
    if out is not None:
        kind.require_target(out)
    with progress_shown() as progress:
        result = make(progress)
        if out is not None and is_main_process():
            with progress.stage(f"Saving {out}", None):
                result.save(out)
    print_summary(result, began=began, out=out, print_text=print_text and partial(print_text, result), more=more)
    return result


def hash_of_saved(folder: Path) -> str:
    """The hash of a saved result, which stands for all of its files."""
    from tokengeom.results.contract import saved_folder

    return read_seal(saved_folder(folder))


def _json(value: Any) -> str:
    """JSON in which control characters are escapes; they occur only inside strings."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))


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
    if path is None:
        return
    if path.suffix.lower() not in FIGURE_SUFFIXES:
        raise InputError(f"--figure must end in .html, .png, .svg or .pdf; got {path}.")
    if not path.parent.is_dir():
        raise InputError(f"The folder of --figure must exist; {path.parent} does not. Create it first.")
    require_ours(path, FIGURE_BY_US)


def save_figure(figure: Figure, path: Path) -> None:
    """Write an interactive page where the name ends in .html, else a picture."""
    from tokengeom.figures.interactive import save_interactive
    from tokengeom.figures.static import save_static

    (save_interactive if path.suffix.lower() == WEB_PAGE else save_static)(figure, path)
