from __future__ import annotations

import json

import numpy as np
import pytest

from figure_cases import awkward_figure
from tokengeom.figures.base import Figure, HeatmapPanel
from tokengeom.figures.prepare import COLOURS, DARK, DIVERGING
from tokengeom.page.sections.figures import to_boxes


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


def contrast(one: str, other: str) -> float:
    """WCAG contrast ratio of two colours."""

    def luminance(colour: str) -> float:
        parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        linear = np.where(parts <= 0.03928, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    high, low = sorted([luminance(one), luminance(other)], reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colour", COLOURS)
def test_every_colour_has_contrast_on_a_dark_page(colour: str) -> None:
    background = DARK[DIVERGING[len(DIVERGING) // 2]]
    assert contrast(DARK[colour], background) >= 4.5
