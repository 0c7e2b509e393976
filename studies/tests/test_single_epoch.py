"""One pass over a text: its windows, and the answers that made-up agreements give."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from feature_cases import random_counts
from study_cases import failed
from tokengeom import NextTokenStatistics
from tokengeom.extending import SilentProgress
from tokengeom_studies.base import Findings, find_study
from tokengeom_studies.common.measured import AbstractMeasuredStudy, Rows
from tokengeom_studies.single_epoch import EXACT, ONE_PASS, SAMPLED, one_pass_windows

SEEDS = range(5)
TRAININGS = (ONE_PASS, SAMPLED, EXACT)


def study() -> AbstractMeasuredStudy:
    found = find_study("single-epoch")
    assert isinstance(found, AbstractMeasuredStudy)
    return found


def rows(across: dict[str, float] | None = None, predicted: dict[str, float] | None = None) -> list[dict[str, Any]]:
    """Rows of one text and network: agreement of 0.8 everywhere, except across trainings and with predictions."""
    across, predicted = across or {}, predicted or {}
    cell = {"text": "t", "network": "mlp", "fraction": 1.0}
    norm = {"loss_gap": 0.1, "relative_gap": 1e-4, "rank": 3}
    found: list[dict[str, Any]] = [{"kind": "prediction", **cell, "loss_gap": 0.1, "nuclear": norm, "gamma2": norm}]
    runs = [(training, seed) for training in TRAININGS for seed in SEEDS]
    for training, seed in runs:
        run = {"reached": True, "loss_gap": 0.099, "target": 0.1, "step": 10, "repeated": 0}
        found.append({"kind": "run", **cell, "training": training, "seed": seed, **run})
        for name in ("nuclear", "gamma2", "supports"):
            value = predicted.get(f"{name} {training}", predicted.get(name, 0.7)) + 1e-3 * (seed % 2)
            numbers = {"contexts": value, "tokens": value}
            found.append({"kind": "with", **cell, "training": training, "seed": seed, "prediction": name, **numbers})
    for (a, s), (b, t) in combinations(runs, 2):
        if s != t:
            value = 0.8 if a == b else across.get(f"{a} {b}", 0.8)
            pair = {"trainings": [a, b], "seeds": [s, t], "contexts": value, "tokens": value + 1e-3 * (s * t)}
            found.append({"kind": "pair", **cell, **pair})
    return found


def judged(**changes: dict[str, float]) -> Findings:
    return study().judge(study().recipe(), rows(**changes))


def decision(found: Findings, name: str) -> str:
    place = list(study().hypotheses).index(name)
    return str(found.tables["hypotheses"]["answer"][place])


def test_a_pass_uses_each_window_at_most_once_and_all_that_fill_batches() -> None:
    stats = NextTokenStatistics.from_counts(random_counts(6, 10, 3, seed=0))
    windows = one_pass_windows(stats, 7, seed=3)
    uses = np.bincount(windows.ravel(), minlength=stats.counts.nnz)
    assert (uses <= stats.counts.data).all()
    assert windows.shape[0] == 7
    assert stats.n - windows.size < 7
    assert not np.array_equal(windows, one_pass_windows(stats, 7, seed=4))
    assert np.array_equal(windows, one_pass_windows(stats, 7, seed=3))


def test_equal_agreement_gives_yes_everywhere() -> None:
    found = judged(predicted={"gamma2": 0.75})
    assert [decision(found, name) for name in study().hypotheses] == ["yes"] * 5
    assert failed(found) == []
    assert found.sentence.startswith("Yes")


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"across": {f"{ONE_PASS} {EXACT}": 0.77}}, "one pass"),
        ({"across": {f"{ONE_PASS} {EXACT}": 0.75}}, "common part"),
        ({"across": {f"{SAMPLED} {EXACT}": 0.77}}, "sampled"),
        ({"predicted": {f"gamma2 {ONE_PASS}": 0.74}}, "prediction"),
        ({"predicted": {"supports": 0.8}}, "ahead"),
    ],
)
def test_each_hypothesis_is_refuted_by_its_own_numbers(changes: dict[str, dict[str, float]], name: str) -> None:
    assert decision(judged(**changes), name) == "no"


def test_a_run_that_does_not_reach_the_loss_fails_a_check() -> None:
    made = rows()
    made[1]["reached"] = False
    assert failed(study().judge(study().recipe(), made)) == ["share of runs that reached the loss"]


def test_a_network_that_was_cut_off_is_left_out() -> None:
    made = rows()
    gone = {**made[1], "network": "lstm", "reached": False}
    found = study().judge(study().recipe(), [*made, gone])
    assert failed(found) == []
    assert set(found.tables["runs"]["network"]) == {"mlp"}


def test_a_measurement_reaches_its_losses_and_is_not_repeated() -> None:
    recipe = study().recipe(
        stories=100, context=2, contexts=20, vocabulary=30, seeds=[0, 1], networks=["ufm"], fractions=[1.0],
        epoch_steps=60, epochs=3, ufm_dim=32, ufm_learning_rate=2e-2, most_steps=200,
    )  # fmt: skip
    kept = Rows()
    study().measure(recipe, kept, SilentProgress())
    runs = kept.where(kind="run")
    assert [row["reached"] for row in runs] == [True] * 6
    assert all(row["loss_gap"] <= row["target"] < 1.0 for row in runs)
    assert failed(study().judge(recipe, kept.rows)) == []
    count = len(kept.rows)
    study().measure(recipe, kept, SilentProgress())
    assert len(kept.rows) == count
