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
from typing import Any, Literal

import numpy as np

from tokengeom.errors import InputError
from tokengeom.figures.base import Curve, Figure, HeatmapPanel, LinePanel, Panel, Points, ScatterPanel
from tokengeom.figures.prepare import all_names
from tokengeom.folders import replace_file

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
    target.mkdir(parents=True, exist_ok=True)
    about: dict[str, Any] = {"name": figure.name, "title": figure.title, "caption": figure.caption}
    about |= {"columns": figure.columns, "panels": []}
    files = []
    for number, panel in enumerate(figure.panels, start=1):
        file = target / f"{slug(figure.name)}-{number}-{slug(panel.title)}.{form}"
        replace_file(file, _table_bytes(_table(panel), form))
        about["panels"].append({**_about(panel), "table": file.name})
        files.append(file)
    # The JSON file comes last, so that it never refers to a table that is not there yet.
    page = target / f"{slug(figure.name)}.json"
    replace_file(page, json.dumps(about, indent=1, ensure_ascii=False).encode("utf-8"))
    return [page, *files]


def load_data(page: str | Path) -> Figure:
    """Read a figure back from its JSON file and the tables next to it."""
    path = Path(page)
    about = json.loads(path.read_text(encoding="utf-8"))
    panels = [_panel(entry, _read_table(path.parent / entry["table"])) for entry in about["panels"]]
    return Figure(about["name"], about["title"], about["caption"], panels, about["columns"])


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
