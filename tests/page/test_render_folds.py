"""What a page shows at once and what is folded away: the verdict is on top, and folding loses nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cache
from html.parser import HTMLParser

import pytest

from page_cases import CASES, RUN, rendered, story_contents
from tokengeom.comparison.agreement import Agreement
from tokengeom.page.formatting import fixed, maths
from tokengeom.page.sections.base import Page
from tokengeom.page.sections.corpus import corpus, glossary
from tokengeom.page.sections.figures import geometry_sources
from tokengeom.page.sections.measurement import agreement, collapse, training
from tokengeom.page.sections.prediction import concepts, prediction
from tokengeom.page.sections.summary import summary

VOID = {"meta", "link", "br", "img", "hr", "input"}


@dataclass
class Folds(HTMLParser):
    """The text of a page outside and inside its folds; the summary of a fold is outside."""

    open: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    folded: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    styles: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        about = dict(attrs)
        kind = about.get("class") or ""
        if tag not in VOID:
            self.open.append("fold" if tag == "details" and "fold" in kind.split() and "open" not in about else tag)
        if kind == "reach":
            self.labels.append(about.get("aria-label") or "")
        self.styles.append((kind, about.get("style") or ""))

    def handle_endtag(self, tag: str) -> None:
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("script", "style"):
            return
        folds = self.open.count("fold")
        hidden = folds > 1 or (folds == 1 and "summary" not in self.open[self.open.index("fold") :])
        (self.folded if hidden else self.shown).append(data)


def read(html: str) -> Folds:
    found = Folds()
    found.feed(html)
    found.close()
    return found


def prose(parts: list[str]) -> str:
    return re.sub(r"\s+", " ", " ".join(parts))


def plain(sentence: str) -> str:
    """A sentence as it is read on the page, with its symbols typeset."""
    return prose(read(str(maths(sentence))).shown)


@cache
def page(case: str) -> tuple[Folds, str, str]:
    found = read(rendered(case))
    return found, prose(found.shown), prose(found.folded)


def said(items: str, one: Agreement) -> str:
    """The text equivalent of the figure of a number, written without the code of the page."""
    return (
        f"{items}: agreement {one.mean:.2f}; 95% interval {one.low:.2f} to {one.high:.2f}; "
        f"floor: chance {one.floor:.2f}; attainable {one.reproducible**0.5:.2f}; explains {one.explained_text()}, "
        "on an axis from 0 to 1"
    ).replace("-", "\u2212")


def test_the_page_starts_with_the_figure_of_the_verdict() -> None:
    found, shown, _ = page("stories")
    comparison = story_contents().comparisons[RUN]
    numbers = {"contexts": comparison.support_agreement, "tokens": comparison.token_agreement}
    assert found.labels == [said(items, one) for items, one in numbers.items()]
    places = [style for kind, style in found.styles if kind in ("dot", "dot below")]
    assert [float(style.removeprefix("left: ").removesuffix("%")) for style in places] == pytest.approx(
        [100 * one.mean for one in numbers.values()], abs=0.01
    )
    marks = {kind: style for kind, style in found.styles if kind.startswith("mark ")}
    last = numbers["tokens"]
    for kind, value in (("mark floor", last.floor), ("mark attainable", last.attainable)):
        assert marks[kind] == f"left: {round(100 * min(max(value, 0), 1), 2)}%"
    head = shown.split("some stories")[2]
    for one in numbers.values():
        assert f"attainable {fixed(one.attainable, 2)}" in head
        assert f"floor: chance {fixed(one.floor, 2)}" in head
        assert head.index(f"explains {one.explained_text()}") < head.index("What")
    assert "0 0.2 0.4 0.6 0.8 1 Agreement with the prediction" in head
    order = [head.index(word) for word in (comparison.verdict, " What ", " Why ", " How sure ")]
    assert order == sorted(order)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (Agreement(-0.25), "contexts: agreement \u22120.25; explains at least 0%"),
        (Agreement(0.5, null=0.1), "contexts: agreement 0.50; floor: chance 0.10; explains at least 25%"),
        (Agreement(0.3125, null=0.1), "contexts: agreement 0.31; floor: chance 0.10; explains at least 9.7%"),
    ],
)
def test_the_figure_says_what_is_known(one: Agreement, expected: str) -> None:
    contents = story_contents()
    comparison = contents.comparisons[RUN]
    assert comparison.target is not None
    numbers = {**comparison.agreements, comparison.target.named("support_agreement"): one}
    changed = replace(contents, comparisons={RUN: replace(comparison, agreements=numbers)})
    scale = summary(Page(changed)).view["answers"][0]["scales"][0]
    assert scale["description"] == f"{expected}, on an axis from 0 to 1"
    assert scale["below_axis"] == (one.value < 0)
    assert scale["at"] == 100 * max(one.value, 0)


def test_how_sure_says_how_often_models_were_trained() -> None:
    contents = story_contents()
    comparison = contents.comparisons[RUN]
    confidence = " ".join(summary(Page(contents)).view["confidence"])
    assert f"'{RUN}' was trained twice, with different seeds." in confidence
    once = "was trained once: how much of the geometry is reproducible is not known"
    for runs, words in ((1, once), (3, "was trained 3 times")):
        changed = replace(contents, comparisons={RUN: replace(comparison, runs=runs)})
        assert words in " ".join(summary(Page(changed)).view["confidence"])


def test_folding_loses_nothing() -> None:
    contents = story_contents()
    _, shown, folded = page("stories")
    comparison = contents.comparisons[RUN]
    (table,) = agreement(Page(contents)).view["tables"]
    keys = {row["key"] for _, rows in (*table["parts"], *table["folded"]) for row in rows}
    assert len(keys) > 15
    assert keys <= set(folded.split())
    assert keys == {key for key in comparison.agreements if not key.startswith("gamma2_") or "similarity" not in key}
    for row in comparison.rows:
        assert plain(row.meaning) in folded
    for sentence in (*comparison.limitations, *contents.choice.reasons):
        assert plain(sentence) in folded
    for answer in prediction(Page(contents)).view["answers"]:
        assert f"{plain(answer.question)} {plain(answer.answer)}" in shown
        assert plain(answer.reason) in folded
    for term, _, about in glossary("run"):
        assert plain(about) in folded, term
    for words in ("thrampoulidis2024", "tokengeom verify", "is from a jackknife", "ab" * 32):
        assert words in folded
        assert words not in shown


def test_long_lists_show_their_first_entries_and_fold_the_others() -> None:
    contents, (_, shown, folded) = story_contents(), page("stories")
    rows = corpus(Page(contents)).view["contexts"]
    table = shown.split("Most frequent contexts and the tokens that follow them")[1].split("What theory predicts")[0]
    assert len(rows) == 12
    assert "4 more contexts" in table
    assert all(f" {row['text']} " in table for row in rows[:8])
    assert all(f" {row['text']} {row['share']} " in folded for row in rows[8:])
    found = concepts(Page(contents)).view["concepts"]
    assert [f"Concept {one['number']} strength" in shown for one in found] == [True] * 4 + [False] * 4
    assert all(f"Concept {one['number']} strength" in folded for one in found[4:])
    groups = collapse(Page(contents)).view["groups"]
    assert len(groups) > 6
    assert shown.count(" within, ") == 6
    assert folded.count(" within, ") == len(groups) - 6
    for _, several in agreement(Page(contents)).view["rivals"][0]["tables"]:
        best, behind = several[0], several[5:]
        section = shown.split(f"Rival explanations: {RUN}")[1].split("Which contexts collapsed")[0]
        assert f"{best['agreement']} {best['explained']}" in section
        assert all(f"{row['agreement']} {row['explained']} {row['scale']['95% interval']}" in folded for row in behind)


def test_every_panel_is_on_the_page_and_the_essential_ones_are_not_folded() -> None:
    contents = story_contents()
    view = agreement(Page(contents)).view
    essential = [RUN, f"predicted for: {RUN}"]
    for figure in view["pictures"]:
        assert [box.title for _, box in figure.boxes] == essential
    *more, logits = view["more_pictures"]
    sources = list(geometry_sources(contents))
    for figure in more:
        assert [*essential, *(box.title for _, box in figure.boxes)] == sources
    assert [box.title for _, box in logits.boxes] == sources
    curves = training(Page(contents)).view
    assert {box.title for _, box in curves["curves"].boxes} == {
        "Loss gap",
        "Contexts: agreement across supports",
        "Tokens: agreement",
    }
    assert len(curves["more_curves"].boxes) == 6


def test_without_a_prediction_at_the_loss_the_one_in_the_limit_is_beside_the_run() -> None:
    contents = replace(story_contents(), at_loss={})
    (first, _) = agreement(Page(contents)).view["pictures"]
    assert [box.title for _, box in first.boxes] == [RUN, "predicted in the limit: L^mm"]


@pytest.mark.parametrize("case", CASES)
def test_no_fold_is_empty_and_every_fold_has_a_title(case: str) -> None:
    html = re.sub(r"<(script|style)\b.*?</\1>", "", rendered(case), flags=re.DOTALL)
    titles = re.findall(r'<details class="fold"[^>]*>\s*<summary>(.*?)</summary>(.*?)</', html, flags=re.DOTALL)
    assert len(titles) == html.count('<details class="fold"') > 5
    assert all(re.sub(r"<[^>]+>", "", title).strip() for title, _ in titles)
