"""A comparison on disk: its numbers in one JSON file, under a manifest."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from tokengeom.errors import InputError
from tokengeom.folders import as_json, read_manifest, write_manifest, written_beside
from tokengeom.geometry.agreement import Agreement
from tokengeom.geometry.comparison import Comparison

FORMAT, FORMAT_VERSION = "tokengeom-comparison", 1
NUMBERS = "comparison.json"
_SETTINGS = ("kind", "resamples", "permutations", "seed")


def save_comparison(comparison: Comparison, folder: str | Path) -> None:
    """Write a comparison; an older one of that name is replaced only once the new one is whole."""
    agreements = {name: with_null(number.to_dict()) for name, number in comparison.agreements.items()}
    settings = {name: getattr(comparison, name) for name in _SETTINGS}
    with written_beside(Path(folder), FORMAT) as work:
        content = {"agreements": agreements, "caveats": list(comparison.caveats), **settings}
        (work / NUMBERS).write_bytes(as_json(content))
        write_manifest(work, FORMAT, FORMAT_VERSION, settings)


def load_comparison(folder: str | Path) -> Comparison:
    """Read a comparison back, refusing what is broken, foreign or from a newer version."""
    folder = Path(folder)
    read_manifest(folder, FORMAT, FORMAT_VERSION)
    try:
        content = json.loads((folder / NUMBERS).read_text(encoding="utf-8"))
        agreements = {name: Agreement(**with_nan(number)) for name, number in content["agreements"].items()}
        return Comparison(agreements, caveats=tuple(content["caveats"]), **{name: content[name] for name in _SETTINGS})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{folder} is incomplete or damaged: {error!r}. Compare again.") from error


def with_null(number: dict[str, Any]) -> dict[str, Any]:
    """JSON knows no NaN: a number that is not defined is null there."""
    return {name: None if isinstance(x, float) and not math.isfinite(x) else x for name, x in number.items()}


def with_nan(number: dict[str, Any]) -> dict[str, Any]:
    """What `with_null` was made from."""
    return {name: float("nan") if x is None else x for name, x in number.items()}
