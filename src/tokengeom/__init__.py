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
    from tokengeom.geometry.compare import compare
    from tokengeom.geometry.compare_models import compare_models
    from tokengeom.geometry.rivals import rivals
    from tokengeom.models.checkpoint import load_checkpoint
    from tokengeom.models.saved_arrays import load_arrays
    from tokengeom.page.make import report
    from tokengeom.page.verify import verify
    from tokengeom.statistics.count import count
    from tokengeom.statistics.next_token import NextTokenStatistics
    from tokengeom.statistics.pairs import CountedPairs
    from tokengeom.theory.predict import predict
    from tokengeom.training.run import Run
    from tokengeom.training.train import train

_HOMES = {
    "CountedPairs": "tokengeom.statistics.pairs",
    "NextTokenStatistics": "tokengeom.statistics.next_token",
    "ReadingOptions": "tokengeom.corpus.locate",
    "Run": "tokengeom.training.run",
    "TokengeomError": "tokengeom.errors",
    "compare": "tokengeom.geometry.compare",
    "compare_models": "tokengeom.geometry.compare_models",
    "count": "tokengeom.statistics.count",
    "load_arrays": "tokengeom.models.saved_arrays",
    "load_checkpoint": "tokengeom.models.checkpoint",
    "predict": "tokengeom.theory.predict",
    "report": "tokengeom.page.make",
    "rivals": "tokengeom.geometry.rivals",
    "train": "tokengeom.training.train",
    "verify": "tokengeom.page.verify",
}

__all__ = [
    "CountedPairs",
    "NextTokenStatistics",
    "ReadingOptions",
    "Run",
    "TokengeomError",
    "compare",
    "compare_models",
    "count",
    "load_arrays",
    "load_checkpoint",
    "predict",
    "report",
    "rivals",
    "train",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version("tokengeom")
    if name not in _HOMES:
        raise AttributeError(f"module 'tokengeom' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
