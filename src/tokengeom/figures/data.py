"""The numbers behind a figure: one table per panel (Parquet or CSV), and one JSON file with titles and caption.

Any tool that reads Parquet or CSV can use them. ``NAME.json`` lists the panels and their tables, whose columns are

line panel       ``curve, x, y, low, high``, one row per point
heat-map         ``row, column, row_name, column_name, value``, one row per cell
scatter panel    ``kind, name, x, y``, one row per point
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from tokengeom.core.checks import Entries
from tokengeom.core.errors import InputError
from tokengeom.figures.base import (
    Curve,
    Figure,
    HeatmapPanel,
    LinePanel,
    Marker,
    Panel,
    Points,
    Scale,
    ScatterPanel,
)
from tokengeom.figures.prepare import all_names
from tokengeom.results.folders import replace_file, require_ours
from tokengeom.results.manifests import read_json

PANELS: dict[str, type[Panel]] = {"line": LinePanel, "heatmap": HeatmapPanel, "scatter": ScatterPanel}
TABLE_FIELDS = ("values", "curves", "points")
"""Fields of a panel that are kept in its table and not in the JSON file."""
CURVE_COLUMNS = ("curve", "x", "y", "low", "high")
CURVE_STYLE = ("dashed", "dotted", "colour", "in_legend")
POINT_COLUMNS = ("kind", "name", "x", "y")
TEXT_COLUMNS = ("curve", "kind", "name", "row_name", "column_name")


def save_data(figure: Figure, folder: str | Path, *, form: Literal["parquet", "csv"] = "parquet") -> list[Path]:
    """Write a figure's tables and then its JSON file into a folder, which figures may share; returns the files."""
    if form not in ("parquet", "csv"):
        raise InputError(f"Tables are written as 'parquet' or 'csv'; got form={form!r}.")
    target = Path(folder)
    page = target / f"{slug(figure.name)}.json"
    names = [
        f"{slug(figure.name)}-{number}-{slug(panel.title)}.{form}" for number, panel in enumerate(figure.panels, 1)
    ]
    _require_own_files(page, names)
    about: dict[str, Any] = {"name": figure.name, "title": figure.title, "caption": figure.caption}
    about |= {"columns": figure.columns, "panels": []}
    for name, panel in zip(names, figure.panels, strict=True):
        replace_file(target / name, _table_bytes(_table(panel), form))
        about["panels"].append({**_about(panel), "table": name})
    # The JSON file comes last, so that it never refers to a table that is not there yet.
    replace_file(page, json.dumps(about, indent=1, ensure_ascii=False).encode("utf-8"))
    return [page, *(target / name for name in names)]


def _require_own_files(page: Path, names: Sequence[str]) -> None:
    """Refuse to replace files that are not those of an earlier figure of this name, as its JSON file lists them."""
    try:
        known = {entry["table"] for entry in read_json(page)["panels"]}
    except (OSError, InputError, KeyError, TypeError):
        known = set()
    for name in {page.name, *names} - known - ({page.name} if known else set()):
        require_ours(page.parent / name)


def load_data(page: str | Path) -> Figure:
    """Read a figure back from its JSON file and the tables next to it."""
    path = Path(page)
    about = json.loads(path.read_text(encoding="utf-8"))
    _check_types(Entries(about, path.parent))
    panels = [_panel(entry, _read_table(path.parent / entry["table"])) for entry in about["panels"]]
    return Figure(about["name"], about["title"], about["caption"], panels, about["columns"])


def _check_types(stored: Entries) -> None:
    """Refuse a figure in whose JSON file something is of another type, or that names a file elsewhere."""
    for name in ("name", "title", "caption"):
        stored.text(name)
    stored.whole("columns", 1)
    for panel in stored.several("panels"):
        panel.text("kind", PANELS)
        panel.file_name("table")
        for name in panel.names:
            _check_field(panel, name)
        parts = {"line": "curves", "scatter": "points"}.get(panel.text("kind"))
        for one in [] if parts is None else panel.several(parts):
            one.text("label")
            one.whole("size")
            for name in {*CURVE_STYLE, "band"} & set(one.names) - {"colour"}:
                one.flag(name)
            if one.has("colour"):
                one.whole("colour")
            if panel.text("kind") == "scatter":
                one.whole("names")
                one.text("marker", get_args(Marker))


def _check_field(panel: Entries, name: str) -> None:
    if name in ("title", "x_label", "y_label", "colour_label"):
        panel.text(name)
    elif name in ("x_names", "y_names"):
        panel.texts(name)
    elif name in ("x_scale", "y_scale"):
        panel.text(name, get_args(Scale))
    elif name in ("equal", "from_origin"):
        panel.flag(name)
    elif name in ("low", "high") and panel.has(name):
        panel.number(name)
    elif name in ("x_breaks", "y_breaks", "shape") and not all(type(one) is int for one in panel.sequence(name)):
        raise panel.damaged(f"{panel.place}, {name} must be whole numbers")
    elif name in ("levels", "marks"):
        for pair in panel.sequence(name):
            fits = isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)
            if not fits or not isinstance(pair[1], int | float):
                raise panel.damaged(f"{panel.place}, {name} must be pairs of a text and a number")


