"""The proxy's excess: both outcomes of every hypothesis on made-up rows, and a measurement in pieces."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, combinations_with_replacement
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from tokengeom import NextTokenStatistics, predict
from tokengeom.extending import Bool, NuclearADMM, NuclearSVM, SilentProgress
from tokengeom_studies.base import Findings
from tokengeom_studies.common.measured import Row
from tokengeom_studies.common.random_limits import proxy_limit
from tokengeom_studies.common.solved_patterns import slope
from tokengeom_studies.common.torch_runs import save_text
from tokengeom_studies.proxy_excess import ProxyExcess

STUDY = ProxyExcess()
TINY: dict[str, Any] = {
    "V": [8, 16],
    "densities": [0.125, 0.5],
    "ratios": [1.0],
    "seeds": [0],
    "designs": "none",
}
ONE_LARGE = {**TINY, "large": [[24, 1.0, 0.25]]}


def numbers(excess: float, **changes: Any) -> dict[str, Any]:
    return {
        "m": 1024,
        "groups": 1024,
        "excess_low": excess * (1 - 1e-3),
        "excess_high": excess * (1 + 1e-3),
        "relative_gap": 1e-5,
        "rank": 10,
        "rank_of_proxy": 12,
        "effective_rank": 8.0,
        "cosine": 0.99,
        "positive": 0.1,
        "contexts": 0.9,
        "tokens": None,
        **changes,
    }


def random_rows(factor: float = 1.0, share: float = 0.0, **of_ratio: float) -> list[Row]:
    """Rows whose excess is the limit times ``factor ** (log2 V - 10)``; ``of_ratio`` scales single V/m."""
    rows: list[Row] = []
    for V in (256, 1024):
        for ratio in (0.25, 1.0, 4.0):
            for density in (0.0625, 0.125, 0.25):
                limit = proxy_limit(density, ratio)
                m, k = round(V / ratio), round(density * V)
                excess = limit.excess * factor ** (np.log2(V) - 10) * of_ratio.get(f"r{ratio:g}".replace(".", "_"), 1.0)
                for seed in range(2):
                    rank = (limit.effective_rank + share) * min(V, m)
                    of = {"kind": "random", "V": V, "ratio": ratio, "density": density, "k": k, "seed": seed}
                    found = numbers(excess * (1 + 1e-4 * seed), m=m, effective_rank=rank, cosine=limit.cosine)
                    rows.append(of | found)
    return rows


def design(name: str, excess: float, *, two: bool, classes: int, family: str = "2-design") -> Row:
    made = numbers(excess, excess_low=excess - 1e-7, excess_high=excess + 1e-7, relative_gap=1e-7)
    return {
        "kind": "design",
        "name": name,
        "family": family,
        "V": 7,
        "k": 3,
        "two_design": two,
        "classes": classes,
    } | made


def natural(excess: float, random: float) -> list[Row]:
    of = {"kind": "natural", "text": "stories", "V": 104}
    drawn = [of | {"control": "sizes", "seed": seed} | numbers(random + 1e-4 * seed) for seed in range(3)]
    return [of | {"control": "none", "seed": 0} | numbers(excess), *drawn]


def decisions(rows: list[Row]) -> dict[str, str]:
    table = STUDY.judge(STUDY.recipe("paper"), rows).tables["hypotheses"]
    return dict(zip(STUDY.hypotheses, table["answer"], strict=True))


def test_rows_that_follow_the_theory_are_answered_with_yes() -> None:
    rows = [
        *random_rows(),
        design("a", 0.0, two=True, classes=1),
        design("b", 0.0, two=False, classes=1, family="partially balanced"),
        design("c", 0.1, two=False, classes=2, family="partially balanced"),
        *natural(0.01, 0.05),
    ]
    assert set(decisions(rows).values()) == {"yes"}


@pytest.mark.parametrize(
    ("hypothesis", "rows", "answer"),
    [
        ("designs", [design("a", 1e-3, two=True, classes=2)], "no"),
        ("one class", [design("a", 1e-3, two=False, classes=1)], "no"),
        ("partial balance", [design("a", 0.0, two=False, classes=2, family="partially balanced")], "no"),
        ("limit", random_rows(r1=1.2), "no"),
        ("no decay", random_rows(factor=0.5), "no"),
        ("no decay", random_rows(factor=1.3), "undecided"),
        ("density", [row for row in random_rows() if row["V"] == 1024 and row["density"] > 0.2]
         + [{**row, "density": 0.0625} for row in random_rows(r1=0.01) if row["density"] > 0.2], "no"),
        ("ratio", random_rows(r4=1.5), "no"),
        ("ratio", random_rows(r1=1e-3), "no"),
        ("rank", random_rows(share=0.05), "no"),
        ("natural", natural(0.1, 0.05), "no"),
        ("natural", natural(0.0501, 0.05), "undecided"),
    ],
)  # fmt: skip
def test_rows_against_a_hypothesis_are_not_answered_with_yes(hypothesis: str, rows: list[Row], answer: str) -> None:
    assert decisions(rows)[hypothesis] == answer


def test_what_was_not_measured_is_undecided_and_a_wide_gap_fails_a_check() -> None:
    found = STUDY.judge(STUDY.recipe("paper"), [design("a", 0.0, two=True, classes=1)])
    assert found.passed
    assert found.tables["hypotheses"]["answer"][3:] == ["undecided"] * 6
    wide = STUDY.judge(STUDY.recipe("paper"), [{**row, "relative_gap": 1e-2} for row in natural(0.1, 0.1)])
    assert not wide.passed


def test_the_slope_of_a_power_law_is_its_exponent() -> None:
    rows = [{"V": V, "excess_low": V**-0.5, "excess_high": V**-0.5} for V in (64, 128, 256, 512)]
    found = slope(rows)
    assert found is not None
    assert found.mean == pytest.approx(-0.5)
    assert slope(rows[:2]) is None


def test_a_measurement_continues_where_it_stopped(tmp_path: Path) -> None:
    recipe = STUDY.recipe("small", **ONE_LARGE)
    none = STUDY.measure_into(recipe, tmp_path / "rows.jsonl", 0.0, SilentProgress())
    assert [row["kind"] for row in none.rows] == ["setting"]
    whole = STUDY.measure_into(recipe, tmp_path / "rows.jsonl", None, SilentProgress())
    assert [(row["V"], row["k"]) for row in whole.where(kind="random")] == [(8, 1), (8, 4), (16, 2), (16, 8), (24, 6)]
    again = STUDY.measure_into(recipe, tmp_path / "rows.jsonl", None, SilentProgress())
    assert len(again.rows) == len(whole.rows)
    found = STUDY.from_kept(tmp_path)
    assert isinstance(found, Findings)
    assert found.tables["random"]["V"] == [8, 16, 24, 8, 16]


def test_natural_supports_are_measured_with_their_controls(tmp_path: Path) -> None:
    S = np.random.default_rng(0).integers(0, 2, (6, 9)).astype(bool)
    S[0] = True
    contexts = np.arange(9)[:, None] % 6
    stats = NextTokenStatistics.from_counts(sparse.csc_array(S.astype(int)), contexts=contexts)
    save_text(stats, tmp_path / "t.npz")
    recipe = STUDY.recipe(
        "small", **{**TINY, "V": [], "large": [], "texts": [str(tmp_path / "t.npz")], "control_seeds": [0, 1]}
    )
    rows = STUDY.measure_into(recipe, tmp_path / "rows.jsonl", None, SilentProgress())
    assert [(row["control"], row["seed"]) for row in rows.where(kind="natural")] == [
        ("none", 0), ("sizes", 0), ("frequencies", 0), ("sizes", 1), ("frequencies", 1),
    ]  # fmt: skip
    # A text with too many entries has one seed of each control.
    few = STUDY.measure_into({**recipe, "most_entries": 9}, tmp_path / "few.jsonl", None, SilentProgress())
    assert len(few.where(kind="natural")) == 3
    found = STUDY.judge(recipe, rows.where(kind="natural"))
    assert (found.tables["natural"]["text"], found.tables["natural"]["V"]) == (["t"], [6])


def patterns(V: int, m: int) -> Iterator[Bool]:
    """All multisets of m supports over V tokens, none of them empty or full."""
    several = [list(tokens) for k in range(1, V) for tokens in combinations(range(V), k)]
    for supports in combinations_with_replacement(several, m):
        S = np.zeros((V, m), np.bool_)
        for j, support in enumerate(supports):
            S[support, j] = True
        yield S


def test_the_proxy_is_exact_for_every_pattern_smaller_than_the_counter_example() -> None:
    sizes = [(V, m) for V in (2, 3) for m in (1, 2, 3)] + [(4, 1), (4, 2)]
    for V, m in sizes:
        for S in patterns(V, m):
            problem = NuclearSVM.from_support(S)
            proxy = np.linalg.svd(problem.proxy(), compute_uv=False).sum()
            bound = NuclearADMM(tolerance=1e-6)(problem).certificate.bound
            assert proxy <= bound * (1 + 4e-6), S


def test_a_feasible_matrix_beats_the_proxy_of_the_counter_example() -> None:
    S = np.array([[1, 1, 1], [0, 1, 0], [0, 0, 1], [0, 0, 0]], np.bool_)
    prediction = predict(NextTokenStatistics.from_counts(S.astype(np.int64)), tolerance=1e-7)
    L = prediction.L_mm
    for j in range(3):
        inside, outside = L[S[:, j], j], L[~S[:, j], j]
        assert np.ptp(inside) < 1e-6
        assert inside.min() - outside.max() > 1 - 1e-6
    proxy = S - S.mean(axis=0)
    assert np.linalg.norm(proxy, "nuc") / np.linalg.norm(L, "nuc") - 1 == pytest.approx(0.009616, abs=1e-5)
