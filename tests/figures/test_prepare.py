from __future__ import annotations

import numpy as np
import pytest

from tokengeom.figures.prepare import COLOURS, DARK, DIVERGING, drawable, drawn_breaks, legible, names_fit, short


def test_numbers_that_an_axis_cannot_show_become_nan() -> None:
    values = np.array([-1.0, 0.0, 2.0, np.nan, np.inf, -np.inf])
    np.testing.assert_array_equal(drawable(values), [-1, 0, 2, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(drawable(values, "log"), [np.nan, np.nan, 2, np.nan, np.nan, np.nan])


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("token", "token"),
        ("  ", "␣␣"),
        (" the", "␣the"),
        (" a b ", "␣a b␣"),
        (" \n", r"␣\n"),
        ("a\nb", r"a\nb"),
        ("\t", r"\t"),
        ("", ""),
        ("é", "é"),
    ],
)
def test_invisible_characters_become_visible(name: str, shown: str) -> None:
    assert legible(name) == shown


def test_a_long_name_keeps_both_ends() -> None:
    assert short("abcdefghij", 7) == "abc…hij"
    assert len(short("x" * 100)) < 40
    assert short("short") == "short"


def test_names_need_space_on_their_axis() -> None:
    assert names_fit(10, 3.0)
    assert not names_fit(100, 3.0)
    assert not names_fit(0, 3.0)


def test_crowded_breaks_are_left_out() -> None:
    # Ten lines, well apart; more lines than the axis has space for; and few lines, in clusters of neighbouring cells.
    apart = list(range(10, 100, 10))
    assert drawn_breaks(apart, 100, 3.0) == apart
    assert drawn_breaks(list(range(1, 100)), 100, 3.0) == []
    clusters = [c + i for c in (50, 150, 250) for i in range(6)]
    assert drawn_breaks(clusters, 400, 3.0) == []
    assert drawn_breaks([7], 400, 3.0) == [7]
    assert drawn_breaks([], 400, 3.0) == []


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
