"""The page as text: its parts, what it says of awkward texts, and that tokens of a text never become markup."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from base64 import b64decode
from dataclasses import dataclass, field, replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from report_cases import ATTACK, CASES, RUN, TEMPLATE, rendered, story_contents

from tokengeom.errors import MissingExtraError
from tokengeom.figures.base import Figure, HeatmapPanel
from tokengeom.geometry.agreement import Agreement
from tokengeom.page import formatting
from tokengeom.page.glossary import BIBTEX
from tokengeom.page.render import PARTS, render
from tokengeom.page.sections.base import packed, picture
from tokengeom.page.sections.collapse import group_cosines
from tokengeom.page.sections.concepts import equally_strong

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

    @property
    def islands(self) -> list[Any]:
        return [json.loads(text) for about, text in self.scripts if about.get("type") == "application/json"]


@cache
def page(case: str) -> Read:
    read = Read()
    read.feed(rendered(case))
    read.close()
    assert not read.open
    return read


@pytest.mark.parametrize("case", CASES)
def test_every_page_is_whole_and_speaks_plainly(case: str) -> None:
    read = page(case)
    anchors = {about.get("id") for tag, about in read.tags if tag == "section"}
    assert {part.__name__.rsplit(".", 1)[1] for part in PARTS} == anchors
    named = [about["id"] for _, about in read.tags if "id" in about]
    assert len(named) == len(set(named))
    assert not re.search(r"\bnan\b|\binf\b|\bNone\b|(?<![\d.])0(\.0+)? \u00d7 10|undefined", read.prose)


@pytest.mark.parametrize("case", CASES)
def test_a_page_names_nothing_outside_itself(case: str) -> None:
    for _, about in page(case).tags:
        for name in ("src", "href", "action", "data", "srcset"):
            assert (about.get(name) or "#").startswith("#")
        assert not [name for name in about if name.startswith("on")]


def test_tokens_that_look_like_markup_stay_tokens() -> None:
    read = page("hostile")
    assert len([1 for about, _ in read.scripts if about.get("type") is None]) == 2
    assert not [tag for tag, about in read.tags if tag == "img" or "onerror" in about]
    assert ATTACK in read.prose
    assert TEMPLATE in read.prose
    assert "\u202e" not in read.prose


def test_islands_hold_no_mark_that_html_would_read() -> None:
    nasty = {"a": "</script><!--<script>&\u2028", "b": [ATTACK], "c": float("nan")}
    text = str(packed(nasty))
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {**nasty, "c": None}


def test_the_policy_allows_the_two_scripts_and_no_other() -> None:
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


@pytest.mark.parametrize("symmetric", [True, False])
def test_a_packed_matrix_can_be_read_back(symmetric: bool) -> None:
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((7, 7))
    matrix = matrix + matrix.T if symmetric else matrix
    matrix[2, 2] = np.nan
    found = json.loads(str(packed(matrix)))
    numbers = np.frombuffer(b64decode(found["packed"]), "<i2").astype(float)
    assert found["symmetric"] == symmetric
    whole = np.empty(found["shape"])
    if symmetric:
        whole[np.tril_indices(7)] = numbers
        whole.T[np.tril_indices(7)] = numbers
    else:
        whole = numbers.reshape(found["shape"])
    read = np.where(whole < 0, np.nan, found["low"] + whole * found["step"])
    np.testing.assert_allclose(read, matrix, atol=(np.nanmax(matrix) - np.nanmin(matrix)) / 60_000)


def test_heat_maps_share_a_scale_only_where_their_ends_are_equal() -> None:
    def panel(reach: float) -> HeatmapPanel:
        return HeatmapPanel("a", np.eye(3), "x", "y", low=-reach, high=reach, colour_label="cosine")

    same = picture(Figure("f", "t", "c", [panel(1.0), panel(1.0)]))
    assert same.scale is not None
    assert same.scale.reach == 1.0
    assert all(box.drawn["data"][0]["showscale"] is False for _, box in same.boxes)
    assert picture(Figure("f", "t", "c", [panel(1.0), panel(2.0)])).scale is None


def test_cosines_of_groups_are_those_of_all_pairs() -> None:
    contents = story_contents()
    run, groups = contents.runs[RUN], contents.stats.groups
    X = run.H / np.linalg.norm(run.H, axis=0)
    cosines, found = X.T @ X, group_cosines(run, contents)
    for g in range(groups.count):
        mine, others = groups.members(g), np.flatnonzero(groups.label != g)
        np.testing.assert_allclose(found.outside[g], cosines[np.ix_(mine, others)].mean(), atol=1e-12)
        pairs = cosines[np.ix_(mine, mine)][~np.eye(mine.size, dtype=bool)]
        if pairs.size:
            np.testing.assert_allclose(found.inside[g], pairs.mean(), atol=1e-12)
        else:
            assert np.isnan(found.inside[g])


def test_what_the_page_says_of_degenerate_texts_is_true() -> None:
    assert "The supports leave no geometry to predict" in page("full supports").prose
    assert "R growing without end" not in page("full supports").prose
    assert "ordinary classification" in page("one-hot").prose
    assert "there is one direction, of rank 1" in page("one group").prose
    assert "No optimality is claimed" in page("proxy").prose
    assert "No model was trained" in page("untrained").prose
    assert "windows" not in page("untrained").prose.split("The corpus in numbers")[1].split("What theory")[0]
    assert "ended without finite numbers" in page("diverged").prose
    assert "Nothing could be judged" not in page("stories").prose


def test_rival_explanations_have_their_table() -> None:
    number = Agreement(0.5, 0.4, 0.6, 0.1, 0.0, "higher", "contexts")
    row = SimpleNamespace(
        rival="shifted PMI", meaning="log p(z|j) / p(z)", items="contexts", similarity=number, cka=number,
        behind=SimpleNamespace(value=0.25, low=0.2, high=0.3), without_direction=2,
    )  # fmt: skip
    rivals = SimpleNamespace(
        rows=(row,), summary=lambda: "Contexts: shifted PMI explains them best.\n  shifted PMI  SIM"
    )
    prose = Read()
    prose.feed(render(replace(story_contents(), rivals={RUN: rivals})))
    assert "Contexts: shifted PMI explains them best." in prose.prose
    assert "0.400 to 0.600" in prose.prose
    assert "0.250" in prose.prose


def test_the_papers_to_cite_are_those_of_the_citation_file() -> None:
    titles = re.findall(r"(?<!-)title: \"?([^\"\n]+)", (Path(__file__).parents[2] / "CITATION.cff").read_text())
    assert len(titles) == 3
    assert all(title in BIBTEX for title in titles)


def test_without_the_template_engine_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match=r"tokengeom\[report\]"):
        render(story_contents())


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.5, "0.5"), (3, "3"), (1234567, "1,234,567"), (-2.5e-7, "\u22122.5e-07"), (float("nan"), "\u2013"),
        (0.0, "0"), (1e9, "1.0e+09"), (None, "\u2013"), (12345.678, "12,346"), (True, "True"),
    ],
)  # fmt: skip
def test_numbers_are_written_as_a_person_reads_them(value: Any, written: str) -> None:
    assert formatting.number(value) == written


def test_formulas_are_set_and_nothing_else_is_touched() -> None:
    assert formatting.maths("||L_mm||_* is 1.5e-07 & <b>") == (
        "\u2016L<sup>mm</sup>\u2016<sub>*</sub> is 1.5 \u00d7 10<sup>\u22127</sup> &amp; &lt;b&gt;"
    )
    assert formatting.maths("HL_mmx S~") == "HL_mmx S\u0303"
    assert formatting.fixed(-0.001, 2) == "0.00"
    assert formatting.percent(1e-5) == "less than 0.1%"
    assert formatting.percent(0.0) == "0%"


def test_concepts_that_areequally_strong_are_not_told_apart() -> None:
    told = equally_strong(np.array([5.0, 3.0, 1.0, 1.0, 1.0]), 4)
    assert told.startswith("Concepts 3 and 4 are as strong as another one")
    assert equally_strong(np.array([5.0, 3.0, 3.0 - 1e-9]), 2).startswith("Concept 2 is as strong")
    assert equally_strong(np.array([5.0, 3.0, 1.0]), 3) == ""
    assert equally_strong(np.array([5.0]), 1) == ""


def test_a_page_on_any_tokens_does_not_call_them_tokens() -> None:
    assert formatting.in_tokens("Tokens: SIM of token cosines; tokens, swords, token_similarity") == (
        "Tokens: SIM of token cosines; tokens, swords, token_similarity"
    )
    agreement = rendered("stories").split('id="agreement"')[1].split('id="collapse"')[0]
    assert "SIM of token cosines" in agreement
    assert "SIM of token cosines" not in agreement
