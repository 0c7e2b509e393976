"""Names that the Tab key completes, for options whose names are not fixed in their types."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def starting_with(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """A completion from names, which are looked up only when they are asked for."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete
