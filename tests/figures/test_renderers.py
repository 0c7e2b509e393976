from __future__ import annotations

import re
import sys
from html import escape
from pathlib import Path

import numpy as np
import pytest
from drawn_text import assert_nothing_is_clipped, plotly_text, rendered, static_text
from figure_cases import AWKWARD, awkward_figure

from tokengeom.errors import InputError, MissingExtraError
from tokengeom.figures.base import Curve, Figure, HeatmapPanel, LinePanel, Points, ScatterPanel
from tokengeom.figures.interactive import save_interactive, to_plotly
from tokengeom.figures.prepare import legible
from tokengeom.figures.static import draw, save_static

LABELS = [
    "Every kind of <panel> & $name$", "Gap $a$ over <i>steps</i>", "step_k", "CE - H & more", AWKWARD[0], "with a band",
    "_predicted $", "companion", "floor", "rank", "Nothing positive", "zero", "Cosines", "cosine", "Many names",
    "contexts", "tokens", "Plane", "first coordinate", "embeddings", "rows of W^mm", *map(legible, AWKWARD),
]  # fmt: skip


def test_a_static_figure_shows_every_label_as_it_is_written() -> None:
    found = static_text(rendered(awkward_figure()))
    assert [label for label in LABELS if label not in found] == []


def test_an_interactive_figure_holds_every_label_and_no_tag() -> None:
    found = plotly_text(to_plotly(awkward_figure()))
    assert [label for label in LABELS if escape(label, quote=False) not in found] == []
    assert not any(re.search(r"<(?!br>)", text) for text in found)


def test_no_text_is_cut_off_and_no_panel_covers_another() -> None:
    assert_nothing_is_clipped(awkward_figure())


def test_a_name_is_never_read_as_a_formula_or_dropped_from_a_legend() -> None:
    canvas = draw(awkward_figure())
    legend = canvas.axes[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()][:4] == [
        AWKWARD[0], "with a band", "_predicted $", "companion",
    ]  # fmt: skip
    assert not any(text.get_parse_math() for text in legend.get_texts())


def test_a_legend_stands_clear_of_its_curves() -> None:
    canvas = rendered(awkward_figure())
    for axes in canvas.axes:
        if axes.get_legend() is not None:
            assert axes.get_legend().get_window_extent().y1 <= axes.get_window_extent().y0


def test_zeros_and_infinities_have_no_place_on_a_log_axis() -> None:
    canvas = draw(awkward_figure())
    line = canvas.axes[0].get_lines()[0]
    assert line.get_xdata().tolist() == [1.0, 10.0, 100.0, 1000.0]
    np.testing.assert_array_equal(line.get_ydata(), [np.nan, np.nan, 1e-3, np.nan])
    assert canvas.axes[1].get_yscale() == "linear", "an axis without a positive number cannot be logarithmic"
    trace = to_plotly(awkward_figure()).data[0]
    assert trace.x == (1.0, 10.0, 100.0, 1000.0)
    assert trace.y == (None, None, 1e-3, None)


def test_names_are_ticks_only_where_they_fit() -> None:
    canvas = draw(awkward_figure())
    named, crowded = canvas.axes[2], next(a for a in canvas.axes if a.get_title(loc="left") == "Many names")
    assert [t.get_text() for t in named.get_xticklabels()] == [legible(name) for name in AWKWARD]
    assert [t.get_text() for t in crowded.get_xticklabels() if t.get_text()] == []
    page = to_plotly(awkward_figure())
    assert page.layout.xaxis3.showticklabels is True
    assert page.layout.xaxis4.showticklabels is False
    assert page.layout.xaxis4.ticktext[299] == "name 299", "a name that is not shown is there for the pointer"


def test_group_breaks_are_lines_between_cells() -> None:
    canvas = draw(awkward_figure())
    places = [line.get_xdata()[0] for line in canvas.axes[2].get_lines() if line.get_xdata()[0] == line.get_xdata()[1]]
    assert places == [1.5, 4.5]


def test_a_range_around_zero_is_white_at_zero() -> None:
    panel = HeatmapPanel("t", np.array([[-0.5, 0.0, 2.0]]), "x", "y")
    image = draw(Figure("f", "t", "", [panel])).axes[0].get_images()[0]
    assert (image.norm.vmin, image.norm.vmax) == (-2.0, 2.0)
    np.testing.assert_allclose(image.cmap(image.norm(0.0)), (1, 1, 1, 1), atol=0.01)


