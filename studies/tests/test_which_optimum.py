"""Which solution is selected: directions, trainings, and what is decided from rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tokengeom import NextTokenStatistics, train
from tokengeom.extending import SilentProgress
from tokengeom_studies.base import Findings
from tokengeom_studies.common.measured import Rows
from tokengeom_studies.common.optimum_findings import PATH, RULES, SAME_LOSS
from tokengeom_studies.common.solution_sets import direction, distance
from tokengeom_studies.which_optimum import WhichOptimum, follow

STUDY = WhichOptimum()
STATS = NextTokenStatistics.from_counts(np.array([[3, 0, 1], [1, 2, 0], [0, 1, 2]]))


def rows(
    apart: float = 0.2,
    margins: float = 0.01,
    path: float = 0.05,
    same: float = 0.05,
    adam: float = 0.05,
    large: float = 0.1,
    spread: float = 0.3,
) -> list[dict[str, Any]]:
    """Rows of five patterns in which every hypothesis holds unless something is changed."""
    found = list[dict[str, Any]]()
    for number in range(5):
        for name in (PATH, SAME_LOSS):
            distances = dict.fromkeys(RULES, 0.3) | {"largest margins": margins}
            found.append({"kind": "path", "pattern": number, "name": name, "distances": distances, "excess": 0.01})
        for optimizer, start, to_same in (("gd", 0.01, same), ("gd", 1.0, same + large), ("adam", 0.01, adam)):
            distances = dict.fromkeys(RULES, 0.2) | {PATH: path, SAME_LOSS: to_same + 0.001 * number}
            at = {"optimizer": optimizer, "start": start + 0.0, "seed": 0}
            found.append({"kind": "training", "pattern": number, **at, "distances": distances, "excess": 0.1})
        found.append(
            {
                "kind": "pattern",
                "pattern": number,
                "V": 5,
                "m": 5,
                "dimension": 1,
                "free_margins": 5,
                "spread": spread,
                "gap": 1e-9,
                "excess": 1e-7,
                "between_probabilities": apart,
            }
        )
    for row in found:
        if row["kind"] == "training" and row["start"] == 1.0:
            row["distances"][SAME_LOSS] += 0.001 * row["pattern"]
    return found


def judged(**changes: float) -> Findings:
    return STUDY.judge(STUDY.recipe("small"), rows(**changes))


def decision(found: Findings, name: str) -> str:
    return str(found.tables["hypotheses"]["answer"][list(STUDY.hypotheses).index(name)])


def test_rows_in_which_everything_holds_give_yes_everywhere() -> None:
    found = judged()
    assert set(found.tables["hypotheses"]["answer"]) == {"yes"}
    assert found.passed


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"apart": 0.01}, "probabilities matter"),
        ({"margins": 0.3}, "largest margins"),
        ({"path": 0.5}, "descent follows the path"),
        ({"same": 0.5}, "descent follows the path at equal loss"),
        ({"large": -0.04}, "smaller starts are nearer"),
        ({"adam": 0.5}, "adam follows the path"),
    ],
)
def test_each_hypothesis_is_refuted_by_its_own_numbers(changes: dict[str, float], name: str) -> None:
    assert decision(judged(**changes), name) == "no"


def test_a_rule_that_selects_the_path_itself_does_not_count() -> None:
    # Trainings are nearer to the largest margins than to the path, but both are the same solution.
    made = rows(path=0.05)
    for row in made:
        if row["kind"] == "training":
            row["distances"]["largest margins"] = 0.04
    assert decision(STUDY.judge({}, made), "descent follows the path") == "yes"
    for row in made:
        if row["kind"] == "path":
            row["distances"]["largest margins"] = 0.1
    assert decision(STUDY.judge({}, made), "descent follows the path") == "no"


def test_a_pattern_with_one_solution_fails_a_check() -> None:
    found = judged(spread=1e-3)
    assert [c.name for c in found.numbers if not c.passed] == ["smallest spread of the solutions of a pattern"]


def test_a_direction_does_not_change_with_shifts_scales_and_what_happens_inside_supports() -> None:
    rng = np.random.default_rng(0)
    S = STATS.S.toarray() > 0
    before, moved = rng.standard_normal((3, 3)), rng.standard_normal((3, 3))
    inside = np.where(S, rng.standard_normal((3, 3)), 0.0)
    inside -= np.where(S, inside.sum(axis=0) / S.sum(axis=0), 0.0)
    one = direction(before, before + moved, S)
    other = direction(before, before + 3.0 * (moved + inside + rng.standard_normal(3)), S)
    assert distance(one, other) <= 1e-12
    assert np.linalg.norm(one) == pytest.approx(1.0)
    assert distance(one, -one) == pytest.approx(2.0)


@pytest.mark.parametrize(("optimizer", "rate"), [("gd", 0.5), ("adam", 0.01)])
def test_trainings_are_those_of_the_library(optimizer: str, rate: float) -> None:
    """The logits after some steps are those of `train` from the same start."""
    run = train(STATS, "ufm", dim=4, optimizer={"gd": "gd", "adam": "adam"}[optimizer], steps=0, reduction="mean")
    W, H = run.W, run.H
    reached = list(
        follow(STATS, W[None], H[None], optimizer=optimizer, rate=rate, steps=50, targets=[1e9, run.loss_gap * 0.5])
    )
    assert reached[0][2] == 0
    assert reached[1][3] <= run.loss_gap * 0.5
    again = train(
        STATS, "ufm", dim=4, optimizer=optimizer, steps=reached[1][2], learning_rate=rate, reduction="mean",
        rate_schedule="constant",
    )  # fmt: skip
    assert np.allclose(again.logits, reached[1][4], atol=1e-6)


def test_a_measurement_is_not_repeated_and_a_run_that_does_not_arrive_is_a_row_without_distances() -> None:
    recipe = STUDY.recipe("small", patterns=[0], probabilities=1, seeds=1, steps=5, path_gaps=[1e-2, 1e-3])
    rows = Rows()
    STUDY.measure(recipe, rows, SilentProgress())
    assert [row["kind"] for row in rows.rows] == ["path", "path", "training", "training", "training", "pattern"]
    assert all(row["distances"] is None for row in rows.where(kind="training"))
    STUDY.measure(recipe, rows, SilentProgress())
    assert len(rows.rows) == 6


def test_only_patterns_in_which_the_rules_differ_are_shown_by_rule() -> None:
    found = judged()
    # In the rows that are made up, the largest margins are elsewhere than the solutions of the other rules.
    assert found.tables["rules"]["pattern"] == [0, 1, 2, 3, 4]
    changed = rows()
    for row in changed:
        if row["kind"] == "path" and row["pattern"] < 3:
            row["distances"] = dict.fromkeys(RULES, 0.1)
    table = STUDY.judge(STUDY.recipe("small"), changed).tables["rules"]
    assert table["pattern"] == [3, 4]
    assert table["largest margins, small loss"] == [0.01, 0.01]
