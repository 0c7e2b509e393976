"""The rules of the verdict, one by one, on evidence made by hand; calibration by simulation is a study."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tokengeom.comparison.agreement import Agreement, ItemKind
from tokengeom.comparison.rival_table import Lead, RivalRow
from tokengeom.comparison.verdict import Evidence, better_explanation, judge, judge_decoder, level_of

NAN = float("nan")
HIGH, MIDDLE, LOW = (Agreement(x, x - 0.05, x + 0.03, null=0.1) for x in (0.9, 0.5, 0.12))
UNDEFINED = Agreement(NAN)


def with_ceiling(one: Agreement, ceiling: float) -> Agreement:
    return replace(one, ceiling=ceiling)


def evidence(contexts: Agreement = HIGH, tokens: Agreement = HIGH, **more: object) -> Evidence:
    known: dict[str, object] = {
        "collapse": None,
        "rows": (),
        "target": "prediction at the loss reached",
        "loss_gap": None,
    }
    known |= {"groups": 40, "V": 40, "one_hot": False, "coverage": None, "d": 40, "rank": 40}
    known |= {"frequency_gap": None, "uniform_gap": None}
    return Evidence(contexts=contexts, tokens=tokens, **{**known, **more})  # type: ignore[arg-type]


def row(
    name: str, items: ItemKind, ahead: float, value: float = 0.95, ours: bool = False, spread: float = 0.01
) -> RivalRow:
    number = Agreement(value, value - 0.02, value + 0.02, null=0.1)
    lead = Lead(ahead, ahead - spread, ahead + spread)
    return RivalRow(
        rival=name,
        meaning=name,
        uses="supports",
        parameters="none",
        ours=ours,
        items=items,
        agreement=number,
        cka=number,
        similarity=number,
        behind=Lead(0.0, 0.0, 0.0),
        ahead=lead,
        without_direction=0,
    )


@pytest.mark.parametrize(
    ("one", "level"),
    [
        (HIGH, "agrees"),
        (MIDDLE, "in part"),
        (LOW, "does not agree"),
        (UNDEFINED, "not judged"),
        (Agreement(0.9, 0.85, 0.93), "not judged"),  # no floor
        (Agreement(0.85, 0.82, 0.9, untrained=0.75), "in part"),  # high, but not half of the way from its floor
        (Agreement(0.99, 0.98, 1.0, untrained=0.75), "agrees"),
        (with_ceiling(MIDDLE, 0.55), "agrees"),
        (with_ceiling(MIDDLE, 0.9), "in part"),
        (with_ceiling(Agreement(0.25, 0.2, 0.3, null=0.1), 0.9), "does not agree"),
        (with_ceiling(HIGH, 0.05), "agrees"),  # a ceiling below the floor is none
    ],
)
def test_an_item_is_placed_between_floor_and_ceiling(one: Agreement, level: str) -> None:
    assert level_of(one) == level


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        (evidence(), "agrees"),
        (evidence(tokens=MIDDLE), "agrees in part"),
        (evidence(tokens=LOW), "agrees in part"),
        (evidence(MIDDLE, MIDDLE), "cannot be determined"),
        (evidence(with_ceiling(MIDDLE, 0.9), with_ceiling(MIDDLE, 0.9)), "agrees in part"),
        (evidence(with_ceiling(MIDDLE, 0.55), with_ceiling(MIDDLE, 0.55)), "agrees"),
        (evidence(LOW, LOW), "does not agree"),
        (evidence(HIGH, UNDEFINED), "agrees"),
        (evidence(UNDEFINED, UNDEFINED), "cannot be determined"),
        (evidence(one_hot=True), "cannot be determined"),
        (evidence(groups=4, V=5), "cannot be determined"),
        (evidence(LOW, HIGH, groups=4), "agrees"),
        (evidence(Agreement(0.9), Agreement(0.9)), "cannot be determined"),
    ],
)
def test_outcomes_without_other_explanations(given: Evidence, outcome: str) -> None:
    assert judge(given).outcome == outcome


def test_reasons_say_why_nothing_can_be_told() -> None:
    assert "one next token" in judge(evidence(one_hot=True)).reasons[0]
    assert "4 support groups and 5 tokens" in judge(evidence(groups=4, V=5)).reasons[0]
    assert "permutations=0" in judge(evidence(Agreement(0.9), Agreement(0.9))).reasons[0]
    assert "do not vary" in judge(evidence(UNDEFINED, UNDEFINED)).reasons[0]
    assert "second training" in judge(evidence(MIDDLE, MIDDLE)).reasons[0]


def test_collapse_without_arrangement_is_agreement_in_part() -> None:
    collapsed = Agreement(0.1, 0.05, 0.15, null=1.0, better="lower")
    assert judge(evidence(LOW, LOW, collapse=collapsed)).outcome == "agrees in part"
    weakly = Agreement(0.9, 0.85, 0.95, null=1.0, better="lower")
    assert judge(evidence(LOW, LOW, collapse=weakly)).outcome == "does not agree"
    before = replace(collapsed, untrained=0.1)
    assert judge(evidence(LOW, LOW, collapse=before)).outcome == "does not agree", "the network began like this"


def test_a_loss_that_ignores_contexts_is_no_agreement_in_part() -> None:
    gaps: dict[str, Any] = {"frequency_gap": 1.0, "uniform_gap": 2.0}
    assert judge(evidence(LOW, HIGH, loss_gap=0.5, **gaps)).outcome == "agrees in part"
    assert judge(evidence(LOW, HIGH, loss_gap=1.5, **gaps)).outcome == "does not agree"
    assert judge(evidence(UNDEFINED, MIDDLE, loss_gap=1.5, **gaps)).outcome == "does not agree"
    assert judge(evidence(UNDEFINED, HIGH, loss_gap=1.5, **gaps)).outcome == "cannot be determined"
    assert judge(evidence(loss_gap=1.5, **gaps)).outcome == "agrees"
    above = judge(evidence(loss_gap=2.5, **gaps))
    assert (above.outcome, "uniform guess" in above.reasons[0]) == ("cannot be determined", True)
    assert judge(evidence(loss_gap=NAN, **gaps)).outcome == "cannot be determined"


def test_another_explanation_must_be_clearly_ahead_and_behind_in_nothing() -> None:
    both = (row("S~", "contexts", 0.05), row("S~", "tokens", 0.0))
    found = judge(evidence(rows=both))
    assert (found.outcome, found.better) == ("another explanation fits better", "S~")
    assert "S~" in found.reasons[0]
    assert judge(evidence(rows=(both[0], row("S~", "tokens", -0.05)))).outcome == "agrees"
    assert judge(evidence(rows=(row("S~", "contexts", 0.01), both[1]))).outcome == "agrees", "too small to matter"
    unclear = row("S~", "contexts", 0.05, spread=0.06)
    assert judge(evidence(rows=(unclear, both[1]))).outcome == "agrees"
    assert judge(evidence(rows=(row("L_mm", "contexts", 0.05, ours=True),))).outcome == "agrees"
    at_chance = row("S~", "tokens", 0.0, value=0.11)
    assert judge(evidence(rows=(both[0], at_chance))).outcome == "agrees", "it explains contexts alone"


def test_of_several_explanations_the_one_with_the_largest_lead_in_all_is_named() -> None:
    rows = [row("A", "contexts", 0.06), row("A", "tokens", 0.0), row("B", "contexts", 0.05), row("B", "tokens", 0.05)]
    assert better_explanation(rows) == "B"
    assert better_explanation([]) is None


def test_an_explanation_is_named_where_the_prediction_is_at_chance() -> None:
    fits = (row("P", "contexts", 0.8), row("P", "tokens", 0.8))
    assert judge(evidence(LOW, LOW, rows=fits)).better == "P"
    gaps: dict[str, Any] = {"loss_gap": 3.0, "frequency_gap": 1.0, "uniform_gap": 2.0}
    assert judge(evidence(LOW, LOW, rows=fits, **gaps)).better == "P"
    hardly = (row("P", "contexts", 0.1, value=0.3), row("P", "tokens", 0.1, value=0.3))
    assert judge(evidence(LOW, LOW, rows=hardly)).outcome == "does not agree"


def test_the_headline_states_scale_and_coverage_and_details_what_is_missing() -> None:
    given = evidence(with_ceiling(HIGH, 0.95), UNDEFINED, coverage=0.04, V=40, d=3, rank=9)
    headline, *details = judge(given).reasons
    assert "contexts 0.90, chance 0.10, second training 0.95" in headline
    assert "tokens not defined" in headline
    assert "cover 4.0% of the text" in headline
    assert any("d=3" in sentence and "needs 9" in sentence for sentence in details)
    assert any("tokens are not judged" in sentence for sentence in details)
    without = judge(evidence()).reasons
    assert any("no ceiling" in sentence for sentence in without)
    few = judge(evidence(groups=4)).reasons
    assert any("only 4 support groups" in sentence for sentence in few)


def test_the_best_explanation_of_each_kind_of_items_is_stated() -> None:
    rows = (row("at loss", "contexts", 0.0, ours=True), row("S~", "contexts", -0.1, value=0.8))
    assert any(
        "best explanation is the prediction (at loss" in sentence for sentence in judge(evidence(rows=rows)).reasons
    )


def test_an_explanation_that_is_behind_the_prediction_in_another_norm_is_said_to_be() -> None:
    tokens = (row("PMI", "tokens", 0.05), row("at loss, gamma_2", "tokens", 0.0, value=0.9, ours=True))
    nuclear = row("at loss, nuclear", "tokens", 0.06, value=0.96, ours=True)
    found = judge(evidence(rows=(nuclear, *tokens)))
    assert found.better == "PMI"
    assert [one for one in found.reasons if one.startswith("For tokens PMI is ahead of the prediction at the loss")]
    assert any(one.endswith("but not of the prediction at loss, nuclear.") for one in found.reasons)
    assert not [one for one in judge(evidence(rows=tokens)).reasons if "which the verdict is about" in one]


def test_a_decoder_is_judged_by_its_cosine() -> None:
    assert judge_decoder(HIGH).outcome == "agrees"
    assert judge_decoder(LOW).outcome == "does not agree"
    assert judge_decoder(UNDEFINED).outcome == "cannot be determined"
