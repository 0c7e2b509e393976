"""Prediction against measurement: heat-maps in one order, the table of agreement, rival explanations."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from tokengeom.geometry.agreement import Agreement
from tokengeom.geometry.comparison import Comparison, meaning
from tokengeom.report.geometry_figures import geometry_figures, geometry_sources, is_finite, order_sentence
from tokengeom.report.island import picture
from tokengeom.report.sections.base import Reading, Section
from tokengeom.report.words import DASH, listed


def section(reading: Reading) -> Section:
    """Make the section."""
    contents = reading.contents
    lost = [name for name, run in contents.runs.items() if not is_finite(run)]
    figures = geometry_figures(contents, reading.order) if geometry_sources(contents) else []
    view = {
        "pictures": [picture(figure) for figure in figures],
        "order": order_sentence(reading.order),
        "lost": listed(f"'{name}'" for name in lost) if lost else "",
        "tables": [_table(name, one) for name, one in contents.comparisons.items()],
        "rivals": [_rivals(name, one) for name, one in contents.rivals.items()],
    }
    return Section("agreement", "Prediction against measurement", view)


def _table(name: str, comparison: Comparison) -> dict[str, Any]:
    rows = [_row(key, one) for key, one in comparison.agreements.items()]
    return {
        "name": name,
        "main": [row for row in rows if not row["proxy"]] or rows,
        "proxy": [row for row in rows if row["proxy"]] if any(not row["proxy"] for row in rows) else [],
        "caveats": list(comparison.caveats),
        "resamples": comparison.resamples,
        "permutations": comparison.permutations,
        "seed": comparison.seed,
    }


def _row(key: str, one: Agreement) -> dict[str, Any]:
    defined = math.isfinite(one.value)
    judged = defined and math.isfinite(one.null)
    return {
        "key": key,
        "proxy": key.startswith("proxy_"),
        "meaning": meaning(key),
        "value": one.value,
        "interval": (one.low, one.high) if math.isfinite(one.low) else None,
        "null": one.null,
        "verdict": ("better than chance" if one.beats_chance else "no better than chance") if judged else DASH,
        "beats": judged and one.beats_chance,
    }


def _rivals(name: str, rivals: Any) -> dict[str, Any]:
    """Any table of rivals: its rows as they are, its summary in words."""
    rows = [_plain(row) for row in rivals.rows]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    summary = rivals.summary() if hasattr(rivals, "summary") else ""
    return {"name": name, "columns": columns, "rows": rows, "summary": str(summary).splitlines()}


def _plain(row: Any) -> dict[str, Any]:
    if isinstance(row, Mapping):
        return dict(row)
    if dataclasses.is_dataclass(row) and not isinstance(row, type):
        return {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    return dict(row._asdict())
