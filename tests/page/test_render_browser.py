"""The page in a browser: what is drawn, what hovering shows, what is fetched, and how it looks on phones and paper."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokengeom as tg
from browser import NEEDS_BROWSER, PATIENCE
from page_cases import ATTACK, RUN, rendered, story_contents
from tokengeom.core.numerics import cosines
from tokengeom.page.render import SECTIONS

pytestmark = NEEDS_BROWSER
DRAWN = "html[data-plots=drawn]"
PHONE = 390
DESK, TALLEST = 1440, 9_000
"""Width of a desktop's window, and what the page may be tall in it, without the explorer and with folds closed."""


@dataclass
class Opened:
    """An open page, with its requests and console messages."""

    page: Any
    requests: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)

    def ask(self, script: str) -> Any:
        return self.page.evaluate(script)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    made = {case: folder / f"{case.replace(' ', '-')}.html" for case in ("stories", "hostile")}
    for case, path in made.items():
        path.write_text(rendered(case), encoding="utf-8")
    return made


@contextmanager
def opened(
    browser: Any, path: Path, *, width: int = 1280, scheme: str = "light", until: str = DRAWN
) -> Iterator[Opened]:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    context.set_default_timeout(PATIENCE)
    found = Opened(context.new_page())
    found.page.on("request", lambda request: found.requests.append(request.url))
    found.page.on("console", lambda said: found.messages.append(f"{said.type}: {said.text}"))
    found.page.on("pageerror", lambda error: found.messages.append(f"error: {error}"))
    found.page.on("dialog", lambda dialog: found.messages.append(f"dialog: {dialog.message}"))
    found.page.goto(path.as_uri())
    found.page.wait_for_selector(until)
    yield found
    context.close()


@pytest.fixture(scope="module")
def stories(browser: Any, files: dict[str, Path]) -> Iterator[Opened]:
    with opened(browser, files["stories"], until="html[data-stills=ready]") as found:
        yield found


@pytest.fixture(scope="module")
def hostile(browser: Any, files: dict[str, Path]) -> Iterator[Opened]:
    with opened(browser, files["hostile"], width=PHONE) as found:
        yield found


@pytest.fixture(scope="module")
def phone(browser: Any, files: dict[str, Path]) -> Iterator[Opened]:
    """The stories on a phone with a dark theme."""
    with opened(browser, files["stories"], width=PHONE, scheme="dark") as found:
        yield found


def hover_over_cell(found: Opened, figure: str, row: int, column: int) -> str:
    """Move to the centre of a cell of a figure's first heat-map, and read the label."""
    plot = found.page.locator(f"#figure-{figure} .plot").first
    plot.scroll_into_view_if_needed()
    rows, columns = plot.evaluate("p => [p.data[0].z.length, p.data[0].z[0].length]")
    box = plot.locator(".nsewdrag").first.bounding_box()
    x = box["x"] + (column + 0.5) * box["width"] / columns
    found.page.mouse.move(x + 1, box["y"] + (row + 0.5) * box["height"] / rows)
    found.page.mouse.move(x, box["y"] + (row + 0.5) * box["height"] / rows)
    return read_label(found, plot)


def read_label(found: Opened, plot: Any) -> str:
    label = plot.locator(".hoverlayer .hovertext")
    label.first.wait_for()
    text = " ".join(label.all_text_contents())
    found.page.mouse.move(1, 1)
    label.first.wait_for(state="detached")
    return text


@contextmanager
def unfolded(found: Opened) -> Iterator[None]:
    """The page as while it is printed: every fold is open."""
    found.ask("window.dispatchEvent(new Event('beforeprint'))")
    try:
        yield
    finally:
        found.ask("window.dispatchEvent(new Event('afterprint'))")


def test_every_plot_is_drawn_once_it_is_unfolded(stories: Opened) -> None:
    marks = ".heatmaplayer image, .scatterlayer path, .barlayer path"
    inside = "[...document.querySelectorAll('.plot')]"
    empty = f"{inside}.filter(p => p.querySelectorAll({json.dumps(marks)}).length === 0)"
    folded = "(p => p.closest('details.fold:not([open])') !== null)"
    assert stories.ask(f"{inside}.length") == stories.ask("document.querySelectorAll('script[data-for]').length") > 15
    assert stories.ask(f"{empty}.filter(p => !{folded}(p)).map(p => p.id)") == []
    assert stories.ask(f"{inside}.filter(p => !{folded}(p)).length") > 5
    with unfolded(stories):
        stories.page.wait_for_function(f"{empty}.length === 0")
        assert stories.ask(f"{inside}.every(p => p.querySelector('.main-svg').clientWidth === p.clientWidth)")


