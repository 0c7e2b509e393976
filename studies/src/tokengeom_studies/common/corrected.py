"""Agreement corrected for what is reproducible, from the rows of any study, with an interval over seeds.

``corrected = mean_s r(e, run_s) / sqrt(rho rho_e)``

where
    r        agreement of an explanation e with the run with seed s
    rho      mean agreement of two seeds
    rho_e    mean agreement of two trainings of the explanation, where it is a training itself, otherwise 1

Its square is the explained share. Intervals are of a jackknife over seeds, with Student's quantile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain

import numpy as np

from tokengeom_studies.common.measured import Interval, t_quantile

Measured = Mapping[tuple[int, ...], float]
"""The seeds that a number is about, one or a pair -> the number."""
LEAST = 0.05
"""Agreement of two seeds below which there is nothing to explain."""


def corrected(agreement: Measured, *between: Measured) -> Interval:
    """Agreement divided by the root of what seeds agree to; NaN where that is unknown or next to nothing.

    ``between``
        Agreement of pairs of seeds: of the runs, and of what they are compared with where that has seeds too.
    """
    if not agreement or any(not pairs or _mean(pairs) < LEAST for pairs in between):
        return Interval.of([])
    return jackknifed(seeds_of(agreement, *between), lambda left: _ratio(left, agreement, *between))


def corrected_difference(first: tuple[Measured, Measured], second: tuple[Measured, Measured]) -> Interval:
    """Difference of two corrected agreements of runs that share their seeds; each is agreement and pairs of seeds."""
    if any(not np.isfinite(corrected(*one).mean) for one in (first, second)):
        return Interval.of([])
    seeds = seeds_of(*first, *second)
    return jackknifed(seeds, lambda left: _ratio(left, *first) - _ratio(left, *second))


def explained(agreement: Interval) -> Interval:
    """The share of the reproducible geometry that a corrected agreement is: its square, 0 below 0."""

    def square(end: float) -> float:
        return max(end, 0.0) ** 2 if np.isfinite(end) else end

    return Interval(square(agreement.mean), square(agreement.low), square(agreement.high), agreement.count)


def reliability(pairs: Sequence[float], count: int) -> float:
    """Correlation of a mean of so many replicates with the mean of others, from that of pairs [spearman1910]."""
    rho = float(np.mean(pairs))
    return count * rho / (1.0 + (count - 1.0) * rho)


def shown(interval: Interval) -> str:
    """The interval as tables have it; a dash where nothing is known."""
    return str(interval) if np.isfinite(interval.mean) else "-"


def jackknifed(seeds: Sequence[int], number: Callable[[int | None], float]) -> Interval:
    """A number of all seeds, with the interval from leaving out each in turn; infinite with fewer than three."""
    n, whole = len(seeds), number(None)
    if n < 3:
        return Interval(whole, -np.inf, np.inf, n)
    parts = np.array([number(seed) for seed in seeds])
    half = t_quantile(n) * float(np.sqrt((n - 1) / n * np.sum((parts - parts.mean()) ** 2)))
    return Interval(whole, whole - half, whole + half, n)


def seeds_of(*measured: Measured) -> list[int]:
    """The seeds that these numbers are about."""
    return sorted(set(chain.from_iterable(chain.from_iterable(measured))))


def _ratio(left: int | None, agreement: Measured, *between: Measured) -> float:
    """Corrected agreement without a seed."""
    reproducible = np.prod([max(_mean(pairs, left), LEAST) for pairs in between])
    return float(_mean(agreement, left) / np.sqrt(reproducible))


def _mean(values: Measured, left: int | None = None) -> float:
    """Mean of the numbers that are not about a seed."""
    kept = [value for seeds, value in values.items() if left not in seeds]
    return float(np.mean(kept)) if kept else float("nan")
