"""How far a picture that is drawn now is from one that is kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.image import imread

SAME_PICTURE = 1e-3
"""Share of the points of two drawings of the same data that may differ: letters are drawn differently elsewhere."""
VISIBLE = 1 / 8
"""Difference of a point's colour, of 1, from which on it counts."""


def changed_share(first: Path, second: Path) -> float:
    """Share of points that differ visibly; 1 where the sizes differ."""
    one, two = (imread(path)[..., :3] for path in (first, second))
    if one.shape != two.shape:
        return 1.0
    return float((np.abs(one - two).max(axis=-1) > VISIBLE).mean())
