"""Rows of correlations between kinds of training, made up from the corrected agreements that they should give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

RHO, SEEDS = 0.64, 4


def pair_rows(
    corrected: Mapping[tuple[str, str], float],
    cell: Mapping[str, Any],
    *,
    single: tuple[str, ...] = (),
    items: tuple[str, ...] = ("contexts", "tokens"),
    rho: float = RHO,
) -> list[dict[str, Any]]:
    """Rows as `add_pairs` writes them; explanations in ``single`` have one replicate."""
    names = list(dict.fromkeys(name for pair in corrected for name in pair))
    size = {name: 1 if name in single else SEEDS for name in names}
    scale = {name: 1.0 if name in single else rho for name in names}
    rows = []
    for name in names:
        own = np.where(np.eye(size[name]) > 0, 1.0, scale[name]).tolist()
        rows.append({"kind": "pair", **cell, "a": name, "b": name, **dict.fromkeys(items, own)})
    for (a, b), value in corrected.items():
        between = np.full((size[a], size[b]), value * np.sqrt(scale[a] * scale[b])).tolist()
        rows.append({"kind": "pair", **cell, "a": a, "b": b, **dict.fromkeys(items, between)})
    return rows
