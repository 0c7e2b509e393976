"""What a drawn figure says, and whether all of it can be read."""

from __future__ import annotations

import json
import warnings
from typing import Any

from tokengeom.figures.base import Figure
from tokengeom.figures.static import draw


def rendered(figure: Figure, **options: Any) -> Any:
    """A matplotlib figure that has been drawn once, so that every artist has its place."""
    canvas = draw(figure, **options)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        canvas.canvas.draw()
    return canvas


def static_text(canvas: Any) -> set[str]:
    """Every text of a drawn matplotlib figure, wrapped lines joined."""
    from matplotlib.text import Text

    return {text.get_text().replace("\n", " ") for text in canvas.findobj(Text) if text.get_text()}


def plotly_text(page: Any) -> set[str]:
    """Every text of a plotly figure, wrapped lines joined."""
    found: set[str] = set()

    def visit(item: Any) -> None:
        if isinstance(item, str):
            found.add(item)
            found.add(item.replace("<br>", " "))
        elif isinstance(item, dict):
            for name, value in item.items():
                if name not in ("hovertemplate", "bdata", "dtype", "template"):
                    visit(value)
        elif isinstance(item, list):
            for value in item:
                visit(value)

    visit(json.loads(page.to_json()))
    return found


def assert_nothing_is_clipped(figure: Figure, canvas: Any = None) -> None:
    """Every artist lies inside the picture, and no panel (with its colour bar) covers another."""
    canvas = rendered(figure) if canvas is None else canvas
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        renderer = canvas.canvas.get_renderer()
        boxes = [axes.get_tightbbox(renderer) for axes in canvas.axes]
        texts = [text.get_window_extent(renderer) for text in canvas.texts]
    page = canvas.bbox
    for box in [*boxes, *texts]:
        inside = box.x0 >= -1 and box.y0 >= -1 and box.x1 <= page.x1 + 1 and box.y1 <= page.y1 + 1
        assert inside, f"{box} leaves the picture {page} of '{figure.name}'"
    titled = [box for axes, box in zip(canvas.axes, boxes, strict=True) if axes.get_label() != "<colorbar>"]
    for i, one in enumerate([*titled, *texts]):
        for other in [*titled, *texts][:i]:
            assert not _overlap(one, other), f"{one} and {other} cover each other in '{figure.name}'"


def _overlap(one: Any, other: Any) -> bool:
    across = min(one.x1, other.x1) - max(one.x0, other.x0)
    upwards = min(one.y1, other.y1) - max(one.y0, other.y0)
    return bool(across > 1 and upwards > 1)
