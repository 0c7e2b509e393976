"""Prints the table of docs/results/optimizer_norms.md from the rows that were measured: ``python table.py``."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

ROWS = Path(__file__).parent / "rows.jsonl"
PREDICTIONS = ("nuclear", "gamma2", "spectral", "supports, power 1", "probabilities, power 1/2")
T_975 = {3: 3.182, 4: 2.776}
"""Quantiles of Student's t by degrees of freedom."""


def runs() -> dict[str, list[dict[str, Any]]]:
    """The rows of every optimizer whose run reached the loss."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in map(json.loads, ROWS.read_text(encoding="utf-8").splitlines()):
        if row.get("reached"):
            found.setdefault(row["config"], []).append(row)
    return found


def difference(rows: list[dict[str, Any]], kind: str) -> tuple[float, float, float]:
    """Mean over seeds of the agreement with gamma_2 less that with the nuclear norm, and its 95% interval."""
    values = [row["agreement"]["gamma2"][kind] - row["agreement"]["nuclear"][kind] for row in rows]
    mean = sum(values) / len(values)
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    half = T_975[len(values) - 1] * spread / math.sqrt(len(values))
    return mean, mean - half, mean + half


def line(config: str, rows: list[dict[str, Any]]) -> str:
    """One optimizer: agreement with each prediction and with other seeds, contexts / tokens, and differences."""

    def both(values: list[dict[str, float]]) -> str:
        shown = (sum(value[kind] for value in values) / len(values) for kind in ("contexts", "tokens"))
        return " / ".join(f"{one:.3f}" for one in shown)

    cells = [both([row["agreement"][name] for row in rows]) for name in PREDICTIONS]
    cells.append(both([one for row in rows for one in row["with_earlier_seeds"]]))
    for kind in ("contexts", "tokens"):
        mean, low, high = difference(rows, kind)
        cells.append(f"{mean:+.4f} [{low:+.4f}, {high:+.4f}]")
    return f"| {config} | {' | '.join(cells)} |"


def table() -> str:
    """The whole table."""
    heads = ["optimizer", *PREDICTIONS, "another seed", "gamma_2 less nuclear, contexts", "the same, tokens"]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *(line(config, rows) for config, rows in runs().items())])


if __name__ == "__main__":
    print(table())  # noqa: T201
