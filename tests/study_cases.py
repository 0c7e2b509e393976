"""Studies on recipes small enough for tests."""

from __future__ import annotations

from typing import Any

from tokengeom.progress import SilentProgress
from tokengeom.studies.base import Findings, find_study


def run_study(name: str, **changes: Any) -> Findings:
    """Findings of a study's small recipe with some settings changed."""
    study = find_study(name)
    return study.run(study.recipe("small", **changes), SilentProgress())


def failed(findings: Findings) -> list[str]:
    """Names of the checks that failed."""
    return [check.name for check in findings.numbers if not check.passed]


def value(findings: Findings, name: str) -> float:
    """The number behind one check."""
    (found,) = [check.value for check in findings.numbers if check.name == name]
    return found
