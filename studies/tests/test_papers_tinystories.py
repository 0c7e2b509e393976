"""The papers' natural stories: what made-up rows decide, and a training that can be resumed."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from study_cases import failed
from tokengeom.extending import SilentProgress
from tokengeom_studies.base import Findings, find_study
from tokengeom_studies.common.measured import AbstractMeasuredStudy, Rows, chosen
from tokengeom_studies.common.support_directions import GAMMA2, LIMIT, NUCLEAR, PROXY, SUPPORTS
from tokengeom_studies.papers_tinystories import TOKENS

TINY = tomllib.loads((Path(__file__).parent / "tiny.toml").read_text())["papers-tinystories"]
TEXT = {
    "kind": "text", "windows": 900, "contexts": 40, "tokens": 30, "entropy": 0.25, "supports": 9, "one_hot_share": 0.5,
    "several": 20, "names": ["'a' 'b'", "'a' 'b'", "'c' 'd'", "'c' 'd'"],
}  # fmt: skip


def study() -> AbstractMeasuredStudy:
    found = find_study("papers-tinystories")
    assert isinstance(found, AbstractMeasuredStudy)
    return found


def made_up(seed: int, **changes: Any) -> dict[str, Any]:
    """A row of a network for which every hypothesis holds, a little different for every seed."""
    e = 1e-3 * seed
    agreed = {GAMMA2: 0.9, NUCLEAR: 0.85, LIMIT: 0.7, SUPPORTS: 0.8, PROXY: 0.7}
    angles = {"in support": 0.6, "off support": 0.0, "ordered": 0.99 + e, "with the sum of its tokens": 0.9}
    row = {
        "kind": "run", "seed": seed, "loss_gap": 0.01 + e, "within": 0.95 + e, "between": 0.1, "collapse": 0.05,
        "agreement": {name: {"several": x + e * (x - 0.5), "all": x, "tokens": x / 2} for name, x in agreed.items()},
        "similarity": {name: {"contexts": 0.9 + e, "tokens": 0.8} for name in agreed},
        "angles": angles, "predicted_angles": {GAMMA2: angles, LIMIT: angles},
        "predicted_blocks": {GAMMA2: {"within": 0.9, "between": 0.2}, LIMIT: {"within": 1.0, "between": 0.1}},
        "proven": {GAMMA2: 5e-3, NUCLEAR: 1e-3, LIMIT: 1e-4},
        "heatmaps": {"network": np.eye(4).tolist(), LIMIT: np.eye(4).tolist()},
    }  # fmt: skip
    for place, value in changes.items():
        _put(row, place.split("/"), value)
    return row


def _put(row: dict[str, Any], names: list[str], value: float) -> None:
    for name in names[:-1]:
        row = row[name]
    row[names[-1]] = value


def at_epoch(run: dict[str, Any], epoch: int) -> dict[str, Any]:
    return {**run, "kind": "epoch", "epoch": epoch, "seconds": 1.0, "agreement": {LIMIT: 0.7, SUPPORTS: 0.8}}


def longer(seed: int, epoch: int, **changes: Any) -> list[dict[str, Any]]:
    """Rows of a training for 600 epochs at one of them."""
    where = {"seed": seed, "epoch": epoch, "epochs": 600}
    run = {name: x for name, x in made_up(seed, **changes).items() if name != "kind"}
    agreed = run.pop("agreement")
    known = {name: agreed[name] for name in (LIMIT, SUPPORTS)}
    solved = {"kind": "longer, predicted", **where, "explanation": GAMMA2, "agreement": agreed[GAMMA2]}
    return [{"kind": "longer", **run, **where, "agreement": known}, solved]


@pytest.mark.parametrize(
    ("changes", "answers"),
    [
        ({f"agreement/{LIMIT}/several": 0.71}, ["yes", "yes", "yes"]),
        ({f"agreement/{LIMIT}/several": 0.69}, ["yes", "yes", "no"]),
        ({"within": 0.85, f"agreement/{GAMMA2}/several": 0.84}, ["no", "no", "no"]),
        ({f"agreement/{GAMMA2}/several": 0.96}, ["yes", "no", "no"]),
    ],
)
def test_longer_trainings_decide_their_own_hypotheses_alone(changes: dict[str, float], answers: list[str]) -> None:
    usual = [TEXT, at_epoch(made_up(0), 1), made_up(0)]
    rows = [*usual, *longer(0, 60), *longer(0, 600, **changes)]
    found = study().judge(study().recipe(), rows)
    assert found.tables["hypotheses"]["answer"][-3:] == answers
    assert found.tables["longer"]["epoch"] == [60, 600]
    before = study().judge(study().recipe(), usual)
    assert found.tables["hypotheses"]["because"][:8] == before.tables["hypotheses"]["because"][:8]


def test_a_longer_training_that_is_cut_off_goes_on_as_if_it_was_not(tmp_path: Path) -> None:
    recipe = study().recipe("small", **{**TINY, "seeds": [0], "epochs": 4, "whole": [1, 2, 4]})
    path = tmp_path / "rows.jsonl"
    whole = study().measure_into(recipe, tmp_path / "whole.jsonl", None, SilentProgress()).where(kind="longer")
    for _ in range(4):
        rows = study().measure_into(recipe, path, 0.0, SilentProgress())
    cut = rows.where(kind="longer")
    assert [row["epoch"] for row in cut] == [1, 2, 4]
    for one, other in zip(cut, whole, strict=True):
        assert one["loss_gap"] == pytest.approx(other["loss_gap"], rel=1e-6)


def judged(ceiling: float = 0.95, **changes: Any) -> Findings:
    runs = [made_up(seed, **changes) for seed in range(3)]
    epochs = [at_epoch(run, epoch) for run in runs for epoch in (1, 2)]
    ceilings = [
        {"kind": "ceiling", "seeds": [a, b], "several": ceiling, "all": 0.9, "tokens": 0.5}
        for a, b in ((0, 1), (0, 2), (1, 2))
    ]
    return study().judge(study().recipe(), [TEXT, *epochs, *runs, *ceilings])


def decision(found: Findings, name: str) -> str:
    return str(found.tables["hypotheses"]["answer"][list(study().hypotheses).index(name)])


def test_rows_for_which_everything_holds_say_yes_eight_times() -> None:
    found = judged()
    assert found.tables["hypotheses"]["answer"] == ["yes"] * 8 + ["undecided"] * 3
    assert found.passed


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("entropy", {"loss_gap": 0.06}),
        ("blocks", {"between": 0.7}),
        ("collapse", {"within": 0.85}),
        ("loss", {f"agreement/{LIMIT}/several": 0.95}),
        ("supports", {f"agreement/{SUPPORTS}/several": 0.95}),
        ("ceiling", {"ceiling": 1.1}),
        ("proxy", {f"similarity/{PROXY}/contexts": 0.7}),
        ("angles", {"angles/ordered": 0.9}),
    ],
)
def test_each_hypothesis_can_be_refuted(name: str, changes: dict[str, float]) -> None:
    assert decision(judged(**changes), name) == "no"


def test_a_refuted_hypothesis_is_no_failed_check_and_a_prediction_without_proof_is() -> None:
    assert judged(**{"loss_gap": 0.2}).passed
    assert failed(judged(**{"loss_gap": 1.5})) == ["largest loss gap at the end"]
    assert failed(judged(**{f"proven/{GAMMA2}": 0.1})) == ["largest proven relative gap of a prediction"]


def test_a_training_that_was_cut_off_is_left_out() -> None:
    runs = [made_up(seed) for seed in range(2)]
    epochs = [at_epoch(made_up(seed), 1) for seed in range(3)]
    found = study().judge(study().recipe(), [TEXT, *epochs, *runs])
    assert found.tables["training"]["seed"] == [0, 1]
    assert found.tables["blocks"]["within"][1] == "0.900 [0.900, 0.900]"


def test_one_seed_decides_nothing() -> None:
    found = study().judge(study().recipe(), [TEXT, at_epoch(made_up(0), 1), made_up(0)])
    assert set(found.tables["hypotheses"]["answer"]) == {"undecided"}


def test_a_measurement_is_resumed_without_training_again(tmp_path: Path) -> None:
    recipe, path = study().recipe("small", **TINY), tmp_path / "rows.jsonl"
    study().measure_into({**recipe, "seeds": [0]}, path, None, SilentProgress())
    first = chosen(Rows(path).rows, kind="run")
    rows = study().measure_into(recipe, path, None, SilentProgress())
    runs = chosen(rows.rows, kind="run")
    assert [row["seed"] for row in runs] == [0, 1]
    assert runs[:1] == first
    assert [row["epoch"] for row in chosen(rows.rows, kind="epoch", seed=1)] == [1, 2, 4]


def test_a_training_without_time_adds_no_result(tmp_path: Path) -> None:
    rows = study().measure_into(study().recipe("small", **TINY), tmp_path / "rows.jsonl", 0.0, SilentProgress())
    assert not chosen(rows.rows, kind="run")


def test_the_paper_recipe_names_64_different_tokens() -> None:
    tokens = TOKENS.split("|")
    assert len(tokens) == len(set(tokens)) == study().recipe("paper")["vocabulary"]
