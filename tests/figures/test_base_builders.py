"""Every builder of a figure: consistent data, and pictures in which all of it can be read."""

from __future__ import annotations

import inspect
import pkgutil
from html import escape
from importlib import import_module

import numpy as np
import pytest

import tokengeom.figures
from figure_cases import assert_nothing_is_clipped, plotly_texts, rendered, static_texts
from tokengeom.figures.base import Figure, HeatmapPanel, LinePanel
from tokengeom.figures.prepare import legend_labels, legible


def all_builders() -> list[str]:
    """Public functions of the package that return a Figure."""
    modules = [
        import_module(f"tokengeom.figures.{found.name}") for found in pkgutil.iter_modules(tokengeom.figures.__path__)
    ]
    functions = [
        function
        for module in modules
        for function in vars(module).values()
        if inspect.isfunction(function) and function.__module__ == module.__name__
    ]
    returning = {f.__name__ for f in functions if f.__annotations__.get("return") == "Figure"}
    return sorted(name for name in returning if not name.startswith("_"))


BUILDERS = all_builders()


def test_every_builder_has_a_figure_here(figures: dict[str, list[Figure]]) -> None:
    assert sorted(figures) == BUILDERS


@pytest.mark.parametrize("name", BUILDERS)
def test_the_data_of_a_figure_are_consistent(figures: dict[str, list[Figure]], name: str) -> None:
    for figure in figures[name]:
        assert figure.panels
        assert len(figure.caption) > 100, "a caption explains the figure without further text"
        assert "nan" not in figure.caption.split()
        assert "word" not in figure.caption.replace("word2vec", "")
        for panel in figure.panels:
            assert panel.title
            assert panel.x_label
            assert panel.y_label
            if isinstance(panel, HeatmapPanel):
                rows, columns = panel.values.shape
                assert (len(panel.y_names), len(panel.x_names)) == (rows, columns)
                assert np.isfinite(panel.values).all()
                assert panel.colour_label
                assert all(0 < index < columns for index in panel.x_breaks)
                assert all(0 < index < rows for index in panel.y_breaks)
            elif isinstance(panel, LinePanel):
                assert panel.curves
                assert all(curve.x.shape == curve.y.shape and np.isfinite(curve.x).all() for curve in panel.curves)
                assert all(np.isfinite(curve.y).any() for curve in panel.curves)
            else:
                assert all(p.x.shape == p.y.shape and len(p.names) in (0, p.x.size) for p in panel.points)
                assert all(np.isfinite(p.x).all() and np.isfinite(p.y).all() for p in panel.points)


@pytest.mark.parametrize("name", BUILDERS)
def test_every_label_is_in_both_pictures_and_nothing_is_cut_off(figures: dict[str, list[Figure]], name: str) -> None:
    for figure in figures[name]:
        canvas = rendered(figure)
        assert_nothing_is_clipped(figure, canvas)
        static, page = static_texts(canvas), plotly_texts(figure)
        labels = {figure.title}
        for panel in figure.panels:
            labels |= {panel.title, panel.x_label, panel.y_label, *legend_labels(panel)}
        expected = {legible(label) for label in labels}
        assert expected <= static
        assert {escape(label, quote=False) for label in expected - {legible(figure.title)}} <= page
        assert figure.caption in static
