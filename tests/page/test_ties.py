"""What ties change for a network that a report trains: its stages, its section, and features in the explorer."""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokengeom as tg
from browser import NEEDS_BROWSER
from explore_browser import opened, page_of, written
from page_cases import story_contents
from pipeline_cases import TIES, plain_page, quick, write_text
from tokengeom.comparison.agreement import Agreement
from tokengeom.comparison.explained import Lead, RivalRow
from tokengeom.comparison.explanations.ufm import SEEDS
from tokengeom.core.numerics import cosines
from tokengeom.core.progress import SilentProgress
from tokengeom.corpus.stories import stories
from tokengeom.page import tied_stages
from tokengeom.page.report import Report, render_page
from tokengeom.page.report_contents import ReportContents
from tokengeom.page.sections.base import Page
from tokengeom.page.sections.explore import Explorer
from tokengeom.page.sections.explorer_ties import tied_features
from tokengeom.page.sections.figures import packed
from tokengeom.page.sections.ties import alike, outcome, ties
from tokengeom.page.tied_stages import TiedContexts
from tokengeom.results.registry import load
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.training.run import Run
from tokengeom.training.simulation import Simulation

TEXT: dict[str, Any] = {"transformer": True, "steps": 60}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        plain_page(patch)
        return quick(write_text(folder / "stories.txt"), folder / "page.html", **TEXT)


def saved(made: Report, stage: str) -> Any:
    assert made.results is not None
    return load(made.results / stage)


def test_a_trained_network_is_compared_with_ties_at_its_own_loss(finished: Report) -> None:
    assert [name for name in finished.made if name.startswith("ties")] == list(TIES)
    run, tied, simulated = (saved(finished, name) for name in ("run-transformer", "ties", "ties-simulated"))
    assert isinstance(run, Run)
    assert isinstance(simulated, Simulation)
    for made in (tied, simulated):
        assert made.statistics_hash == finished.contents.stats.hash
        assert made.features.ties == simulated.ties
    assert tied.norm == saved(finished, "comparison-transformer").norm
    assert tied.loss_gap == pytest.approx(run.loss_gap, rel=0.01)
    assert simulated.wanted == pytest.approx(run.loss_gap)
    assert (simulated.replicates, simulated.settings["dim"]) == (SEEDS, run.settings["dim"])
    known = finished.contents.ties
    assert known is not None
    assert known.simulated is not None
    assert known.comparison is not None
    assert known.comparison.runs == known.simulated.runs == 2
    seen = np.unique(finished.contents.stats.P.indices)
    pairs = np.triu_indices(seen.size, 1)
    for made, key, found in ((tied, "tied", known.comparison), (simulated, "simulated", known.simulated)):
        theirs = cosines((run.W - run.W[seen].mean(axis=0))[seen].T)[pairs]
        mine = made.directions("tokens", seen) if key == "simulated" else (made.W - made.W[seen].mean(axis=0))[seen]
        own = cosines(mine.T)[pairs]
        assert found.targets[key]["token_agreement"].value == pytest.approx(np.corrcoef(own, theirs)[0, 1], abs=1e-6)


def test_every_number_is_computed_again(finished: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    plain_page(monkeypatch)
    assert finished.results is not None
    checked = tg.verify(finished.results)
    assert checked.ok, checked.failed
    for said in (
        "ties: it is about these statistics",
        "ties-simulated: its settings are those in the record",
        "ties-comparison: computed again, it has the same agreements",
        "ties-simulated-comparison: computed again, it has the same agreements",
    ):
        assert said in checked.checked


def test_the_section_has_a_column_per_explanation(finished: Report) -> None:
    section = ties(Page(finished.contents))
    assert section is not None
    assert section.view["heads"] == ["without ties", "with ties", "trained alike"]
    assert section.view["about"] == "explained share of"
    assert [row["about"] for row in section.view["rows"]][-1] == "tokens"
    changed, trained = section.view["outcome"]
    assert changed.startswith("The prediction is ")
    assert trained.startswith("Beside the prediction without ties, features trained alike explain ")


def test_a_loss_that_no_tied_prediction_reaches_leaves_what_was_trained_alike(finished: Report) -> None:
    known = finished.contents.ties
    assert known is not None
    alone = replace(finished.contents, ties=replace(known, tied=None, comparison=None))
    section = ties(Page(alone))
    assert section is not None
    assert (section.view["heads"], section.view["changes"]) == (["without ties", "trained alike"], False)
    assert section.view["what"].endswith("The proven prediction with ties does not reach this loss.")
    (trained,) = section.view["outcome"]
    assert trained.startswith("Beside the prediction without ties, features trained alike explain ")
    assert "what ties change" not in render_page(alone, SilentProgress())
    assert tied_features(alone.ties, alone.stats, alone.stats.most_frequent(5)) is None


def test_time_is_estimated_beforehand(finished: Report) -> None:
    found = tg.estimate("report", finished.page.parent / "stories.txt", **{**TEXT, "context": 2, "top_contexts": 30})
    parts = {part.what: part for part in found.parts}
    for title in ("Predicting with tied contexts", "Training tied features alike", "Comparing tied contexts"):
        assert 0 < parts[title].shortest <= parts[title].longest


def test_contexts_without_tokens_to_share_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    documents = list(islice(stories(), 20))
    two, one = tg.count(documents, context=2), tg.count(documents, context=1)
    nameless = NextTokenStatistics.from_counts(np.ones((3, 4), int))
    assert tied_stages.can_be_tied(two)
    assert tied_stages.measure_where_tied(lambda stats: pytest.fail("not measured"), one) is None
    for stats in (one, nameless):
        assert not tied_stages.can_be_tied(stats)
        assert "no tokens that they could share" in tied_stages.why_not_tied(stats, was_asked=False)
    assert "did not reach" in tied_stages.why_not_tied(two, was_asked=False)
    monkeypatch.setattr(tied_stages, "MOST_TRAINED_WORK", 10.0)
    assert "too many contexts" in tied_stages.why_not_tied(two, was_asked=False)


def test_the_sentence_says_what_ties_changed_either_way() -> None:
    def row(low: float, high: float) -> RivalRow:
        """A row of the prediction without ties, which is so far ahead of the one with them."""
        found = object.__new__(RivalRow)
        object.__setattr__(found, "ahead", Lead((low + high) / 2, low, high))
        return found

    rows: Any = {"frequent contexts": row(-0.3, -0.1), "rare contexts": row(0.1, 0.3), "tokens": row(-0.1, 0.1)}
    assert outcome(rows, list(rows)) == (
        "The prediction is clearly better with ties for frequent contexts, clearly worse with ties for rare contexts, "
        "not clearly different for tokens."
    )
    assert outcome({}, list(rows)) == ""


def test_what_training_alike_explains_is_said_either_way() -> None:
    def row(low: float, high: float) -> RivalRow:
        found = object.__new__(RivalRow)
        object.__setattr__(found, "agreement", Agreement((low + high) / 2, low, high))
        return found

    untied: Any = dict.fromkeys(("frequent contexts", "rare contexts", "tokens"), row(0.4, 0.6))
    trained: Any = dict(zip(untied, (row(0.7, 0.8), row(0.1, 0.3), row(0.5, 0.7)), strict=True))
    assert alike(trained, untied, list(untied)) == (
        "Beside the prediction without ties, features trained alike explain more of frequent contexts, about as much "
        "of tokens, less of rare contexts."
    )
    assert alike({}, untied, list(untied)) == ""


@pytest.fixture(scope="module")
def tied_contents() -> ReportContents:
    made = story_contents()
    tied = tg.predict(made.stats, loss_gap=0.3, ties="2*positions+suffixes+self", tolerance=0.03)
    return replace(made, ties=TiedContexts(made.stats, tied, made.comparisons["unconstrained features"]))


def test_shared_features_of_the_explorer_are_those_of_explain(tied_contents: ReportContents) -> None:
    known, stats = tied_contents.ties, tied_contents.stats
    assert known is not None
    assert known.tied is not None
    chosen = stats.most_frequent(stats.m)
    found = tied_features(known, stats, chosen)
    assert found is not None
    Phi = known.tied.features.matrix
    for k in (0, 7):
        starts = np.frombuffer(_bytes(found["starts"]), "<u4")
        rows = np.frombuffer(_bytes(found["features"]), "<u4")[starts[k] : starts[k + 1]]
        names = {known.tied.features.name(int(f), stats.text) for f in Phi[:, [int(chosen[k])]].indices}
        assert {found["names"][f] for f in rows} == names
    assert tied_features(None, stats, chosen) is None


def test_beyond_a_size_the_most_frequent_contexts_have_their_features(
    tied_contents: ReportContents, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, stats = tied_contents.ties, tied_contents.stats
    assert known is not None
    assert known.tied is not None
    chosen = stats.most_frequent(stats.m)
    monkeypatch.setattr("tokengeom.page.sections.explorer_ties.MOST_NUMBERS", 20 * len(known.tied.A))
    found = tied_features(known, stats, chosen)
    assert found is not None
    starts = np.frombuffer(_bytes(found["starts"]), "<u4")
    assert len(found["names"]) == 20
    assert 1 < len(starts) < stats.m
    assert stats.contexts is not None
    assert (np.diff(starts) == np.diff(known.tied.features.of(stats.contexts[chosen]).indptr)[: len(starts) - 1]).all()


@NEEDS_BROWSER
def test_a_context_in_the_explorer_names_its_features_and_what_they_give(
    tied_contents: ReportContents, browser: Any, tmp_path: Path
) -> None:
    file, known = tmp_path / "page.html", tied_contents.ties
    assert known is not None
    assert known.tied is not None
    file.write_text(page_of(json.loads(str(packed(explorer_data_of(tied_contents))))), encoding="utf-8")
    stats, name = tied_contents.stats, tied_contents.stats.context_text(int(tied_contents.stats.most_frequent(1)[0]))
    with opened(browser, file) as found:
        found.select(name)
        assert found.state()["selected"]["kind"] == "contexts"
        rows = [row.locator("th, td").all_inner_texts() for row in found.page.locator(".explore-shared tbody tr").all()]
        assert rows
        placed = known.tied.place([name], stats=stats)
        names = [stats.context_text(j) for j in range(stats.m)]
        for other, cosine, shared, listed in rows:
            why = placed.why(names.index(other))
            assert abs(float(cosine.replace("\N{MINUS SIGN}", "-")) - why.cosine) < 0.02
            assert abs(float(shared.replace("\N{MINUS SIGN}", "-")) - (why.cosine - why.others)) < 0.02
            assert [listed.find(name) >= 0 for _, name, _ in why.rows] == [True] * len(why.rows)
        own = placed.why(placed.index[0]).rows
        text = found.page.locator(".explore-ties p").inner_text()
        assert all(f"{feature} ({kind}) {written(part)[:3]}" in text for kind, feature, part in own)
        found.select(stats.vocabulary[int(np.unique(stats.P.indices)[0])])
        assert not found.messages


def explorer_data_of(given: ReportContents) -> Any:
    return Explorer(given, Page(given).order).data()


def _bytes(pack: Any) -> bytes:
    return b64decode(pack["packed"])
