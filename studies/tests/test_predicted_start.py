"""Starts from a prediction: answers from made-up rows, and rows from tiny runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokengeom.extending import ProblemError, SilentProgress
from tokengeom_studies.base import Findings
from tokengeom_studies.common.compared_starts import AT_LOSS, PERMUTED, PROXY, RANDOM, STARTS, cells_of, gaps_of
from tokengeom_studies.common.measured import Row, Rows, chosen, chosen_measurements
from tokengeom_studies.common.split_texts import split_text_of
from tokengeom_studies.predicted_start import NETWORKS, PredictedFactors, PredictedStartStudy

STUDY = PredictedStartStudy()
GAPS = {"stories": [0.5, 0.1, 0.05]}
CELLS = [(network, "adamw") for network in NETWORKS] + [("mlp", "adamw-low"), ("mlp", "gd")]
USUAL = {RANDOM: 1.0, AT_LOSS: 0.6, PROXY: 0.62, PERMUTED: 1.05}


def run(network: str, optimizer: str, start: str, seed: int, to_decisive: float, **more: Any) -> dict[str, Any]:
    steps = to_decisive
    reached = {"0.5": round(steps / 4), "0.1": round(steps), "0.05": round(2 * steps)}
    held = {"all": 2.0 + more.pop("held", 0.0), "known": 1.0, "new": 3.0}
    return {
        "kind": "run",
        **{"text": "stories", "network": network, "optimizer": optimizer, "start": start, "seed": seed},
        **{"norm_W": 5.0 + seed, "steps_to": reached, "steps": round(2 * steps), "diverged": False, "seconds": 1.0},
        "held_out_at": dict.fromkeys(reached, held),
        "best_held_out": {**held, "step": 10},
        "curve": [[0, 4.0], [10, 1.0], [round(2 * steps), 0.05]],
        "held_out": [[0, 4.0], [10, 2.0]],
        **more,
    }


def rows(factors: dict[str, float] | None = None, held: float = 0.0, seeds: int = 5) -> list[Row]:
    text: Row = {
        "kind": "text",
        **{"text": "stories", "V": 9, "m": 20, "windows": 99, "entropy": 1.0, "supports": 8, "held_out_windows": 50},
        **{"of_known_contexts": 20, "rank": 5, "relative_gap": 1e-3, "prediction_seconds": 2.0},
    }
    found: list[Row] = [text]
    for network, optimizer in CELLS:
        for start, factor in {**USUAL, **(factors or {})}.items():
            if optimizer == "adamw" or start in (RANDOM, AT_LOSS):
                found += [
                    run(network, optimizer, start, seed, (1000 + 10 * seed) * factor, held=held * (start == AT_LOSS))
                    for seed in range(seeds)
                ]
    return found


def judged(given: Sequence[Row]) -> Findings:
    return STUDY.judge(STUDY.recipe("small", gaps=GAPS), given)


def answers(given: Sequence[Row]) -> dict[str, str]:
    return dict(zip(STUDY.hypotheses, judged(given).tables["hypotheses"]["answer"], strict=True))


def test_a_clear_advantage_is_a_yes_to_everything() -> None:
    assert set(answers(rows()).values()) == {"yes"}


@pytest.mark.parametrize(
    ("factors", "held", "refuted"),
    [
        ({AT_LOSS: 0.85, PROXY: 0.85}, 0.0, {*NETWORKS, "low rate", "gd"}),
        ({AT_LOSS: 0.95, PROXY: 0.95}, 0.0, {*NETWORKS, "low rate", "gd", "late"}),
        ({PERMUTED: 0.5}, 0.0, {"tokens", "spectrum"}),
        ({PROXY: 0.75}, 0.0, {"proxy"}),
        ({}, 0.02, {"held-out", "best held-out"}),
    ],
)
def test_each_hypothesis_can_be_refuted(factors: dict[str, float], held: float, refuted: set[str]) -> None:
    found = answers(rows(factors, held))
    assert {name for name, answer in found.items() if answer == "no"} == refuted
    assert judged(rows(factors, held)).passed, "a refuted hypothesis is a result"


def test_noise_and_single_seeds_leave_it_open() -> None:
    assert set(answers(rows(seeds=1)).values()) == {"undecided"}
    noisy = [
        {**row, "steps_to": {**row["steps_to"], "0.1": 500 + 400 * row["seed"]}} if row.get("start") == AT_LOSS else row
        for row in rows()
    ]
    assert answers(noisy)["transformer"] == "undecided"
    assert answers([row for row in rows() if row.get("optimizer") != "gd"])["gd"] == "undecided"


def test_one_network_that_does_not_save_does_not_speak_for_the_others() -> None:
    given = [row for row in rows() if row.get("network") != "lstm"] + [
        run("lstm", "adamw", start, seed, 1000.0) for start in STARTS for seed in range(5)
    ]
    found = answers(given)
    assert (found["transformer"], found["mlp"], found["lstm"]) == ("yes", "yes", "no")


def test_a_run_that_does_not_get_there_counts_with_all_its_steps() -> None:
    one = run("mlp", "adamw", RANDOM, 0, 1000.0, steps=2000)
    never = run("mlp", "adamw", AT_LOSS, 0, 600.0, steps=2000)
    del never["steps_to"]["0.1"]
    (cell,) = cells_of([one, never], GAPS)
    assert cell.ratio(AT_LOSS).mean == 2.0
    assert cell.ratio(AT_LOSS, gap=0.5).mean == pytest.approx(0.6)
    assert cell.share_reached == 0.5
    del one["steps_to"]["0.1"]
    assert cells_of([one, never], GAPS)[0].ratio(AT_LOSS).count == 0


def test_the_interval_is_that_of_the_paired_ratio() -> None:
    pairs = [(600, 1000), (700, 1100), (650, 1000)]
    given = [
        run("mlp", "adamw", start, seed, float(pair[place]))
        for seed, pair in enumerate(pairs)
        for place, start in enumerate((AT_LOSS, RANDOM))
    ]
    found = cells_of(given, GAPS)[0].ratio(AT_LOSS)
    ratios = np.array([a / b for a, b in pairs])
    # The 97.5% point of Student's t with two degrees of freedom.
    half = 4.302652729911275 * ratios.std(ddof=1) / np.sqrt(3)
    assert found.mean == pytest.approx(ratios.mean())
    assert found.half == pytest.approx(half)


def test_runs_that_prove_nothing_fail_a_check() -> None:
    diverged = [{**row, "diverged": row.get("start") == PROXY} for row in rows()]
    assert [check.name for check in judged(diverged).numbers if not check.passed] == ["runs that diverged"]
    unproven = [{**row, "relative_gap": 0.1} for row in rows()]
    assert [check.value for check in judged(unproven).numbers if not check.passed] == [0.1]
    longer = [{**row, "norm_W": 9.0} if row.get("start") == PERMUTED else row for row in rows()]
    assert not judged(longer).passed


def test_a_text_that_several_files_used_is_listed_once() -> None:
    twice = judged([*rows(), *rows()[:1]])
    assert twice.tables["texts"]["text"] == ["stories"]


def test_both_rates_are_compared_at_the_same_gap_and_seed() -> None:
    slow = [
        {**row, "steps_to": {gap: 3 * steps for gap, steps in row["steps_to"].items()}}
        if row.get("optimizer") == "adamw-low"
        else row
        for row in rows(held=0.25)
    ]
    table = judged(slow).tables["rates"]
    assert table["gap"] == ["0.5", "0.1", "0.05", "lowest held-out loss"]
    # 1,000 to 1,040 steps from a random start, 0.6 of it from the prediction, and 3 times that at the low rate.
    steps = {name: table[name][1] for name in table if name.endswith(("adamw", "adamw-low"))}
    assert steps == {
        "random, adamw": "1020 / 2.000",
        "at loss, adamw": "612 / 2.250",
        "random, adamw-low": "3060 / 2.000",
        "at loss, adamw-low": "1836 / 2.250",
    }
    assert table["at loss, low rate / random, usual rate"][1] == "1.800 [1.800, 1.800]"
    del slow[[row.get("optimizer") for row in slow].index("adamw-low")]["steps_to"]["0.1"]
    assert judged(slow).tables["rates"]["random, adamw-low"][1] == "-", "a run that did not get there"


def test_few_seeds_are_marked() -> None:
    because = judged(rows(seeds=3)).tables["hypotheses"]["because"]
    assert all("(3 seeds)" in one for one in because)
    assert not [one for one in judged(rows()).tables["hypotheses"]["because"] if "seeds)" in one]
    fewer = [row for row in rows() if (row.get("start"), row.get("seed")) != (AT_LOSS, 4)]
    assert set(judged(fewer).tables["steps"]["seeds"]) == {4}


def test_an_optimizer_can_have_its_own_gaps() -> None:
    gaps = {"stories": [0.05, 0.5], "stories gd": [0.2, 1.0]}
    assert gaps_of(gaps, "stories", "adamw") == [0.5, 0.05]
    assert gaps_of(gaps, "stories", "gd") == [1.0, 0.2]


TINY: dict[str, Any] = {
    **{"stories": 60, "contexts": 20, "vocabulary": 24, "dim": 8, "layers": 1, "seeds": [0], "most_steps": 30},
    **{"cells": ["stories mlp adamw"], "gaps": {"stories": [3.0, 1.0, 0.01]}, "held_every": 10},
}


def test_rows_of_a_tiny_run_are_complete_and_not_measured_again(tmp_path: Path) -> None:
    recipe = STUDY.recipe("small", **TINY)
    measured = STUDY.measure_into(recipe, tmp_path / "rows.jsonl", None, SilentProgress())
    runs = measured.where(kind="run")
    assert [row["start"] for row in runs] == list(STARTS)
    assert len({row["curve"][0][1] for row in runs}) == len(STARTS), "the starts differ"
    for row in runs:
        assert row["norm_W"] == pytest.approx(runs[0]["norm_W"], rel=1e-6)
        steps = [step for step, _ in row["curve"]]
        assert steps == sorted(steps)
        assert (steps[0], steps[-1], row["steps"]) == (0, 30, 30)
        gaps = dict(row["curve"])
        for gap, step in row["steps_to"].items():
            assert gaps.get(step, 0.0) <= float(gap)
        assert row["best_held_out"]["all"] <= min(loss for _, loss in row["held_out"]) + 1e-6
        assert set(row["held_out_at"]) == set(row["steps_to"])
    before = (tmp_path / "rows.jsonl").read_text()
    STUDY.measure_into(recipe, tmp_path / "rows.jsonl", None, SilentProgress())
    assert (tmp_path / "rows.jsonl").read_text() == before
    assert STUDY.from_kept(tmp_path).tables["texts"]["V"] == [24]


def test_a_text_and_a_prediction_from_files_give_the_same_rows(tmp_path: Path) -> None:
    recipe = STUDY.recipe("small", **TINY)
    split = split_text_of(recipe, "stories")
    split.save(tmp_path / "text.npz")
    saved = split_text_of(recipe, str(tmp_path / "text.npz"))
    PredictedFactors.solve(saved.stats, 0.05, "cpu").save(tmp_path / "prediction.npz")
    read = {
        "texts": {"stories": str(tmp_path / "text.npz")},
        "predictions": {"stories": str(tmp_path / "prediction.npz")},
    }
    one, other = Rows(), Rows()
    STUDY.measure(recipe, one, SilentProgress())
    STUDY.measure({**recipe, **read}, other, SilentProgress())
    for mine, theirs in zip(one.where(kind="run"), other.where(kind="run"), strict=True):
        assert mine["curve"] == theirs["curve"]
    with pytest.raises(ProblemError, match="same statistics"):
        STUDY.measure({**recipe, "predictions": read["predictions"], "contexts": 15}, Rows(), SilentProgress())


def test_measuring_stops_when_its_time_is_over() -> None:
    late = Rows(minutes=0.0)
    STUDY.measure(STUDY.recipe("small", **TINY), late, SilentProgress())
    assert chosen(chosen_measurements(late.rows), kind="run") == []
