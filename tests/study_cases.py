"""Studies on recipes small enough for tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from tokengeom.core.progress import SilentProgress
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom_studies.base import Findings, find_study


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


def counted_text(seed: int = 0, V: int = 12, m: int = 15) -> NextTokenStatistics:
    """Random counts of tokens after contexts of three tokens; the first two contexts have equal probabilities."""
    generator = np.random.default_rng(seed)
    counts = generator.integers(1, 20, (V, m)) * (generator.random((V, m)) < 0.3)
    counts[0, counts.sum(axis=0) == 0] = 1
    counts[:, 1] = 2 * counts[:, 0]
    contexts = np.stack([np.arange(m), *generator.integers(0, V, (2, m))], axis=1)
    return NextTokenStatistics.from_counts(counts, contexts=contexts)
