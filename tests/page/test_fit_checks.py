"""Checks of a run: each fails where its cause was introduced, and only there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from page_cases import RUN, diverged_contents, one_group_contents, one_hot_contents, story_contents
from tokengeom import compare
from tokengeom.comparison.agreement import Agreement
from tokengeom.comparison.explained import RivalRow
from tokengeom.comparison.rival_table import Rivals
from tokengeom.comparison.verdict import level_of
from tokengeom.page.report_contents import ReportContents
from tokengeom.page.sections.base import Page
from tokengeom.page.sections.fit_checks import CHECKS, check_fit, frequency_error, still_falling
from tokengeom.page.sections.summary import FAR_FROM_FLOOR, diagnosis, summary
from tokengeom.theory.features import finite_part
from tokengeom.training.run import Trajectory


def limit(scale: float = 40.0) -> tuple[ReportContents, Any, Any]:
    """Contents whose run is the predicted limit itself: ``L = L_in + scale L_mm``, balanced."""
    contents = story_contents()
    prediction: Any = contents.prediction
    L = finite_part(contents.stats.P) + scale * prediction.L_mm
    U, s, Vt = np.linalg.svd(L, full_matrices=False)
    return contents, U * np.sqrt(s), np.sqrt(s)[:, None] * Vt


def with_run(contents: ReportContents, W: Any, H: Any, loss_gap: float = 1e-9) -> ReportContents:
    run = replace(contents.trained[RUN], W=W, H=H, loss_gap=loss_gap)
    comparison = compare(contents.prediction, run, at_loss=False, permutations=40)
    return replace(contents, runs={RUN: run}, comparisons={RUN: comparison}, at_loss={}, repeats={})


def levels(contents: ReportContents) -> dict[str, str]:
    found = check_fit(contents)
    return {check: found.level(RUN, check) for check in CHECKS}


def test_the_predicted_limit_passes_every_check() -> None:
    contents = with_run(*limit())
    assert set(levels(contents).values()) == {"fits"}
    assert check_fit(contents).misfits == ()


def test_a_loss_above_the_floor_fails_one_check_only() -> None:
    found = levels(with_run(*limit(), loss_gap=2.0))
    assert found == {"loss": "does not fit", "alignment": "fits", "collapse": "fits", "frequencies": "fits"}


def test_shuffled_contexts_lose_alignment_and_collapse() -> None:
    contents, W, H = limit()
    found = levels(with_run(contents, W, H[:, np.random.default_rng(0).permutation(H.shape[1])]))
    assert found["alignment"] == found["collapse"] == "does not fit"


def test_wrong_frequencies_are_found_with_their_size() -> None:
    contents = story_contents()
    prediction: Any = contents.prediction
    U, s, Vt = np.linalg.svd(40.0 * prediction.L_mm, full_matrices=False)
    wrong = with_run(contents, U * np.sqrt(s), np.sqrt(s)[:, None] * Vt)
    assert levels(wrong)["frequencies"] == "does not fit"
    P = contents.stats.P.toarray()
    several = (P > 0).sum(axis=0) > 1
    centred = [np.log(p[p > 0]) - np.log(p[p > 0]).mean() for p in P.T[several]]
    expected = np.sqrt(np.mean(np.concatenate(centred) ** 2))
    assert frequency_error(wrong, RUN) == pytest.approx(expected, rel=1e-5)


def test_a_misfit_names_a_dimension_that_is_too_small() -> None:
    contents, W, H = limit()
    narrow = with_run(contents, W[:, :3], H[:3])
    judged = replace(narrow.comparisons[RUN], verdict="agrees in part")
    found = check_fit(replace(narrow, comparisons={RUN: judged}))
    (one,) = [finding for finding in found.checks if finding.name == "alignment"]
    assert "3 dimensions" in one.causes[0]
    assert f"at least {contents.prediction.rank} dimensions" in one.remedies[0]  # type: ignore[union-attr]


def test_agreement_that_shuffling_cannot_change_is_not_judged() -> None:
    assert check_fit(one_group_contents()).level(RUN) == "not judged"
    assert check_fit(one_hot_contents()).level(RUN, "frequencies") == "not judged"


@pytest.mark.parametrize(
    ("outcome", "level", "title"),
    [
        ("agrees", "fits", "The geometry agrees with the prediction"),
        ("agrees in part", "in part", "The geometry agrees in part with the prediction"),
        ("another explanation fits better", "in part", "Another explanation fits the geometry better: counts"),
        ("does not agree", "does not fit", "The geometry does not agree with the prediction"),
        ("cannot be determined", "not judged", "The geometry agrees with the prediction"),
    ],
)
def test_head_and_diagnosis_say_what_the_verdict_says(outcome: Any, level: str, title: str) -> None:
    contents = story_contents()
    better = "counts" if outcome.startswith("another") else None
    reasons = (f"The verdict: {outcome}.", "A reason.")
    judged = replace(contents.comparisons[RUN], verdict=outcome, reasons=reasons, better_explanation=better)
    page = Page(replace(contents, comparisons={RUN: judged}))
    assert page.diagnosis.level(RUN) == level
    (finding,) = [one for one in page.diagnosis.checks if one.name == "alignment"]
    assert finding.title == title
    assert finding.sentence.startswith(reasons[0])
    (answer,) = summary(page).view["answers"]
    assert (answer["level"], answer["verdict"], answer["notes"]) == (level, reasons[0], ["A reason."])


def test_contexts_and_tokens_are_judged_by_the_rule_of_the_verdict() -> None:
    contents = story_contents()
    comparison = contents.comparisons[RUN]
    assert comparison.target is not None
    at_chance = Agreement(0.5, 0.4, 0.6, null=0.45, items="tokens")
    found = {**comparison.agreements, comparison.target.named("token_agreement"): at_chance}
    check = next(
        one
        for one in check_fit(replace(contents, comparisons={RUN: replace(comparison, agreements=found)})).checks
        if one.name == "alignment"
    )
    assert level_of(at_chance) == "does not agree"
    said = {"agrees": "agree", "in part": "agree in part"}[level_of(comparison.support_agreement)]
    assert f"By themselves, contexts {said} and tokens do not agree." in check.sentence


def test_too_few_supports_are_not_said_to_agree_by_themselves() -> None:
    contents = story_contents()
    comparison = contents.comparisons[RUN]
    assert comparison.circumstances is not None
    few = replace(comparison, circumstances=replace(comparison.circumstances, groups=9))
    (check,) = [one for one in check_fit(replace(contents, comparisons={RUN: few})).checks if one.name == "alignment"]
    assert "By themselves, contexts are not judged and tokens " in check.sentence


@pytest.mark.parametrize(
    ("one", "share", "said"),
    [
        (
            Agreement(
                0.5, 0.4, 0.6, 0.2, reproducible=0.64, mean=0.52, corrected=0.65, corrected_low=0.5, corrected_high=0.8
            ),
            "explains 42% [25, 64]",
            "above chance (0.20); two trainings agree 0.64 on average, so that 0.80 is attainable",
        ),
        (
            Agreement(0.5, 0.4, 0.6, 0.2, reproducible=0.04, mean=0.52, corrected=0.65),
            "explains an unknown share",
            "two trainings agree 0.04 on average, which is too little to explain",
        ),
        (
            Agreement(0.5, 0.4, 0.6, 0.2, reproducible=-0.1, mean=0.52),
            "explains an unknown share",
            "two trainings agree \u22120.10",
        ),
        (Agreement(0.5, 0.4, 0.6, 0.2), "explains at least 25%", "above chance (0.20); all explanations by counts"),
        (Agreement(0.5, 0.4, 0.6, 0.45), "explains at least 0%", "not clearly above chance (0.45); all explanations"),
        (Agreement(0.5, 0.4, 0.6), "explains at least 25%", "chance was not measured; all explanations"),
    ],
)
def test_a_number_has_its_share_and_its_place_between_chance_and_what_is_attainable(
    one: Agreement, share: str, said: str
) -> None:
    contents = story_contents()
    comparison = contents.comparisons[RUN]
    assert comparison.target is not None
    found = {**comparison.agreements, comparison.target.named("support_agreement"): one}
    page = Page(replace(contents, comparisons={RUN: replace(comparison, agreements=found)}))
    scale = summary(page).view["answers"][0]["scales"][0]
    assert said in scale["sentence"]
    assert (scale["name"], scale["share"], scale["low"]) == ("contexts", share, 40.0)
    assert (scale["value"], scale["at"]) == (("0.50", 50.0) if np.isnan(one.mean) else ("0.52", 52.0))
    assert scale["floor"] == (None if np.isnan(one.floor) else 100 * one.floor)
    attainable = 100 * np.sqrt(max(one.reproducible, 0.0))
    assert scale["attainable"] == (None if np.isnan(one.reproducible) else pytest.approx(attainable))
    assert bool(scale["attainable_label"]) == np.isfinite(one.reproducible)


def test_a_trained_explanation_that_is_best_is_named_without_contradicting_the_comparison() -> None:
    contents = story_contents()
    comparison = contents.comparisons[RUN]
    assert comparison.target is not None
    prediction = comparison.target.info.name
    known = [row for row in comparison.rows if row.items == "supports"]
    own = next(row for row in known if row.rival == prediction)
    better = replace(own.agreement, null=0.1, mean=0.99, corrected=0.995, corrected_low=0.9, corrected_high=1.0)
    trained = replace(own, rival="tied", meaning="trained features", ours=False, agreement=better)
    other_norm = replace(own, rival="at loss, another norm", agreement=replace(better, mean=0.999))

    def notes(*first: RivalRow) -> list[str]:
        table = Rivals((*first, *known), 0, (), 20, 0, prediction=prediction, runs=2)
        changed = replace(contents, rivals={RUN: table})
        return [str(note) for note in summary(Page(changed)).view["answers"][0]["notes"] if "explains most" in note]

    said = (
        "Apart from further trainings of this model itself, tied (trained features) explains most of the reproducible "
    )
    assert notes(other_norm, trained) == [f"{said}geometry: 99% [81, 100] of contexts."]
    assert notes(other_norm) == [], "the other norm is not part of the summary"
    assert notes(replace(trained, rival="UFM")) == [], "the run has unconstrained features itself"
    assert notes() == []


def test_contexts_and_tokens_that_are_explained_worst_are_listed_with_their_neighbours() -> None:
    contents = story_contents()
    listed = diagnosis(Page(contents)).view["unexplained"]
    assert [(name, items) for name, items, _ in listed] == [(RUN, "contexts"), (RUN, "tokens")]
    assert [row for _, _, rows in listed for row in rows] == list(contents.comparisons[RUN].unexplained)
    assert all(len(rows) == 10 for _, _, rows in listed)


def test_where_a_disagreement_comes_from_is_said_with_what_to_do() -> None:
    contents = story_contents()
    comparison = contents.comparisons[RUN]
    assert comparison.disagreement is not None
    wasteful = replace(comparison.disagreement, efficiency=0.39, efficiency_high=0.4, split_exponent=0.1)
    changed = replace(comparison, disagreement=wasteful, verdict="agrees in part")
    page = Page(replace(contents, comparisons={RUN: changed}))
    (source,) = diagnosis(page).view["sources"]
    assert source["sentences"][:2] == wasteful.sentences()
    assert source["remedies"] == wasteful.remedies()
    assert len(wasteful.remedies()) == 2
    (finding,) = [one for one in page.diagnosis.checks if one.name == "alignment"]
    assert set(wasteful.remedies()) <= set(finding.remedies)
    cosine = comparison.judged_numbers["logit_cosine"].value
    assert source["sentences"][2].endswith(f"predicted ones is {cosine:.3f}.")


def test_a_wide_enough_model_is_not_called_too_small() -> None:
    contents, W, H = limit()
    shuffled = H[:, np.random.default_rng(0).permutation(H.shape[1])]
    misfits = check_fit(with_run(contents, W, shuffled, loss_gap=2.0)).misfits
    said = " ".join(sentence for one in misfits for sentence in (*one.causes, *one.remedies))
    assert {"loss", "collapse"} <= {one.name for one in misfits}
    assert "dimensions" not in said


def test_a_partial_fit_has_a_title_of_its_own() -> None:
    contents = with_run(*limit())
    uniform = np.log(contents.stats.V) - contents.stats.entropy
    (one,) = check_fit(with_run(*limit(), loss_gap=0.05 * uniform)).misfits
    assert one.title == "The loss is close to the entropy floor, but not there yet"


def test_agreement_far_above_the_floor_is_qualified() -> None:
    for gap, far in ((1e-9, False), (2.0, True)):
        contents = with_run(*limit(), loss_gap=gap)
        (answer,) = summary(Page(contents)).view["answers"]
        assert (FAR_FROM_FLOOR in answer["notes"]) == far


def test_a_diverged_run_is_a_misfit_with_one_remedy() -> None:
    found = [one for one in check_fit(diverged_contents()).misfits if one.run == "transformer"]
    assert [one.level for one in found] == ["does not fit"]
    assert "learning rate" in found[0].remedies[0]


@pytest.mark.parametrize(("gaps", "falling"), [([1.0, 0.5, 0.4, 0.2], True), ([1.0, 0.2, 0.2, 0.195], False)])
def test_a_loss_that_still_falls_is_distinguished_from_one_that_settled(gaps: list[float], falling: bool) -> None:
    run = story_contents().trained[RUN]
    trajectory = Trajectory({"step": [0, 10, 50, 100], "seconds": [0, 1, 2, 3], "loss_gap": gaps})
    run = replace(run, trajectory=trajectory)
    assert still_falling(run) is falling
    contents = replace(with_run(*limit(), loss_gap=2.0), runs={RUN: replace(run, loss_gap=2.0)})
    (loss,) = [one for one in check_fit(contents).misfits if one.name == "loss"]
    said = " ".join(loss.causes)
    assert ("still falling" in said, "stuck" in said) == (falling, not falling), "one of both, never both"


@pytest.mark.parametrize(("schedule", "said"), [("constant", True), ("steps", False), ("cosine", False)])
def test_a_rate_that_was_lowered_is_not_called_too_large(schedule: str, said: bool) -> None:
    contents, W, H = limit()
    shuffled = with_run(contents, W, H[:, np.random.default_rng(0).permutation(H.shape[1])])
    run = shuffled.trained[RUN]
    run = replace(run, settings={**run.settings, "rate_schedule": {"name": schedule}})
    (one,) = [one for one in check_fit(replace(shuffled, runs={RUN: run})).misfits if one.name == "alignment"]
    assert any("learning rate that is too large" in cause for cause in one.causes) == said
