"""Kinds of labels: the answers that made-up agreements give, statistics of prefixes, and a small measurement."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from study_cases import failed
from tokengeom.extending import SilentProgress
from tokengeom.statistics.windows import ABSENT
from tokengeom_studies.base import Findings, find_study
from tokengeom_studies.common.measured import AbstractMeasuredStudy, Rows
from tokengeom_studies.label_kinds import HARD, PREFIXES, SOFT, prefix_statistics

SEEDS = range(5)
KINDS = (SOFT, HARD, "dropout 0.1", "dropout 0.3")


def study() -> AbstractMeasuredStudy:
    found = find_study("label-kinds")
    assert isinstance(found, AbstractMeasuredStudy)
    return found


def cell_rows(kinds: tuple[str, ...], changes: dict[str, float], *, prefixes: bool) -> list[dict[str, Any]]:
    """Rows of one cell: agreement of 0.8 between runs and of 0.8 with predictions, unless changed."""
    cell = {"text": "t", "prefixes": prefixes, "level": 0.1}
    norm = {"loss_gap": 0.1, "relative_gap": 1e-4, "rank": 3}
    found: list[dict[str, Any]] = [{"kind": "prediction", **cell, "nuclear": norm, "gamma2": norm}]
    runs = [(kind, seed) for kind in kinds for seed in SEEDS]
    for kind, seed in runs:
        reached = changes.get(f"reached {kind}", 1.0) > 0
        run = {"training": kind, "seed": seed, "reached": reached, "step": 5}
        found.append({"kind": "run", "text": "t", "level": 0.1, **run, **({"loss_gap": 0.099} if reached else {})})
        for name in ("nuclear", "gamma2", "supports"):
            value = changes.get(f"{name} {kind}", 0.8) + 1e-3 * (seed % 2)
            numbers = {"contexts": value, "tokens": value}
            found.append({"kind": "with", **cell, "training": kind, "seed": seed, "prediction": name, **numbers})
    for (a, s), (b, t) in combinations(runs, 2):
        if s != t:
            value = changes.get(f"{a} {b}", 0.8) + 1e-3 * (s * t % 2)
            pair = {"trainings": [a, b], "seeds": [s, t], "contexts": value, "tokens": value}
            found.append({"kind": "pair", **cell, **pair})
    return found


def judged(**changes: float) -> Findings:
    named = {name.replace("_", " ").replace("dropout 3", "dropout 0.3"): value for name, value in changes.items()}
    rows = cell_rows(KINDS, named, prefixes=False) + cell_rows((PREFIXES,), named, prefixes=True)
    return study().judge(study().recipe(), rows)


def decision(found: Findings, name: str) -> str:
    place = list(study().hypotheses).index(name)
    return str(found.tables["hypotheses"]["answer"][place])


def test_equal_agreement_gives_yes_everywhere() -> None:
    found = judged()
    assert [decision(found, name) for name in study().hypotheses] == ["yes"] * 5
    assert failed(found) == []


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"soft_hard": 0.77}, HARD),
        ({"soft_dropout_3": 0.77}, "dropout 0.3"),
        ({"gamma2_hard": 0.86}, "prediction"),
        ({"gamma2_prefixes": 0.7}, PREFIXES),
    ],
)
def test_each_hypothesis_is_refuted_by_its_own_numbers(changes: dict[str, float], name: str) -> None:
    found = judged(**changes)
    assert decision(found, name) == "no"
    assert decision(found, "dropout 0.1") == "yes"


def test_a_loss_gap_that_a_seed_did_not_reach_is_left_out() -> None:
    found = judged(reached_hard=0.0)
    assert decision(found, HARD) == "undecided"
    assert failed(found) == ["share of all runs that reached the largest loss gap"]


def test_kinds_that_were_not_measured_are_undecided_and_said_to_be_missing() -> None:
    found = study().judge(study().recipe(), cell_rows((PREFIXES,), {}, prefixes=True))
    assert found.tables["hypotheses"]["answer"] == ["undecided"] * 4 + ["yes"]
    assert found.tables["hypotheses"]["because"][:4] == ["not measured"] * 4
    assert "hard labels not measured" in found.sentence
    assert failed(found) == []


def test_statistics_of_prefixes_have_contexts_of_every_length() -> None:
    recipe = study().recipe(stories=60, contexts=40, vocabulary=30)
    lengths = (np.asarray(prefix_statistics(recipe).contexts) != ABSENT).sum(axis=1)
    assert set(lengths) == {1, 2, 3}


def test_runs_are_read_at_the_loss_gap_and_not_measured_again() -> None:
    recipe = study().recipe(
        stories=60, context=2, contexts=15, vocabulary=20, kinds=[SOFT, HARD], seeds=[0, 1], loss_gaps=[0.8],
        heads=2, dim=8, learning_rate=1e-2, most_steps=90, hard_steps=90, batch=32,
    )  # fmt: skip
    kept = Rows()
    study().measure(recipe, kept, SilentProgress())
    runs = kept.where(kind="run")
    assert [row["reached"] for row in runs] == [True] * 4
    assert all(0.5 < row["loss_gap"] <= 0.8 for row in runs)
    count = len(kept.rows)
    study().measure(recipe, kept, SilentProgress())
    assert len(kept.rows) == count
