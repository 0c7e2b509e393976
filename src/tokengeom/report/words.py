"""How the page writes numbers, names and formulas: one hand for every section."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tokengeom.figures.prepare import legible, short

if TYPE_CHECKING:
    from markupsafe import Markup

SYMBOLS = (
    (r"\bL[_^]mm\b", "L<sup>mm</sup>"),
    (r"\bL[_^]in\b", "L<sup>in</sup>"),
    (r"\bP_F\b", "P<sub>F</sub>"),
    (r"\bS~", "S\u0303"),
    (r"\|\|([^|]+)\|\|_\*", r"‖\1‖<sub>*</sub>"),
    (r"\|\|([^|]+)\|\|", r"‖\1‖"),
    (r"\b(\d(?:\.\d+)?)e([+-])0*(\d+)\b", lambda m: f"{m[1]} × 10<sup>{'−' if m[2] == '-' else ''}{m[3]}</sup>"),
)
"""What the house's sentences write in plain characters, and how a page shows it."""
PLAIN_FROM = 1e-3
PLAIN_TO = 1e6


def number(value: Any, digits: int = 3) -> str:
    """A number as plain text: whole ones in full, others with so many digits; a dash where there is none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or (float(value).is_integer() and abs(value) < PLAIN_TO and value != 0):
        return f"{int(value):,}".replace("-", "−")
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value != 0 and not PLAIN_FROM <= abs(value) < PLAIN_TO:
        return f"{value:.{max(digits - 2, 1)}e}"
    return f"{value:.{digits}g}".replace("-", "−") if abs(value) < 1000 else f"{value:,.0f}".replace("-", "−")


def shown(value: Any, digits: int = 3) -> Markup:
    """A number for the page: powers of ten are written as such."""
    return maths(number(value, digits))


def percent(share: float) -> str:
    """A share of one as a percentage that is 0 or 100 only where it is exactly that."""
    if not math.isfinite(share):
        return "–"
    if 0 < share < 0.001:
        return "less than 0.1%"
    if 0.999 < share < 1:
        return "more than 99.9%"
    return f"{100 * share:.3g}%"


def maths(sentence: str) -> Markup:
    """A sentence of the house with its formulas set: never for words of a text, which stay as they are."""
    from markupsafe import Markup, escape

    found = str(escape(sentence))
    for pattern, written in SYMBOLS:
        found = re.sub(pattern, written, found)  # type: ignore[arg-type]
    return Markup(found)


def name(token: str, most: int = 60) -> str:
    """A token or a context with its invisible characters made visible, cut in its middle where it is long."""
    return short(token, most) if token else "(empty)"


def whole_name(token: str) -> str:
    """The same, uncut."""
    return legible(token) if token else "(empty)"


def count(how_many: int, thing: str, plural: str = "") -> str:
    """``1 context``, ``2 contexts``."""
    return f"{how_many:,} {thing if how_many == 1 else plural or thing + 's'}"


def listed(items: Iterable[str], last: str = "and") -> str:
    """``a, b and c``."""
    *first, end = items
    return f"{', '.join(first)} {last} {end}" if first else str(end)