def test_a_page_is_not_tall_before_it_is_unfolded(browser: Any, files: dict[str, Path]) -> None:
    with opened(browser, files["stories"], width=DESK) as found:
        tall = "document.documentElement.scrollHeight"
        explorer = "(document.getElementById('explore')?.offsetHeight ?? 0)"
        closed = found.ask(f"{tall} - {explorer}")
        assert closed < TALLEST
        with unfolded(found):
            assert found.ask(f"{tall} - {explorer}") > closed + TALLEST, "there is more to read"


def test_nothing_is_fetched_and_no_error_is_logged(stories: Opened, hostile: Opened) -> None:
    for found in (stories, hostile):
        assert {url.split(":", 1)[0] for url in found.requests} <= {"file", "data", "blob"}
        assert found.messages == []


def test_hovering_over_a_cell_shows_both_contexts(stories: Opened) -> None:
    stats = story_contents().stats
    texts = {stats.context_text(j) for j in range(stats.m)}
    names = stories.ask("document.querySelector('#figure-context-cosines .plot').layout.xaxis.ticktext")
    assert set(names) == texts
    shown = hover_over_cell(stories, "context-cosines", 3, 20)
    assert names[3] in shown
    assert names[20] in shown


def test_hovering_over_a_group_shows_its_contexts_and_tokens(stories: Opened) -> None:
    plot = stories.page.locator("#figure-collapse .plot").first
    plot.scroll_into_view_if_needed()
    box = plot.locator(".scatterlayer .point").last.bounding_box()
    stories.page.mouse.move(box["x"] + box["width"] / 2 + 1, box["y"] + box["height"] / 2)
    stories.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert "→" in read_label(stories, plot)


def test_tokens_of_a_text_never_become_markup(hostile: Opened) -> None:
    assert hostile.messages == []
    assert ATTACK in hostile.page.locator("h1").text_content()
    assert ATTACK in hostile.page.locator("#corpus").text_content()
    shown = " ".join(hover_over_cell(hostile, "token-cosines", row, 0) for row in range(3))
    assert ATTACK in shown
    assert hostile.ask("document.querySelectorAll('main script:not([type]), main img:not(.still)').length") == 0


def test_data_of_a_plot_can_be_saved_and_are_right(stories: Opened) -> None:
    stories.page.locator("#figure-context-cosines details.save summary").first.click()
    with stories.page.expect_download() as download:
        stories.page.locator("#figure-context-cosines button[data-save=csv]").first.click()
    rows = list(csv.reader(io.StringIO(Path(download.value.path()).read_text(encoding="utf-8"), newline="")))
    contents = story_contents()
    places = {contents.stats.context_text(j): j for j in range(contents.stats.m)}
    order = [places[name] for name in rows[0][1:]]
    H = contents.runs[RUN].H[:, order]
    X = H / np.linalg.norm(H, axis=0)
    np.testing.assert_allclose(np.array([row[1:] for row in rows[1:]], dtype=float), X.T @ X, atol=1e-4)


@pytest.mark.parametrize(("form", "begins"), [("png", b"\x89PNG"), ("svg", b"<svg"), ("json", b"{")])
def test_pictures_and_json_can_be_saved(stories: Opened, form: str, begins: bytes) -> None:
    stories.page.locator("#figure-feature-training details.save summary").first.click()
    with stories.page.expect_download() as download:
        stories.page.locator(f"#figure-feature-training button[data-save={form}]").first.click()
    assert Path(download.value.path()).read_bytes().startswith(begins)
    assert stories.messages == []


def luminance(found: Opened, script: str) -> float:
    """How bright a colour is, 0 to 1."""
    colour = found.ask(script)
    return float(np.mean([int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(",")])) / 255


def test_a_phone_never_scrolls_sideways(phone: Opened, hostile: Opened) -> None:
    inside = "[...document.querySelectorAll('main *:not(.frame *, .scroll *, pre *)')]"
    for found in (phone, hostile):
        assert found.ask("document.documentElement.scrollWidth") <= PHONE
        assert max(found.ask(f"{inside}.map(e => e.getBoundingClientRect().right)")) <= PHONE


