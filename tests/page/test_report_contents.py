"""Contents of a page, put together from the results of stages or from a comparison."""

from __future__ import annotations

import numpy as np
import pytest

from page_cases import RUN, from_pattern, story_contents
from tokengeom import compare
from tokengeom.core.errors import InputError
from tokengeom.page.chosen_settings import Choice
from tokengeom.page.report_contents import ReportContents, title_of
from tokengeom.results.contract import AbstractResult


def stages() -> dict[str, AbstractResult]:
    made = story_contents()
    assert isinstance(made.prediction, AbstractResult)
    return {
        "statistics": made.stats,
        "prediction": made.prediction,
        "run-ufm": made.runs[RUN],
        "run-ufm-2": made.repeats[RUN][0],
        "at-loss-ufm-nuclear": made.at_loss[RUN][0],
        "at-loss-ufm-gamma2": made.at_loss[RUN][1],
        "comparison-ufm": made.comparisons[RUN],
    }


def test_results_of_stages_are_found_by_the_name_of_their_model() -> None:
    found = stages()
    contents = ReportContents.from_stages(found, "a title", ["something is missing"], {"seeds": {"seed": 0}})
    assert contents.runs == {RUN: found["run-ufm"]}
    assert contents.comparisons == {RUN: found["comparison-ufm"]}
    assert contents.repeats == {RUN: (found["run-ufm-2"],)}
    assert contents.at_loss == {RUN: (found["at-loss-ufm-nuclear"], found["at-loss-ufm-gamma2"])}
    assert contents.rivals == {}
    assert contents.compared_models == [RUN]
    assert contents.main_comparison == RUN
    assert contents.choice.to_dict() == Choice.given(contents.stats).to_dict()
    assert (contents.title, contents.missing) == ("a title", ("something is missing",))
    assert len(contents.concepts) > 0


def test_a_choice_among_the_stages_is_kept() -> None:
    choice = Choice({"context": 2})
    assert ReportContents.from_stages({**stages(), "choice": choice}, "t").choice is choice


def test_stages_of_another_kind_are_refused() -> None:
    with pytest.raises(InputError, match="needs statistics and a prediction of learned features; got Run"):
        ReportContents.from_stages({**stages(), "statistics": stages()["run-ufm"]}, "t")


def test_a_comparison_needs_what_it_compared() -> None:
    made = story_contents()
    contents = ReportContents.from_comparison(made.comparisons[RUN])
    assert contents.runs == {RUN: made.runs[RUN]}
    run = made.runs[RUN]
    with pytest.raises(InputError, match="in memory"):
        ReportContents.from_comparison(compare(made.prediction, (run.W, run.H), permutations=0))


def test_statistics_without_a_source_have_a_title() -> None:
    assert title_of(from_pattern(np.eye(2))) == "given statistics"
