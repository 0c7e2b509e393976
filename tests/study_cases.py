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


def cell_row(
    training: str,
    model: str,
    agreement: dict[str, float],
    rivals: dict[str, float],
    *,
    between: float = 1.0,
    reliability: float = 1.0,
    target: float = 0.05,
    text: str = "t",
    **numbers: float,
) -> dict[str, Any]:
    """A cell of five seeds whose agreements are those given, but for a little noise of each seed."""

    def noisy(value: float, number: int) -> dict[str, Any]:
        seeds = np.arange(5) + 0.37 * number
        return {item: list(value + 1e-4 * np.sin(7.0 * seeds + len(item))) for item in ("contexts", "tokens")}

    def of(values: dict[str, float]) -> dict[str, dict[str, Any]]:
        return {name: noisy(value, number) for number, (name, value) in enumerate(values.items())}

    given = {
        "loss_gap": 0.99 * target, "step": 5, "efficiency": 0.7, "split_exponent": 0.5, "spread_of_token_lengths": 0.1,
        "spread_of_context_lengths": 0.1, **numbers,
    }  # fmt: skip
    own = {"reliability": dict.fromkeys(("contexts", "tokens"), reliability)}
    made = {name: {**one, **(own if name.startswith("UFM") else {})} for name, one in of(rivals).items()}
    pairs = [[a, b, dict.fromkeys(("contexts", "tokens"), between)] for a in range(5) for b in range(a)]
    return {
        "kind": "cell", "text": text, "training": training, "model": model, "target": target, "tried": 5, "dim": 64,
        "seeds": list(range(5)), **{name: [value] * 5 for name, value in given.items()}, "agreement": of(agreement),
        "rivals": made, "between": pairs,
    }  # fmt: skip
