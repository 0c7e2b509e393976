"""One way to show that long work goes on.

The library never prints. Work that can take long accepts an `AbstractProgress` and opens a stage on it; what
the stage looks like, or whether it is shown at all, is the caller's choice.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console
    from rich.progress import Progress, TaskID


class AbstractStage(ABC):
    """One stretch of work with a known or unknown length."""

    @abstractmethod
    def advance(self, amount: float, note: str = "") -> None:
        """Move on by ``amount`` of the stage's total; ``note`` replaces the text behind the bar."""


class AbstractProgress(ABC):
    """Opens stages."""

    @abstractmethod
    def stage(self, title: str, total: float | None) -> AbstractContextManager[AbstractStage]:
        """Open a stage; ``total`` is its length, or None when it cannot be known."""


class _SilentStage(AbstractStage):
    def advance(self, amount: float, note: str = "") -> None:
        pass


class SilentProgress(AbstractProgress):
    """Shows nothing: the default everywhere in the library."""

    def stage(self, title: str, total: float | None) -> AbstractContextManager[AbstractStage]:
        """Open a stage that nobody sees."""
        return nullcontext(_SilentStage())


class _TerminalStage(AbstractStage):
    def __init__(self, bars: Progress, task: TaskID) -> None:
        self._bars, self._task = bars, task

    def __enter__(self) -> AbstractStage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = next(task for task in self._bars.tasks if task.id == self._task)
        if error is None:
            self._bars.update(self._task, total=task.total or 1, completed=task.total or 1)
        self._bars.stop_task(self._task)

    def advance(self, amount: float, note: str = "") -> None:
        if note:
            self._bars.update(self._task, advance=amount, note=note)
        else:
            self._bars.update(self._task, advance=amount)


class TerminalProgress(AbstractProgress):
    """Bars with elapsed time and time left, on a console; use it as a context manager."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            transient=True,
        )

    def __enter__(self) -> TerminalProgress:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def stage(self, title: str, total: float | None) -> AbstractContextManager[AbstractStage]:
        """Open a bar under the earlier ones."""
        return _TerminalStage(self._bars, self._bars.add_task(title, total=total, note=""))


def speaks() -> bool:
    """Whether this process is the one that writes and speaks; others of a launcher keep silent."""
    return int(os.environ.get("RANK", "0")) == 0