@pytest.mark.parametrize("values", [np.zeros((2, 2)), np.full((2, 2), np.nan), np.full((1, 1), -3.0), np.ones((1, 3))])
def test_a_matrix_without_a_range_is_drawn(values: np.ndarray) -> None:
    figure = Figure("f", "t", "c", [HeatmapPanel("t", values, "x", "y", colour_label="c")])
    rendered(figure)
    bar = to_plotly(figure).data[0]
    assert bar.zmin < bar.zmax


def test_empty_panels_are_drawn() -> None:
    nothing = np.zeros(0)
    panels = [
        LinePanel("l", "x", "y", [Curve("c", nothing, nothing)], "log", "log"),
        LinePanel("none", "x", "y", []),
        ScatterPanel("s", "x", "y", [Points("p", nothing, nothing, ())], equal=True, from_origin=True),
        ScatterPanel("n", "x", "y", []),
        HeatmapPanel("h", np.zeros((0, 3)), "x", "y", ["a", "b", "c"], ()),
    ]
    figure = Figure("f", "t", "c", panels)
    assert_nothing_is_clipped(figure)
    assert len(to_plotly(figure).layout.annotations) >= 5


def test_angles_stay_true() -> None:
    axes = draw(awkward_figure()).axes[-1]
    box, (x0, x1), (y0, y1) = axes.get_window_extent(), axes.get_xlim(), axes.get_ylim()
    assert box.width / (x1 - x0) == pytest.approx(box.height / (y1 - y0), rel=1e-9)


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_the_ending_chooses_the_form(tmp_path: Path, suffix: str, start: bytes) -> None:
    path = save_static(awkward_figure(), tmp_path / "deep" / f"figure{suffix}")
    assert path.read_bytes().startswith(start)
    assert [file.name for file in path.parent.iterdir()] == [f"figure{suffix}"]


def test_equal_figures_have_equal_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        save_static(awkward_figure(), tmp_path / f"{name}.svg")
        save_interactive(awkward_figure(), tmp_path / f"{name}.html")
    for form in ("svg", "html"):
        assert (tmp_path / f"one.{form}").read_bytes() == (tmp_path / f"two.{form}").read_bytes()


def test_an_unknown_ending_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.png, \.svg, \.pdf; got 'figure\.gif'"):
        save_static(awkward_figure(), tmp_path / "figure.gif")
    with pytest.raises(InputError, match=r"\.html; got 'figure\.png'"):
        save_interactive(awkward_figure(), tmp_path / "figure.png")
    assert list(tmp_path.iterdir()) == []


def test_a_page_asks_the_network_for_nothing(tmp_path: Path) -> None:
    from plotly.offline import get_plotlyjs

    page = save_interactive(awkward_figure(), tmp_path / "figure.html").read_text(encoding="utf-8")
    assert get_plotlyjs() in page, "plotly's code must be in the page"
    own = page.replace(get_plotlyjs(), "")
    assert "//" not in re.sub(r"/\*.*?\*/", "", own), "no address outside plotly's own code"
    assert not re.search(r"<(link|img|iframe)|src\s*=", own)
    assert "default-src 'none'" in own
    buttons = re.search(r'"modeBarButtons":\s*(\[\[.*?\]\])', own)
    assert buttons is not None, "plotly's own choice of buttons holds one that sends the figure away"
    assert "loud" not in buttons[1]


def test_markup_in_a_name_stays_text_in_a_page(tmp_path: Path) -> None:
    from plotly.offline import get_plotlyjs

    page = save_interactive(awkward_figure(), tmp_path / "figure.html").read_text(encoding="utf-8")
    own = page.replace(get_plotlyjs(), "")
    assert "<script>alert" not in own
    assert "</script>alert" not in own
    assert "alert(1)" in own
    assert "<title>Every kind of &lt;panel&gt; &amp; $name$</title>" in own


@pytest.mark.parametrize(("package", "render"), [("matplotlib", draw), ("plotly", to_plotly)])
def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, package: str, render) -> None:  # type: ignore[no-untyped-def]
    for name in [package, *(name for name in sys.modules if name.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=rf"'{package}'.*tokengeom\[figures\]"):
        render(awkward_figure())


def test_the_caption_can_be_left_to_the_page() -> None:
    figure = Figure("f", "t", "A caption.", [LinePanel("l", "x", "y", [])])
    assert "A caption." in static_text(rendered(figure))
    assert "A caption." not in static_text(rendered(figure, caption=False))
