"""How the page writes numbers, names, lists and formulas."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from tokengeom.comparison.agreement import Agreement
from tokengeom.comparison.verdict import explained_bounds
from tokengeom.figures.prepare import legible, short

if TYPE_CHECKING:
    from markupsafe import Markup

DASH, MINUS, TIMES = "\u2013", "\u2212", "\u00a0\u00d7\u00a0"
"""For a number that is not defined, for a negative one, and before a power of ten (without a line break)."""
SYMBOLS = (
    (r"\bL[_^]mm\b", "L<sup>mm</sup>"),
    (r"\bL[_^]in\b", "L<sup>in</sup>"),
    (r"\bP_F\b", "P<sub>F</sub>"),
    (r"\bS~", "S\u0303"),
    (r"\bgamma_2\b", "\u03b3<sub>2</sub>"),
    (r"\|\|([^|]+)\|\|_\*", r"‖\1‖<sub>*</sub>"),
    (r"\|\|([^|]+)\|\|", r"‖\1‖"),
    (r"\bsqrt\((\w+)\)", "√\\1"),
    (r"\b0(?:\.0+)?e[+-]0+\b", "0"),
    (r"\b(\d(?:\.\d+)?)e-0*(\d+)\b", rf"\1{TIMES}10<sup>{MINUS}\2</sup>"),
    (r"\b(\d(?:\.\d+)?)e\+0*(\d+)\b", rf"\1{TIMES}10<sup>\2</sup>"),
    (r"(?<![\w.-])-(?=\d)", MINUS),
)
"""Symbols as sentences write them in plain characters, and as the page shows them."""
PLAIN_FROM = 1e-3
PLAIN_TO = 1e6


def number(value: object, digits: int = 3) -> str:
    """A number as plain text: whole numbers in full, others with so many digits; a dash where there is none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return DASH
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or (float(value).is_integer() and abs(value) < PLAIN_TO and value != 0):
        return f"{int(value):,}".replace("-", MINUS)
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    if value != 0 and not PLAIN_FROM <= abs(value) < PLAIN_TO:
        return f"{MINUS if value < 0 else ''}{abs(value):.{max(digits - 2, 1)}e}"
    return f"{value:.{digits}g}".replace("-", MINUS) if abs(value) < 1000 else f"{value:,.0f}".replace("-", MINUS)


def number_html(value: object, digits: int = 3) -> Markup:
    """A number for the page, with powers of ten."""
    return maths(number(value, digits))


def fixed(value: float, digits: int = 3) -> str:
    """A number with so many digits after the point, for columns and intervals; a dash where there is none."""
    if not math.isfinite(value):
        return DASH
    # Adding 0 turns a negative zero, which rounding can give, into 0.
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", MINUS)


def percent(share: float) -> str:
    """A share of one as a percentage that is 0 or 100 only where it is exactly that."""
    if not math.isfinite(share):
        return DASH
    if 0 < share < 0.001:
        return "less than 0.1%"
    if 0.999 < share < 1:
        return "more than 99.9%"
    return f"{100 * share:.3g}%"


def explained_share(agreement: Agreement) -> str:
    """Share of the reproducible geometry that is explained; with one training, the least that it can be."""
    if not math.isfinite(agreement.fair):
        return DASH
    if agreement.is_hardly_reproducible:
        return "an unknown share"
    if math.isfinite(agreement.reproducible):
        return agreement.explained_text() or DASH
    at_chance = agreement.has_floor and not agreement.above_floor
    # A bound from below is not rounded up; its decimal shows that it is the rounded share of the verdict's sentence.
    return f"at least {0 if at_chance else math.floor(1000 * explained_bounds(agreement)[0]) / 10:.3g}%"


def maths(sentence: str) -> Markup:
    """A sentence of ours as html, with its symbols typeset; never for tokens, which stay as they are."""
    from markupsafe import Markup, escape

    return Markup(typeset(str(escape(sentence))))


def typeset(escaped: str) -> str:
    """An escaped sentence with its symbols as html."""
    for pattern, written in SYMBOLS:
        escaped = re.sub(pattern, written, escaped)
    return escaped


def name(token: str, most: int = 60) -> str:
    """A token or a context with its invisible characters made visible, shortened in the middle where it is long."""
    return short(token, most) if token else "(empty)"


def full_name(token: str) -> str:
    """The same without shortening."""
    return legible(token) if token else "(empty)"


@cache
def texts(file: str) -> Any:
    """The sentences in a JSON file beside the templates, by name."""
    return json.loads(files("tokengeom.page").joinpath("templates", file).read_text(encoding="utf-8"))


def count(how_many: int, thing: str, plural: str = "") -> str:
    """``1 context``, ``2 contexts``."""
    return f"{how_many:,} {thing if how_many == 1 else plural or thing + 's'}"


def listed(items: Iterable[str]) -> str:
    """``a, b and c``."""
    *first, end = items
    return f"{', '.join(first)} and {end}" if first else str(end)
