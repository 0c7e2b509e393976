"""Networks with and without a last norm, among the cells of the study of explained shares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

import numpy as np

from tokengeom_studies.base import Table, table_of
from tokengeom_studies.common.explained_cells import (
    MAIN,
    SAME,
    TARGETS,
    WITHOUT,
    WITHOUT_NORM,
    ExplainedCells,
    simulated,
)
from tokengeom_studies.common.held_out_text import ITEMS
from tokengeom_studies.common.measured import Row, chosen

KINDS = ("mlp", "transformer", "lstm")


def simulations_follow(cells: ExplainedCells) -> Iterator[bool]:
    """Whether the simulation without a last norm fits networks without one better than that with it, MLPs aside."""
    for run in _without(cells, WITHOUT_NORM):
        for kind in TARGETS:
            own, other = (cells.corrected(run, simulated(MAIN, name), kind).mean for name in (run["network"], ""))
            if np.isfinite(own) and np.isfinite(other):
                yield own > other


def one_geometry(cells: ExplainedCells) -> Iterator[bool]:
    """Whether networks without a last norm agree with each other."""
    for run in _without(cells):
        for other, kind in product(_others(cells, run), ITEMS):
            value = cells.corrected(run, f"network {other}", kind).mean
            if np.isfinite(value):
                yield value >= SAME


def norm_or_kind(cells: ExplainedCells) -> Iterator[bool]:
    """Whether the MLP without a last norm agrees better with others without one than with the MLP with one."""
    # Transformers and LSTMs with and without one were measured from the same starts, seed by seed, which favours them.
    for run in chosen(cells.runs, network=WITHOUT_NORM):
        for kind in ITEMS:
            own = cells.corrected(run, f"network {run['network'].removesuffix(WITHOUT)}", kind).mean
            same = _mean(cells.corrected(run, f"network {other}", kind).mean for other in _others(cells, run))
            if np.isfinite(own) and np.isfinite(same):
                yield same > own


def table(cells: ExplainedCells) -> Table:
    """Corrected agreement of each network, with a last norm and without: means over loss gaps, then over texts."""
    found = []
    for network in (f"{kind}{norm}" for kind in KINDS for norm in ("", WITHOUT)):
        alike = [f"{kind}{WITHOUT * network.endswith(WITHOUT)}" for kind in KINDS]
        explanations = {
            "simulated": [simulated(MAIN)],
            "simulated without last norm": [simulated(MAIN, WITHOUT_NORM)],
            "gamma_2 at the loss": ["at the loss, gamma_2"],
            "other kinds alike in their norm": [f"network {name}" for name in alike if name != network],
        }
        for label, names in explanations.items():
            found.append({"network": network, "agreement with": label, **_over_texts(cells, network, names)})
    return table_of(found)


def _over_texts(cells: ExplainedCells, network: str, names: list[str]) -> dict[str, float]:
    texts = list(dict.fromkeys(run["text"] for run in cells.runs))

    def of(text: str, kind: str) -> float:
        runs = chosen(cells.runs, text=text, network=network)
        return _mean(cells.corrected(run, name, kind).mean for run in runs for name in names)

    return {kind: _mean(of(text, kind) for text in texts) for kind in ITEMS}


def _without(cells: ExplainedCells, besides: str = "", **entries: Any) -> list[Row]:
    """Runs of networks without a last norm."""
    runs = chosen(cells.runs, **entries)
    return [run for run in runs if run["network"].endswith(WITHOUT) and run["network"] != besides]


def _others(cells: ExplainedCells, run: Row) -> list[str]:
    """The other networks without a last norm of the same text, at the same loss gap."""
    alike = _without(cells, run["network"], text=run["text"], target=run["target"])
    return [other["network"] for other in alike]


def _mean(values: Iterable[float]) -> float:
    return float(np.mean([x for x in values if np.isfinite(x)] or [np.nan]))
