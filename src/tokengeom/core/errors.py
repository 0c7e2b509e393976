"""Every exception that tokengeom raises on purpose.

::

    TokengeomError
    ├── InputError              an input or setting cannot be used (exit code 2)
    │   ├── CorpusError         a file or stream cannot be read as requested
    │   ├── TokenizerError      a tokenizer is missing, broken or does not match the tokens
    │   ├── StatisticsError     statistics cannot be built, cut, merged, saved or loaded
    │   ├── ProblemError        embeddings, dimensions or settings do not fit the problem
    │   └── CheckpointError     a saved model cannot be loaded, or its W and H cannot be read
    ├── ResourceError           memory, disk space, an engine or a device is missing
    └── MissingExtraError       an optional dependency is not installed

A message states the requirement, the value found, the likely cause, and what to do.
"""

from __future__ import annotations

import re
from typing import NoReturn

_OUT_OF_MEMORY = re.compile(
    "OutOfMemoryError|can't allocate memory|can't start new thread|failed to map segment from shared object"
)
"""How PyTorch (on a GPU, on a CPU), Python's threads and its imports say that memory ran out."""


class TokengeomError(Exception):
    """Base class of every exception that tokengeom raises on purpose."""


class InputError(TokengeomError, ValueError):
    """An input or setting cannot be used."""


class CorpusError(InputError):
    """A file or stream cannot be read as requested."""


class TokenizerError(InputError):
    """A tokenizer is missing, broken, or does not match the tokens."""


class StatisticsError(InputError):
    """Statistics cannot be built, cut, merged, saved or loaded."""


class ProblemError(InputError):
    """Embeddings, dimensions or settings do not fit the problem."""


class CheckpointError(InputError):
    """A saved model cannot be loaded, or its W and H cannot be read."""


class ResourceError(TokengeomError, RuntimeError):
    """Memory, disk space, an engine or a device is missing."""


class MissingExtraError(TokengeomError, ImportError):
    """An optional dependency is not installed."""


def missing_extra(package: str, extra: str, purpose: str) -> NoReturn:
    """Raise the error for an optional dependency that is not installed, with the command that installs it."""
    raise MissingExtraError(
        f"{purpose} needs the package '{package}', which is not installed. "
        f"Install it with: pip install 'tokengeom[{extra}]'"
    )


def out_of_memory(error: BaseException) -> str | None:
    """What to say of an error that means that memory ran out; None of any other."""
    if not isinstance(error, MemoryError) and (
        isinstance(error, TokengeomError) or not _OUT_OF_MEMORY.search(repr(error))
    ):
        return None
    wanted = re.search(r"tried to allocate (\d+) bytes", str(error))
    detail = f"{int(wanted[1]) / 2**30:,.3g} GiB at once were asked for" if wanted else " ".join(str(error).split())
    return (
        f"Memory ran out{f' ({detail})' if detail else ''}. Take fewer contexts or tokens, smaller numbers in the "
        "settings, or a machine with more memory."
    )
