"""Prediction against measurement: heat-maps in one order, the table of agreement, rival explanations."""

from __future__ import annotations

import math
from typing import Any

from tokengeom.geometry.agreement import Agreement
from tokengeom.geometry.comparison import Comparison, meaning
from tokengeom.page.formatting import DASH, in_tokens, listed
from tokengeom.page.geometry_figures import geometry_figures, geometry_sources, is_finite, order_sentence
from tokengeom.page.sections.base import Reading, Section, picture
from tokengeom.page.signatures import against_chance, reached_by_chance

VERDICTS = {
    "better": "better than chance",
    "no better": "no better than chance",
    "the same": "the same by chance",
    "not measured": DASH,
}


def section(reading: Reading) -> Section:
    """Make the section."""
    contents = reading.contents
    lost = [name for name, run in contents.runs.items() if not is_finite(run)]
    figures = geometry_figures(contents, reading.order) if geometry_sources(contents) else []
    view = {
        "pictures": [picture(figure) for figure in figures],
        "both": any(is_finite(run) for run in contents.runs.values()) and contents.prediction.W.shape[1] > 0,
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
        "caveats": [in_tokens(one) for one in comparison.caveats],
        "resamples": comparison.resamples,
        "permutations": comparison.permutations,
        "seed": comparison.seed,
    }


def _row(key: str, one: Agreement) -> dict[str, Any]:
    return {
        "key": key,
        "proxy": key.startswith("proxy_"),
        "meaning": in_tokens(meaning(key)),
        "value": one.value,
        "interval": (one.low, one.high) if math.isfinite(one.low) else None,
        "null": one.null,
        "verdict": VERDICTS[against_chance(one)],
    }


def _rivals(name: str, rivals: Any) -> dict[str, Any]:
    """Rows of each kind of items, best first, and the verdicts in words (the summary without its own table)."""
    kinds = dict.fromkeys(row.items for row in rivals.rows)
    tables = [(items, [_rival(row) for row in rivals.rows if row.items == items]) for items in kinds]
    told = [in_tokens(line) for line in str(rivals.summary()).splitlines() if not line.startswith(" ")]
    return {"name": name, "tables": tables, "summary": told}


def _rival(row: Any) -> dict[str, Any]:
    similarity = row.similarity
    return {
        "rival": row.rival,
        "meaning": row.meaning,
        "value": similarity.value,
        "interval": (similarity.low, similarity.high) if math.isfinite(similarity.low) else None,
        "null": similarity.null,
        "cka": row.cka.value,
        "behind": row.behind.value,
        "silent": row.without_direction,
        "by_chance": reached_by_chance(similarity),
    }
