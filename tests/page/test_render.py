"""The page as html: complete, self-contained, true for degenerate texts, and safe for hostile ones."""

from __future__ import annotations

import hashlib
import re
import sys
from base64 import b64decode
from dataclasses import dataclass, field, replace
from functools import cache
from html.parser import HTMLParser

import pytest

from page_cases import ATTACK, CASES, RUN, TEMPLATE, rendered, story_contents
from tokengeom.core.errors import MissingExtraError
from tokengeom.page.formatting import fixed
from tokengeom.page.render import SECTIONS, render
from tokengeom.page.sections.base import Page
from tokengeom.page.sections.summary import summary

VOID = {"meta", "link", "br", "img", "hr", "input"}


@dataclass
class Read(HTMLParser):
    """A page as an independent parser reads it."""

    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    scripts: list[tuple[dict[str, str | None], str]] = field(default_factory=list)
    open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            about, before = self.scripts[-1]
            self.scripts[-1] = (about, before + data)
        elif self.open and self.open[-1] != "style":
            self.text.append(data)

    @property
    def prose(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.text))


@cache
def page(case: str) -> Read:
    read = Read()
    read.feed(rendered(case))
    read.close()
    assert not read.open
    return read


@pytest.mark.parametrize("case", CASES)
def test_every_page_is_complete_and_shows_no_raw_values(case: str) -> None:
    read = page(case)
    anchors = {about.get("id") for tag, about in read.tags if tag == "section"}
    # No case has a prediction with ties: `test_unseen` and `test_tied_stages` are about their sections.
    assert {section.__name__ for section in SECTIONS} - {"unseen", "ties"} == anchors
    named = [about["id"] for _, about in read.tags if "id" in about]
    assert len(named) == len(set(named))
    assert not re.search(r"\bnan\b|\binf\b|\bNone\b|(?<![\d.])0(\.0+)? \u00d7 10|undefined|built-in method", read.prose)


@pytest.mark.parametrize("case", CASES)
def test_a_page_names_nothing_outside_itself(case: str) -> None:
    for _, about in page(case).tags:
        for name in ("src", "href", "action", "data", "srcset"):
            assert (about.get(name) or "#").startswith("#")
        assert not [name for name in about if name.startswith("on")]


def test_tokens_that_look_like_markup_stay_text() -> None:
    read = page("hostile")
    # Plotly, the script of the page, and that of the explorer.
    assert len([1 for about, _ in read.scripts if about.get("type") is None]) == 3
    assert not [tag for tag, about in read.tags if tag == "img" or "onerror" in about]
    assert ATTACK in read.prose
    assert TEMPLATE in read.prose
    assert "\u202e" not in read.prose


def test_the_policy_allows_the_scripts_of_the_page_and_no_other() -> None:
    read = page("hostile")
    (policy,) = [about["content"] for _, about in read.tags if about.get("http-equiv") == "Content-Security-Policy"]
    allowed = set(re.findall(r"'sha256-([^']+)'", policy or ""))
    code = [text for about, text in read.scripts if about.get("type") is None]
    assert {b64decode(one).hex() for one in allowed} == {hashlib.sha256(text.encode()).hexdigest() for text in code}
    assert "unsafe-eval" not in (policy or "")


def test_a_page_is_light_enough() -> None:
    assert len(rendered("stories").encode()) < 6_500_000


def test_the_same_contents_give_the_same_page() -> None:
    assert render(story_contents()) == rendered("stories")


def test_sentences_about_degenerate_texts_are_true() -> None:
    assert "The supports leave no geometry to predict" in page("full supports").prose
    assert "R grows without bound" not in page("full supports").prose
    assert "ordinary classification" in page("one-hot").prose
    assert "All contexts have the same support" in page("one group").prose
    assert "R grows without bound" in page("stories").prose
    assert "not claimed to be optimal" in page("proxy").prose
    assert "No model was trained" in page("untrained").prose
    # The title is in the table of contents first, then above the section.
    section = page("untrained").prose.split("The corpus in numbers")[2].split("What theory predicts")[0]
    assert "entropy floor" in section
    assert "window" not in section
    assert "numbers that are not finite" in page("diverged").prose
    assert "No check could be made" not in page("stories").prose


def test_rival_explanations_have_their_table() -> None:
    contents = story_contents()
    rows = contents.comparisons[RUN].rows
    changed = replace(rows[-1], rival="<b>shifted PMI", parameters="k=5", without_direction=2)
    comparison = replace(contents.comparisons[RUN], rows=(*rows[:-1], changed))
    read = Read()
    read.feed(render(replace(contents, comparisons={RUN: comparison})))
    section = read.prose.split(f"Rival explanations: {RUN}")[1].split("Which contexts collapsed")[0]
    assert "<b>shifted PMI" in section
    assert f"from {changed.uses}; k=5; no direction for 2" in section
    for row in rows[:-1]:
        assert fixed(row.agreement.fair) in section
        assert f"{row.agreement.low:.3f} to {row.agreement.high:.3f}".replace("-", "\u2212") in section


def test_the_verdict_is_the_first_sentence_about_the_run() -> None:
    comparison = story_contents().comparisons[RUN]
    prose = page("stories").prose
    head = prose.split("Skip to the text")[1].split("did not fully pass")[0]
    (answer,) = summary(Page(story_contents())).view["answers"]
    assert comparison.reasons[0] == answer["verdict"]
    assert comparison.reasons[0].split(" (")[0] in head
    assert head.index(comparison.reasons[0].split(" (")[0]) < head.index("proven within")


def test_without_the_template_engine_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match=r"tokengeom\[report\]"):
        render(story_contents())


def test_no_sentence_calls_tokens_words() -> None:
    for case in ("stories", "proxy", "one group"):
        prose = re.sub(r"a word, a part of a word|tokenizer word|word2vec", "", page(case).prose)
        assert not re.search(r"\bwords?\b", prose.split("How to cite")[0]), case
