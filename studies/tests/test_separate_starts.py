"""Separate starts: what made-up agreements of four starts decide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tokengeom_studies.base import Findings
from tokengeom_studies.common.explained_cells import MAIN, simulated, started
from tokengeom_studies.common.held_out_text import ITEMS, TOKENS
from tokengeom_studies.separate_starts import BOTH, OTHER, OWN, SMALL, SeparateStarts

RHO, SEEDS = 0.64, range(4)
Values = dict[tuple[float, float], tuple[float, float]]
"""Starts of head and features -> corrected agreement of contexts and of tokens."""
USUAL: Values = {OWN: (0.6, 0.9), SMALL: (0.8, 0.6), BOTH: (0.8, 0.9), OTHER: (0.5, 0.5)}


def judged(values: Values) -> Findings:
    """Rows of two networks on one text; values are corrected for what is reproducible."""
    pairs = [[a, b, dict.fromkeys(ITEMS, RHO)] for a in SEEDS for b in range(a)]
    rows: list[dict[str, Any]] = [{"kind": "text", "text": "t", "tokens": 5}]
    for network in ("mlp", "lstm"):
        cell = {"text": "t", "network": network, "target": 0.2}
        losses = [{"loss": 2.0, "right": 0.4} for _ in SEEDS]
        rows.append({"kind": "run", **cell, "loss_gaps": [0.2] * 4, "steps": [9] * 4, "seeds": pairs, "unseen": losses})
        for start, (contexts, tokens) in values.items():
            found = {kind: [np.sqrt(RHO) * (tokens if kind == TOKENS else contexts)] * 4 for kind in ITEMS}
            name = simulated(MAIN) + started(*start)
            rows.append({"kind": "agreement", **cell, "explanation": name, "replicates": 5, "agreement": found})
    return SeparateStarts().judge(SeparateStarts().recipe(), rows)


def decisions(**given: tuple[float, float]) -> dict[str, str]:
    starts = {"own": OWN, "small": SMALL, "both": BOTH}
    table = judged({**USUAL, **{starts[name]: value for name, value in given.items()}}).tables["hypotheses"]
    return dict(zip(SeparateStarts.hypotheses, map(str, table["answer"]), strict=True))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"contexts": "yes", "tokens": "yes", "small": "yes"}),
        ({"own": (0.85, 0.9)}, {"contexts": "no", "tokens": "yes"}),
        ({"both": (0.8, 0.86)}, {"tokens": "yes"}),
        ({"both": (0.8, 0.84)}, {"tokens": "no"}),
        ({"small": (0.81, 0.6)}, {"small": "yes"}),
        ({"small": (0.83, 0.6)}, {"small": "no"}),
    ],
)
def test_every_outcome(given: dict[str, tuple[float, float]], expected: dict[str, str]) -> None:
    found = decisions(**given)
    assert {name: found[name] for name in expected} == expected


def test_a_start_is_found_by_its_name() -> None:
    found = judged(USUAL)
    starts = zip(found.tables["starts"]["head"], found.tables["starts"]["features"], strict=True)
    means = dict(zip(starts, found.tables["starts"][TOKENS], strict=True))
    assert means == pytest.approx({start: tokens for start, (_, tokens) in USUAL.items()})
    assert found.tables["hypotheses"]["because"][0] == "holds in 6 of 6 cells"
    assert found.tables["hypotheses"]["because"][1] == "holds in 2 of 2 cells"
    assert "0.80 / 0.80 / 0.80 / 0.90" in found.sentence


def test_names_say_where_a_start_is_not_that_of_the_networks() -> None:
    assert [started(*start) for start in (OWN, SMALL, BOTH)] == ["", ", start 0.3", ", start 1, features 0.3"]
