"""The judgement on made-up rows: each statement can come out either way."""

from __future__ import annotations

import numpy as np
import pytest

from tokengeom_studies.at_the_loss_reached import AtTheLossReached
from tokengeom_studies.base import Findings
from tokengeom_studies.common.measured import Row


def row(seed: int, model: str, **numbers: float) -> Row:
    """A run whose agreements are 0.8 plus noise that all share, and what is given."""
    noise = 0.01 * np.sin(7.0 * seed)
    given = {"gamma2": 0.8, "nuclear": 0.8, "limit": 0.8, "own": 0.8, "rival": 0.8, "another": 0.8, **numbers}

    def both(name: str) -> dict[str, float]:
        return {
            item: given[name] + noise + 0.001 * np.cos(11.0 * seed) * (name != "gamma2")
            for item in ("contexts", "tokens")
        }

    predicted = {name: both(name) for name in ("gamma2", "nuclear", "limit")}
    predicted |= {f"{norm}, own split": both("own") for norm in ("gamma2", "nuclear")}
    return {
        "kind": "run", "text": "t", "training": model, "model": model, "seed": seed, "target": 0.1, "reached": True,
        "loss_gap": 0.0999, "step": 5, "seconds": 1.0, "agreement": predicted, "rivals": {"R": both("rival")},
        "efficiency": 0.7, "split_exponent": 0.4, "with_earlier_seeds": [both("another")] * seed,
    }  # fmt: skip


PREDICTION: Row = {"kind": "prediction", "text": "t", "norm": "nuclear", "target": 0.1, "relative_gap": 1e-3}


def judged(**numbers: float) -> Findings:
    rows = [PREDICTION, *(row(seed, model, **numbers) for model in ("ufm", "mlp", "lstm") for seed in range(5))]
    return AtTheLossReached().judge(AtTheLossReached().recipe(), rows)


def decisions(found: Findings) -> dict[str, str]:
    names = AtTheLossReached.hypotheses
    return dict(zip(names, found.tables["hypotheses"]["answer"], strict=True))


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ({"limit": 0.6}, {"limit": "yes"}),
        ({"limit": 0.9}, {"limit": "no"}),
        ({"rival": 0.7}, {"rivals-contexts": "yes", "rivals-tokens": "yes"}),
        ({"rival": 0.9}, {"rivals-contexts": "no", "rivals-tokens": "no"}),
        ({"another": 0.84}, {"ceiling": "yes"}),
        ({"another": 0.95}, {"ceiling": "no"}),
        ({"nuclear": 0.7}, {"norm": "yes"}),
        ({"nuclear": 0.9}, {"norm": "no"}),
        ({"own": 0.9}, {"split": "yes"}),
        ({"own": 0.7}, {"split": "no"}),
    ],
)
def test_each_hypothesis_can_come_out_either_way(numbers: dict[str, float], expected: dict[str, str]) -> None:
    found = decisions(judged(**numbers))
    assert {name: found[name] for name in expected} == expected


def test_runs_that_were_read_at_another_loss_fail_the_check() -> None:
    rows = [PREDICTION, *({**row(seed, "mlp"), "loss_gap": 0.05} for seed in range(5))]
    found = AtTheLossReached().judge(AtTheLossReached().recipe(), rows)
    assert not found.passed


def test_agreement_is_corrected_for_seeds_and_for_the_noise_of_one_training_of_features() -> None:
    rows = [row(seed, model, gamma2=0.72, another=0.81) for model in ("ufm", "mlp") for seed in range(5)]
    for one in rows:
        one["rivals"]["UFM"] = dict.fromkeys(("contexts", "tokens"), 0.81 if one["model"] == "ufm" else 0.68)
    tables = AtTheLossReached().judge(AtTheLossReached().recipe(), [PREDICTION, *rows]).tables

    def of(name: str) -> list[float]:
        return [float(x) for x in tables["corrected"][name][0].split(" / ")]

    assert of("gamma_2") == pytest.approx([0.8, 0.8], abs=0.01)
    # 0.68 / sqrt(0.81); and with the reliability 0.81^2 / 0.81 of the features.
    assert of("unconstrained features") == pytest.approx([0.756, 0.756], abs=0.01)
    assert of("unconstrained features, noise-free") == pytest.approx([0.84, 0.84], abs=0.01)
    assert tables["corrected"]["gamma_2 ahead of unconstrained features"] == ["1 of 1"]
    assert tables["corrected"]["gamma_2 ahead of unconstrained features, noise-free"] == ["0 of 1"]
    # One text has no interval over texts.
    assert float(tables["explained"]["contexts: explained"][0]) == pytest.approx(0.64, abs=0.02)


def test_a_free_parameter_on_the_edge_of_its_grid_is_counted() -> None:
    rows = [row(seed, "mlp") for seed in range(3)]
    for one, k in zip(rows, (0.1, 0.1, 1), strict=True):
        one["rivals"]["PMI"] = {"contexts": 0.1, "tokens": 0.1, "chosen": f"k={k:g}, power 1"}
    edges = AtTheLossReached().judge(AtTheLossReached().recipe(), [PREDICTION, *rows]).tables["edges"]
    assert edges["runs"] == [0, 3]
    assert edges["at the lower end"] == [0, 2]
