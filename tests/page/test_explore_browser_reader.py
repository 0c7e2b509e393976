"""The section Explore in a browser: keyboard, files, reasons, small and large data, and text that attacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser import NEEDS_BROWSER
from explore_browser import DATA, Opened, counted_steps, names_of, opened, page_of, saved, shown_neighbours
from explore_cases import SPECIAL, explorer_data, large_data, pack, read

pytestmark = NEEDS_BROWSER
PHONE = 390


# ---- keyboard -------------------------------------------------------------------------------------------------------
def test_everything_is_reached_and_used_by_keyboard(browser: Any, file: Path) -> None:
    with opened(browser, file, "#explore") as found:
        keys = found.page.keyboard
        found.page.focus("#theme-switch")
        keys.press("Tab")
        assert found.ask("document.activeElement.id") == "explore-query"
        keys.type("king")
        keys.press("Enter")
        seen = set()
        for _ in range(60):
            keys.press("Tab")
            seen.add(found.ask("(one => one.id || one.dataset.do || one.name || 'name')(document.activeElement)"))
        assert {
            "largest",
            "csv",
            "reset",
            "explore-link",
            "explore-map",
            "turn",
            "closer",
            "play",
            "explore-at",
            "explore-panel",
        } <= seen
        assert {"explore-mode", "explore-heat", "explore-tokens", "explore-contexts", "explore-concept", "name"} <= seen
        found.page.focus("[data-do=turn]")
        keys.press("Enter")
        found.page.focus("#explore-map")
        keys.press("Shift+Tab")
        keys.press("Tab")
        assert found.ask("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        yaw = found.state()["view"]["yaw"]
        keys.press("ArrowRight")
        keys.press("+")
        view = found.state()["view"]
        assert view["yaw"] > yaw
        assert view["zoom"] > 1
        found.page.focus("#explore-at")
        before = found.state()["position"]
        keys.press("ArrowLeft")
        assert found.state()["position"] == before - 1, "from one computed point to the next"
        keys.press("Shift+ArrowRight")
        assert found.state()["position"] == pytest.approx(before - 0.9)
        assert found.messages == []


def test_the_wheel_scrolls_the_page_until_the_map_has_the_focus(explorer: Opened) -> None:
    explorer.page.locator("#explore-map").scroll_into_view_if_needed()
    explorer.page.locator("#explore-map").hover()
    explorer.page.mouse.wheel(0, -50)
    assert explorer.state()["view"]["zoom"] == 1
    explorer.page.focus("#explore-map")
    explorer.page.locator("#explore-map").hover()
    explorer.page.mouse.wheel(0, -200)
    explorer.wait("window.tokengeomExplore.state().view.zoom > 1.2")


# ---- saving ---------------------------------------------------------------------------------------------------------
def in_cells(names: list[str]) -> list[str]:
    """Names as cells of which none is a formula."""
    assert "=1+1" in names, "a formula is among the names"
    return ["\\u003d1+1" if name == "=1+1" else name for name in names]


def test_the_selected_item_is_saved_with_its_neighbours(explorer: Opened) -> None:
    item = SPECIAL.index('say "hi", you')
    explorer.select(SPECIAL[item])
    head, *rows = saved(explorer)
    model = DATA["models"][0]
    part, measured = (DATA["sources"][k]["tokens"] for k in (model["predicted"], model["source"]))
    near = read(part["neighbours"])[item]
    assert head[:3] == ["item", "kind", "neighbour"]
    assert {row[0] for row in rows} == {'say "hi", you'}
    assert [row[2] for row in rows if row[3]] == in_cells(names_of("tokens", near))
    assert [float(row[5]) for row in rows if row[3]] == pytest.approx(list(read(part["cosines"])[item]))
    assert [float(row[6]) for row in rows if row[3]] == pytest.approx(list(read(model["tokens"]["at_predicted"])[item]))
    assert {row[2] for row in rows if row[4]} == set(in_cells(names_of("tokens", read(measured["neighbours"])[item])))


def test_without_a_selection_the_visible_items_are_saved(explorer: Opened) -> None:
    explorer.page.uncheck("#explore-contexts")
    head, *rows = saved(explorer)
    assert [row[0] for row in rows] == in_cells(DATA["tokens"]["names"])
    places = read(DATA["sources"][DATA["models"][0]["source"]]["tokens"]["places"])
    at = head.index("measured axis 1")
    np.testing.assert_allclose(np.array([row[at : at + 3] for row in rows], dtype=float), places, atol=1e-6)
    wrong = read(DATA["models"][0]["tokens"]["disagreement"])
    assert [float(row[-1]) for row in rows] == pytest.approx(list(wrong), abs=1e-6)


# ---- a newcomer's walk ----------------------------------------------------------------------------------------------
def test_a_newcomer_finds_neighbours_and_the_most_wrongly_placed_context_and_reads_why(
    browser: Any, file: Path
) -> None:
    with opened(browser, file, "#explore") as found:
        found.page.get_by_label("Find a token or a context").press_sequentially("queen")
        found.page.get_by_role("option", name="queen token", exact=True).click()
        nearest = found.page.get_by_role("table", name="Nearest in the model").get_by_role("button").first.inner_text()
        source = DATA["sources"][DATA["models"][0]["source"]]
        assert nearest == names_of("tokens", read(source["tokens"]["neighbours"])[2])[0]
        found.page.get_by_role("button", name="Largest disagreements").click()
        found.page.get_by_role("table", name="Contexts").get_by_role("button").first.click()
        worst = int(np.argmax(read(DATA["models"][0]["contexts"]["disagreement"])))
        assert found.page.locator("#explore-panel h3 bdi").inner_text() == DATA["contexts"]["names"][worst]
        why = found.page.locator(".explore-why").inner_text()
        assert "rank 1 of 60 contexts" in why
        pairs = read(DATA["models"][0]["contexts"]["worst"])[worst]
        assert all(name in why for name in names_of("contexts", pairs))
        assert "next token" in why
        assert "The model has" in why
        assert found.messages == []


def test_reasons_follow_from_supports_loss_and_frequency(browser: Any, tmp_path: Path) -> None:
    data = explorer_data(20, 20, 3, 1)
    losses = np.full(20, 0.01)
    losses[19] = 0.52
    data["sources"][3]["loss"] = pack(losses, "float32")
    starts = np.arange(21) * 4
    rows = [[k % 20, (k + 1) % 20, (k + 2) % 20, (k + 3) % 20] for k in range(20)]
    data["follows"] |= {"starts": pack(starts, "uint32"), "tokens": pack(np.ravel(rows), "uint16")}
    data["follows"] |= {"shares": pack(np.full(80, 0.25), "uint16", 1 / 65535), "counts": None}
    data["contexts"] |= {"group": pack(np.arange(20), "int32"), "supports": pack(np.full(20, 4), "uint16")}
    part = data["models"][0]["contexts"]
    items, predicted, measured = read(part["worst"]), read(part["worst_predicted"]), read(part["worst_measured"])
    items[19], predicted[19], measured[19] = [18, 5, 17], [0.9, 0.0, 0.1], [0.1, 0.8, 0.6]
    part |= {"worst": pack(items, "uint16"), "worst_predicted": pack(predicted, "int16", 1e-4)}
    part["worst_measured"] = pack(measured, "int16", 1e-4)
    path = tmp_path / "reasons.html"
    path.write_text(page_of(data), encoding="utf-8")
    with opened(browser, path) as found:
        found.select(data["contexts"]["names"][19])
        why = found.page.locator(".explore-why").inner_text()
        assert "3 of its 4 next tokens also follow the other, so the prediction places them close" in why
        assert "no next token is shared" in why
        assert "The model has not fully learned this context yet: 0.52 nats" in why
        assert "median of all contexts 0.01 nats" in why
        assert "It is rare" in why


# ---- safety, size, degenerate data ----------------------------------------------------------------------------------
def test_names_never_become_markup(explorer: Opened) -> None:
    for name in SPECIAL:
        if name.strip():
            explorer.search(name)
            explorer.select(name)
    explorer.page.click("[data-do=largest]")
    assert explorer.ask("document.querySelectorAll('#explore-app script, #explore-app img').length") == 0
    assert explorer.messages == []
    assert {url.split(":", 1)[0] for url in explorer.requests} <= {"file", "blob"}


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        ((1, 0, 1, 0), "No model is on this page"),
        ((3, 2, 1, 1), "Nothing is selected"),
        ((2, 1, 2, 0), "No model is on this page"),
    ],
)
def test_small_data_raise_no_error(browser: Any, tmp_path: Path, sizes: tuple[int, ...], sentence: str) -> None:
    path = tmp_path / "small.html"
    data = explorer_data(*sizes)
    for source in data["sources"]:
        source["loss"] = None
    path.write_text(page_of(data), encoding="utf-8")
    with opened(browser, path) as found:
        assert sentence in found.text("panel")
        assert found.page.locator(".explore-slider").is_visible() is (sizes[2] > 1)
        assert found.page.locator("[name=explore-mode]").first.is_visible() is (sizes[3] > 0)
        found.select("king")
        assert len(shown_neighbours(found, "predicted")) == sizes[0] - 1
        if sizes[1]:
            found.select("after king")
        found.page.click("[data-do=turn]")
        saved(found)
        assert found.messages == []


def test_a_model_without_a_prediction_is_not_called_one(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.html"
    data = explorer_data(6, 6, 1, 1)
    data |= {"sources": data["sources"][1:], "path": [], "models": []}
    path.write_text(page_of(data), encoding="utf-8")
    with opened(browser, path) as found:
        assert "No prediction is on this page" in found.text("panel")
        found.select("king")
        assert "in the prediction" not in found.text("panel")
        assert "Nearest in the model" in found.text("panel")
        assert found.messages == []


def test_a_phone_never_scrolls_sideways_and_the_theme_reaches_the_map(browser: Any, file: Path) -> None:
    corner = "[...document.getElementById('explore-map').getContext('2d').getImageData(12, 4, 60, 18).data]"
    with opened(browser, file, "#explore?context=after+king", width=PHONE, color_scheme="dark") as found:
        assert found.ask("document.documentElement.scrollWidth") <= PHONE
        rights = "[...document.querySelectorAll('#explore *')].map(e => e.getBoundingClientRect().right)"
        assert max(found.ask(rights)) <= PHONE
        dark = max(found.ask(corner)[0::4])
        found.page.click("#theme-switch")
        found.page.click("#theme-switch")
        assert found.messages == []
        light = max(found.ask(corner)[0::4])
        assert dark > 200 > 100 > light


def test_print_shows_the_pictures_and_the_panel(browser: Any, file: Path) -> None:
    with opened(browser, file, "#explore?token=king", color_scheme="dark") as found:
        found.page.emulate_media(media="print", color_scheme="dark")
        for name, seen in (("map", True), ("panel", True), ("heat-predicted", True), ("query", False), ("at", False)):
            assert found.page.locator(f"#explore-{name}").is_visible() is seen
        found.wait(
            "Math.max(...[...document.getElementById('explore-map').getContext('2d').getImageData(12, 4, 60, 18).data]"
            ".filter((_, k) => k % 4 === 0)) < 100"
        )
        assert found.ask("getComputedStyle(document.getElementById('explore-panel')).maxHeight") == "none"


def test_answers_take_little_work_with_thousands_of_items(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "large.html"
    path.write_text(page_of(large_data()), encoding="utf-8")
    with opened(browser, path, "#explore") as found:
        found.page.locator("#explore-map").scroll_into_view_if_needed()
        with counted_steps(found) as steps:
            for k in range(5):
                found.ask("document.querySelector('#explore-panel').replaceChildren()")
                found.select(f"token{20 + k}")
                found.slide(0.3 + k)
        assert found.messages == []
    # Some 500,000; one comparison of all pairs of items would be 36 million.
    assert 0 < sum(steps) < 2_000_000
