"""Every exception that tokengeom raises on purpose.

::

    TokengeomError
    ├── InputError              what the user gave cannot be used (exit code 2)
    │   ├── CorpusError         a file or stream that cannot be read as asked
    │   ├── TokenizerError      a tokenizer that is missing, broken or does not fit
    │   ├── StatisticsError     statistics that cannot be built, cut, merged or loaded
    │   ├── ProblemError        embeddings, dimensions or settings that a problem cannot take
    │   └── CheckpointError     a saved model whose W and H cannot be taken
    ├── ResourceError           the machine gave out: memory, disk, a missing engine or device
    └── MissingExtraError       an optional dependency is not installed

A message says what must hold, what was got, the likely cause, and what to do.
"""

from __future__ import annotations

from typing import NoReturn


class TokengeomError(Exception):
    """Root of the tree: catch this to catch everything that tokengeom raises on purpose."""


class InputError(TokengeomError, ValueError):
    """What the user gave cannot be used."""


class CorpusError(InputError):
    """A file or stream that cannot be read as asked."""


class TokenizerError(InputError):
    """A tokenizer that is missing, broken, or does not fit the tokens."""


class StatisticsError(InputError):
    """Statistics that cannot be built, cut, merged, saved or loaded."""


class ProblemError(InputError):
    """Embeddings, dimensions or settings that a problem cannot take."""


class CheckpointError(InputError):
    """A saved model that cannot be loaded, or whose W and H cannot be taken."""


class ResourceError(TokengeomError, RuntimeError):
    """The machine gave out: memory, disk, a missing engine or device."""


class MissingExtraError(TokengeomError, ImportError):
    """An optional dependency is not installed."""


def missing_extra(package: str, extra: str, purpose: str) -> NoReturn:
    """Raise the one error for an optional dependency that is not there."""
    raise MissingExtraError(
        f"{purpose} needs the package '{package}', which is not installed. "
        f"Install it with: pip install 'tokengeom[{extra}]'"
    )
