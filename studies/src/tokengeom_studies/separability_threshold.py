"""The smallest dimension in which random data are separable.

Supports are uniform of one size k, embeddings N(0, I). A decoder for d dimensions, padded with zeros, is a decoder for
d + 1. So each draw of supports and m x m embeddings has a smallest dimension d such that the first d coordinates, and
any larger number of them, separate. Bisection finds it by solving ``log2 m`` problems, and

::

    Prob(separable at d) = share of draws whose smallest dimension is at most d

With two tokens and ``k = 1`` the data are signs of m points in d dimensions, and Cover's count is exact: they are
separable with probability ``2^(1-m) sum_{i < d} C(m-1, i)`` [cover1965]. The study is checked against it. For larger
supports, a count of unknowns gives the smallest dimension in which a decoder other than ``W = 0`` can have equal
in-support logits: ``d (V-1) > m (k-1)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import comb
from typing import ClassVar

import numpy as np

from tokengeom.extending import (
    AbstractProgress,
    AbstractStage,
    Bool,
    Curve,
    Figure,
    Float,
    LinePanel,
    MarginProblem,
    PhaseGrid,
    blas_threads_for,
    phase_diagram,
    solve_ntp_svm,
)
from tokengeom_studies.base import AbstractStudy, Check, Findings, Recipe, Table
from tokengeom_studies.common.random_data import random_supports


@dataclass(frozen=True, eq=False)
class Threshold:
    """Smallest separating dimension of each draw of one (V, k), with m contexts."""

    V: int
    size: int
    m: int
    dimensions: Float

    def probability(self, d: int) -> float:
        """Share of the draws that are separable in d dimensions."""
        return float(np.mean(self.dimensions <= d))

    @property
    def half(self) -> float:
        """Smallest ``d/m`` at which at least half of the draws are separable."""
        return float(np.quantile(self.dimensions, 0.5, method="inverted_cdf")) / self.m

    @property
    def cover(self) -> float | None:
        """Largest distance of the measured probabilities from Cover's, over all d; None unless ``V = 2``."""
        if self.V != 2:
            return None
        return max(abs(self.probability(d) - cover(d, self.m)) for d in range(1, self.m + 1))


def cover(d: int, m: int) -> float:
    """Probability that random signs of m points in general position are separable in d dimensions [cover1965]."""
    fewer: int = sum(comb(m - 1, i) for i in range(min(d, m)))
    return fewer / float(2 ** (m - 1))


def smallest_dimension(S: Bool, H: Float) -> int:
    """Smallest d such that the first d rows of H (m x m, rank m) separate the supports S (V x m)."""
    low, high = 0, int(H.shape[0])
    while high - low > 1:
        middle = (low + high) // 2
        if solve_ntp_svm(MarginProblem(S, H[:middle]), tolerance=1e-6).separable:
            high = middle
        else:
            low = middle
    return high


