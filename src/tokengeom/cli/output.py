"""How every command shows progress and gives its result: to a person, or to a machine."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console

from tokengeom.progress import AbstractProgress, SilentProgress, TerminalProgress, speaks


@contextmanager
def progress_shown(quiet: bool) -> Iterator[AbstractProgress]:
    """Bars on a terminal; nothing in a pipe or when quiet."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal or not speaks():
        yield SilentProgress()
    else:
        with TerminalProgress(console) as progress:
            yield progress


def give(data: Mapping[str, Any], person: Callable[[Console], None], as_json: bool, quiet: bool) -> None:
    """Print one JSON object, or what a person reads, or nothing."""
    if not speaks():
        return
    if as_json:
        sys.stdout.write(json.dumps(_plain(data), ensure_ascii=False) + "\n")
    elif not quiet:
        person(Console(highlight=False, soft_wrap=True))


def _plain(value: Any) -> Any:
    """JSON knows no infinity and no NumPy: they become null, lists and numbers."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
