"""One agreement number with its bootstrap interval and its permutation null.

``low, high``   2.5th and 97.5th percentiles over bootstrap resamples of the items that the number averages over:
                contexts for numbers about contexts and logits, tokens for numbers about tokens (W is the same in every
                resample of the contexts, so an interval over contexts would have width 0)
``null``        95th percentile (5th where lower is better) over permutations of the run's items, which break the
                correspondence between the run's items and the prediction's
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tokengeom.errors import ProblemError

if TYPE_CHECKING:
    from tokengeom.numerics import Float, Int

Better = Literal["higher", "lower"]

CHANCE_TIE = 1e-6
"""Relative difference below which a value equals its null: where items are alike, a permutation changes the rounding
alone."""
FEWEST_DRAWS = 20
"""Smallest number of draws from which a 95th percentile is taken."""


@dataclass(frozen=True)
class Agreement:
    """A number, its 95% bootstrap interval, and what chance gives.

    ``null``, ``null_mean``
        95th percentile under permutation (5th where lower is better), and mean over permutations.
    ``better``
        Whether higher or lower numbers mean agreement.
    ``items``
        What was resampled and permuted: "contexts", "tokens" or "held-out contexts".

    A number that is not defined, and an interval or a null that was not asked for or has no meaning, is NaN.
    """

    value: float
    low: float
    high: float
    null: float
    null_mean: float
    better: Better
    items: str

    @property
    def has_null(self) -> bool:
        """Whether value and null are both known, as the permutation test needs them."""
        return bool(np.isfinite(self.value) and np.isfinite(self.null))

    @property
    def beats_chance(self) -> bool:
        """Whether the value is better than 95% of the permutations: a one-sided permutation test at the 5% level.

        A value within `CHANCE_TIE` of the null is a tie and does not beat it. False where there is no null
        (`has_null`), such as with ``permutations=0``. This is the one rule for "more than chance".
        """
        ahead = self.value - self.null if self.better == "higher" else self.null - self.value
        return ahead > CHANCE_TIE * abs(self.null)  # False for NaN

    def to_dict(self) -> dict[str, Any]:
        """The fields by name."""
        return asdict(self)

    def cells(self) -> tuple[str, str, str]:
        """Value, interval and null as a table shows them; empty where there is none."""
        interval = f"{self.low:.3g} to {self.high:.3g}" if np.isfinite(self.low) else ""
        return f"{self.value:.4g}", interval, f"{self.null:.3g}" if np.isfinite(self.null) else ""

    def __str__(self) -> str:
        interval = f" [{self.low:.3g}, {self.high:.3g}]" if np.isfinite(self.low) else ""
        chance = f", chance {self.null:.3g}" if np.isfinite(self.null) else ""
        return f"{self.value:.4g}{interval}{chance}"


class AbstractNumbers(ABC):
    """Numbers that average over the same items and share most of their arithmetic.

    ``items``
        What they average over: "contexts", "tokens" or "held-out contexts".
    """

    items: str

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of items to draw from."""

    @property
    @abstractmethod
    def better(self) -> Mapping[str, Better]:
        """Name of each number -> whether higher or lower is better."""

    @abstractmethod
    def resampled(self, draws: Float) -> Mapping[str, Float]:
        """Each number in each resample; ``draws`` is b x size, how often each item was drawn."""

    @abstractmethod
    def permuted(self, orders: Int) -> Mapping[str, Float]:
        """Each number under each permutation of the run's items; ``orders`` is b x size."""

    def values(self) -> Mapping[str, float]:
        """The numbers themselves: the resample that draws every item once."""
        found = self.resampled(np.ones((1, self.size)))
        return {name: float(values[0]) for name, values in found.items()}


@dataclass(frozen=True, eq=False)
class DrawnNumbers:
    """Numbers with all of their draws: name -> value, name -> one entry per resample, name -> one per permutation."""

    numbers: AbstractNumbers
    values: Mapping[str, float]
    resampled: Mapping[str, Float]
    permuted: Mapping[str, Float]

    def agreements(self) -> dict[str, Agreement]:
        """Value, interval and null of every number."""
        found = {}
        for name, better in self.numbers.better.items():
            low, high = _quantiles(self.resampled.get(name), 0.025, 0.975)
            (null,) = _quantiles(self.permuted.get(name), 0.95 if better == "higher" else 0.05)
            mean = _mean(self.permuted.get(name))
            found[name] = Agreement(self.values[name], low, high, null, mean, better, self.numbers.items)
        return found

    def difference(self, name: str, other: str) -> tuple[float, float, float]:
        """How much larger one number is than another, and the paired 95% interval over the same resamples."""
        paired = self.resampled[name] - self.resampled[other] if self.resampled else None
        low, high = _quantiles(paired, 0.025, 0.975)
        return self.values[name] - self.values[other], low, high


def assess(numbers: AbstractNumbers, *, resamples: int, permutations: int, seed: int) -> dict[str, Agreement]:
    """Value, interval and null of every number; each family of numbers has its own generator, started at ``seed``."""
    return draw(numbers, resamples=resamples, permutations=permutations, seed=seed).agreements()


def draw(numbers: AbstractNumbers, *, resamples: int, permutations: int, seed: int) -> DrawnNumbers:
    """Numbers with their resamples and permutations."""
    check_draws(resamples, permutations)
    rng = np.random.default_rng(seed)
    if numbers.size < 2:  # nothing to draw from: no geometry was predicted
        resamples = permutations = 0
    values = numbers.values() if numbers.size else dict.fromkeys(numbers.better, float("nan"))
    resampled = numbers.resampled(bootstrap_draws(rng, numbers.size, resamples)) if resamples else {}
    permuted = numbers.permuted(permutation_orders(rng, numbers.size, permutations)) if permutations else {}
    return DrawnNumbers(numbers, values, resampled, permuted)


def bootstrap_draws(rng: np.random.Generator, size: int, resamples: int) -> Float:
    """How often each of ``size`` items is drawn in each resample (``size`` draws with replacement)."""
    return rng.multinomial(size, np.full(size, 1.0 / size), size=resamples).astype(np.float64)


def permutation_orders(rng: np.random.Generator, size: int, permutations: int) -> Int:
    """Uniform permutations, one per row."""
    return rng.permuted(np.tile(np.arange(size, dtype=np.int64), (permutations, 1)), axis=1)


def check_draws(resamples: int, permutations: int) -> None:
    """Refuse numbers of draws that are too few for a percentile; 0 leaves the interval or the null out."""
    for name, value in (("resamples", resamples), ("permutations", permutations)):
        if value != 0 and value < FEWEST_DRAWS:
            raise ProblemError(
                f"A 95th percentile needs at least {FEWEST_DRAWS} draws, or 0 to leave it out; got {name}={value}. "
                "200 is usual."
            )


def _quantiles(values: Float | None, *levels: float) -> list[float]:
    """Quantiles over the draws in which the number is defined; NaN when those are fewer than half."""
    if values is None or np.isfinite(values).mean() < 0.5:
        return [float("nan")] * len(levels)
    return [float(q) for q in np.quantile(values[np.isfinite(values)], levels)]


def _mean(values: Float | None) -> float:
    if values is None or not np.isfinite(values).any():
        return float("nan")
    return float(values[np.isfinite(values)].mean())