class SeparabilityThreshold(AbstractStudy):
    """Probability of separability over d/m, V and support size."""

    question: ClassVar[str] = "How many dimensions do random data need to be separable?"
    small: ClassVar[Recipe] = {
        "seed": 0,
        "m": 20,
        "V": [2, 3, 5, 10],
        "sizes": 5,
        "draws": 60,
    }
    paper: ClassVar[Recipe] = {
        "seed": 0,
        "m": 50,
        "V": [2, 3, 5, 10],
        "sizes": 9,
        "draws": 200,
    }

    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Bisect each draw of each (V, k)."""
        grid = [(V, size) for V in recipe["V"] for size in support_sizes(V, recipe["sizes"])]
        parts = float(len(grid) * recipe["draws"])
        with blas_threads_for(max(recipe["V"]), recipe["m"]), progress.stage("Bisecting", parts) as stage:
            found = [_threshold(recipe, V, size, stage) for V, size in grid]
        tables = {"thresholds": _table(found)}
        return self.findings(recipe, _sentence(found), _checks(found, recipe), _figures(found), tables)


def support_sizes(V: int, most: int) -> list[int]:
    """At most ``most`` support sizes from 1 to V - 1, both ends included."""
    return sorted({int(size) for size in np.round(np.linspace(1, V - 1, min(most, V - 1)))})


def _threshold(recipe: Recipe, V: int, size: int, stage: AbstractStage) -> Threshold:
    m, dimensions = recipe["m"], []
    for i in range(recipe["draws"]):
        rng = np.random.default_rng([recipe["seed"], V, size, i])
        S = random_supports(rng, V, m, size)
        dimensions.append(smallest_dimension(S, rng.standard_normal((m, m))))
        stage.advance(1.0, f"V={V}, supports of {size}")
    return Threshold(V, size, m, np.asarray(dimensions, np.float64))


def _checks(found: Sequence[Threshold], recipe: Recipe) -> list[Check]:
    # The Kolmogorov distance of an empirical distribution of n draws exceeds 1.95/sqrt(n) with probability 0.001.
    limit = 1.95 / recipe["draws"] ** 0.5
    exact = [(t, t.cover) for t in found if t.cover is not None]
    checks = [Check(f"V={t.V}: distance to Cover's count", gap, high=limit) for t, gap in exact]
    below = float(np.mean([t.half < 1.0 for t in found]))
    rises = [b.half - a.half for a, b in pairwise(found) if a.V == b.V]
    return [
        *checks,
        Check("share of settings in which half of the draws are separable below d = m", below, low=0.8),
        Check("smallest increase of d/m at half from one support size to the next", min(rises, default=0.0), low=0.0),
    ]


def _sentence(found: Sequence[Threshold]) -> str:
    easy, hard = min(found, key=lambda t: t.half), max(found, key=lambda t: t.half)
    below = sum(t.half < 1 for t in found)
    far = "far from necessary" if easy.half < 0.5 else "not necessary"
    verdict = (
        f", so d > m is {far}: the smaller the supports relative to V, the fewer dimensions suffice" if below else ""
    )
    return (
        f"Half of the random data with m={easy.m} contexts are separable from d/m = {easy.half:.2f} upwards at "
        f"V={easy.V} with supports of {easy.size}, and from {hard.half:.2f} upwards at V={hard.V} with supports of "
        f"{hard.size}. In {below} of {len(found)} settings this happens below d = m{verdict}."
    )


def _table(found: Sequence[Threshold]) -> Table:
    return {
        "V": [t.V for t in found],
        "support_size": [t.size for t in found],
        "m": [t.m for t in found],
        "d_over_m_at_half": [t.half for t in found],
        "smallest_d": [int(t.dimensions.min()) for t in found],
        "largest_d": [int(t.dimensions.max()) for t in found],
        "distance_to_cover": [t.cover for t in found],
    }


def _figures(found: Sequence[Threshold]) -> list[Figure]:
    m, draws = found[0].m, len(found[0].dimensions)
    ds = range(1, m + 1)
    grids = []
    for V in dict.fromkeys(t.V for t in found):
        rows = [t for t in found if t.V == V]
        probability = np.array([[t.probability(d) for d in ds] for t in rows])
        grids.append(PhaseGrid(V, [d / m for d in ds], [t.size for t in rows], probability, draws))
    caption = (
        f"Smallest ratio d/m at which half of {draws} random draws of {m} contexts are separable, against the share "
        "k/V of the vocabulary in a support. Dashed: smallest d/m at which unknowns outnumber equations, so that a "
        "decoder with equal in-support logits can exist."
    )
    half = Figure("half-separable", "Dimensions that half of the draws need", caption, [_half_lines(found)], columns=1)
    return [phase_diagram(grids, m=m), half]


def _half_lines(found: Sequence[Threshold]) -> LinePanel:
    curves = []
    for place, V in enumerate(dict.fromkeys(t.V for t in found)):
        rows = [t for t in found if t.V == V]
        share = np.array([t.size / V for t in rows])
        curves.append(Curve(f"V = {V}", share, np.array([t.half for t in rows]), colour=place))
        if len(rows) > 1:
            unknowns = np.array([(t.size - 1) / (V - 1) for t in rows])
            curves.append(Curve(f"V = {V}, count of unknowns", share, unknowns, dashed=True, colour=place))
    return LinePanel("Half are separable", "k / V", "d / m", curves, levels=[("d = m", 1.0)])
