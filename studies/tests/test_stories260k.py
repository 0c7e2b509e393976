"""The published language model: which contexts are read, mean cosines, and every outcome on made-up rows."""

from __future__ import annotations

import numpy as np
import pytest

from tokengeom import NextTokenStatistics
from tokengeom_studies.stories260k import ITEMS, LIMIT, SIMULATED, Directions, Stories260k, frequent_and_rare


def test_half_are_the_most_frequent_contexts_and_half_random_rare_ones() -> None:
    windows = [9, 1, 5, 2, 3, 1, 2, 7]
    counts = np.vstack([windows, np.zeros(8)]).astype(int)
    stats = NextTokenStatistics.from_counts(counts, contexts=np.arange(8)[:, None])
    kept, frequent, rare = frequent_and_rare(stats, 6, seed=0)
    assert sorted(kept.context_counts[frequent]) == [5, 7, 9]
    assert rare.size == 3
    assert set(kept.context_counts[rare]) <= {1, 2}
    assert sorted([*frequent, *rare]) == list(range(6))


def test_inner_products_of_several_trainings_are_their_mean_cosines() -> None:
    rng = np.random.default_rng(0)
    trainings = [(rng.standard_normal((5, 3)), rng.standard_normal((3, 4))) for _ in range(2)]
    found = Directions.of(trainings)
    unit = [H / np.linalg.norm(H, axis=0) for _, H in trainings]
    assert found.contexts.T @ found.contexts == pytest.approx(np.mean([H.T @ H for H in unit], axis=0))
    rows = [W - W.mean(axis=0) for W, _ in trainings]
    rows = [W / np.linalg.norm(W, axis=1, keepdims=True) for W in rows]
    assert found.tokens.T @ found.tokens == pytest.approx(np.mean([W @ W.T for W in rows], axis=0))


def decisions(value: float, other: float = 0.5) -> dict[str, str]:
    """Answers where the chosen simulation agrees at a value and everything else at another; parts vary by 1%."""
    study = Stories260k()
    names = {name for one, rival, _ in study.leads.values() for name in (one, rival)}
    values = {**dict.fromkeys(names, other), LIMIT: 0.4, SIMULATED: value}
    rows = [
        {"kind": "part", "text": "4 tokens", "part": part, "relative_gap": {LIMIT: 1e-3}}
        | {"contexts": 5, "tokens": 5, "entropy": 1.0, "loss_gap": 0.5}
        | {"agreement": {name: dict.fromkeys(ITEMS, x * (1 + 0.01 * part)) for name, x in values.items()}}
        for part in range(3)
    ]
    table = study.judge(study.recipe("paper"), rows).tables
    assert table["shares"]["explanation"] == table["agreement"]["explanation"]
    return dict(zip(study.hypotheses, map(str, table["hypotheses"]["answer"]), strict=True))


def test_every_outcome() -> None:
    assert set(decisions(0.9).values()) - {"undecided"} == {"yes"}
    low = decisions(0.3)
    assert {low[name] for name in ("frequent", "rare", "ties", "Kneser-Ney", "start")} == {"no"}
    assert decisions(0.7)["frequent"] == "no"
    assert decisions(0.7)["rare"] == "yes"
    assert decisions(0.743)["frequent"] == "undecided"
