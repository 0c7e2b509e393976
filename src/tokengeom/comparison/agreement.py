"""One agreement number on its scale: what chance gives, what can be reached, and what share of it is explained.

``low, high``     95% interval from a jackknife (`jackknife_interval`): units are left out in turn, support
                  groups for numbers about contexts and tokens for numbers about tokens. Contexts of one support are
                  nearly equal, so they are left out together, and no item is ever paired with a copy of itself
``null``          95th percentile (5th where lower is better) when the units' predictions are permuted, so that every
                  support group keeps its contexts and gets the prediction of another group; tokens change places with
                  tokens that follow about as many contexts
``gaussian``      the same percentile for Gaussian embeddings of the run's shape
``untrained``     the number of the same model before training

The floor is the largest of the three that are known. With two or more trainings that differ in their seed:

``reproducible``  rho, the mean number between two trainings
``attainable``    ``sqrt(rho)``: no explanation that is the same for all seeds agrees better with a training, on average
``mean``          r, the mean over trainings of the agreement with each
``corrected``     ``r / sqrt(rho rho_e)``, the agreement with what the trainings share; ``rho_e`` is the reliability of
                  an explanation that is itself random (the mean of several trainings), and 1 for all others
``explained``     its square: the share of the reproducible geometry that is explained [spearman1904]
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from tokengeom.core.errors import ProblemError
from tokengeom.core.numerics import (
    FEWEST_UNITS,
    Float,
    Int,
    block_pairs,
    jackknife_interval,
    leave_out_blocks,
    rounded_percent,
    to_line,
)
from tokengeom.results.convert import Added, Number

Better = Literal["higher", "lower"]
ItemKind = Literal["contexts", "supports", "tokens", "held-out contexts", "frequent contexts", "rare contexts"]
"""What a number is about; "supports" are contexts with weights, so that each pair of supports counts once. Only tables
of explanations of earlier versions have held-out contexts."""
BY_FREQUENCY: tuple[ItemKind, ItemKind] = ("frequent contexts", "rare contexts")
CONTEXTS_AND_TOKENS: tuple[ItemKind, ItemKind] = ("contexts", "tokens")
Name = tuple[str, str]
"""Key of what the run is compared with (`tokengeom.comparison.target`, or the name of another explanation; empty for a
number of the run alone), and the number, such as ``("limit", "context_agreement")``."""

TIE = 1e-6
"""Relative difference below which a value equals its floor: permutations of like items change rounding alone."""
FEWEST_DRAWS, MOST_DRAWS = 20, 10**6
"""Smallest number of draws from which a 95th percentile is taken, and the largest that is drawn."""
LEAST_REPRODUCIBLE, UNCERTAIN = 0.1, 0.3
"""Agreement between trainings below which there is too little to explain, also where its interval reaches 0."""
GAUSSIAN_DRAWS = 20
"""Gaussian embeddings whose 95th percentile is a floor: each costs as much as the number itself."""


_AddedNumber = Annotated[Number, Added(None)]


@dataclass(frozen=True)
class Agreement:
    """A number, its 95% interval, its floors, and what is known of trainings; NaN for what is not known.

    ``value``, ``low``, ``high``
        The number, and the ends of its 95% interval.
    ``null``, ``gaussian``, ``untrained``
        Floors: the 95th percentile when predictions are permuted, the same percentile for Gaussian embeddings, and the
        number of the same model before training.
    ``reproducible``, ``reproducible_low``, ``reproducible_high``
        The mean number between two trainings with different seeds, and its interval.
    ``better``
        Whether higher or lower numbers mean agreement.
    ``items``
        What it is about: one of `ItemKind`.
    ``mean``
        Mean of the number over the trainings; the value itself where there is one.
    ``reliability``, ``seed_error``
        Of an explanation that is the mean of several random ones: its reliability (1 for all others), and the standard
        error of the mean of their agreements.
    ``corrected``, ``corrected_low``, ``corrected_high``
        Agreement with what the trainings share, and its interval; not known for one training.
    """

    derived: ClassVar[tuple[str, ...]] = ("floor",)
    renamed: ClassVar[dict[str, str]] = {"ceiling": "reproducible"}

    value: Number
    low: Number = float("nan")
    high: Number = float("nan")
    null: Number = float("nan")
    gaussian: Number = float("nan")
    untrained: Number = float("nan")
    reproducible: Number = float("nan")
    better: Better = "higher"
    items: ItemKind = "contexts"
    reproducible_low: _AddedNumber = float("nan")
    reproducible_high: _AddedNumber = float("nan")
    mean: _AddedNumber = float("nan")
    reliability: Annotated[Number, Added(1.0)] = 1.0
    seed_error: _AddedNumber = float("nan")
    corrected: _AddedNumber = float("nan")
    corrected_low: _AddedNumber = float("nan")
    corrected_high: _AddedNumber = float("nan")

    @property
    def floor(self) -> float:
        """The floor that is hardest to beat, of those that are known."""
        known = [x for x in (self.null, self.gaussian, self.untrained) if np.isfinite(x)]
        return float("nan") if not known else max(known) if self.better == "higher" else min(known)

    @property
    def has_floor(self) -> bool:
        """Whether value and floor are both known."""
        return bool(np.isfinite(self.value) and np.isfinite(self.floor))

    @property
    def above_floor(self) -> bool:
        """Whether the whole interval is better than the floor; without an interval, whether the value is.

        With several trainings the interval of the corrected number counts too, brought to the scale of one training. A
        tie does not count, and nothing is above a floor that is not known. This is the one rule for "more than chance".
        """
        worst = self.low if self.better == "higher" else self.high
        worst = self.value if np.isnan(worst) else worst
        if math.isfinite(self.corrected_low):
            worst = max(worst, self.corrected_low * self.attainable)
        ahead = worst - self.floor if self.better == "higher" else self.floor - worst
        return bool(ahead > TIE * abs(self.floor))  # False for NaN

    @property
    def attainable(self) -> float:
        """What an explanation that is the same for all seeds can reach; 0 where nothing is reproducible."""
        known = self.better == "higher" and math.isfinite(self.reproducible)
        return math.sqrt(max(self.reproducible, 0.0)) if known else float("nan")

    @property
    def is_hardly_reproducible(self) -> bool:
        """Whether trainings are known to agree so little that there is nothing to explain."""
        rho, low = self.reproducible, self.reproducible_low
        return rho < LEAST_REPRODUCIBLE or (rho < UNCERTAIN and low <= 0.0)

    @property
    def explained(self) -> float:
        """Share of the reproducible geometry that is explained; above 1 only by chance."""
        return _share(self.corrected)

    @property
    def explained_interval(self) -> tuple[float, float]:
        """The ends of its 95% interval."""
        return _share(self.corrected_low), _share(self.corrected_high)

    @property
    def fair(self) -> float:
        """Mean over trainings, as it would be without the noise of the explanation itself; at most 1."""
        mean = self.value if math.isnan(self.mean) else self.mean
        return min(mean / math.sqrt(self.reliability), 1.0) if self.reliability > 0 else float("nan")

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, and what follows from them."""
        low, high = self.explained_interval
        derived = {"floor": self.floor, "attainable": self.attainable, "explained": self.explained}
        return asdict(self) | derived | {"explained_low": low, "explained_high": high}

    @property
    def is_inside(self) -> bool:
        """Whether the interval contains the value, or there is none."""
        return math.isnan(self.low) or self.low <= self.value <= self.high

    def cells(self) -> tuple[str, str, str, str]:
        """Value, interval, floor and what is attainable, as a table shows them; empty where there is none."""
        interval = f"{self.low:.3g} to {self.high:.3g}" if np.isfinite(self.low) else ""
        ends = [f"{x:.3g}" if np.isfinite(x) else "" for x in (self.floor, self.attainable)]
        return f"{self.value:.4g}", interval, ends[0], ends[1]

    def explained_text(self) -> str:
        """Share that is explained with its interval, as in "88% [82, 93]"; empty where it is not known."""
        if not math.isfinite(self.explained) or self.is_hardly_reproducible:
            return ""
        low, high = self.explained_interval
        interval = f" [{100 * low:.0f}, {100 * high:.0f}]" if math.isfinite(low) else ""
        return f"{rounded_percent(self.explained)}{interval}"

    def __str__(self) -> str:
        interval = f" [{self.low:.3g}, {self.high:.3g}]" if np.isfinite(self.low) else ""
        floor = f", floor {self.floor:.3g}" if np.isfinite(self.floor) else ""
        attainable = f", attainable {self.attainable:.3g}" if np.isfinite(self.attainable) else ""
        explained = f", explains {self.explained_text()}" if self.explained_text() else ""
        seeds = f", standard error over seeds {self.seed_error:.2g}" if np.isfinite(self.seed_error) else ""
        return f"{self.value:.4g}{interval}{floor}{attainable}{explained}{seeds}"


