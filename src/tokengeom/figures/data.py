"""The numbers behind a figure: a table a panel (Parquet or CSV) and one JSON with titles, labels and caption.

Any tool that reads Parquet or CSV can use them. ``NAME.json`` lists the panels and their tables:

line panel       ``curve, x, y, low, high``, one row a point
heat-map         ``row, column, row_name, column_name, value``, one row a cell
scatter panel    ``kind, word, x, y``, one row a point
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tokengeom.errors import InputError
from tokengeom.figures.base import Curve, Figure, HeatmapPanel, LinePanel, Panel, Points, ScatterPanel
from tokengeom.figures.prepare import column_names

KINDS: dict[str, type[Panel]] = {"line": LinePanel, "heatmap": HeatmapPanel, "scatter": ScatterPanel}
TABLE_FIELDS = ("values", "curves", "points")
"""What is kept in a panel's table and not in the JSON."""


def save_data(figure: Figure, folder: str | Path, *, form: Literal["parquet", "csv"] = "parquet") -> list[Path]:
    """Write a figure's tables and then its JSON into a folder, which many figures may share; returns the files."""
    if form not in ("parquet", "csv"):
        raise InputError(f"Tables are written as 'parquet' or 'csv'; got form={form!r}.")
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    about: dict[str, Any] = {"name": figure.name, "title": figure.title, "caption": figure.caption}
    about |= {"columns": figure.columns, "panels": []}
    files = []
    for number, panel in enumerate(figure.panels, start=1):
        file = target / f"{slug(figure.name)}-{number}-{slug(panel.title)}.{form}"
        _write_table(_table(panel), file, form)
        about["panels"].append({**_about(panel), "table": file.name})
        files.append(file)
    # The JSON comes last: whoever finds it finds all of its tables.
    page = target / f"{slug(figure.name)}.json"
    _replace(page, lambda beside: beside.write_text(json.dumps(about, indent=1, ensure_ascii=False), "utf-8"))
    return [page, *files]


def load_data(page: str | Path) -> Figure:
    """Read a figure back from its JSON and the tables beside it."""
    path = Path(page)
    about = json.loads(path.read_text(encoding="utf-8"))
    panels = [_panel(entry, _read_table(path.parent / entry["table"])) for entry in about["panels"]]
    return Figure(about["name"], about["title"], about["caption"], panels, about["columns"])


def slug(title: str) -> str:
    """A title as part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:40] or "panel"


def _table(panel: Panel) -> dict[str, Any]:
    if isinstance(panel, LinePanel):
        parts = [_curve_columns(curve) for curve in panel.curves]
    elif isinstance(panel, ScatterPanel):
        parts = [
            {"kind": [p.label] * len(p.x), "word": _padded(p.words, len(p.x)), "x": p.x, "y": p.y} for p in panel.points
        ]
    else:
        return _cells(panel)
    names = ("curve", "x", "y", "low", "high") if isinstance(panel, LinePanel) else ("kind", "word", "x", "y")
    return {name: [value for part in parts for value in part[name]] for name in names}


def _curve_columns(curve: Curve) -> dict[str, Any]:
    nothing = [float("nan")] * len(curve.x)
    low, high = (nothing if band is None else band for band in (curve.low, curve.high))
    return {"curve": [curve.label] * len(curve.x), "x": curve.x, "y": curve.y, "low": low, "high": high}


def _cells(panel: HeatmapPanel) -> dict[str, Any]:
    rows, columns = panel.values.shape
    across, down = column_names(panel.x_names, columns), column_names(panel.y_names, rows)
    return {
        "row": np.repeat(np.arange(rows), columns),
        "column": np.tile(np.arange(columns), rows),
        "row_name": [name for name in down for _ in range(columns)],
        "column_name": across * rows,
        "value": np.asarray(panel.values, dtype=np.float64).ravel(),
    }


def _padded(words: Any, count: int) -> list[str]:
    return [*words, *[""] * (count - len(words))]


def _about(panel: Panel) -> dict[str, Any]:
    """Everything but the numbers of the table, as plain data."""
    kind = next(name for name, one in KINDS.items() if isinstance(panel, one))
    found = {name: value for name, value in vars(panel).items() if name not in TABLE_FIELDS}
    if isinstance(panel, LinePanel):
        found["curves"] = [
            {**_fields(c, "label", "dashed", "dotted", "colour"), "size": len(c.x), "band": c.low is not None}
            for c in panel.curves
        ]
    elif isinstance(panel, ScatterPanel):
        found["points"] = [
            {**_fields(p, "label", "marker", "colour"), "size": len(p.x), "words": len(p.words)} for p in panel.points
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
    numbers = {name: np.asarray(table[name], np.float64) for name in ("x", "y", "low", "high") if name in table}
    for name in ("levels", "marks"):
        if name in fields:
            fields[name] = [(label, value) for label, value in fields[name]]
    curves: list[Curve] = []
    points: list[Points] = []
    start = 0
    for entry in about.get("curves", about.get("points", ())):
        part = slice(start, start + entry["size"])
        start += entry["size"]
        if about["kind"] == "line":
            low, high = (numbers["low"][part], numbers["high"][part]) if entry["band"] else (None, None)
            style = {name: entry[name] for name in ("dashed", "dotted", "colour")}
            curves.append(Curve(entry["label"], numbers["x"][part], numbers["y"][part], low, high, **style))
        else:
            words = [str(word) for word in table["word"][part]][: entry["words"]]
            points.append(
                Points(entry["label"], numbers["x"][part], numbers["y"][part], words, entry["marker"], entry["colour"])
            )
    return LinePanel(curves=curves, **fields) if about["kind"] == "line" else ScatterPanel(points=points, **fields)


def _write_table(columns: dict[str, Any], path: Path, form: str) -> None:
    import pyarrow as pa
    from pyarrow import csv, parquet

    table = pa.table(columns)
    writer = parquet.write_table if form == "parquet" else csv.write_csv
    _replace(path, lambda beside: writer(table, beside))


def _read_table(path: Path) -> dict[str, Any]:
    from pyarrow import csv, parquet

    if path.suffix == ".parquet":
        table = parquet.read_table(path)
    else:
        text = csv.ConvertOptions(
            column_types=dict.fromkeys(("curve", "kind", "word", "row_name", "column_name"), "string")
        )
        table = csv.read_csv(path, parse_options=csv.ParseOptions(newlines_in_values=True), convert_options=text)
    return {name: table[name].to_pylist() for name in table.column_names}


def _replace(path: Path, write: Any) -> None:
    """Write beside and rename, so that a killed run leaves the old file or the new one."""
    beside = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        write(beside)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