def test_a_dark_page_is_dark_and_the_switch_turns_it_light(phone: Opened) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    label = "getComputedStyle(document.querySelector('#figure-feature-training .xtick text')).fill"
    assert luminance(phone, ground) < 0.2
    assert luminance(phone, label) > 0.7
    phone.page.locator("#theme-switch").click()
    phone.page.wait_for_function(f"{label} === 'rgb(34, 34, 34)'")
    assert luminance(phone, ground) > 0.9
    assert phone.messages == []


def test_print_shows_everything_with_still_pictures_on_white(stories: Opened) -> None:
    stories.ask("document.querySelector('#methods details.fold').open = true")
    before = stories.ask("[...document.querySelectorAll('details.fold')].map(d => d.open)")
    assert set(before) == {True, False}
    stories.page.emulate_media(media="print")
    try:
        with unfolded(stories):
            assert stories.ask("document.querySelectorAll('details.fold:not([open])').length") == 0
            boxes = stories.ask(
                "[...document.querySelectorAll('.box')].map(b => [getComputedStyle(b.querySelector('.frame')).display, "
                "b.querySelector('img.still').naturalWidth, "
                "b.querySelector('img.still').getBoundingClientRect().width])"
            )
            assert all(frame == "none" and natural > 0 and width > 0 for frame, natural, width in boxes)
            assert luminance(stories, "getComputedStyle(document.body).backgroundColor") == 1
            assert stories.ask("getComputedStyle(document.querySelector('.toc')).display") == "none"
    finally:
        stories.page.emulate_media(media="screen")
    assert stories.ask("[...document.querySelectorAll('details.fold')].map(d => d.open)") == before


def test_the_figure_of_the_verdict_is_legible_on_a_phone(phone: Opened) -> None:
    parts = "[...document.querySelectorAll('.verdict-figure :is(.mark-label span, .reach-head, .axis span)')]"
    for left, right, size in phone.ask(
        f"{parts}.map(e => {{const r = e.getBoundingClientRect(); "
        "return [r.left, r.right, parseFloat(getComputedStyle(e).fontSize)]})"
    ):
        assert left >= 0
        assert right <= PHONE
        assert size >= 12
    spans = phone.ask(
        "[...document.querySelectorAll('.reach')].map(r => r.querySelectorAll('.mark-label span').length)"
    )
    assert spans == [2, 2]


def test_every_link_in_the_contents_has_its_section(stories: Opened) -> None:
    links = stories.ask("[...document.querySelectorAll('.toc a')].map(a => document.querySelector(a.hash) !== null)")
    assert len(links) == len(SECTIONS) - 2, "there is no prediction with ties"
    assert all(links)


def test_a_newcomer_finds_the_neighbours_of_a_token_and_a_wrongly_placed_context_and_reads_why(stories: Opened) -> None:
    contents = story_contents()
    run, stats = contents.trained[RUN], contents.stats
    judged = next(one for one in contents.at_loss[RUN] if one.norm == contents.comparisons[RUN].norm)
    page = stories.page
    page.get_by_label("Find a token or a context").press_sequentially("mia")
    page.get_by_role("option", name="mia token", exact=True).click()
    for table, given in (("Nearest in the model", run), ("Nearest in the prediction", judged)):
        shown = page.get_by_role("table", name=table).get_by_role("button").all_inner_texts()
        expected = [row.name for row in tg.neighbours(given, "mia", k=3, items="tokens", stats=stats).rows]
        assert shown[:3] == expected
    page.get_by_role("button", name="Largest disagreements").click()
    page.get_by_role("table", name="Contexts").get_by_role("button").first.click()
    cosine = [cosines(one.H) for one in (judged, run)]
    others = ~np.eye(stats.m, dtype=bool)
    apart = [1 - np.corrcoef(cosine[0][j, others[j]], cosine[1][j, others[j]])[0, 1] for j in range(stats.m)]
    worst = int(np.argmax(apart))
    assert page.locator("#explore-panel h3 bdi").inner_text() == stats.context_text(worst)
    why = page.locator(".explore-why").inner_text()
    assert f"rank 1 of {stats.m} contexts" in why
    difference = np.where(others[worst], np.abs(cosine[0][worst] - cosine[1][worst]), -1)
    assert stats.context_text(int(np.argmax(difference))) in why
    assert "next token" in why
    assert "The model has" in why
    page.get_by_role("button", name="Reset", exact=True).click()
