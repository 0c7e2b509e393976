"""Which functions of the package run in a block of a test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

import tokengeom

SOURCE = Path(tokengeom.__file__).parent


@contextmanager
def code_that_runs() -> Iterator[set[CodeType]]:
    """Code of all functions that run inside the block; what it means is asked later, since this is called often."""
    seen: set[CodeType] = set()
    add = seen.add

    def record(frame: FrameType, event: str, argument: object) -> None:
        add(frame.f_code)

    previous = sys.getprofile()
    sys.setprofile(record)
    try:
        yield seen
    finally:
        sys.setprofile(previous)


def files_of(seen: set[CodeType]) -> set[Path]:
    """Files of the package, relative to it, in which a function ran; importing a module is not running a function."""
    files = {Path(code.co_filename) for code in seen if code.co_name != "<module>"}
    return {file.relative_to(SOURCE) for file in files if file.is_relative_to(SOURCE)}
