"""tokengeom: the geometry that next-token training gives to words and contexts, predicted and measured.

The names below are loaded when they are first used, so that ``import tokengeom`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokengeom.corpus.locate import ReadingOptions
    from tokengeom.errors import TokengeomError
    from tokengeom.statistics.count import count
    from tokengeom.statistics.next_token import NextTokenStatistics
    from tokengeom.statistics.pairs import CountedPairs

_HOMES = {
    "CountedPairs": "tokengeom.statistics.pairs",
    "NextTokenStatistics": "tokengeom.statistics.next_token",
    "ReadingOptions": "tokengeom.corpus.locate",
    "TokengeomError": "tokengeom.errors",
    "count": "tokengeom.statistics.count",
}

__all__ = ["CountedPairs", "NextTokenStatistics", "ReadingOptions", "TokengeomError", "count"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version("tokengeom")
    if name not in _HOMES:
        raise AttributeError(f"module 'tokengeom' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