def _share(corrected: float) -> float:
    return max(corrected, 0.0) ** 2 if math.isfinite(corrected) else float("nan")


class AbstractNumbers(ABC):
    """Numbers that average over the same items and share most of their arithmetic.

    ``items``
        What they average over: "contexts", "supports" or "tokens".
    ``strata``
        Stratum of each item, within which a permutation exchanges them; None where there is one.
    ``permutes_items``
        Whether a permutation exchanges items one by one, instead of whole units.
    """

    items: ItemKind
    strata: Int | None = None
    permutes_items: ClassVar[bool] = False

    @property
    @abstractmethod
    def units(self) -> Int:
        """Unit of each item, numbered from 0; items of one, such as contexts of one support, are left out together."""

    @property
    def size(self) -> int:
        """Number of items."""
        return int(self.units.size)

    @property
    def exchangeable(self) -> int:
        """How many things a permutation exchanges."""
        return self.size if self.permutes_items else int(self.units.max(initial=-1)) + 1

    @property
    @abstractmethod
    def better(self) -> Mapping[Name, Better]:
        """Name of each number -> whether higher or lower is better; with an interval, "higher" means in [-1, 1]."""

    @abstractmethod
    def resampled(self, draws: Float) -> Mapping[Name, Float]:
        """Each number on each selection of items; ``draws`` is b x size, 1 for an item that counts and 0 otherwise.

        Where there are several trainings, also `about` each number that is corrected.
        """

    @abstractmethod
    def permuted(self, orders: Int) -> Mapping[Name, Float]:
        """Each number under each permutation; ``orders`` is b x exchangeable."""

    def gaussian(self, rng: np.random.Generator, count: int) -> Mapping[Name, Float]:
        """Each number for ``count`` Gaussian embeddings in place of the run's; empty where that makes no sense."""
        return {}

    def without_training(self) -> Mapping[Name, Float]:
        """What is known `about` the numbers without each training in turn; empty for fewer than `FEWEST_UNITS`."""
        return {}

    def values(self) -> Mapping[Name, float]:
        """The numbers themselves."""
        whole = self.resampled(np.ones((1, self.size)))
        return {name: float(values[0]) for name, values in whole.items()}


