"""One agreement number with its interval and its null, and how both come from many draws.

``low, high``   2.5% and 97.5% quantiles of the number over bootstrap resamples of the items that it averages over:
                contexts for context and logit numbers, tokens for token numbers (W does not change when contexts are
                drawn again, so that an interval over contexts would be a point)
``null``        what chance reaches in one of twenty cases: the 95% quantile (5% where lower is better) over
                permutations of the run's items against the prediction's
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


@dataclass(frozen=True)
class Agreement:
    """A number, its 95% bootstrap interval, and what chance gives.

    ``null``, ``null_mean``
        The value that one permutation in twenty reaches or betters, and the mean over permutations.
    ``better``
        Whether higher or lower numbers mean agreement.
    ``items``
        What was resampled and permuted: contexts or tokens.

    A number that is not defined, and an interval or null that was not asked for or has no meaning, is NaN.
    """

    value: float
    low: float
    high: float
    null: float
    null_mean: float
    better: Better
    items: str

    @property
    def beats_chance(self) -> bool:
        """Whether the value is better than 19 in 20 permutations."""
        return self.value > self.null if self.better == "higher" else self.value < self.null

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words."""
        return asdict(self)

    def cells(self) -> tuple[str, str, str]:
        """Value, interval and chance as a table shows them; empty where there is none."""
        interval = f"{self.low:.3g} to {self.high:.3g}" if np.isfinite(self.low) else ""
        return f"{self.value:.4g}", interval, f"{self.null:.3g}" if np.isfinite(self.null) else ""

    def __str__(self) -> str:
        interval = f" [{self.low:.3g}, {self.high:.3g}]" if np.isfinite(self.low) else ""
        chance = f", chance {self.null:.3g}" if np.isfinite(self.null) else ""
        return f"{self.value:.4g}{interval}{chance}"


class AbstractNumbers(ABC):
    """Numbers that share their items and most of their arithmetic.

    ``items``
        What they average over: "contexts" or "tokens".
    """

    items: str

    @property
    @abstractmethod
    def size(self) -> int:
        """How many items there are to draw from."""

    @property
    @abstractmethod
    def better(self) -> Mapping[str, Better]:
        """Names of the numbers, and which way is better."""

    @abstractmethod
    def resampled(self, draws: Float) -> Mapping[str, Float]:
        """Each number in each resample; ``draws`` is b x size, how often each item was drawn."""

    @abstractmethod
    def permuted(self, orders: Int) -> Mapping[str, Float]:
        """Each number under each permutation of the run's items; ``orders`` is b x size."""

    def values(self) -> Mapping[str, float]:
        """The numbers themselves: a resample that draws every item once."""
        found = self.resampled(np.ones((1, self.size)))
        return {name: float(values[0]) for name, values in found.items()}


@dataclass(frozen=True, eq=False)
class Drawn:
    """Numbers with all of their draws: name -> value, name -> one entry a resample, name -> one a permutation."""

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
        """How much larger a number is than another, and the 95% interval over the same resamples of both."""
        paired = self.resampled[name] - self.resampled[other] if self.resampled else None
        low, high = _quantiles(paired, 0.025, 0.975)
        return self.values[name] - self.values[other], low, high


def assess(numbers: AbstractNumbers, *, resamples: int, permutations: int, seed: int) -> dict[str, Agreement]:
    """Value, interval and null of every number; each family draws from its own generator, started at ``seed``."""
    return draw(numbers, resamples=resamples, permutations=permutations, seed=seed).agreements()


def draw(numbers: AbstractNumbers, *, resamples: int, permutations: int, seed: int) -> Drawn:
    """Draw resamples and permutations of one family of numbers, and keep them."""
    check_draws(resamples, permutations)
    rng = np.random.default_rng(seed)
    if numbers.size < 2:  # nothing to draw from: no geometry was predicted
        resamples = permutations = 0
    values = numbers.values() if numbers.size else dict.fromkeys(numbers.better, float("nan"))
    drawn = numbers.resampled(bootstrap_draws(rng, numbers.size, resamples)) if resamples else {}
    moved = numbers.permuted(permutation_orders(rng, numbers.size, permutations)) if permutations else {}
    return Drawn(numbers, values, drawn, moved)


def bootstrap_draws(rng: np.random.Generator, size: int, resamples: int) -> Float:
    """How often each of ``size`` items is drawn, in each of the resamples (with replacement, ``size`` draws)."""
    return rng.multinomial(size, np.full(size, 1.0 / size), size=resamples).astype(np.float64)


def permutation_orders(rng: np.random.Generator, size: int, permutations: int) -> Int:
    """Uniform permutations, one a row."""
    return rng.permuted(np.tile(np.arange(size, dtype=np.int64), (permutations, 1)), axis=1)


def check_draws(resamples: int, permutations: int) -> None:
    """Refuse numbers of draws that give no quantile; 0 leaves the interval or the null out."""
    for name, value in (("resamples", resamples), ("permutations", permutations)):
        if value != 0 and value < 20:
            raise ProblemError(
                f"A 95% quantile needs at least 20 draws, or 0 to leave it out; got {name}={value}. 200 is usual."
            )


def _quantiles(values: Float | None, *levels: float) -> list[float]:
    """Quantiles of the draws in which the number is defined; NaN when that is fewer than half of them."""
    if values is None or np.isfinite(values).mean() < 0.5:
        return [float("nan")] * len(levels)
    return [float(q) for q in np.quantile(values[np.isfinite(values)], levels)]


def _mean(values: Float | None) -> float:
    if values is None or not np.isfinite(values).any():
        return float("nan")
    return float(values[np.isfinite(values)].mean())
