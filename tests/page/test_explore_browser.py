"""The section Explore in a browser: search, selection, the slider, and links."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser import NEEDS_BROWSER
from explore_browser import DATA, Opened, names_of, opened, page_of, shown_neighbours, written
from explore_cases import explorer_data, read

pytestmark = NEEDS_BROWSER
STEP = 2_000
"""Milliseconds in which the slider moves by one computed point or more, and does not come to the end of its path."""


# ---- search ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("KING", "king"),
        ("elan", "Élan"),
        ("AGUA", "a\u0301gua"),
        ("água", "a\u0301gua"),
        ("שלום", "שלום"),
        ("the", "␣the"),
    ],
)
def test_search_forgives_case_accents_and_combining_marks(explorer: Opened, query: str, first: str) -> None:
    results = explorer.search(query)
    assert results[0].split("\n") == [first, "token"]
    assert 2 <= len(results) <= 12
    assert any(line.endswith("context") for line in results)
    assert explorer.page.locator("#explore-results bdi").count() == len(results)


def test_search_lists_prefixes_first_and_says_when_nothing_is_found(explorer: Opened) -> None:
    assert [line.split("\n")[0] for line in explorer.search("token1")][:2] == ["token12", "token13"]
    assert explorer.search("no such thing") == []
    assert "no such thing" in explorer.text("message")


def test_search_box_follows_the_combobox_pattern(explorer: Opened) -> None:
    box = explorer.page.locator("#explore-query")
    explorer.search("king")
    assert box.get_attribute("aria-expanded") == "true"
    box.press("ArrowDown")
    box.press("ArrowDown")
    active = explorer.page.locator(f"#{box.get_attribute('aria-activedescendant')}")
    assert active.get_attribute("aria-selected") == "true"
    assert active.inner_text().split("\n") == ["after king", "context"]
    box.press("Escape")
    assert box.get_attribute("aria-expanded") == "false"
    assert explorer.state()["selected"] is None
    box.press("ArrowDown")
    box.press("Enter")
    assert explorer.state()["selected"] == {"kind": "tokens", "item": 0}


def test_characters_that_are_not_seen_are_written_as_in_tables(explorer: Opened) -> None:
    for name in ("a\nb", "\t", "\r", "\x1b[3", "\x85", "\u200b", "\u2028"):
        assert explorer.ask(f"exploreData.legible({json.dumps(name)})") == ascii(name)[1:-1]


# ---- selection ------------------------------------------------------------------------------------------------------
def test_neighbours_of_a_selected_item_are_those_of_the_data(explorer: Opened) -> None:
    model = DATA["models"][0]
    explorer.select("after queen")
    item = DATA["contexts"]["names"].index("after queen")
    for side, source, other in (
        ("predicted", model["predicted"], "at_predicted"),
        ("measured", model["source"], "at_measured"),
    ):
        part = DATA["sources"][source]["contexts"]
        near, own = read(part["neighbours"])[item], read(part["cosines"])[item]
        seen = read(model["contexts"][other])[item]
        rows = shown_neighbours(explorer, side)
        assert [row[0] for row in rows] == names_of("contexts", near)
        pairs = [(written(a), written(b)) for a, b in zip(own, seen, strict=True)]
        assert [(row[1], row[2]) if side == "predicted" else (row[2], row[1]) for row in rows] == pairs
    starts, tokens = read(DATA["follows"]["starts"]).astype(int), read(DATA["follows"]["tokens"]).astype(int)
    supports = [set(tokens[a:b]) for a, b in pairwise(starts)]
    shared = [len(supports[item] & supports[DATA["contexts"]["names"].index(row[0])]) for row in rows]
    assert [int(row[3]) for row in rows] == shared
    next_tokens = explorer.page.locator(".explore-supports tbody th").all_inner_texts()
    assert next_tokens == [
        exact.replace("\n", "\\n") for exact in names_of("tokens", tokens[starts[item] : starts[item + 1]])
    ]


def test_a_click_on_the_map_selects_and_tells_screen_readers(explorer: Opened) -> None:
    explorer.page.locator("#explore-map").scroll_into_view_if_needed()
    explorer.ask("window.scrollBy(0, 200)")
    box = explorer.page.locator("#explore-map").bounding_box()
    for layer in (0, 1):
        x, y = explorer.ask(f"window.tokengeomExplore.spot('tokens', 13, {layer})")
        explorer.page.mouse.move(box["x"] + x, box["y"] + y)
        assert explorer.state()["hovered"] == {"kind": "tokens", "item": 13}
        explorer.page.mouse.click(box["x"] + x, box["y"] + y)
        assert explorer.state()["selected"] == {"kind": "tokens", "item": 13}
        assert "token13" in explorer.page.locator("#explore-live").text_content()
        explorer.page.locator("#explore-map").press("Escape")
        assert explorer.state()["selected"] is None


def test_a_name_in_the_panel_selects_that_item(explorer: Opened) -> None:
    explorer.select("king")
    button = explorer.page.locator("#explore-panel .explore-near .explore-name").first
    name = button.inner_text()
    button.click()
    assert explorer.page.locator("#explore-panel h3 bdi").inner_text() == name


def test_kinds_and_filters_change_what_is_visible(explorer: Opened) -> None:
    label = explorer.page.locator("#explore-map")
    assert "40 tokens and 60 contexts" in label.get_attribute("aria-label")
    explorer.page.uncheck("#explore-contexts")
    assert "40 tokens and 0 contexts" in label.get_attribute("aria-label")
    explorer.page.check("#explore-contexts")
    explorer.page.select_option("#explore-frequent", "20")
    assert "20 tokens and 20 contexts" in label.get_attribute("aria-label")
    explorer.page.select_option("#explore-frequent", "0")
    explorer.select("after king")
    explorer.page.check("#explore-group")
    group = read(DATA["contexts"]["group"])
    assert f"{int((group == group[0]).sum())} contexts" in label.get_attribute("aria-label")
    explorer.page.select_option("#explore-concept", "0")
    assert "dark outline" in explorer.text("legend")


# ---- the slider -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("at", [0, 2, 4])
def test_places_and_cells_are_exact_at_the_points(explorer: Opened, at: int) -> None:
    explorer.select("king")
    explorer.slide(at)
    source = DATA["sources"][at]
    for kind, item in (("tokens", 0), ("contexts", 17)):
        place = explorer.ask(f"window.tokengeomExplore.place('{kind}', {item})")
        np.testing.assert_allclose(place, read(source[kind]["places"])[item], atol=1e-7)
        cells = explorer.ask(f"window.tokengeomExplore.cells('{kind}')")
        np.testing.assert_allclose(cells, read(source["heat"][kind]).ravel(), atol=1e-6)
    assert source["label"] in explorer.text("reached")
    assert source["label"] in explorer.page.locator(".explore-near[data-side=predicted] caption").inner_text()
    near = read(source["tokens"]["neighbours"])[0]
    assert [row[0] for row in shown_neighbours(explorer, "predicted")] == [
        name.replace(" the", "␣the").replace("\n", "\\n") or "(empty)" for name in names_of("tokens", near)
    ]


def test_places_are_interpolated_between_points_and_neighbours_are_of_the_nearest(explorer: Opened) -> None:
    explorer.select("king")
    explorer.slide(1.25)
    first, second = (read(DATA["sources"][k]["tokens"]["places"])[5] for k in (1, 2))
    place = explorer.ask("window.tokengeomExplore.place('tokens', 5)")
    np.testing.assert_allclose(place, 0.75 * first + 0.25 * second, atol=1e-7)
    gaps = [DATA["sources"][k]["gap"] for k in (1, 2)]
    assert f"{float(f'{gaps[0] ** 0.75 * gaps[1] ** 0.25:.2g}')}" in explorer.text("reached")
    assert explorer.state()["source"] == 1
    assert "nearest computed point" in explorer.page.locator(".explore-near caption").first.inner_text()
    explorer.slide(3.5)
    assert "the limit" in explorer.text("reached")


def test_the_prediction_of_a_model_is_shown_until_the_slider_is_moved(browser: Any, tmp_path: Path) -> None:
    data = explorer_data(20, 20, 4, 1)
    data["path"] = [0, 1, 3]
    data["models"][0] |= {"predicted": 2, "position": 1.4}
    path = tmp_path / "off.html"
    path.write_text(page_of(data), encoding="utf-8")
    with opened(browser, path) as found:
        assert found.state()["source"] == 2
        assert found.state()["position"] == 1.4
        assert "not on the path" in found.text("reached")
        np.testing.assert_allclose(
            found.ask("window.tokengeomExplore.place('tokens', 1)"),
            read(data["sources"][2]["tokens"]["places"])[1],
            atol=1e-7,
        )
        found.slide(1)
        assert found.state()["source"] == 1
        found.page.click("[data-stand='0']")
        assert found.state()["source"] == 2


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_play_moves_along_the_path_and_pauses(browser: Any, file: Path, motion: str) -> None:
    with opened(browser, file, "#explore?at=0", reduced_motion=motion) as found:
        found.stop_clock()
        found.page.click("[data-do=play]")
        found.page.clock.run_for(STEP)
        assert found.page.locator("[data-do=play]").inner_text() == "Pause"
        found.page.click("[data-do=play]")
        stopped = found.state()["position"]
        assert found.page.locator("[data-do=play]").inner_text() == "Play"
        assert 0.1 < stopped < 4
        if motion == "reduce":
            assert stopped == int(stopped)
        found.page.clock.run_for(10 * STEP)
        assert found.state()["position"] == stopped


# ---- links ----------------------------------------------------------------------------------------------------------
def test_a_link_restores_the_view(browser: Any, explorer: Opened, file: Path) -> None:
    explorer.select("<script>alert(1)</script>")
    explorer.page.select_option("#explore-model", "1")
    explorer.slide(3.5)
    explorer.page.check("input[value=overlay]")
    explorer.page.click("[data-do=turn]")
    explorer.page.uncheck("#explore-contexts")
    explorer.wait("location.hash.includes('mode=overlay') && location.hash.includes('hide=')")
    explorer.page.mouse.move(1, 1)
    before = explorer.state()
    with opened(browser, file, explorer.ask("location.hash")) as found:
        assert found.state() == before
        assert before["selected"] == {"kind": "tokens", "item": 3}
        assert 0 <= found.ask("document.getElementById('explore').getBoundingClientRect().top") < 200
        assert found.messages == []


def test_other_anchors_still_work_and_unknown_names_are_reported(browser: Any, file: Path) -> None:
    with opened(browser, file, "#explore?token=nobody&model=99&at=1e9&mode=wrong&zoom=x") as found:
        assert "nobody" in found.text("message")
        assert found.state()["selected"] is None
        assert found.state()["model"] == 1
        found.ask("location.hash = '#summary'")
        found.wait("document.getElementById('summary').getBoundingClientRect().top > -10")
        assert found.ask("location.hash") == "#summary"
        found.ask("location.hash = '#explore?context=after+king'")
        found.wait("window.tokengeomExplore.state().selected?.kind === 'contexts'")
        assert found.text("message") == ""
        assert found.messages == []


def test_a_late_write_of_the_address_does_not_undo_a_navigation(browser: Any, file: Path) -> None:
    at = "document.getElementById('explore-link').getAttribute('href').includes('at=')"
    slide = "range.value = 1; range.dispatchEvent(new Event('input'));"
    with opened(browser, file, "#explore") as found:
        found.ask(f"(range => {{ {slide} location.hash = '#summary'; }})(document.getElementById('explore-at'))")
        found.wait(at)
        assert found.ask("location.hash") == "#summary"
        found.slide(2)
        found.wait("location.hash.includes('at=2')")


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_a_slider_that_plays_leaves_a_reader_where_they_went(browser: Any, file: Path, motion: str) -> None:
    with opened(browser, file, "#explore?at=0", reduced_motion=motion) as found:
        found.stop_clock()
        found.page.click("[data-do=play]")
        found.page.clock.run_for(STEP)
        found.ask("location.hash = '#summary'")
        found.page.clock.run_for(10 * STEP)
        assert found.state()["position"] == 4, "it has come to the end of the path"
        assert found.page.locator("#explore-link").get_attribute("href") == "#explore?at=4"
        assert found.ask("location.hash") == "#summary"