About = Literal["mean", "reliability", "seed_error", "reproducible", "corrected", "fair"]


def about(name: Name, what: About) -> Name:
    """Name under which something `about` a number, such as its corrected value, is among the numbers."""
    return name[0], f"{name[1]}, {what}"


@dataclass(frozen=True, eq=False)
class AssessedNumbers:
    """Numbers with everything that their intervals and floors are made from, one array per name.

    ``left_out``, ``left_out_pairs``, ``pairs``
        The numbers without each block, and without the two blocks in each row of ``pairs`` (p x 2).
    ``without_training``
        What is known about the numbers without each training.
    ``untrained``
        The numbers of the model before training, where they are known.
    """

    numbers: AbstractNumbers
    values: Mapping[Name, float]
    left_out: Mapping[Name, Float]
    permuted: Mapping[Name, Float]
    gaussian: Mapping[Name, Float]
    left_out_pairs: Mapping[Name, Float] = field(default_factory=dict)
    pairs: Int = field(default_factory=lambda: np.zeros((0, 2), dtype=np.int64))
    without_training: Mapping[Name, Float] = field(default_factory=dict)
    untrained: Mapping[Name, float] = field(default_factory=dict)

    def agreements(self) -> dict[Name, Agreement]:
        """Every number with its interval, floors, and what is known of its trainings."""
        return {name: self._agreement(name, better) for name, better in self.numbers.better.items()}

    def _agreement(self, name: Name, better: Better) -> Agreement:
        value, level = self.values[name], 0.95 if better == "higher" else 0.05
        low, high = self._interval(name, bounded=better == "higher")
        # A distance or a ratio, of which lower is better, is not negative.
        low = low if better == "higher" else max(low, 0.0)
        null, gaussian = (_quantile(draws.get(name), level) for draws in (self.permuted, self.gaussian))
        known = {"untrained": self.untrained[name]} if name in self.untrained else {}
        kinds: tuple[About, ...] = ("mean", "reliability", "seed_error", "reproducible", "corrected")
        for what in kinds:
            if about(name, what) in self.values:
                known[what] = self.values[about(name, what)]
        for what in kinds[3:]:
            if what in known and about(name, what) in self.values:
                ends = self._interval(about(name, what), bounded=what == "reproducible")
                known[f"{what}_low"], known[f"{what}_high"] = ends
        return Agreement(value, low, high, null, gaussian, better=better, items=self.numbers.items, **known)

    def _interval(self, name: Name, *, bounded: bool) -> tuple[float, float]:
        both = self.pairs, self.left_out_pairs.get(name)
        runs = self.without_training.get(name)
        return jackknife_interval(self.values[name], self.left_out.get(name), *both, bounded=bounded, trainings=runs)

    def difference(self, name: Name, other: Name) -> tuple[float, float, float]:
        """How much larger one number in [-1, 1] is than another, and the 95% interval of the paired difference.

        Means over trainings are compared, without the noise of the explanations themselves, where these are known. The
        interval is that of the difference of ``atanh``, carried over to the numbers with the other one held fixed; or
        that of the difference itself, where a number without its noise exceeds 1 in some selection.
        """
        if about(name, "fair") in self.values:
            name, other = about(name, "fair"), about(other, "fair")
        value = min(self.values[name], 1.0) - min(self.values[other], 1.0)
        selections = (self.left_out, self.left_out_pairs, self.without_training)
        bounded = not any(np.any(np.abs(known[key]) > 1.0) for known in selections if known for key in (name, other))
        on_line = to_line if bounded else np.asarray
        base, top = (float(on_line(np.array(self.values[key]))) for key in (other, name))
        single, double, runs = (on_line(known[name]) - on_line(known[other]) if known else None for known in selections)
        ends = jackknife_interval(top - base, single, self.pairs, double, bounded=False, trainings=runs)
        low, high = (math.tanh(base + end) - math.tanh(base) if bounded else value + end - (top - base) for end in ends)
        return value, min(low, value), max(high, value)


