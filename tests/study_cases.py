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
    """Names of the checks that do not hold."""
    return [check.name for check in findings.checks if not check.passed]