def slug(title: str) -> str:
    """A title as part of a file name."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:40] or "panel"


def _table(panel: Panel) -> dict[str, Any]:
    if isinstance(panel, HeatmapPanel):
        return _cells(panel)
    if isinstance(panel, LinePanel):
        return _joined(CURVE_COLUMNS, [_curve_columns(curve) for curve in panel.curves])
    return _joined(POINT_COLUMNS, [_point_columns(points) for points in panel.points])


def _joined(names: Sequence[str], parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {name: [value for part in parts for value in part[name]] for name in names}


def _curve_columns(curve: Curve) -> dict[str, Any]:
    missing = [float("nan")] * len(curve.x)
    low, high = (missing if band is None else band for band in (curve.low, curve.high))
    return {"curve": [curve.label] * len(curve.x), "x": curve.x, "y": curve.y, "low": low, "high": high}


def _point_columns(points: Points) -> dict[str, Any]:
    count = len(points.x)
    names = [*points.names, *[""] * (count - len(points.names))]
    return {"kind": [points.label] * count, "name": names, "x": points.x, "y": points.y}


def _cells(panel: HeatmapPanel) -> dict[str, Any]:
    rows, columns = panel.values.shape
    across, down = all_names(panel.x_names, columns), all_names(panel.y_names, rows)
    return {
        "row": np.repeat(np.arange(rows), columns),
        "column": np.tile(np.arange(columns), rows),
        "row_name": [name for name in down for _ in range(columns)],
        "column_name": across * rows,
        "value": np.asarray(panel.values, dtype=np.float64).ravel(),
    }


def _about(panel: Panel) -> dict[str, Any]:
    """Everything except the numbers of the table, as plain data."""
    kind = next(name for name, one in PANELS.items() if isinstance(panel, one))
    found = {name: value for name, value in vars(panel).items() if name not in TABLE_FIELDS}
    if isinstance(panel, LinePanel):
        found["curves"] = [
            {**_fields(c, "label", *CURVE_STYLE), "size": len(c.x), "band": c.low is not None} for c in panel.curves
        ]
    elif isinstance(panel, ScatterPanel):
        found["points"] = [
            {**_fields(p, "label", "marker", "colour"), "size": len(p.x), "names": len(p.names)} for p in panel.points
        ]
    else:
        found["shape"] = list(panel.values.shape)
    return {"kind": kind, **{name: _plain(value) for name, value in found.items()}}


def _fields(item: Curve | Points, *names: str) -> dict[str, Any]:
    return {name: getattr(item, name) for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple | list | np.ndarray):
        return [_plain(item) for item in value]
    return value


def _panel(about: dict[str, Any], table: dict[str, Any]) -> Panel:
    fields = {name: value for name, value in about.items() if name not in ("kind", "table", "shape", *TABLE_FIELDS)}
    if about["kind"] == "heatmap":
        return HeatmapPanel(values=np.asarray(table["value"], np.float64).reshape(about["shape"]), **fields)
    for name in {"levels", "marks"} & set(fields):
        fields[name] = [(label, value) for label, value in fields[name]]
    if about["kind"] == "line":
        return LinePanel(curves=_read_curves(about["curves"], table), **fields)
    return ScatterPanel(points=_read_points(about["points"], table), **fields)


def _read_curves(entries: Sequence[dict[str, Any]], table: dict[str, Any]) -> list[Curve]:
    columns = {name: np.asarray(table[name], np.float64) for name in ("x", "y", "low", "high")}
    curves = []
    for entry, part in zip(entries, _parts(entries), strict=True):
        x, y, low, high = (columns[name][part] for name in ("x", "y", "low", "high"))
        band = (low, high) if entry["band"] else (None, None)
        style = {name: entry[name] for name in CURVE_STYLE}
        curves.append(Curve(entry["label"], x, y, *band, **style))
    return curves


def _read_points(entries: Sequence[dict[str, Any]], table: dict[str, Any]) -> list[Points]:
    x, y = (np.asarray(table[name], np.float64) for name in ("x", "y"))
    return [
        Points(
            entry["label"],
            x[part],
            y[part],
            [str(name) for name in table["name"][part]][: entry["names"]],
            entry["marker"],
            entry["colour"],
        )
        for entry, part in zip(entries, _parts(entries), strict=True)
    ]


def _parts(entries: Sequence[dict[str, Any]]) -> list[slice]:
    """Rows of the table that belong to each entry."""
    ends = np.cumsum([entry["size"] for entry in entries], dtype=np.int64).tolist()
    return [slice(end - entry["size"], end) for entry, end in zip(entries, ends, strict=True)]


def _table_bytes(columns: dict[str, Any], form: str) -> bytes:
    import pyarrow as pa
    from pyarrow import csv, parquet

    content = io.BytesIO()
    write = parquet.write_table if form == "parquet" else csv.write_csv
    write(pa.table(columns), content)
    return content.getvalue()


def _read_table(path: Path) -> dict[str, Any]:
    from pyarrow import csv, parquet

    if path.suffix == ".parquet":
        table = parquet.read_table(path)
    else:
        text = csv.ConvertOptions(column_types=dict.fromkeys(TEXT_COLUMNS, "string"))
        table = csv.read_csv(path, parse_options=csv.ParseOptions(newlines_in_values=True), convert_options=text)
    return {name: table[name].to_pylist() for name in table.column_names}
