"""The section Explore in a browser: search, selection, the slider, links, the keyboard, and text that attacks."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser import NEEDS_BROWSER, PATIENCE
from explore_cases import SPECIAL, explorer_data, large_data, pack, read
from tokengeom.page.render import EXPLORER, _environment, _policy, _template_text

pytestmark = NEEDS_BROWSER
PHONE = 390
STEP = 2_000
"""Milliseconds in which the slider moves by one computed point or more, and does not come to the end of its path."""


# ---- pages ----------------------------------------------------------------------------------------------------------
THEME = """document.getElementById("theme-switch").addEventListener("click", () => {
  document.documentElement.dataset.theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark"; });"""


def page_of(data: Any) -> str:
    """A page with the section Explore alone, under the content policy of the whole page."""
    macros = _environment().get_template("explore.html.j2").module
    body = macros.explore({"data": data})  # type: ignore[attr-defined]
    script, style = ("\n".join(map(_template_text, names)) for names in (EXPLORER, ("page.css", "explore.css")))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Explore</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(script, THEME)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{style}html {{ scroll-behavior: auto; }}</style></head><body>"
        '<header class="bar"><button type="button" id="theme-switch">Light / dark</button></header>'
        '<div class="layout"><nav class="toc"></nav><main>'
        '<section id="summary"><p style="height: 1200px">Text.</p></section>'
        f'<section id="explore"><h2>Explore</h2>{body}</section></main></div>'
        f"<script>{THEME}</script><script>{script}</script></body></html>"
    )


class Opened:
    """An open page with its requests and everything that it logged."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.requests: list[str] = []
        self.messages: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda said: self.messages.append(f"{said.type}: {said.text}"))
        page.on("pageerror", lambda error: self.messages.append(f"error: {error}"))
        page.on("dialog", lambda dialog: self.messages.append(f"dialog: {dialog.message}"))

    def ask(self, script: str) -> Any:
        return self.page.evaluate(script)

    def wait(self, script: str) -> None:
        """Wait until an expression is true; the content policy forbids playwright's own way, which evaluates text."""
        for _ in range(PATIENCE // 50):
            if self.ask(script):
                return
            self.page.wait_for_timeout(50)
        pytest.fail(f"never true: {script}")

    def state(self) -> Any:
        return self.ask("window.tokengeomExplore.state()")

    def text(self, name: str) -> str:
        return str(self.page.locator(f"#explore-{name}").inner_text())

    def search(self, text: str) -> list[str]:
        self.page.fill("#explore-query", text)
        return list(self.page.locator("#explore-results li").all_inner_texts())

    def select(self, text: str) -> None:
        self.page.fill("#explore-query", text)
        self.page.press("#explore-query", "Enter")

    def slide(self, at: float) -> None:
        self.ask(
            f"(() => {{ const range = document.getElementById('explore-at'); range.value = {at}; "
            "range.dispatchEvent(new Event('input')); })()"
        )

    def reset(self) -> None:
        self.page.click("[data-do=reset]")
        self.page.evaluate("history.replaceState(null, '', location.pathname)")


DATA = explorer_data()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("explore") / "page.html"
    path.write_text(page_of(DATA), encoding="utf-8")
    return path


@contextmanager
def opened(browser: Any, path: Path, fragment: str = "", *, width: int = 1280, **options: Any) -> Iterator[Opened]:
    context = browser.new_context(viewport={"width": width, "height": 900}, **options)
    context.set_default_timeout(PATIENCE)
    found = Opened(context.new_page())
    found.page.goto(path.as_uri() + fragment)
    found.page.wait_for_selector("#explore-app[data-drawn=yes]")
    yield found
    context.close()


@pytest.fixture(scope="module")
def shared(browser: Any, file: Path) -> Iterator[Opened]:
    with opened(browser, file) as found:
        yield found


@pytest.fixture
def explorer(shared: Opened) -> Opened:
    shared.reset()
    return shared


def shown_neighbours(found: Opened, side: str) -> list[list[str]]:
    rows = found.page.locator(f".explore-near[data-side={side}] tbody tr")
    return [row.locator("th, td").all_inner_texts() for row in rows.all()]


def names_of(kind: str, items: Any) -> list[str]:
    names: list[str] = DATA[kind]["names"]
    return [names[int(i)] for i in items]


def written(cosine: float) -> str:
    """A cosine as the page rounds it."""
    return f"{round(cosine, 2) + 0.0:.2f}".replace("-", "\N{MINUS SIGN}")


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
        found.page.clock.install()
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
        found.page.clock.install()
        found.page.click("[data-do=play]")
        found.page.clock.run_for(STEP)
        found.ask("location.hash = '#summary'")
        found.page.clock.run_for(10 * STEP)
        assert found.state()["position"] == 4, "it has come to the end of the path"
        assert found.page.locator("#explore-link").get_attribute("href") == "#explore?at=4"
        assert found.ask("location.hash") == "#summary"


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
def saved(found: Opened) -> list[list[str]]:
    with found.page.expect_download() as download:
        found.page.click("[data-do=csv]")
    return list(csv.reader(io.StringIO(Path(download.value.path()).read_text(encoding="utf-8"), newline="")))


def test_the_selected_item_is_saved_with_its_neighbours(explorer: Opened) -> None:
    item = SPECIAL.index('say "hi", you')
    explorer.select(SPECIAL[item])
    head, *rows = saved(explorer)
    model = DATA["models"][0]
    part, measured = (DATA["sources"][k]["tokens"] for k in (model["predicted"], model["source"]))
    near = read(part["neighbours"])[item]
    assert head[:3] == ["item", "kind", "neighbour"]
    assert {row[0] for row in rows} == {'say "hi", you'}
    assert [row[2] for row in rows if row[3]] == names_of("tokens", near)
    assert [float(row[5]) for row in rows if row[3]] == pytest.approx(list(read(part["cosines"])[item]))
    assert [float(row[6]) for row in rows if row[3]] == pytest.approx(list(read(model["tokens"]["at_predicted"])[item]))
    assert {row[2] for row in rows if row[4]} == set(names_of("tokens", read(measured["neighbours"])[item]))


def test_without_a_selection_the_visible_items_are_saved(explorer: Opened) -> None:
    explorer.page.uncheck("#explore-contexts")
    head, *rows = saved(explorer)
    assert [row[0] for row in rows] == DATA["tokens"]["names"]
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


def test_answers_come_quickly_with_thousands_of_items(browser: Any, tmp_path: Path, record_property: Any) -> None:
    path = tmp_path / "large.html"
    path.write_text(page_of(large_data()), encoding="utf-8")
    with opened(browser, path, "#explore") as found:
        found.page.locator("#explore-map").scroll_into_view_if_needed()
        clock = found.page.context.new_cdp_session(found.page)
        # CPU time of the page's thread: how busy the machine is does not count.
        clock.send("Performance.enable", {"timeDomain": "threadTicks"})
        before = spent(clock)
        for k in range(5):
            found.ask("document.querySelector('#explore-panel').replaceChildren()")
            found.select(f"token{20 + k}")
            found.slide(0.3 + k)
        seconds = spent(clock) - before
        assert found.messages == []
    record_property("seconds of five answers", seconds)
    assert 0 < seconds < 10


def spent(clock: Any) -> float:
    """Seconds that a page has computed so far."""
    metrics = {one["name"]: one["value"] for one in clock.send("Performance.getMetrics")["metrics"]}
    return float(metrics["TaskDuration"])
