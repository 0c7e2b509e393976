"""A training read at checkpoints: what made-up agreements decide, and the order of a single pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pair_cases import pair_rows
from tokengeom_studies.over_training import FREE, LLAMA, NORM, SHARED, TIED, OverTraining


def decisions(tied: list[float], rho: list[float], free: float = 0.5, shared: float = 0.4) -> dict[str, str]:
    rows: list[dict[str, Any]] = []
    for step, (value, seeds) in enumerate(zip(tied, rho, strict=True), 1):
        pairs = {(LLAMA, TIED): value, (LLAMA, FREE): free, (LLAMA, SHARED): shared, (LLAMA, NORM): 0.3}
        rows += pair_rows(pairs, {"step": step}, single=(NORM,), rho=seeds)
        rows.append({"kind": "run", "step": step, "loss": 2.0, "loss_gap": 1.0})
        rows.append({"kind": "prediction", "step": step, "relative_gap": 1e-3})
    study = OverTraining()
    found = study.judge(study.recipe(), rows)
    return dict(zip(study.hypotheses, found.tables["hypotheses"]["answer"], strict=True))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"tied": [0.9, 0.8, 0.7], "rho": [0.5, 0.6, 0.7]}, {"ties": "yes", "reproducible": "yes", "falls": "yes"}),
        ({"tied": [0.7, 0.8, 0.9], "rho": [0.7, 0.6, 0.5]}, {"reproducible": "no", "falls": "no"}),
        ({"tied": [0.7, 0.8], "rho": [0.7, 0.6], "free": 0.95}, {"ties": "no", "itself": "no"}),
        ({"tied": [0.7, 0.8], "rho": [0.7, 0.6], "shared": 0.95}, {"itself": "yes"}),
    ],
)
def test_each_hypothesis_can_come_out_either_way(given: dict[str, Any], expected: dict[str, str]) -> None:
    found = decisions(**given)
    assert {name: found[name] for name in expected} == expected


def test_running_text_has_the_most_frequent_tokens_and_one_for_all_others() -> None:
    from tokengeom_studies.over_training import _read

    ids, stats = _read({**OverTraining.small, "stories": 30, "tokens": 12, "contexts": 20, "vocabulary": 8})
    assert set(np.unique(ids)) == set(range(12))
    assert np.bincount(ids)[1] >= np.bincount(ids)[11]
    assert stats.m <= 20
    assert stats.V <= 8
