"""What a re-check of a saved result says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tokengeom.folders import changed_files

AGREEMENT = 1e-9
"""Two machines' factorisations of one matrix agree to this, relative."""


@dataclass(frozen=True)
class Verification:
    """What was checked and what failed, each a plain sentence; truthy when nothing failed."""

    checked: tuple[str, ...]
    failed: tuple[str, ...]

    @staticmethod
    def of(checks: Mapping[str, bool]) -> Verification:
        """From sentences and whether each holds."""
        return Verification(tuple(checks), tuple(sentence for sentence, holds in checks.items() if not holds))

    @property
    def ok(self) -> bool:
        """Whether every check passed."""
        return not self.failed

    def __bool__(self) -> bool:
        return self.ok


def close(a: float, b: float) -> bool:
    """Whether two numbers agree as far as two machines do; equal infinities do."""
    return a == b or abs(a - b) <= AGREEMENT * max(abs(a), abs(b), 1.0)


def files_unchanged(folder: Path) -> dict[str, bool]:
    """The one check that every saved result has."""
    return {"every file is the one that was written": not changed_files(folder)}
