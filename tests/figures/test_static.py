from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from figure_cases import AWKWARD, LABELS, assert_nothing_is_clipped, awkward_figure, rendered, static_texts
from tokengeom.core.errors import InputError, MissingExtraError
from tokengeom.core.numerics import Float
from tokengeom.figures.base import Curve, Figure, HeatmapPanel, LinePanel, Panel, Points, ScatterPanel
from tokengeom.figures.interactive import save_interactive
from tokengeom.figures.prepare import legible
from tokengeom.figures.static import draw, save_static


def small_figure() -> Figure:
    return Figure("f", "t", "c", [LinePanel("l", "x", "y", [Curve("c", np.ones(2), np.arange(2.0))])])


SMALL = small_figure()


def test_every_label_is_shown_as_written() -> None:
    found = static_texts(rendered(awkward_figure()))
    assert [label for label in LABELS if label not in found] == []


def test_no_text_is_cut_off_and_no_panel_covers_another() -> None:
    assert_nothing_is_clipped(awkward_figure())


def test_a_label_is_not_parsed_as_a_formula_or_dropped_from_the_legend() -> None:
    canvas = draw(awkward_figure())
    legend = canvas.axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()][:4] == [
        AWKWARD[0], "with a band", "_predicted $", "companion",
    ]  # fmt: skip
    assert not any(text.get_parse_math() for text in legend.get_texts())


def test_a_legend_is_below_its_curves() -> None:
    canvas = rendered(awkward_figure())
    for axes in canvas.axes:
        if axes.get_legend() is not None:
            assert axes.get_legend().get_window_extent().y1 <= axes.get_window_extent().y0


def test_zeros_and_infinities_are_not_drawn_on_a_log_axis() -> None:
    canvas = draw(awkward_figure())
    line = canvas.axes[0].get_lines()[0]
    np.testing.assert_array_equal(line.get_xdata(), [1.0, 10.0, 100.0, 1000.0])
    np.testing.assert_array_equal(line.get_ydata(), [np.nan, np.nan, 1e-3, np.nan])
    assert canvas.axes[1].get_yscale() == "linear", "an axis without a positive number cannot be logarithmic"


def test_names_are_tick_labels_only_where_they_fit() -> None:
    canvas = draw(awkward_figure())
    named, crowded = canvas.axes[2], next(a for a in canvas.axes if a.get_title(loc="left") == "Many names")
    assert [t.get_text() for t in named.get_xticklabels()] == [legible(name) for name in AWKWARD]
    assert [t.get_text() for t in crowded.get_xticklabels() if t.get_text()] == []


def test_group_breaks_are_lines_between_cells() -> None:
    xs = [np.asarray(line.get_xdata()) for line in draw(awkward_figure()).axes[2].get_lines()]
    assert [x[0] for x in xs if x[0] == x[1]] == [1.5, 4.5]


def test_zero_is_white_in_a_range_with_both_signs() -> None:
    panel = HeatmapPanel("t", np.array([[-0.5, 0.0, 2.0]]), "x", "y")
    image = draw(Figure("f", "t", "", [panel])).axes[0].get_images()[0]
    assert (image.norm.vmin, image.norm.vmax) == (-2.0, 2.0)
    np.testing.assert_allclose(image.cmap(image.norm(np.zeros(1)))[0], (1, 1, 1, 1), atol=0.01)


@pytest.mark.parametrize("values", [np.zeros((2, 2)), np.full((2, 2), np.nan), np.full((1, 1), -3.0), np.ones((1, 3))])
def test_a_matrix_without_a_range_is_drawn(values: Float) -> None:
    drawn = rendered(Figure("f", "t", "c", [HeatmapPanel("t", values, "x", "y", colour_label="c")]))
    image = drawn.axes[0].get_images()[0]
    assert image.norm.vmin < image.norm.vmax
    assert image.get_array().shape == values.shape


def test_empty_panels_are_drawn() -> None:
    nothing = np.zeros(0)
    panels: list[Panel] = [
        LinePanel("l", "x", "y", [Curve("c", nothing, nothing)], "log", "log"),
        LinePanel("none", "x", "y", []),
        ScatterPanel("s", "x", "y", [Points("p", nothing, nothing, ())], equal=True, from_origin=True),
        ScatterPanel("n", "x", "y", []),
        HeatmapPanel("h", np.zeros((0, 3)), "x", "y", ["a", "b", "c"], ()),
    ]
    assert_nothing_is_clipped(Figure("f", "t", "c", panels))


def test_equal_scales_keep_angles() -> None:
    axes = draw(awkward_figure()).axes[-1]
    box, (x0, x1), (y0, y1) = axes.get_window_extent(), axes.get_xlim(), axes.get_ylim()
    assert box.width / (x1 - x0) == pytest.approx(box.height / (y1 - y0), rel=1e-9)


def test_the_caption_can_be_left_out() -> None:
    figure = Figure("f", "t", "A caption.", [LinePanel("l", "x", "y", [])])
    assert "A caption." in static_texts(rendered(figure))
    assert "A caption." not in static_texts(rendered(figure, caption=False))


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_the_suffix_chooses_the_format(tmp_path: Path, suffix: str, start: bytes) -> None:
    path = save_static(SMALL, tmp_path / "deep" / f"figure{suffix}")
    assert path.read_bytes().startswith(start)
    assert [file.name for file in path.parent.iterdir()] == [f"figure{suffix}"]


def test_equal_figures_have_equal_bytes(tmp_path: Path) -> None:
    one, two = (save_static(small_figure(), tmp_path / f"{name}.svg") for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()


def test_an_unknown_suffix_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.png, \.svg, \.pdf; got 'figure\.gif'"):
        save_static(awkward_figure(), tmp_path / "figure.gif")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_matplotlib_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ["matplotlib", *(name for name in sys.modules if name.startswith("matplotlib."))]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"'matplotlib'.*tokengeom\[figures\]"):
        draw(awkward_figure())


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf", ".html"])
def test_a_picture_of_ours_is_replaced_and_any_other_file_is_refused(tmp_path: Path, suffix: str) -> None:
    target, save = tmp_path / f"figure{suffix}", save_interactive if suffix == ".html" else save_static
    save(SMALL, target)
    save(SMALL, target)
    target.write_bytes(b"thesis")
    with pytest.raises(InputError, match="was not written by tokengeom"):
        save(SMALL, target)
    assert target.read_bytes() == b"thesis"


@pytest.mark.parametrize(
    ("ends", "expected"), [((0.002, 0.05), {"0.002", "0.005", "0.01", "0.02", "0.05"}), ((1e-6, 1.0), set())]
)
def test_numbers_on_a_short_logarithmic_axis_do_not_overlap(ends: tuple[float, float], expected: set[str]) -> None:
    x = np.array(ends)
    panel = LinePanel("t", "x", "y", [Curve("c", x, np.ones(2))], x_scale="log")
    canvas = rendered(Figure("f", "t", "c", [panel]))
    axis = canvas.axes[0].xaxis
    low, high = canvas.axes[0].get_xlim()
    ticks = [tick for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()) if low <= tick.get_loc() <= high]
    labels = [tick.label1 for tick in ticks if tick.label1.get_text()]
    boxes = sorted((label.get_window_extent().x0, label.get_window_extent().x1) for label in labels)
    assert len(boxes) > 1
    assert all(one[1] < other[0] for one, other in pairwise(boxes))
    assert {label.get_text() for label in labels} >= expected
