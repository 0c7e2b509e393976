from __future__ import annotations

import numpy as np
import pytest

from tokengeom.figures.base import Points, ScatterPanel
from tokengeom.figures.label_places import place_words, scatter_limits, word_width
from tokengeom.figures.layout import legend_grid, wrap
from tokengeom.figures.prepare import drawable, drawn_breaks, legible, names_fit, short


def test_only_drawable_numbers_remain() -> None:
    values = np.array([-1.0, 0.0, 2.0, np.nan, np.inf, -np.inf])
    np.testing.assert_array_equal(drawable(values), [-1, 0, 2, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(drawable(values, "log"), [np.nan, np.nan, 2, np.nan, np.nan, np.nan])


@pytest.mark.parametrize(
    ("name", "shown"),
    [("word", "word"), ("  ", "␣␣"), ("a\nb", r"a\nb"), ("\t", r"\t"), ("", ""), ("é", "é")],
)
def test_invisible_characters_become_visible(name: str, shown: str) -> None:
    assert legible(name) == shown


def test_a_long_name_keeps_both_ends() -> None:
    assert short("abcdefghij", 7) == "abc…hij"
    assert len(short("x" * 100)) < 40
    assert short("short") == "short"


def test_names_need_room() -> None:
    assert names_fit(10, 3.0)
    assert not names_fit(100, 3.0)
    assert not names_fit(0, 3.0)


def test_a_legend_is_as_wide_as_its_place() -> None:
    assert legend_grid([], 4.0) == (1, 0)
    assert legend_grid(["a", "b"], 4.0) == (2, 1)
    assert legend_grid(["a" * 60, "b"], 4.0) == (1, 2)
    assert max(len(line) for line in wrap("word " * 50, 3.0, 10.0)) <= 3.0 * 72 / 5.5


def test_words_stay_inside_their_panel() -> None:
    x, y = np.random.default_rng(3).standard_normal((2, 12))
    panel = ScatterPanel("t", "x", "y", [Points("p", x, y, [f"word {i}" for i in range(12)])], equal=True)
    (left, right), (bottom, top) = scatter_limits(panel, 5.0, 5.0)
    assert right - left == pytest.approx(top - bottom)
    unit = (right - left) / 5.0
    for word in place_words(panel, 5.0, 5.0)[0]:
        outer = word.x + word.right * (0.08 + word_width(word.text)) * unit
        assert left <= outer <= right


def test_a_word_makes_way_for_a_point() -> None:
    alone = ScatterPanel("t", "x", "y", [Points("p", np.array([1.0]), np.array([-1.0]), ["word"])], from_origin=True)
    assert [(word.right, word.up) for word in place_words(alone, 5.0, 5.0)[0]] == [(1, -1)]
    beside = Points("q", np.array([1.05]), np.array([-1.04]), [""])
    crowded = ScatterPanel("t", "x", "y", [*alone.points, beside], from_origin=True)
    assert [(word.right, word.up) for word in place_words(crowded, 5.0, 5.0)[0]] != [(1, -1)]


def test_breaks_that_crowd_are_left_out() -> None:
    # Ten lines, well apart; more lines than the axis has room for; and few lines, in clusters of neighbouring cells.
    apart = list(range(10, 100, 10))
    assert drawn_breaks(apart, 100, 3.0) == apart
    assert drawn_breaks(list(range(1, 100)), 100, 3.0) == []
    clusters = [c + i for c in (50, 150, 250) for i in range(6)]
    assert drawn_breaks(clusters, 400, 3.0) == []
    assert drawn_breaks([7], 400, 3.0) == [7]
    assert drawn_breaks([], 400, 3.0) == []
