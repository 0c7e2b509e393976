"""The symmetry of supports: the closed form, the formula by enumeration, and every outcome on made-up rows."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from tokengeom import NextTokenStatistics, predict
from tokengeom_studies.support_symmetry import (
    IMBALANCES,
    NONE,
    SupportSymmetry,
    drawn_supports,
    formula,
    numbers_of_contexts,
    symmetry,
)


def all_supports(V: int, k: int) -> Any:
    return np.array([[z in chosen for chosen in combinations(range(V), k)] for z in range(V)])


def test_all_supports_of_one_size_are_symmetric() -> None:
    S = all_supports(6, 2)
    prediction = predict(NextTokenStatistics.from_counts(S.astype(int)), tolerance=1e-8, spread_solves=0)
    found = symmetry(prediction.W, prediction.H, S)
    deviations = [found[name] for name in ("frame", "tokens", "contexts", "overlaps")]
    assert deviations == pytest.approx([0.0] * 4, abs=1e-6)
    assert found["aligned"] == pytest.approx(1.0)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_formula_is_that_of_all_equally_likely_supports(k: int) -> None:
    V = 7
    S = all_supports(V, k)
    columns = S - S.mean(axis=0)
    v, u = np.var(columns[0] * columns[1]), np.trace(columns @ columns.T) / S.shape[1] / (V - 1)
    contexts = np.array([3, 1])
    expected = np.sqrt(np.sum(contexts**2) * v) / (2 * np.sum(contexts) * u)
    assert formula(np.array([k, k]), contexts, V) == pytest.approx(expected)


def test_supports_differ_and_have_the_sizes_that_are_asked_for() -> None:
    sizes = np.array([1] * 5 + [3] * 9)
    S = drawn_supports(np.random.default_rng(0), sizes, 1.0 / np.arange(1, 6))
    assert S.sum(axis=0).tolist() == sizes.tolist()
    assert len({column.tobytes() for column in S.T}) == len(sizes)
    many = drawn_supports(np.random.default_rng(0), np.full(300, 3), 1.0 / np.arange(1, 31)).sum(axis=1)
    assert many[:3].min() > 2 * many[-10:].max()


def test_numbers_of_contexts_fall_and_have_the_mean() -> None:
    assert numbers_of_contexts(10, 3, 0.0).tolist() == [3] * 10
    unequal = numbers_of_contexts(100, 3, 1.0)
    assert unequal[0] == 58
    assert unequal.min() == 1
    assert abs(unequal.sum() - 300) < 30


def decisions(**changes: float) -> dict[str, str]:
    """Answers for two draws of each setting of two sizes; a change is a number of all rows with some imbalance."""
    values = {"none": 1.0, "sizes": 1.0, "multiplicities": 1.0, "frequencies": 3.0, "lengths": 0.99}
    values |= {"raised": 1e-2, "other": 1e-5, "agreement": 0.97, "order": 1.0, **changes}
    rows = []
    for draw, k, (place, name) in product((0, 1), (4, 8), enumerate((NONE, *IMBALANCES))):
        frame = (0.1 + 0.01 * place + 1e-4 * draw) * values[name]
        shape = {"frame": frame, "tokens": 0.1, "contexts": 0.01 * place * k, "overlaps": 0.1, "aligned": 0.9}
        shape |= {"contexts_by_size": values["lengths"], "tokens_by_frequency": values["lengths"]}
        found = {x: shape | {"relative_gap": 1e-4} for x in ("limit", "gamma2", "nuclear")}
        run = shape | {"contexts": values["order"] * shape["contexts"]}
        both = {"contexts": values["agreement"] * 0.9, "tokens": values["agreement"] * 0.9}
        rows.append(
            {"kind": "pattern", "draw": draw, "k": k, "imbalance": name, "strength": float(name != NONE)}
            | {"off_support": 0.5, "formula": 0.1 + 0.01 * place + 1e-4 * draw, "effective_rank": 9.0}
            | {"excess": [values["raised" if name == "frequencies" else "other"]] * 2, "steps": [9, 9]}
            | {"loss_gaps": [0.05, 0.05], "run": run, "reproducible": {"contexts": 0.81, "tokens": 0.81}}
            | {"agreement": dict.fromkeys(("limit", "gamma2", "nuclear"), both), **found}
        )
    study = SupportSymmetry()
    table = study.judge(study.recipe("paper"), rows).tables["hypotheses"]
    return dict(zip(study.hypotheses, map(str, table["answer"]), strict=True))


def test_every_outcome() -> None:
    assert set(decisions().values()) == {"yes"}
    for name in ("none", "sizes", "multiplicities"):
        key = "sparsity" if name == NONE else name
        assert decisions(**{name: 1.5})[key] == "no"
    assert decisions(frequencies=0.5)["frequencies"] == "no"
    assert {decisions(lengths=0.9)[name] for name in ("context lengths", "token lengths")} == {"no"}
    assert decisions(other=1e-2)["excess"] == decisions(raised=1e-4)["excess"] == "no"
    assert decisions(agreement=0.9)["training"] == "no"
    assert decisions(order=-1.0)["order"] == "no"
