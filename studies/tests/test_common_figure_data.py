from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from figure_cases import awkward_figure
from tokengeom.core.errors import InputError
from tokengeom.figures.base import Figure, HeatmapPanel, LinePanel, ScatterPanel
from tokengeom_studies.common.figure_data import load_data, save_data


def assert_equal(one: object, other: object) -> None:
    if isinstance(one, np.ndarray):
        np.testing.assert_array_equal(one, np.asarray(other))
    elif isinstance(one, list | tuple):
        assert isinstance(other, list | tuple)
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_equal(a, b)
    elif hasattr(one, "__dataclass_fields__"):
        assert type(one) is type(other)
        for name in one.__dataclass_fields__:
            assert_equal(getattr(one, name), getattr(other, name))
    else:
        assert one == other


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_a_saved_figure_loads_as_it_was(tmp_path: Path, form: Literal["parquet", "csv"]) -> None:
    figure = awkward_figure()
    page, *tables = save_data(figure, tmp_path, form=form)
    assert len(tables) == len(figure.panels)
    assert_equal(figure, load_data(page))


def test_tables_can_be_read_without_the_package(tmp_path: Path) -> None:
    import pyarrow.parquet as parquet

    figure = awkward_figure()
    page, *_ = save_data(figure, tmp_path)
    about = json.loads(page.read_text(encoding="utf-8"))
    assert (about["title"], about["caption"]) == (figure.title, figure.caption)
    for panel, entry in zip(figure.panels, about["panels"], strict=True):
        table = parquet.read_table(tmp_path / entry["table"]).to_pydict()
        assert entry["title"] == panel.title
        if isinstance(panel, HeatmapPanel):
            cell = table["row"].index(1) + 2
            assert table["value"][cell] == panel.values[1, 2]
            assert table["column_name"][cell] == panel.x_names[2]
        elif isinstance(panel, LinePanel):
            assert set(table["curve"]) == {curve.label for curve in panel.curves}
        else:
            assert isinstance(panel, ScatterPanel)
            assert table["name"][0] == panel.points[0].names[0]


def test_figures_can_share_a_folder(tmp_path: Path) -> None:
    one, other = awkward_figure(), Figure("other", "t", "c", [])
    save_data(one, tmp_path)
    save_data(other, tmp_path)
    assert len(list(tmp_path.glob("*.json"))) == 2
    assert_equal(load_data(tmp_path / "awkward.json"), one)
    assert not [file for file in tmp_path.iterdir() if file.name.startswith(".")]


def test_an_unknown_form_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="form='xlsx'"):
        save_data(awkward_figure(), tmp_path, form="xlsx")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_not_of_this_figure_are_not_replaced(tmp_path: Path) -> None:
    page, table, *_ = save_data(awkward_figure(), tmp_path)
    save_data(awkward_figure(), tmp_path)
    for path in (page, table):
        content = path.read_bytes()
        page.write_text("{}") if path == page else page.unlink()
        with pytest.raises(InputError, match="was not written by tokengeom"):
            save_data(awkward_figure(), tmp_path)
        path.write_bytes(content)
