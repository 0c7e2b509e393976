"""The numbers behind a figure: one table per panel (Parquet or CSV), and one JSON file with titles and caption.

Any tool that reads Parquet or CSV can use them. ``NAME.json`` lists the panels and their tables, whose columns are

line panel       ``curve, x, y, low, high``, one row per point
heat-map         ``row, column, row_name, column_name, value``, one row per cell
scatter panel    ``kind, name, x, y``, one row per point
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import numpy as np

from tokengeom.extending import (
    Curve,
    Figure,
    HeatmapPanel,
    InputError,
    LinePanel,
    Marker,
    Matches,
    Number,
    Panel,
    Points,
    Scale,
    ScatterPanel,
    Within,
    all_names,
    from_plain,
    read_json,
    replace_file,
    require_ours,
    slug,
    to_plain,
)

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Record = TypeVar("Record", bound="DataclassInstance")

CURVE_COLUMNS = ("curve", "x", "y", "low", "high")
POINT_COLUMNS = ("kind", "name", "x", "y")
TEXT_COLUMNS = ("curve", "kind", "name", "row_name", "column_name")

Whole = Annotated[int, Within()]
FileName = Annotated[str, Matches(r"(?!\.{1,2}$)[^/\\\0]+", "a plain name, without a path")]
Lines = tuple[tuple[str, Number], ...]


@dataclass(frozen=True)
class SavedCurve:
    """A curve in the JSON file: its style, its number of points, and whether it has a band."""

    label: str
    dashed: bool
    dotted: bool
    colour: Whole | None
    in_legend: bool
    size: Whole
    band: bool


@dataclass(frozen=True)
class SavedPoints:
    """Points in the JSON file: their style, their number, and how many have names."""

    label: str
    marker: Marker
    colour: Whole | None
    size: Whole
    names: Whole


@dataclass(frozen=True)
class SavedLines:
    """A `LinePanel` without its numbers, and the name of its table."""

    kind: Literal["line"]
    title: str
    x_label: str
    y_label: str
    x_scale: Scale
    y_scale: Scale
    levels: Lines
    marks: Lines
    x_names: tuple[str, ...]
    curves: tuple[SavedCurve, ...]
    table: FileName


@dataclass(frozen=True)
class SavedHeatmap:
    """A `HeatmapPanel` without its numbers, and the name of its table."""

    kind: Literal["heatmap"]
    title: str
    x_label: str
    y_label: str
    x_names: tuple[str, ...]
    y_names: tuple[str, ...]
    x_breaks: tuple[int, ...]
    y_breaks: tuple[int, ...]
    low: float | None
    high: float | None
    colour_label: str
    shape: tuple[Whole, Whole]
    table: FileName


@dataclass(frozen=True)
class SavedScatter:
    """A `ScatterPanel` without its numbers, and the name of its table."""

    kind: Literal["scatter"]
    title: str
    x_label: str
    y_label: str
    equal: bool
    from_origin: bool
    points: tuple[SavedPoints, ...]
    table: FileName


SavedPanel = SavedLines | SavedHeatmap | SavedScatter
PANELS: dict[str, Callable[..., SavedPanel]] = {"line": SavedLines, "heatmap": SavedHeatmap, "scatter": SavedScatter}


@dataclass(frozen=True)
class SavedFigure:
    """The JSON file; each of the panels is one of `PANELS`, by its kind."""

    name: str
    title: str
    caption: str
    columns: Annotated[int, Within(1)]
    panels: tuple[dict[str, Any], ...]


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
    for name, panel in zip(names, figure.panels, strict=True):
        replace_file(target / name, _table_bytes(_table(panel), form))
    panels = tuple(to_plain(_saved(panel, name)) for name, panel in zip(names, figure.panels, strict=True))
    saved = to_plain(SavedFigure(figure.name, figure.title, figure.caption, figure.columns, panels))
    # The JSON file comes last, so that it never refers to a table that is not there yet.
    replace_file(page, json.dumps(saved, indent=1, ensure_ascii=False).encode("utf-8"))
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
    saved = from_plain(SavedFigure, read_json(path), path.parent)
    panels = []
    for number, entry in enumerate(saved.panels):
        kind = PANELS.get(str(entry.get("kind")), SavedLines)
        panel = from_plain(kind, entry, path.parent, f"panels {number}")
        panels.append(_panel(panel, _read_table(path.parent / panel.table)))
    return Figure(saved.name, saved.title, saved.caption, panels, saved.columns)


def _saved(panel: Panel, table: str) -> SavedPanel:
    """Everything except the numbers of the table."""
    if isinstance(panel, LinePanel):
        curves = tuple(_like(SavedCurve, c, size=len(c.x), band=c.low is not None) for c in panel.curves)
        return _like(SavedLines, panel, kind="line", curves=curves, table=table)
    if isinstance(panel, HeatmapPanel):
        return _like(SavedHeatmap, panel, kind="heatmap", shape=panel.values.shape, table=table)
    points = tuple(_like(SavedPoints, p, size=len(p.x), names=len(p.names)) for p in panel.points)
    return _like(SavedScatter, panel, kind="scatter", points=points, table=table)


def _like(record: type[Record], source: object, **own: Any) -> Record:
    """A record with the same fields as another, except for its own."""
    names = (field.name for field in fields(record) if field.name not in own)
    return record(**{name: _plain(getattr(source, name)) for name in names}, **own)


def _plain(value: Any) -> Any:
    """The same value as Python's own, where it is NumPy's."""
    if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str):
        return tuple(map(_plain, value))
    return value.item() if isinstance(value, np.generic) else value


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


def _panel(saved: SavedPanel, table: Mapping[str, list[Any]]) -> Panel:
    if isinstance(saved, SavedHeatmap):
        return _like(HeatmapPanel, saved, values=np.asarray(table["value"], np.float64).reshape(saved.shape))
    numbers = {name: np.asarray(table[name], np.float64) for name in ("x", "y", "low", "high") if name in table}
    if isinstance(saved, SavedScatter):
        points = [
            _like(Points, p, x=numbers["x"][part], y=numbers["y"][part], names=table["name"][part][: p.names])
            for p, part in zip(saved.points, _parts(saved.points), strict=True)
        ]
        return _like(ScatterPanel, saved, points=points)
    curves = []
    for c, part in zip(saved.curves, _parts(saved.curves), strict=True):
        drawn = {name: numbers[name][part] for name in CURVE_COLUMNS[1:]}
        curves.append(_like(Curve, c, **drawn if c.band else drawn | {"low": None, "high": None}))
    return _like(LinePanel, saved, curves=curves)


def _parts(saved: Sequence[SavedCurve | SavedPoints]) -> list[slice]:
    """Rows of the table that belong to each curve or set of points."""
    ends = np.cumsum([item.size for item in saved], dtype=np.int64).tolist()
    return [slice(end - item.size, end) for item, end in zip(saved, ends, strict=True)]


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
