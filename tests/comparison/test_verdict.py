"""The rules of the verdict, one by one, on evidence made by hand; calibration by simulation is a study."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tokengeom.comparison.agreement import LEAST_REPRODUCIBLE, Agreement, ItemKind
from tokengeom.comparison.explained import Lead, RivalRow
from tokengeom.comparison.verdict import (
    AGREES,
    IN_PART,
    Evidence,
    Level,
    better_explanation,
    explained_bounds,
    judge,
    judge_decoder,
    level_of,
)

NAN = float("nan")
UNDEFINED = Agreement(NAN)
CHANCE = Agreement(0.12, 0.07, 0.15, null=0.1)


def explains(share: float, *, reproducible: float = 0.64, width: float = 0.05, floor: float = 0.1) -> Agreement:
    """An agreement of several trainings that explains this share."""
    corrected = share**0.5
    mean = corrected * reproducible**0.5
    ends = {"corrected_low": corrected - width, "corrected_high": corrected + width}
    known = {"reproducible": reproducible, "reproducible_low": reproducible - 0.05, "mean": mean}
    return Agreement(mean, mean - 0.02, mean + 0.02, null=floor, corrected=corrected, **ends, **known)


def alone(value: float, floor: float = 0.1) -> Agreement:
    """An agreement of one training."""
    return Agreement(value, value - 0.02, value + 0.02, null=floor)


HIGH, MIDDLE, LOW = (explains(share) for share in ((1 + AGREES) / 2, (AGREES + IN_PART) / 2, IN_PART / 2))


def evidence(contexts: Agreement = HIGH, tokens: Agreement = HIGH, **more: object) -> Evidence:
    known: dict[str, object] = {
        "collapse": None,
        "rows": (),
        "target": "prediction at the loss reached",
        "prediction": "at loss",
        "loss_gap": None,
        "by_pairs": contexts,
        "together": {},
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
        (CHANCE, "does not agree"),
        (UNDEFINED, "not judged"),
        (Agreement(0.9, 0.85, 0.93), "not judged"),  # no floor
        (explains(1.2), "agrees"),  # more than everything, by chance
        (explains(AGREES + 0.01), "agrees"),
        (explains(AGREES - 0.01), "in part"),
        (explains(IN_PART - 0.01), "does not agree"),
        (explains(0.95, floor=0.99), "does not agree"),  # chance gives as much
        (explains(0.95, reproducible=LEAST_REPRODUCIBLE / 2, floor=0.0), "not judged"),
        (
            replace(explains(0.95, reproducible=0.2, floor=0.0), reproducible_low=-0.1),
            "not judged",
        ),  # perhaps nothing is
        (explains(0.95, width=0.6), "not judged"),
        (explains(0.5, width=0.7), "not judged"),
        (explains(0.5, width=0.1), "in part"),
        (alone(0.95), "agrees"),  # 0.9 of everything, of which some may be noise
        (alone(0.4), "not judged"),  # between 0.16 and all of what is reproducible
    ],
)
def test_an_item_is_judged_by_the_share_that_is_explained(one: Agreement, level: Level) -> None:
    assert level_of(one) == level


@pytest.mark.parametrize(("value", "together", "level"), [(0.4, 0.95, "does not agree"), (0.6, 0.9, "in part")])
def test_with_one_training_what_counts_explain_together_bounds_the_share(
    value: float, together: float, level: Level
) -> None:
    least, most = explained_bounds(alone(value), alone(together))
    assert (least, most) == pytest.approx((value**2, value**2 / together**2))
    assert level_of(alone(value), alone(together)) == level


def test_bounds_of_the_share_are_ordered_and_in_range() -> None:
    assert explained_bounds(MIDDLE, alone(0.9)) == (MIDDLE.explained, MIDDLE.explained), "it is measured"
    assert explained_bounds(alone(0.9), alone(0.5)) == pytest.approx((0.81, 1.0)), "more than all of it is all of it"
    assert explained_bounds(alone(0.9)) == explained_bounds(alone(0.9), alone(-0.1)) == pytest.approx((0.81, 1.0))
    assert explained_bounds(alone(-0.5), alone(0.9)) == (0.0, 0.0)
    assert explained_bounds(replace(alone(0.5), reliability=0.5))[0] == pytest.approx(0.5), "without its own noise"


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        (evidence(), "agrees"),
        (evidence(tokens=MIDDLE), "agrees in part"),
        (evidence(tokens=LOW), "agrees in part"),
        (evidence(tokens=CHANCE), "agrees in part"),
        (evidence(MIDDLE, MIDDLE), "agrees in part"),
        (evidence(MIDDLE, UNDEFINED), "agrees in part"),
        (evidence(LOW, LOW), "does not agree"),
        (evidence(CHANCE, CHANCE), "does not agree"),
        (evidence(HIGH, UNDEFINED), "agrees"),
        (evidence(UNDEFINED, UNDEFINED), "cannot be determined"),
        (evidence(one_hot=True), "cannot be determined"),
        (evidence(groups=4, V=5), "cannot be determined"),
        (evidence(LOW, HIGH, groups=4), "agrees"),
        (evidence(Agreement(0.9), Agreement(0.9)), "cannot be determined"),
        (evidence(alone(0.4), alone(0.4)), "cannot be determined"),
        (evidence(alone(0.4), alone(0.4), together={"contexts": alone(0.95)}), "does not agree"),
        (evidence(by_pairs=CHANCE), "agrees"),  # each pair of supports counts once
    ],
)
def test_outcomes_without_other_explanations(given: Evidence, outcome: str) -> None:
    assert judge(given).outcome == outcome


UNJUDGED: dict[str, tuple[str, Agreement, dict[str, Any]]] = {
    "there are only 4 support groups": ("contexts", HIGH, {"groups": 4}),
    "there are only 5 tokens": ("tokens", HIGH, {"V": 5}),
    "the predicted cosines do not vary": ("contexts", UNDEFINED, {}),
    "permutations=0": ("tokens", Agreement(0.9), {}),
    "too little is reproducible (trainings agree 0.03)": (
        "contexts", explains(0.9, reproducible=0.03, floor=0.0), {},
    ),
    "4% to 196%, is too wide": ("tokens", explains(0.64, width=0.8 - 0.2), {}),
    "only known to be between 16% and 100%": ("contexts", alone(0.4), {}),
    "only known to be between 16% and 97%": (
        "tokens", alone(0.4), {"together": {"tokens": alone(0.4064)}},
    ),
}  # fmt: skip
"""Why an item is not judged -> which it is, its agreement, and circumstances."""


@pytest.mark.parametrize("why", UNJUDGED)
def test_the_reason_why_an_item_is_not_judged_is_given(why: str) -> None:
    items, one, more = UNJUDGED[why]
    other = "tokens" if items == "contexts" else "contexts"
    for level, outcome in ((HIGH, "agrees"), (MIDDLE, "agrees in part"), (LOW, "does not agree")):
        found = judge(evidence(**{items: one, other: level}, **more))
        assert found.outcome == outcome
        (said,) = [sentence for sentence in found.reasons if sentence.startswith(f"The {items} are not judged: ")]
        assert why in said
    neither = judge(evidence(one, UNDEFINED, **more) if items == "contexts" else evidence(UNDEFINED, one, **more))
    assert neither.outcome == "cannot be determined"
    assert why in neither.reasons[0]


def test_where_neither_is_judged_the_verdict_gives_both_reasons() -> None:
    first = judge(evidence(groups=4, V=5)).reasons[0]
    assert "contexts: there are only 4 support groups; tokens: there are only 5 tokens" in first
    assert judge(evidence(UNDEFINED, UNDEFINED)).reasons[0].count("do not vary") == 1, "one reason for both"
    assert "one next token" in judge(evidence(one_hot=True)).reasons[0]


def test_collapse_without_arrangement_is_agreement_in_part() -> None:
    collapsed = Agreement(0.1, 0.05, 0.15, null=1.0, better="lower")
    assert judge(evidence(CHANCE, CHANCE, collapse=collapsed)).outcome == "agrees in part"
    weakly = Agreement(0.9, 0.85, 0.95, null=1.0, better="lower")
    assert judge(evidence(CHANCE, CHANCE, collapse=weakly)).outcome == "does not agree"
    before = replace(collapsed, untrained=0.1)
    assert judge(evidence(CHANCE, CHANCE, collapse=before)).outcome == "does not agree", "the network began like this"


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
    both = (row("S~", "supports", 0.05), row("S~", "tokens", 0.0))
    found = judge(evidence(rows=both))
    assert (found.outcome, found.better) == ("another explanation fits better", "S~")
    assert "S~" in found.reasons[0]
    assert judge(evidence(rows=(both[0], row("S~", "tokens", -0.05)))).outcome == "agrees"
    assert judge(evidence(rows=(row("S~", "supports", 0.01), both[1]))).outcome == "agrees", "too small to matter"
    unclear = row("S~", "supports", 0.05, spread=0.06)
    assert judge(evidence(rows=(unclear, both[1]))).outcome == "agrees"
    assert judge(evidence(rows=(row("L_mm", "supports", 0.05, ours=True),))).outcome == "agrees"
    at_chance = row("S~", "tokens", 0.0, value=0.11)
    assert judge(evidence(rows=(both[0], at_chance))).outcome == "agrees", "it explains contexts alone"
    over_pairs = row("S~", "contexts", 0.05)
    assert judge(evidence(rows=(over_pairs, both[1]))).outcome == "agrees", "each pair of supports counts once"


def test_of_several_explanations_the_one_with_the_largest_lead_in_all_is_named() -> None:
    rows = [row("A", "supports", 0.06), row("A", "tokens", 0.0), row("B", "supports", 0.05), row("B", "tokens", 0.05)]
    assert better_explanation(rows) == "B"
    assert better_explanation([]) is None


def test_an_explanation_is_named_where_the_prediction_is_at_chance() -> None:
    fits = (row("P", "supports", 0.8), row("P", "tokens", 0.8))
    assert judge(evidence(CHANCE, CHANCE, rows=fits)).better == "P"
    gaps: dict[str, Any] = {"loss_gap": 3.0, "frequency_gap": 1.0, "uniform_gap": 2.0}
    assert judge(evidence(CHANCE, CHANCE, rows=fits, **gaps)).better == "P"
    hardly = (row("P", "supports", 0.1, value=0.3), row("P", "tokens", 0.1, value=0.3))
    assert judge(evidence(CHANCE, CHANCE, rows=hardly)).outcome == "does not agree"


def test_the_headline_states_shares_scale_and_coverage_and_details_what_is_missing() -> None:
    given = evidence(explains(0.9), UNDEFINED, coverage=0.04, V=40, d=3, rank=9)
    headline, *details = judge(given).reasons
    assert "explains 90% [81, 100] of the reproducible geometry of contexts" in headline
    assert "(agreement 0.76, chance 0.10, attainable 0.80)" in headline
    assert "nothing of tokens, whose agreement is not defined" in headline
    assert "cover 4.0% of the text" in headline
    assert any("d=3" in sentence and "needs 9" in sentence for sentence in details)
    assert not any("There is one training" in sentence for sentence in details)
    one = judge(evidence(alone(0.9), alone(0.5), together={"tokens": alone(0.8)})).reasons
    assert "explains 81% of the geometry of contexts in this training (agreement 0.90, chance 0.10)" in one[0]
    assert "agreement 0.50, chance 0.10; all explanations by counts together 64%" in one[0]
    assert any("There is one training" in sentence for sentence in one)


def test_where_the_weightings_differ_a_sentence_names_the_large_groups() -> None:
    pairs = Agreement(0.55, 0.1, 0.8, null=0.1)
    said = "2 pairs of groups hold 60% of the pairs of contexts; the largest have {'a', 'b'}; {'c'}"
    found = judge(evidence(by_pairs=pairs, large_groups=said)).reasons
    (sentence,) = [
        one for one in found if one.startswith(f"Each pair of supports counts once here ({HIGH.value:.2f}).")
    ]
    assert "the agreement is 0.55 [0.10, 0.80]." in sentence
    assert said in sentence
    assert not [one for one in judge(evidence(large_groups=said)).reasons if said in one], "the answer is the same"


def test_the_best_explanation_of_each_kind_of_items_is_stated() -> None:
    mine = row("at loss", "supports", 0.0, ours=True, value=0.9)
    other = row("at loss, other norm", "supports", 0.02, ours=True, value=0.92)
    behind = judge(evidence(rows=(other, mine, row("S~", "supports", -0.1, value=0.8)))).reasons
    assert any("best for contexts is the prediction (0.90), clearly ahead of S~" in sentence for sentence in behind)
    rival = row("PMI", "supports", 0.05, value=0.95, spread=0.06)
    ahead = judge(evidence(rows=(other, mine, rival))).reasons
    assert any(
        "best for contexts is PMI (PMI; 0.95), not clearly ahead of the prediction (0.90)" in one for one in ahead
    )


def test_a_decoder_is_judged_by_its_cosine() -> None:
    assert judge_decoder(alone(0.9)).outcome == "agrees"
    assert judge_decoder(alone(0.5)).outcome == "agrees in part"
    assert judge_decoder(CHANCE).outcome == "does not agree"
    assert judge_decoder(UNDEFINED).outcome == "cannot be determined"
