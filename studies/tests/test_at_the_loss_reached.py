"""The judgement on made-up rows: each statement can come out either way."""

from __future__ import annotations

from typing import Any

import pytest

from study_cases import cell_row
from tokengeom_studies.at_the_loss_reached import AtTheLossReached
from tokengeom_studies.base import Findings
from tokengeom_studies.common.compared_cells import SPLIT, Cell, first_rows
from tokengeom_studies.common.measured import Row

PREDICTION: Row = {
    "kind": "prediction", "text": "t", "norm": "nuclear", "target": 0.05, "relative_gap": 1e-3, "rank": 9,
}  # fmt: skip


def rows(**numbers: float) -> list[Row]:
    """Cells of three models in which all agree to 0.8, but for what is given."""
    given = {"gamma2": 0.8, "nuclear": 0.8, "limit": 0.8, "own": 0.8, "rival": 0.8, "features": 0.8, **numbers}
    predicted = {name: given[name] for name in ("gamma2", "nuclear", "limit")} | {SPLIT: given["own"]}
    rivals = {"R": given["rival"], "UFM, rate 0.001": given["features"]}
    more: dict[str, Any] = {name: given[name] for name in ("between", "reliability") if name in given}
    return [PREDICTION, *(cell_row(model, model, predicted, rivals, **more) for model in ("ufm", "mlp", "lstm"))]


def judged(**numbers: float) -> Findings:
    return AtTheLossReached().judge(AtTheLossReached().recipe(), rows(**numbers))


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ({"limit": 0.6}, {"limit": "yes"}),
        ({"limit": 0.9}, {"limit": "no"}),
        ({"rival": 0.7, "features": 0.7}, {"rivals-contexts": "yes", "rivals-tokens": "yes"}),
        ({"rival": 0.9}, {"rivals-contexts": "no", "rivals-tokens": "no", "features-contexts": "no"}),
        ({"features": 0.7}, {"features-contexts": "yes", "features-tokens": "yes"}),
        # Corrected for the noise of the features, 0.75 is 0.75 / sqrt(0.8), which is above 0.8.
        ({"features": 0.75, "reliability": 0.8}, {"features-contexts": "no", "features-tokens": "no"}),
        ({"between": 0.65}, {"ceiling": "yes"}),
        ({"between": 0.8}, {"ceiling": "no"}),
        ({"nuclear": 0.7}, {"norm": "yes"}),
        ({"nuclear": 0.9}, {"norm": "no"}),
        ({"own": 0.9}, {"split": "yes"}),
        ({"own": 0.7}, {"split": "no"}),
    ],
)
def test_each_hypothesis_can_come_out_either_way(numbers: dict[str, float], expected: dict[str, str]) -> None:
    found = dict(zip(AtTheLossReached.hypotheses, judged(**numbers).tables["hypotheses"]["answer"], strict=True))
    assert {name: found[name] for name in expected} == expected


def test_runs_that_were_read_at_another_loss_fail_the_check() -> None:
    far = [{**row, "loss_gap": [0.02] * 5} if row["kind"] == "cell" else row for row in rows()]
    assert not AtTheLossReached().judge(AtTheLossReached().recipe(), far).passed


def test_agreement_is_corrected_for_seeds_and_for_the_noise_of_features() -> None:
    tables = judged(gamma2=0.72, between=0.81, features=0.68, reliability=0.9).tables
    found = tables["corrected"]
    assert [float(x) for x in found["gamma_2"][0].split(" / ")] == pytest.approx([0.8, 0.8], abs=1e-3)
    # 0.68 / sqrt(0.81 * 0.9)
    features = [float(x) for x in found["unconstrained features"][0].split(" / ")]
    assert features == pytest.approx([0.796, 0.796], abs=1e-3)
    assert tables["leads"]["ahead of"][1] == "unconstrained features"
    assert tables["leads"]["contexts"][1] == "in 2 of 2 cells, behind in 0; mean difference +0.004"


def test_to_unconstrained_features_others_of_their_kind_are_no_rival() -> None:
    given = {"R": 0.5, "UFM, rate 0.001": 0.9}
    for model, best in (("ufm", "R"), ("mlp", "UFM, rate 0.001")):
        assert Cell(cell_row(model, model, {"gamma2": 0.8}, given)).best_rival("tokens") == best


def test_a_free_parameter_on_the_edge_of_its_grid_is_counted() -> None:
    known = rows()
    for row, edge in zip(known[1:], ("", "", "k=0.001, power 1"), strict=True):
        chosen = dict.fromkeys(("contexts", "tokens"), "k=0.001, power 1")
        row["rivals"]["PMI"] = {**row["rivals"]["R"], "chosen": chosen, "edge": dict.fromkeys(chosen, edge)}
    edges = AtTheLossReached().judge(AtTheLossReached().recipe(), known).tables["edges"]
    assert edges["on an edge"] == [1, 1]
    assert edges["best values"][0] == "0.001 to 0.001 (k)"


def test_rows_of_the_first_measurement_are_read_as_cells_and_answered_beside_the_second() -> None:
    def run(seed: int) -> Row:
        both = {"contexts": 0.5 + 0.1 * seed, "tokens": 0.4}
        return {
            "kind": "run", "text": "t", "training": "mlp", "model": "mlp", "seed": seed, "target": 0.05,
            "reached": True, "loss_gap": 0.0499, "step": 5, "seconds": 1.0,
            "agreement": dict.fromkeys(("gamma2", "nuclear", "limit"), both),
            "rivals": {"UFM": both}, "efficiency": 0.7, "split_exponent": 0.4, "with_earlier_seeds": [both] * seed,
        }  # fmt: skip

    first = [run(seed) for seed in range(3)]
    (row,) = first_rows([*first, {**run(3), "reached": False}])
    cell = Cell(row)
    assert (row["tried"], row["seeds"]) == (4, [0, 1, 2])
    assert list(cell.agreement("gamma2", "contexts").values()) == pytest.approx([0.5, 0.6, 0.7])
    assert set(cell.between("contexts")) == {(1, 0), (2, 0), (2, 1)}
    tables = AtTheLossReached().judge(AtTheLossReached().recipe(), [*rows(limit=0.6), *first]).tables
    assert (tables["hypotheses"]["answer"][0], tables["first"]["answer"][0]) == ("yes", "no")
