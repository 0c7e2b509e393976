"""Numbers, names and formulas as the page writes them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tokengeom.page import formatting
from tokengeom.page.chosen_settings import _percent
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.proxy import predict_proxy


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.5, "0.5"), (3, "3"), (1234567, "1,234,567"), (-2.5e-7, "\u22122.5e-07"), (float("nan"), "\u2013"),
        (0.0, "0"), (1e9, "1.0e+09"), (None, "\u2013"), (12345.678, "12,346"), (True, "True"),
    ],
)  # fmt: skip
def test_numbers_are_written_for_readers(value: object, written: str) -> None:
    assert formatting.number(value) == written


def test_symbols_are_typeset_and_the_rest_is_escaped() -> None:
    assert formatting.maths("||L_mm||_* is 1.5e-07 & <b>") == (
        "\u2016L<sup>mm</sup>\u2016<sub>*</sub> is 1.5\u00a0\u00d7\u00a010<sup>\u22127</sup> &amp; &lt;b&gt;"
    )
    assert formatting.maths("HL_mmx S~ sqrt(2)") == "HL_mmx S\u0303 √2"
    assert formatting.fixed(-0.001, 2) == "0.00"
    assert formatting.percent(1e-5) == "less than 0.1%"
    assert formatting.percent(0.0) == "0%"


@pytest.mark.parametrize("share", [0.9995, 0.99996, np.nextafter(1.0, 0.0)])
def test_only_the_whole_is_called_a_hundred_percent(share: float) -> None:
    stats = NextTokenStatistics.from_counts(np.array([[2, 0, 1], [0, 3, 1], [1, 1, 0]]))
    part = replace(predict_proxy(stats, components=2), captured=float(share))
    for said in (formatting.percent(share), _percent(share), part.summary()):
        assert "more than 99.9%" in said
        assert "100" not in said
    for said in (formatting.percent(1.0), _percent(1.0)):
        assert said == "100%"
    assert "100.0% of its squared norm" in replace(part, captured=1.0).summary()


def test_lists_and_counts_are_plain_english() -> None:
    assert formatting.listed(["a"]) == "a"
    assert formatting.listed(["a", "b", "c"]) == "a, b and c"
    assert (formatting.count(1, "context"), formatting.count(2000, "context")) == ("1 context", "2,000 contexts")


def test_names_show_invisible_characters_and_are_shortened() -> None:
    assert formatting.name("") == formatting.full_name("") == "(empty)"
    assert len(formatting.name("x" * 200)) <= 60
    assert len(formatting.full_name("x" * 200)) == 200
