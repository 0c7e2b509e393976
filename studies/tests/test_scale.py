"""Scale and ties: what made-up agreements decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pair_cases import pair_rows
from tokengeom_studies.base import Findings
from tokengeom_studies.common.variants import MLP_NAME
from tokengeom_studies.scale import FREE, KERNEL, NORM, TIED, WEIGHTS, Scale


def judged(values: Callable[[int, int, float], dict[str, float]], more: Sequence[dict[str, Any]] = ()) -> Findings:
    """Agreements by number of contexts, width and loss gap; rows of other depths beside them."""
    rows: list[dict[str, Any]] = [*more]
    for m in (100, 1000):
        for dim in (32, 64):
            where = {"text": f"t_{m}", "dim": dim}
            rows.append({"kind": "finished", **where, "contexts": m, "tokens": 5})
            for target in (0.1, 0.4):
                cell = {**where, "target": target}
                pairs = {(MLP_NAME, name): value for name, value in values(m, dim, target).items()}
                rows += pair_rows(pairs, cell, single=(NORM,))
                rows.append({"kind": "run", **cell, "loss_gap": target})
                rows.append({"kind": "prediction", **cell, "norm": NORM, "rank": m // 20, "relative_gap": 1e-3})
    return Scale().judge(Scale().recipe(), rows)


def decisions(values: Callable[[int, int, float], dict[str, float]]) -> dict[str, str]:
    return dict(zip(Scale.hypotheses, judged(values).tables["hypotheses"]["answer"], strict=True))


def depths(shallow: dict[str, float], deep: dict[str, float]) -> list[dict[str, Any]]:
    """Rows of networks with one and eight layers."""
    rows: list[dict[str, Any]] = []
    for layers, values in ((1, shallow), (8, deep)):
        where = {"text": "t_100", "dim": 64, "layers": layers}
        rows.append({"kind": "finished", **where, "contexts": 100, "tokens": 5})
        rows += pair_rows({(MLP_NAME, name): x for name, x in values.items()}, {**where, "target": 0.4})
    return rows


@pytest.mark.parametrize(
    ("shallow", "deep", "kernel", "answers"),
    [
        ((0.9, 0.7), (0.8, 0.75), 0.85, ["yes", "yes", "undecided"]),
        ((0.8, 0.75), (0.9, 0.7), 0.95, ["no", "no", "yes"]),
        ((0.8, 0.7), (0.9, 0.85), 0.7, ["no", "yes", "no"]),
    ],
)
def test_depth_is_judged_at_its_ends_and_changes_no_other_answer(
    shallow: tuple[float, float], deep: tuple[float, float], kernel: float, answers: list[str]
) -> None:
    two = {TIED: 0.85, FREE: 0.7, KERNEL: 0.85}
    rows = depths(*({TIED: tied, FREE: free, KERNEL: kernel} for tied, free in (shallow, deep)))
    tables = [judged(lambda m, dim, target: two, more).tables for more in (rows, [])]
    counted, without = (list(table["hypotheses"]["because"]) for table in tables)
    assert list(tables[0]["hypotheses"]["answer"])[-3:] == answers
    assert counted[:-3] == without[:-3]
    assert tables[0]["depths"]["layers"] == [1, 1, 2, 2, 8, 8]
    assert set(tables[1]["depths"]["layers"]) == {2}


def agreements(best: float, tied: float, free: float = 0.5, kernel: float = 0.85) -> dict[str, float]:
    """The best weight has 0.01 more than the weight 1 and 0.02 more than others."""
    weights = {f"simulated, {ties}": tied - 0.02 + 0.01 * (w == 1.0) for w, ties in WEIGHTS.items()}
    weights[f"simulated, {WEIGHTS[best]}"] = tied + 0.01 * (best != 1.0)
    return {**weights, f"simulated, {WEIGHTS[1.0]}": tied, FREE: free, KERNEL: kernel, NORM: 0.4}


@pytest.mark.parametrize("sign", [1, -1])
def test_ends_decide(sign: int) -> None:
    def values(m: int, dim: int, target: float) -> dict[str, float]:
        tied = 0.8 + sign * (0.05 * (m == 100) + 0.02 * (target == 0.4) + 0.02 * (dim == 64))
        best = 1.0 if (m == 100) == (sign > 0) else 3.0
        return agreements(best, tied, tied - 0.1 - 0.1 * sign * (m == 1000), kernel=tied + 0.05 * sign)

    found = decisions(values)
    wanted = "yes" if sign > 0 else "no"
    assert {found[name] for name in ("contexts", "ties", "loss", "width", "kernel")} == {wanted}
    assert found["itself, contexts"] == ("no" if sign > 0 else "yes")


@pytest.mark.parametrize(("low", "high", "answer"), [(3.0, 0.3, "yes"), (0.3, 3.0, "no")])
def test_the_best_weight_at_a_low_loss_decides(low: float, high: float, answer: str) -> None:
    found = decisions(lambda m, dim, target: agreements(low if target == 0.1 else high, 0.8))
    assert found["itself, loss"] == answer


def test_cells_are_counted_by_item_and_by_width() -> None:
    found = judged(lambda m, dim, target: agreements(3.0 if m == 100 else 0.3, 0.9 - 0.1 * (m == 1000 and dim == 32)))
    of = dict(zip(Scale.hypotheses, zip(*found.tables["by item"].values(), strict=True), strict=True))
    assert of["contexts"][1:3] == ("2 of 4", "2 of 4")
    assert of["itself, contexts"][1:] == ("4 of 4", "0 of 0", "0")
    assert of["itself, loss"][3] == "4"
    assert found.tables["by width"]["contexts: less with more contexts"] == ["2 of 2", "0 of 2"]
    assert found.tables["by width"]["best at w = 3"] == [2, 2]
    assert found.tables["ranks"]["above 64 dimensions"] == ["0 of 4", "0 of 4"]
