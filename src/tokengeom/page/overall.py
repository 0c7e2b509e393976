"""One bar for a whole report over the bars of its stages, so that the time left is that of the whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tokengeom.progress import AbstractProgress, AbstractStage


class _Both(AbstractStage):
    """A stage that moves its own bar and its share of the whole."""

    def __init__(self, own: AbstractStage, whole: Overall, per_unit: float) -> None:
        self._own, self._whole, self._per_unit = own, whole, per_unit

    def advance(self, amount: float, note: str = "") -> None:
        self._own.advance(amount, note)
        self._whole.move(amount * self._per_unit)


class Overall(AbstractProgress):
    """Passes stages on, and moves the bar of the whole with them.

    The whole is measured in expected seconds; a part that opens several stages moves by what each says, up to the
    part's own share, and to its end when it is over.
    """

    def __init__(self, shown: AbstractProgress, whole: AbstractStage) -> None:
        self._shown, self._whole = shown, whole
        self._share = self._moved = 0.0

    @contextmanager
    def part(self, seconds: float, note: str) -> Iterator[None]:
        """A part of the whole that is expected to take so many seconds."""
        self._share, self._moved = seconds, 0.0
        self._whole.advance(0.0, note)
        yield
        self._whole.advance(self._share - self._moved)
        self._share = self._moved = 0.0

    @contextmanager
    def stage(self, title: str, total: float | None) -> Iterator[AbstractStage]:
        """Open a stage of the current part."""
        with self._shown.stage(title, total) as own:
            yield _Both(own, self, self._share / total if total else 0.0)

    def move(self, seconds: float) -> None:
        """Move the whole within the current part."""
        seconds = min(seconds, self._share - self._moved)
        self._moved += seconds
        self._whole.advance(seconds)


@contextmanager
def overall(shown: AbstractProgress, title: str, seconds: float) -> Iterator[Overall]:
    """Open the bar of the whole."""
    with shown.stage(title, seconds) as whole:
        yield Overall(shown, whole)
