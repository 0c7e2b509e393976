from __future__ import annotations

import json
import re
import sys
from html import escape
from pathlib import Path

import numpy as np
import pytest

from figure_cases import LABELS, awkward_figure, plotly_texts
from tokengeom.core.errors import InputError, MissingExtraError
from tokengeom.core.numerics import Float
from tokengeom.figures.base import Curve, Figure, HeatmapPanel, LinePanel, Panel, Points, ScatterPanel
from tokengeom.figures.interactive import save_interactive, to_boxes


def page_without_plotly(folder: Path) -> str:
    """A saved page, without plotly's own code."""
    from plotly.offline import get_plotlyjs

    page = save_interactive(awkward_figure(), folder / "figure.html").read_text(encoding="utf-8")
    assert get_plotlyjs() in page, "plotly's code must be in the page"
    return page.replace(get_plotlyjs(), "")


def test_every_label_is_there_and_none_is_a_tag() -> None:
    found = plotly_texts(awkward_figure())
    assert [label for label in LABELS[1:] if escape(label, quote=False) not in found] == []
    assert not any("<" in text for text in found)


def test_zeros_and_infinities_are_not_drawn_on_a_log_axis() -> None:
    trace = to_boxes(awkward_figure())[0].drawn["data"][0]
    assert trace["x"] == [1.0, 10.0, 100.0, 1000.0]
    assert trace["y"] == [None, None, 1e-3, None]


def test_each_panel_has_a_box_that_sets_no_width() -> None:
    figure = awkward_figure()
    boxes = to_boxes(figure)
    assert [box.title for box in boxes] == [panel.title for panel in figure.panels]
    for box in boxes:
        assert box.drawn["layout"]["autosize"] is True
        assert not {"width", "height", "title"} & set(box.drawn["layout"])
        assert box.drawn["layout"]["xaxis"]["domain"] == [0, 1]


def test_no_name_can_become_a_tag() -> None:
    text = json.dumps([box.drawn for box in to_boxes(awkward_figure())], default=lambda array: array.tolist())
    assert "<script>" not in text
    assert "&lt;script&gt;alert(1)" in text


def test_the_matrix_of_a_box_is_that_of_its_panel() -> None:
    panel = next(panel for panel in awkward_figure().panels if isinstance(panel, HeatmapPanel))
    (box,) = to_boxes(Figure("f", "t", "c", [panel]))
    expected = np.where(np.isfinite(panel.values), panel.values, np.nan)
    np.testing.assert_array_equal(box.drawn["data"][0]["z"], expected)


@pytest.mark.parametrize(
    ("count", "name", "down", "across"),
    [
        (8, "token", True, True),
        (30, "token", True, False),
        (8, "a context that is long", False, True),
        (300, "x", False, False),
    ],
)
def test_names_are_tick_labels_only_where_a_narrow_box_has_space(
    count: int, name: str, down: bool, across: bool
) -> None:
    panel = HeatmapPanel("t", np.zeros((count, count)), "x", "y", [name] * count, [name] * count)
    (box,) = to_boxes(Figure("f", "t", "c", [panel], columns=1))
    assert box.drawn["layout"]["yaxis"]["showticklabels"] is down
    assert box.drawn["layout"]["xaxis"]["showticklabels"] is across
    assert (box.height is not None) is (down or across)
    assert box.drawn["layout"]["xaxis"]["ticktext"] == [name] * count


@pytest.mark.parametrize("values", [np.zeros((2, 2)), np.full((2, 2), np.nan), np.full((1, 1), -3.0), np.ones((1, 3))])
def test_a_matrix_without_a_range_is_drawn(values: Float) -> None:
    (box,) = to_boxes(Figure("f", "t", "c", [HeatmapPanel("t", values, "x", "y", colour_label="c")]))
    heat = box.drawn["data"][0]
    assert heat["zmin"] < heat["zmax"]


def test_empty_panels_are_drawn() -> None:
    nothing = np.zeros(0)
    panels: list[Panel] = [
        LinePanel("l", "x", "y", [Curve("c", nothing, nothing)], "log", "log"),
        LinePanel("none", "x", "y", []),
        ScatterPanel("s", "x", "y", [Points("p", nothing, nothing, ())], equal=True, from_origin=True),
        ScatterPanel("n", "x", "y", []),
        HeatmapPanel("h", np.zeros((0, 3)), "x", "y", ["a", "b", "c"], ()),
    ]
    assert [box.title for box in to_boxes(Figure("f", "t", "c", panels))] == ["l", "none", "s", "n", "h"]


def test_equal_figures_have_equal_bytes(tmp_path: Path) -> None:
    one, two = (save_interactive(awkward_figure(), tmp_path / f"{name}.html") for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()


def test_an_unknown_suffix_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.html; got 'figure\.png'"):
        save_interactive(awkward_figure(), tmp_path / "figure.png")
    assert list(tmp_path.iterdir()) == []


def test_a_page_loads_nothing_from_the_network(tmp_path: Path) -> None:
    own = page_without_plotly(tmp_path)
    assert "//" not in re.sub(r"/\*.*?\*/", "", own), "no address outside plotly's own code"
    assert not re.search(r"<(link|img|iframe)|src\s*=", own)
    assert "default-src 'none'" in own
    buttons = re.search(r'"modeBarButtons":\s*(\[\[.*?\]\])', own)
    assert buttons is not None, "plotly's default buttons include one that uploads the figure"
    assert "loud" not in buttons[1]


def test_markup_in_a_name_stays_text(tmp_path: Path) -> None:
    own = page_without_plotly(tmp_path)
    assert "<script>alert" not in own
    assert "</script>alert" not in own
    assert "alert(1)" in own
    assert "<title>Every kind of &lt;panel&gt; &amp; $name$</title>" in own


def test_a_missing_plotly_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ["plotly", *(name for name in sys.modules if name.startswith("plotly."))]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"'plotly'.*tokengeom\[figures\]"):
        save_interactive(awkward_figure(), tmp_path / "figure.html")