def assess(
    numbers: AbstractNumbers, permutations: int, seed: int, untrained: Mapping[Name, float] | None = None
) -> AssessedNumbers:
    """Numbers with intervals and floors; ``permutations = 0`` leaves out those that are drawn.

    ``untrained`` are the numbers of the same model before training, where they are known.
    """
    check_permutations(permutations)
    rng = np.random.default_rng(seed)
    if numbers.size < 2:
        nothing = dict.fromkeys(numbers.better, float("nan"))
        return AssessedNumbers(numbers, numbers.values() if numbers.size else nothing, {}, {}, {})
    blocks = leave_out_blocks(numbers.units, rng)
    pairs = block_pairs(len(blocks), rng)
    # One call for both: most of the work is the same for any number of selections.
    drawn = numbers.resampled(np.vstack([blocks, blocks[pairs[:, 0]] * blocks[pairs[:, 1]]]))
    left_out = {name: values[: len(blocks)] for name, values in drawn.items()}
    both = {name: values[len(blocks) :] for name, values in drawn.items()}
    orders = permutation_orders(rng, numbers.exchangeable, permutations, numbers.strata)
    permuted = numbers.permuted(orders) if permutations else {}
    gaussian = numbers.gaussian(rng, GAUSSIAN_DRAWS) if permutations else {}
    known, trainings = numbers.values(), numbers.without_training()
    return AssessedNumbers(numbers, known, left_out, permuted, gaussian, both, pairs, trainings, untrained or {})


def describe_scale(permutations: int, trainings: int = 1) -> list[str]:
    """How to read the brackets, the floor, and what is attainable and explained."""
    sentence = "Brackets: 95% interval, leaving out support groups (or tokens) in turn"
    sentence += ", and trainings." if trainings >= FEWEST_UNITS else "."
    if permutations:
        sentence += (
            f" Floor: the largest of the 95th percentile over {permutations} permutations of the groups (of tokens "
            "that follow about as many contexts), that of Gaussian embeddings, and the model before training (5th and "
            "smallest where lower is better)."
        )
    if trainings > 1:
        sentence += (
            " Attainable: the root of the mean agreement between two trainings, which no explanation that is the same "
            "for all seeds exceeds on average. Explained: the square of the mean agreement divided by it, the share of "
            "the reproducible geometry."
        )
    return [sentence]


def permutation_orders(rng: np.random.Generator, size: int, permutations: int, strata: Int | None = None) -> Int:
    """Uniform permutations, one per row; within strata (one per item) where they are given."""
    if strata is None:
        return rng.permuted(np.tile(np.arange(size, dtype=np.int64), (permutations, 1)), axis=1)
    orders = np.empty((permutations, size), dtype=np.int64)
    orders[:, np.argsort(strata, kind="stable")] = np.argsort(strata + rng.random((permutations, size)), axis=1)
    return orders


def check_permutations(permutations: int) -> None:
    """Refuse too few permutations for a percentile, and too many to hold in memory; 0 leaves floors out."""
    if permutations > MOST_DRAWS:
        raise ProblemError(f"permutations must be at most {MOST_DRAWS:,}; got {permutations:,}. 200 is usual.")
    if permutations != 0 and permutations < FEWEST_DRAWS:
        raise ProblemError(
            f"A 95th percentile needs at least {FEWEST_DRAWS} permutations, or 0 for no floors; got "
            f"permutations={permutations}. 200 is usual."
        )


def _quantile(values: Float | None, level: float) -> float:
    """A quantile over the draws in which the number is defined; NaN when those are fewer than half."""
    if values is None or not values.size or np.isfinite(values).mean() < 0.5:
        return float("nan")
    return float(np.quantile(values[np.isfinite(values)], level))
