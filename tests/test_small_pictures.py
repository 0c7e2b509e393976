"""Small pictures of results: valid XML, text that stays text, finite coordinates, one for every kind of result."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tokengeom as tg
from tokengeom.results import KINDS, AbstractResult, html_table, result_class
from tokengeom.small_pictures import (
    MOST_CELLS,
    MOST_ROWS,
    WIDTH,
    Ranged,
    Scaled,
    bars,
    columns,
    heatmap,
    line,
    note,
    ranges,
    scale,
    side_by_side,
)

SVG = "{http://www.w3.org/2000/svg}"
ALLOWED = {"svg", "title", "text", "rect", "line", "circle", "polyline"}
NUMBER = st.floats(allow_nan=True, allow_infinity=True)
NUMBERS = st.lists(NUMBER, max_size=8)
EVIL = "</text><script>alert(1)</script>\x00\x1b]\u202e'\"&"
WITHOUT_PICTURE: dict[str, str] = {}
"""Kind of result -> why it has no picture."""


def parsed(picture: str) -> ElementTree.Element:
    """A picture as XML, after checking everything that all pictures promise."""
    root = ElementTree.fromstring(picture)
    assert root.get("role") == "img"
    assert root[0].tag == f"{SVG}title"
    assert root[0].text
    assert {one.tag.removeprefix(SVG) for one in root.iter()} <= ALLOWED
    width, height = float(root.get("width", "nan")), float(root.get("height", "nan"))
    assert (width, math.isfinite(height)) == (WIDTH, True)
    assert float(root.get("font-size", "0")) >= 9
    for one in root.iter():
        assert not {"id", "href", "onload", "class"} & set(one.keys())
        assert one is root or "font-size" not in one.keys()  # noqa: SIM118 - an element is not a dictionary
        for name, value in one.attrib.items():
            if name in ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "width", "height", "r"):
                assert math.isfinite(float(value)), (name, value)
                assert -1 <= float(value) <= max(width, height) + 1, (name, value)
            elif name == "points":
                assert all(math.isfinite(float(x)) for x in re.split("[ ,]", value))
            elif name in ("fill", "stroke"):
                assert value in ("currentColor", "none") or value.startswith("rgb(")
    return root


def texts(root: ElementTree.Element) -> list[str]:
    return [one.text or "" for one in root.iter(f"{SVG}text")]


DRAWN: dict[str, Callable[[list[float], str], str]] = {
    "bars": lambda x, name: bars(name, [(name, value) for value in x], marked=[name]),
    "log bars": lambda x, name: bars(name, [(name, value) for value in x], log=True),
    "columns": lambda x, name: columns(name, x, [name] * len(x), below=name),
    "line": lambda x, name: line(name, range(len(x)), [(name, x), (name, x[::-1])], below=name),
    "log line": lambda x, name: line(name, x, [(name, x)], log=True),
    "scale": lambda x, name: scale(name, [Scaled(name, *(x * 5)[:5])] if x else []),
    "ranges": lambda x, name: ranges(name, [Ranged(name, value, x[0], x[-1], False) for value in x]),
    "open ranges": lambda x, name: ranges(name, [Ranged(name, value, None, x[0], True) for value in x]),
    "heatmap": lambda x, name: heatmap(name, [name] * len(x), [x for _ in x]),
    "note": lambda x, name: note(name, name),
}


@pytest.mark.parametrize("kind", DRAWN)
@settings(max_examples=40, deadline=None)
@given(values=NUMBERS, name=st.text(min_size=1))
@example(values=[math.nan, math.inf, -math.inf], name=EVIL)
@example(values=[], name="\ud800")
@example(values=[0.0], name="x")
@example(values=[1e308, -1e308], name="\u05d0\u05d1 \u0301\u0301 \u65e5\u672c\u8a9e" * 20)
@example(values=[5e-324, 0.0, 5e-324], name="a")
def test_any_numbers_and_names_give_a_whole_picture(kind: str, values: list[float], name: str) -> None:
    assert len(parsed(DRAWN[kind](values, name))) > 1, "a title, and something that is drawn or said"


def test_names_are_text_and_are_cut() -> None:
    root = parsed(bars("title", [(EVIL, 1.0), ("n" * 100, 2.0), ("\u65e5" * 100, 3.0)]))
    assert any(text.startswith("</text><script>") for text in texts(root))
    assert max(map(len, texts(root))) <= 22
    assert [text for text in texts(root) if text.endswith("\u2026")][-1] == "\u65e5" * 10 + "\u2026"


def test_bars_are_as_long_as_their_values_and_negative_ones_hollow() -> None:
    root = parsed(bars("t", [("a", 4.0), ("b", 1.0), ("c", -2.0)], marked=["b"]))
    rects = list(root.iter(f"{SVG}rect"))
    widths = [float(one.get("width", "")) for one in rects]
    assert widths[0] == pytest.approx(4 * widths[1], abs=0.4)
    assert widths[2] == pytest.approx(2 * widths[1], abs=0.4)
    assert [one.get("fill") for one in rects] == ["currentColor", "currentColor", "none"]
    assert float(rects[1].get("fill-opacity", "")) > float(rects[0].get("fill-opacity", ""))
    many = parsed(bars("t", [(str(k), 1.0) for k in range(MOST_ROWS + 5)]))
    assert "5 more not shown" in texts(many)


def test_a_scale_places_value_interval_floor_and_ceiling() -> None:
    root = parsed(scale("t", [Scaled("a", 0.5, 0.4, 0.6, 0.2, 0.9)]))
    (dot,) = root.iter(f"{SVG}circle")
    axis, band, interval = root.iter(f"{SVG}line")
    begin, end = (float(axis.get(name, "")) for name in ("x1", "x2"))

    def place(value: float) -> float:
        return begin + value * (end - begin)

    assert float(dot.get("cx", "")) == pytest.approx(place(0.5), abs=0.1)
    assert [float(band.get(x, "")) for x in ("x1", "x2")] == pytest.approx([place(0.2), place(0.9)], abs=0.1)
    assert [float(interval.get(x, "")) for x in ("x1", "x2")] == pytest.approx([place(0.4), place(0.6)], abs=0.1)
    alone = parsed(scale("t", [Scaled("a", math.nan)]))
    assert not list(alone.iter(f"{SVG}circle"))


def test_a_number_outside_its_range_is_hollow_outside_the_band() -> None:
    root = parsed(ranges("t", [Ranged("in", 1.0, 0.0, 2.0, True), Ranged("out", 9.0, 0.0, 2.0, False)]))
    dots, rules = list(root.iter(f"{SVG}circle")), list(root.iter(f"{SVG}line"))
    assert [one.get("fill") for one in dots] == ["none", "currentColor"], "failures first"
    assert float(dots[0].get("cx", "")) > float(rules[1].get("x2", ""))
    assert float(rules[3].get("x1", "")) < float(dots[1].get("cx", "")) < float(rules[3].get("x2", ""))


def test_a_logarithmic_line_is_straight_for_powers() -> None:
    root = parsed(line("t", [0, 1, 2], [("a", [1.0, 0.1, 0.01])], log=True))
    (curve,) = root.iter(f"{SVG}polyline")
    (x0, y0), (x1, y1), (x2, y2) = (map(float, one.split(",")) for one in curve.get("points", "").split())
    assert (x1, y1) == pytest.approx(((x0 + x2) / 2, (y0 + y2) / 2), abs=0.1)
    assert {"1", "0.01"} <= set(texts(root))
    (curve,) = parsed(line("t", [0, 1, 2, 3], [("a", [1.0, math.nan, 0.0, 0.1])], log=True)).iter(f"{SVG}polyline")
    assert len(curve.get("points", "").split()) == 2, "what has no logarithm is left out"


def test_a_heatmap_shows_signs_and_sizes_of_the_first_names() -> None:
    n = MOST_CELLS + 3
    values = np.full((n, n), -0.5)
    np.fill_diagonal(values, 1.0)
    root = parsed(heatmap("t", [f"c{k}" for k in range(n)], values.tolist()))
    cells = [one for one in root.iter(f"{SVG}rect") if one.get("fill") != "none"]
    assert len(cells) == MOST_CELLS**2
    assert [cells[k].get("fill-opacity") for k in (0, 1)] == ["1.00", "0.50"]
    assert cells[0].get("fill") != cells[1].get("fill")


def test_a_picture_stands_beside_the_table() -> None:
    html = html_table("t", [("a", 1)], ["s"], picture=side_by_side(note("n", "m"), None))
    assert html.index("</table>") < html.index("<svg") < html.index("<p ")
    assert "flex-wrap:wrap" in html
    assert "svg" not in html_table("t", [("a", 1)])
    assert side_by_side(None) is None


def test_every_kind_of_result_has_a_picture_or_a_reason() -> None:
    for kind in KINDS:
        own = result_class(kind)._picture is not AbstractResult._picture
        assert own != (kind in WITHOUT_PICTURE), kind


@pytest.fixture(scope="module")
def small_results() -> dict[str, AbstractResult]:
    """Results of the smallest and strangest statistics."""
    one = tg.NextTokenStatistics.from_counts(np.array([[1], [2]]), [EVIL], [EVIL, "b"])
    full = tg.NextTokenStatistics.from_counts(np.ones((3, 3), int))
    slow: dict[str, Any] = {"model": "ufm", "dim": 2}
    return {
        "one context": one,
        "its prediction": tg.predict(one),
        "full supports": tg.predict(full),
        "many support sizes": tg.NextTokenStatistics.from_counts(np.triu(np.ones((70, 70), int))),
        "at a loss": tg.predict(one, loss_gap=0.01),
        "one step": tg.train(one, steps=1, **slow),
        "diverged": tg.train(one, steps=20, learning_rate=1e200, optimizer="gd", **slow),
        "nothing diverges": tg.predict(full, embeddings=np.eye(3)),
    }


def test_degenerate_results_have_whole_pictures(small_results: dict[str, AbstractResult]) -> None:
    for name, result in small_results.items():
        pictures = (result._picture() or "").split("<svg")[1:]
        assert pictures, name
        for one in pictures:
            parsed(f"<svg{one}")
    assert "Nothing diverges" in str(small_results["nothing diverges"]._picture())


def test_support_sizes_are_a_histogram(small_results: dict[str, AbstractResult]) -> None:
    root = parsed(str(small_results["many support sizes"]._picture()))
    heights = [float(one.get("height", "")) for one in root.iter(f"{SVG}rect")]
    # Sizes 1 to 70, each once, in columns up to 1, 2, 4, 8, 16, 32, 64 and 128.
    counts = [1, 1, 2, 4, 8, 16, 32, 6]
    assert heights == pytest.approx([max(heights) * count / 32 for count in counts], abs=0.1)
    assert {"\u22641", "\u2264128", "32"} <= set(texts(root))
