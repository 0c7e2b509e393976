"""Rival explanations on disk: the table in one JSON file, under a manifest."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tokengeom.errors import InputError
from tokengeom.folders import as_json, read_manifest, write_manifest, written_beside
from tokengeom.geometry.agreement import Agreement
from tokengeom.geometry.comparison_storage import with_nan, with_null
from tokengeom.geometry.rival_table import Lead, RivalRow, Rivals

FORMAT, FORMAT_VERSION = "tokengeom-rivals", 1
TABLE = "rivals.json"
_PARTS = {"similarity": Agreement, "cka": Agreement, "behind": Lead}


def save_rivals(table: Rivals, folder: str | Path) -> None:
    """Write a table; an older one of that name is replaced only once the new one is whole."""
    with written_beside(Path(folder), FORMAT) as work:
        (work / TABLE).write_bytes(as_json(asdict(table) | {"rows": [_plain(row) for row in table.rows]}))
        write_manifest(work, FORMAT, FORMAT_VERSION, {"seed": table.seed})


def load_rivals(folder: str | Path) -> Rivals:
    """Read a table back, refusing what is broken, foreign or from a newer version."""
    folder = Path(folder)
    read_manifest(folder, FORMAT, FORMAT_VERSION)
    try:
        content = json.loads((folder / TABLE).read_text(encoding="utf-8"))
        rows = tuple(_row(one) for one in content["rows"])
        return Rivals(**{**content, "rows": rows, "caveats": tuple(content["caveats"])})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{folder} is incomplete or damaged: {error!r}. Make the table again.") from error


def _plain(row: RivalRow) -> dict[str, Any]:
    content = asdict(row)
    return content | {name: with_null(content[name]) for name in _PARTS}


def _row(content: dict[str, Any]) -> RivalRow:
    parts: dict[str, Any] = {name: kind(**with_nan(content[name])) for name, kind in _PARTS.items()}
    return RivalRow(**{**content, **parts})
