"""Figures as data inside a page: small, exact to what a reader can see, and never markup.

A matrix of a heat-map becomes 16-bit whole numbers in base64: value = low + number * step, -1 for a missing cell; of a
symmetric matrix the lower triangle alone. The page's script unpacks them. Other numbers keep six digits.

What a section is: a place in the table of contents, a template, and what the template shows.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from tokengeom.figures.base import Figure, HeatmapPanel
from tokengeom.figures.data import slug
from tokengeom.figures.layout import Box, to_boxes
from tokengeom.figures.ordering import FeatureOrder
from tokengeom.page.contents import Contents
from tokengeom.page.diagnosis import Diagnosis, diagnose
from tokengeom.page.formatting import set_symbols
from tokengeom.page.geometry_figures import shown_order

if TYPE_CHECKING:
    from markupsafe import Markup


LEVELS = 32_000
"""Steps between the smallest and the largest number of a matrix."""
DIGITS = 6


@dataclass(frozen=True)
class Scale:
    """Colours that all heat-maps of a picture share, from ``-reach`` to ``reach``."""

    label: str
    reach: float


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure ready for the page: its boxes, each with a name that is unique on the page.

    ``scale``
        For the page to draw once, where all boxes share it; then no box has its own.
    """

    name: str
    title: str
    caption: str
    columns: int
    boxes: tuple[tuple[str, Box], ...]
    scale: Scale | None = None


def picture(figure: Figure, *, caption: str | None = None, bars: bool = False, tokens: bool = True) -> Picture:
    """Draw a figure's panels; the same figure gets the same names.

    ``bars`` draws curves as bars, ``tokens=False`` leaves tokens beside points to those who point at them.
    """
    boxes = to_boxes(figure)
    for box in boxes:
        if bars:
            _as_bars(box.drawn)
        if not tokens:
            _without_words(box.drawn)
        _set_formulas(box.drawn)
    scale = _shared_scale(figure, boxes)
    keyed = []
    for place, box in enumerate(boxes, start=1):
        mark = sha256(f"{figure.name}/{place}/{box.title}".encode()).hexdigest()[:6]
        keyed.append((f"{slug(figure.name)}-{place}-{mark}", box))
    told = figure.caption if caption is None else caption
    columns = max(1, min(figure.columns, len(boxes)))
    return Picture(slug(figure.name), figure.title, told, columns, tuple(keyed), scale)


def _as_bars(drawn: dict[str, Any]) -> None:
    """Curves over whole numbers, each point a bar of the curve's colour."""
    for trace in drawn["data"]:
        trace |= {"type": "bar", "marker": {"color": trace.pop("line")["color"]}, "textposition": "none"}
        del trace["mode"]
    drawn["layout"]["xaxis"].pop("range")
    drawn["layout"] |= {"barmode": "group", "bargap": 0.25, "bargroupgap": 0.05}


def _without_words(drawn: dict[str, Any]) -> None:
    """No tokens beside the points, and no room kept for them."""
    drawn["layout"]["annotations"] = []
    for axis in ("xaxis", "yaxis"):
        drawn["layout"][axis].pop("range", None)


def _set_formulas(drawn: dict[str, Any]) -> None:
    """Labels of axes and curves with their formulas set; names of contexts and tokens stay as they are."""
    for axis in ("xaxis", "yaxis"):
        title = drawn["layout"][axis]["title"]
        title["text"] = set_symbols(title["text"])
    for trace in drawn["data"]:
        if trace.get("name") and trace.get("mode", "").startswith("lines"):
            trace["name"] = set_symbols(trace["name"])
            trace["text"] = [trace["name"]] * len(trace["x"])


def _shared_scale(figure: Figure, boxes: list[Box]) -> Scale | None:
    """One scale for several heat-maps with equal ends around 0, whose own scales are then left out."""
    panels = [panel for panel in figure.panels if isinstance(panel, HeatmapPanel)]
    heats = [box.drawn["data"][0] for box in boxes]
    ends = {(heat.get("zmin"), heat.get("zmax")) for heat in heats}
    if len(panels) < max(2, len(boxes)) or len(ends) != 1 or heats[0]["zmin"] != -heats[0]["zmax"]:
        return None
    for heat in heats:
        heat["showscale"] = False
    return Scale(panels[0].colour_label, float(heats[0]["zmax"]))


def packed(data: Any) -> Markup:
    """Plain data as JSON that can stand inside a script element, whatever text it holds."""
    from markupsafe import Markup

    text = json.dumps(_plain(data), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray) and value.ndim == 2:
        return _matrix(value)
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value


def _matrix(values: Any) -> dict[str, Any]:
    matrix = np.asarray(values, dtype=np.float64)
    finite = np.isfinite(matrix)
    low = float(matrix[finite].min()) if finite.any() else 0.0
    high = float(matrix[finite].max()) if finite.any() else 0.0
    step = (high - low) / LEVELS or 1.0
    numbers = np.where(finite, np.round((np.where(finite, matrix, low) - low) / step), -1).astype("<i2")
    symmetric = matrix.shape[0] == matrix.shape[1] and bool((numbers == numbers.T).all())
    kept = numbers[np.tril_indices(matrix.shape[0])] if symmetric else numbers.ravel()
    coded = b64encode(kept.tobytes()).decode("ascii")
    return {"packed": coded, "shape": list(matrix.shape), "low": low, "step": step, "symmetric": symmetric}


@dataclass(frozen=True, eq=False)
class Reading:
    """The contents with what several sections need of them, computed once."""

    contents: Contents

    @cached_property
    def order(self) -> FeatureOrder:
        """One order for every heat-map."""
        return shown_order(self.contents)

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """Every sign of every run."""
        return diagnose(self.contents)


@dataclass(frozen=True)
class Section:
    """``name`` is the section's anchor and the name of its template, ``view`` what the template shows."""

    name: str
    title: str
    view: Mapping[str, Any]
