"""Unconstrained features on the stories, and the order in which concepts are learned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from study_cases import failed, run_study
from tokengeom import NextTokenStatistics, train
from tokengeom.extending import Concepts, InputError
from tokengeom_studies.base import Findings
from tokengeom_studies.ufm_simplified_stories import NATURAL, REPEATS, concept_order, strength_probe

SMALL: dict[str, Any] = {
    "stories": 400, "contexts": 100, "vocabulary": 60, "steps": 400, "learning_rate": 8e-3, "order_steps": 200,
    "order_rate": 4.0, "order_concepts": 12, "draws": 40,
}  # fmt: skip


@pytest.fixture(scope="module")
def found() -> Findings:
    return run_study("ufm-simplified-stories", **SMALL)


def test_a_small_recipe_passes(found: Findings) -> None:
    assert failed(found) == []


def test_the_tables_cover_both_modes(found: Findings) -> None:
    assert set(found.tables["agreement"]["mode"]) == {NATURAL, REPEATS}
    assert {f"half_step, {mode}" for mode in (NATURAL, REPEATS)} <= set(found.tables["concepts"])
    explanations = found.tables["explanations"]
    assert set(explanations["mode"]) == {NATURAL, REPEATS}
    assert {"S~", "L_mm"} <= set(explanations["explanation"])
    rows = list(zip(*(explanations[key] for key in ("explanation", "items", "similarity")), strict=True))
    proxy = next(value for name, items, value in rows if (name, items) == ("S~", "contexts"))
    assert f"SIM with the proxy {proxy:.3f} for contexts" in found.sentence


def test_blocks_of_decreasing_size_are_learned_in_the_order_of_their_singular_values() -> None:
    # Disjoint supports with 12, 6, 3 and 1 contexts: the concepts are the blocks, and their strength is their size.
    S = np.repeat(np.eye(4), [12, 6, 3, 1], axis=1)
    stats = NextTokenStatistics.from_probabilities(S)
    found = Concepts.of(S - S.mean(axis=0))
    run = train(
        stats,
        "ufm",
        dim=32,
        optimizer="gd",
        reduction="mean",
        steps=300,
        learning_rate=1.0,
        probes=strength_probe(found, 3),
    )
    order = concept_order(found, run)
    assert order.agreement == pytest.approx(1.0)
    assert (np.diff(order.half_steps) > 0).all()


def test_an_order_of_one_concept_is_refused() -> None:
    S = np.eye(3)
    with pytest.raises(InputError, match="at least two concepts; got 1"):
        strength_probe(Concepts.of(S - S.mean(axis=0)), 1)
