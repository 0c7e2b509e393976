"""Progress of long computations.

The library never prints. A function that can take long accepts an `AbstractProgress` and opens a stage on it; the
caller chooses how stages are shown, or that they are not.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID


class AbstractStage(ABC):
    """One part of a computation, of known or unknown length."""

    @abstractmethod
    def advance(self, amount: float, note: str = "") -> None:
        """Advance by ``amount`` of the stage's total; a ``note`` replaces the text after the bar."""


class AbstractProgress(ABC):
    """Shows the stages of a computation."""

    @abstractmethod
    def stage(self, title: str, total: float | None) -> AbstractContextManager[AbstractStage]:
        """Open a stage; ``total`` is its length, or None where it is not known."""

    def say(self, sentence: str) -> None:  # noqa: B027 - optional
        """Show a sentence that stays, such as the expected duration; by default it is not shown."""


class _SilentStage(AbstractStage):
    def advance(self, amount: float, note: str = "") -> None:
        pass


class SilentProgress(AbstractProgress):
    """Shows nothing; the default of every function in the library."""

    def stage(self, title: str, total: float | None) -> AbstractContextManager[AbstractStage]:
        return nullcontext(_SilentStage())


class _TerminalStage(AbstractStage):
    def __init__(self, bars: Progress, task: TaskID) -> None:
        self._bars, self._task = bars, task

    def advance(self, amount: float, note: str = "") -> None:
        if note:
            self._bars.update(self._task, advance=amount, note=_as_shown(self._bars, note))
        else:
            self._bars.update(self._task, advance=amount)


def _as_shown(bars: Progress, text: str) -> str:
    """A text as the console shows a string, which for the command line's has escapes for control characters."""
    return bars.console.render_str(text, markup=False, highlight=False, emoji=False).plain


def _print_lines(console: Console, text: str) -> None:
    for line in text.split("\n"):
        console.print(line, markup=False, highlight=False, emoji=False, soft_wrap=True)


class TerminalProgress(AbstractProgress):
    """Progress bars with elapsed and remaining time on a console; a context manager."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=console,
            transient=True,
        )

    def __enter__(self) -> TerminalProgress:
        self._bars.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._bars.stop()

    @contextmanager
    def stage(self, title: str, total: float | None) -> Iterator[AbstractStage]:
        """Add a bar below the earlier ones; it is full where the stage ends without an error."""
        task = self._bars.add_task(_as_shown(self._bars, title), total=total, note="")
        try:
            yield _TerminalStage(self._bars, task)
            self._bars.update(task, total=total or 1, completed=total or 1)
        finally:
            self._bars.stop_task(task)

    def say(self, sentence: str) -> None:
        """Print the sentence above the bars."""
        _print_lines(self._bars.console, sentence)


class SentenceProgress(SilentProgress):
    """Prints sentences and shows no bars, for output that is not a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def say(self, sentence: str) -> None:
        _print_lines(self._console, sentence)


def is_main_process() -> bool:
    """Whether this process writes files and prints; of several that a launcher started, only the first does."""
    return int(os.environ.get("RANK", "0")) == 0
