"""Progress of a whole report: one bar in expected seconds above the bars of its stages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tokengeom.core.progress import AbstractProgress, AbstractStage


class _Advancing(AbstractStage):
    """A progress bar that moves the overall bar with it."""

    def __init__(self, own: AbstractStage, overall: OverallProgress, per_unit: float) -> None:
        self._own, self._overall, self._per_unit = own, overall, per_unit

    def advance(self, amount: float, note: str = "") -> None:
        self._own.advance(amount, note)
        self._overall.advance(amount * self._per_unit)


class OverallProgress(AbstractProgress):
    """One bar for the whole report above the bars of its stages, in expected seconds.

    While a part is open, the bars inside it move the overall bar, at most by the part's expected duration; closing
    the part moves it to that duration.
    """

    def __init__(self, shown: AbstractProgress, bar: AbstractStage) -> None:
        self._shown, self._bar = shown, bar
        self._share = self._moved = 0.0

    @contextmanager
    def part(self, seconds: float, title: str) -> Iterator[None]:
        """A part of the whole with its expected duration."""
        self._share, self._moved = seconds, 0.0
        self._bar.advance(0.0, title)
        yield
        self._bar.advance(self._share - self._moved)
        self._share = self._moved = 0.0

    @contextmanager
    def stage(self, title: str, total: float | None) -> Iterator[AbstractStage]:
        """Open a bar inside the current part."""
        with self._shown.stage(title, total) as own:
            yield _Advancing(own, self, self._share / total if total else 0.0)

    @property
    def shown(self) -> AbstractProgress:
        """Where everything is shown. Sentences of stages are not: the report announces all of them together."""
        return self._shown

    def advance(self, seconds: float) -> None:
        """Move the overall bar within the current part."""
        seconds = min(seconds, self._share - self._moved)
        self._moved += seconds
        self._bar.advance(seconds)


@contextmanager
def overall_progress(shown: AbstractProgress, title: str, seconds: float) -> Iterator[OverallProgress]:
    """Open the bar of the whole."""
    with shown.stage(title, seconds) as bar:
        yield OverallProgress(shown, bar)
