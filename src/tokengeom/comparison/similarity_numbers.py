"""Agreement of one or several trainings' contexts, or tokens, with explanations of them, over pairs of items.

With ``x_ij`` the cosine of items i and j in a run and ``y_ij`` in an explanation:

``agreement``    correlation of x and y over pairs of different units: contexts of different supports, or different
                 tokens. An item with itself, or with an item of its own support, says nothing about arrangement
``similarity``   the papers' SIM, over all pairs including each item with itself [zhao2024]

Contexts are weighted in two ways: as "contexts", every pair of them counts once; as "supports", every pair of support
groups does, so that a few large groups do not decide.

Both depend on the items only through cosines, so they do not change under the rotation that W and H are known up to.
Tokens come with their mean removed, so a softmax shift does not change them either.

They are built from sums over pairs. On a selection w of the items (0 or 1 each) such a sum is ``w^T K w``, so
many selections are one matrix product. A permutation of units gives every unit the mean direction of another one; then
only sums over pairs of units change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from scipy.sparse import csr_array

from tokengeom.comparison.agreement import AbstractNumbers, Better, ItemKind, Name, about
from tokengeom.comparison.similarity import STABILISER, correlation_of_sums, group_sums, numbered
from tokengeom.core.numerics import FEWEST_UNITS, Float, Int, cosines

MOST_ITEMS = 1000
"""Items of which all pairs are used; of more, this many are drawn at random (8 MB per matrix)."""
SMALLEST_STRATUM = 5
"""Tokens within which permutations exchange predictions, at least."""
KINDS = ("agreement", "similarity")
GATHERED = 4_000_000
"""Entries of permuted matrices held at once (32 MB)."""
MANY_UNITS = 300
"""Units from which permuted matrices are held in float32: their sums are then exact to about 1e-6."""


@dataclass(frozen=True, eq=False)
class Geometry:
    """How n items lie to each other.

    where
        cosines             n x n; each item has cosine 1 with itself, and one without a direction 0 with all others
        seeds               cosines of each random one of which ``cosines`` is the mean; empty where there is one
        without_direction   number of items without a direction
    """

    cosines: Float
    seeds: tuple[Float, ...] = ()
    without_direction: int = 0

    @staticmethod
    def of(columns: Float, seeds: int = 1) -> Geometry:
        """Of items given as columns; of several random ones, their columns stand below each other."""
        parts = np.split(columns, seeds) if seeds > 1 else [columns]
        matrices = [full_cosines(part) for part in parts]
        without = int(np.sum(~columns.any(axis=0)))
        mean = matrices[0] if seeds == 1 else np.mean(matrices, axis=0)
        return Geometry(mean, tuple(matrices) if seeds > 1 else (), without)


@dataclass(frozen=True, eq=False)
class Correlations:
    """Correlations of cosines on b selections of items.

    where
        with_runs   key of an explanation -> its correlation with each of R runs, R x b
        between     correlation between each two of the runs, in the order of `combinations`, R (R - 1) / 2 x b
        seeds       key of a random explanation -> the mean correlation between two of its seeds, b; and that of each
                    seed with the first run, k x b
    """

    with_runs: Mapping[str, Float]
    between: Float
    seeds: Mapping[str, tuple[Float, Float]]

    @property
    def runs(self) -> int:
        """Number of runs that explanations are compared with."""
        return len(next(iter(self.with_runs.values()), ()))

    def numbers(self, number: str) -> dict[Name, Float]:
        """Agreement with the first run, and what is known `about` it where there is more than one random thing."""
        numbers: dict[Name, Float] = {(key, number): values[0] for key, values in self.with_runs.items()}
        if self.runs < 2 and not self.seeds:
            return numbers
        rho = self.between.mean(axis=0) if self.runs > 1 else np.full(self.between.shape[1:], np.nan)
        with np.errstate(invalid="ignore", divide="ignore"):
            attainable = np.sqrt(np.where(rho > 0, rho, np.nan))
            for key, values in self.with_runs.items():
                mean, reliability, name = values.mean(axis=0), self._reliability(key, rho), (key, number)
                fair = mean / np.sqrt(reliability)
                numbers[about(name, "mean")], numbers[about(name, "fair")] = mean, fair
                numbers[about(name, "reliability")] = reliability
                if key in self.seeds:
                    each = self.seeds[key][1]
                    numbers[about(name, "seed_error")] = each.std(axis=0, ddof=1) / np.sqrt(len(each))
                if self.runs > 1:
                    numbers[about(name, "reproducible")] = rho
                    numbers[about(name, "corrected")] = fair / attainable
        return numbers

    def _reliability(self, key: str, like: Float) -> Float:
        """Correlation of the mean of the seeds with another such mean [spearman1910, brown1910]."""
        if key not in self.seeds:
            return np.ones_like(like)
        rho, each = self.seeds[key]
        k = len(each)
        return np.where(rho > 0, k * rho / (1.0 + (k - 1) * rho), np.nan)

    def without_run(self, run: int) -> Correlations:
        """Without one of the runs."""
        pairs = [place for place, both in enumerate(combinations(range(self.runs), 2)) if run not in both]
        left = {key: np.delete(values, run, axis=0) for key, values in self.with_runs.items()}
        return Correlations(left, self.between[pairs], self.seeds)

    def without_each_run(self, number: str) -> dict[Name, Float]:
        """What is known about the numbers without each run in turn; empty for fewer than `FEWEST_UNITS` runs."""
        if self.runs < FEWEST_UNITS:
            return {}
        left = [self.without_run(run).numbers(number) for run in range(self.runs)]
        # The agreement with the first run is about that run alone.
        return {name: np.array([one[name][0] for one in left]) for name in left[0] if name[1] != number}


@dataclass(frozen=True, eq=False)
class SimilarityNumbers(AbstractNumbers):
    """Numbers ``(key, {item}_{kind})``, such as ``("limit", "context_agreement")`` and ``("PMI", "token_similarity")``.

    where
        items     one of `ItemKind`
        runs      geometry of the items in each run; most numbers are those of the first
        targets   key of an explanation -> its geometry of the items
        dim       dimensions of the run, for Gaussian embeddings of its shape
        groups    unit of each item, n; None where each item is its own
        floors    keys of the explanations whose Gaussian floors are wanted; None for all
        strata    stratum of each item, within which permutations exchange them; None where there is one
    """

    items: ItemKind
    runs: tuple[Geometry, ...]
    targets: Mapping[str, Geometry]
    dim: int
    groups: Int | None = None
    floors: tuple[str, ...] | None = None
    strata: Int | None = None

    @staticmethod
    def of(
        items: ItemKind,
        run: Float | Sequence[Float],
        targets: Mapping[str, Float],
        groups: Int | None = None,
        floors: tuple[str, ...] | None = None,
    ) -> SimilarityNumbers:
        """Numbers of items given as columns, or of `MOST_ITEMS` of them, drawn at random with a fixed seed."""
        runs = [run] if isinstance(run, np.ndarray) else list(run)
        kept = drawn_items(runs[0].shape[1])
        return SimilarityNumbers(
            items,
            tuple(Geometry.of(one[:, kept]) for one in runs),
            {key: Geometry.of(target[:, kept]) for key, target in targets.items()},
            runs[0].shape[0],
            None if groups is None else numbered(groups[kept]),
            floors,
        )

    @property
    def units(self) -> Int:
        return np.arange(len(self.runs[0].cosines), dtype=np.int64) if self.groups is None else self.groups

    @property
    def better(self) -> Mapping[Name, Better]:
        return {(key, self.number(kind)): "higher" for key in self.targets for kind in KINDS}

    def number(self, kind: str) -> str:
        """Name of a number of one of the `KINDS`, such as "context_agreement"."""
        return f"{self.items.removesuffix('s').replace(' ', '_')}_{kind}"

    def resampled(self, draws: Float) -> Mapping[Name, Float]:
        similarities = self._similarities(self.runs[0], self.targets, draws)
        return {**similarities, **self.correlations(draws).numbers(self.number("agreement"))}

    def correlations(self, draws: Float) -> Correlations:
        """Correlations of cosines on each selection of items, between runs and explanations, and among both."""
        sums = _Sums(self._apart, draws)

        def between(matrices: Sequence[Float]) -> Float:
            both = [sums.correlation(first, second) for first, second in combinations(matrices, 2)]
            return np.array(both).reshape(-1, sums.selections)

        runs = [run.cosines for run in self.runs]
        with_runs = [{key: sums.correlation(X, Y.cosines) for key, Y in self.targets.items()} for X in runs]
        return Correlations(
            {key: np.array([values[key] for values in with_runs]) for key in self.targets},
            between(runs),
            {
                key: (between(Y.seeds).mean(axis=0), np.array([sums.correlation(runs[0], seed) for seed in Y.seeds]))
                for key, Y in self.targets.items()
                if Y.seeds
            },
        )

    def without_training(self) -> Mapping[Name, Float]:
        return self.correlations(np.ones((1, self.size))).without_each_run(self.number("agreement"))

    def _similarities(self, run: Geometry, targets: Mapping[str, Geometry], draws: Float) -> dict[Name, Float]:
        """SIM of a run on each selection."""
        mask = None if self._weights is None else np.outer(self._weights, self._weights)
        sums, name = _Sums(mask, draws), self.number("similarity")
        return {
            (key, name): sums.correlation(run.cosines, target.cosines, STABILISER) for key, target in targets.items()
        }

    def of_other_run(self, columns: Float, keys: tuple[str, ...] | None = None) -> dict[Name, float]:
        """The numbers of the same items in another run, such as the model before training; ``keys`` as in `floors`."""
        targets = {key: M for key, M in self.targets.items() if keys is None or key in keys}
        run = Geometry.of(columns - columns.mean(axis=1, keepdims=True) if self.items == "tokens" else columns)
        whole = np.ones((1, self.size))
        sums, numbers = _Sums(self._apart, whole), self._similarities(run, targets, whole)
        for key, target in targets.items():
            numbers[key, self.number("agreement")] = sums.correlation(run.cosines, target.cosines)
        return {name: float(values[0]) for name, values in numbers.items()}

    def gaussian(self, rng: np.random.Generator, count: int) -> Mapping[Name, Float]:
        drawn = [self.of_other_run(rng.standard_normal((self.dim, self.size)), self.floors) for _ in range(count)]
        return {name: np.array([values[name] for values in drawn]) for name in drawn[0]} if drawn else {}

    def permuted(self, orders: Int) -> Mapping[Name, Float]:
        """Each number when units exchange their mean directions in the explanations.

        Within a unit the predicted cosine is then 1. Instead of explanations the run's sums over pairs of units are
        permuted, by the inverse of each order: one gathering serves every explanation.
        """
        X, unit = self.runs[0].cosines, self.units
        weight = np.ones(self.size) if self._weights is None else self._weights
        n: Float = np.bincount(unit, weight).astype(np.float64)
        (sum_x, inside_x), (sum_xx, inside_xx) = (_trace_cleared(_unit_sums(M, unit, weight)) for M in (X, X * X))
        apart, inside = float(n.sum() ** 2 - n @ n), float(n @ n)
        x, xx = float(sum_x.sum()), float(sum_xx.sum())
        targets = [_unit_cosines(target.cosines, unit) for target in self.targets.values()]
        if not (targets and len(orders)):
            return {}
        kind = np.float32 if n.size > MANY_UNITS else np.float64
        flat, xy = np.stack([Y.ravel().astype(kind) for Y in targets]), np.empty((len(orders), len(targets)))
        step = max(1, GATHERED // n.size**2)
        back = np.argsort(orders, axis=1)
        for start in range(0, len(orders), step):
            part = slice(start, start + step)
            xy[part] = _gathered(sum_x.astype(kind, copy=False), back[part]) @ flat.T
        numbers, size = {}, n[back]
        for place, (key, Y) in enumerate(zip(self.targets, targets, strict=True)):
            y, yy = (_quadratic(size, M) for M in (Y, Y * Y))
            numbers[key, self.number("agreement")] = correlation_of_sums(apart, x, y, xx, yy, xy[:, place])
            sums = (x + inside_x, y + inside, xx + inside_xx, yy + inside, xy[:, place] + inside_x)
            numbers[key, self.number("similarity")] = correlation_of_sums(apart + inside, *sums, stabiliser=STABILISER)
        return numbers

    @cached_property
    def _weights(self) -> Float | None:
        """Weight of each item by which pairs of units count once; None where pairs of items do."""
        return None if self.items != "supports" else 1.0 / np.bincount(self.units)[self.units]

    @cached_property
    def _apart(self) -> Float:
        """Weight of each pair of items; 0 for those of the same unit, n x n."""
        return pairs_apart(self.units, self._weights)


def drawn_items(n: int) -> Int:
    """All of n items, or `MOST_ITEMS` of them, drawn at random with a fixed seed."""
    if n <= MOST_ITEMS:
        return np.arange(n, dtype=np.int64)
    return np.sort(np.random.default_rng(0).choice(n, MOST_ITEMS, replace=False))


def pairs_apart(units: Int, weights: Float | None = None) -> Float:
    """Weight of each pair of items: the product of theirs, and 0 for items of the same unit, n x n."""
    apart = np.asarray(units[:, None] != units[None, :], dtype=np.float64)
    return apart if weights is None else apart * np.outer(weights, weights)


def equal_strata(numbers: Int) -> Int:
    """Stratum of each item: those with equal numbers, and with the next larger one where these are few."""
    values, place, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    stratum, size, current = np.empty(values.size, dtype=np.int64), 0, 0
    for k in range(values.size):
        stratum[k], size = current, size + counts[k]
        if size >= SMALLEST_STRATUM and counts[k + 1 :].sum() >= SMALLEST_STRATUM:
            current, size = current + 1, 0
    return stratum[place.reshape(-1)]


def sampling_limitations(V: int, kept: Int, seen: Int) -> list[str]:
    """Which items were compared, where not all of them: ``kept`` contexts, and ``seen`` tokens of V."""
    unseen = V - seen.size
    sentences = []
    if unseen:
        sentences.append(
            f"{unseen:,} of {V:,} tokens never follow these contexts. They take part in the prediction and in the "
            "loss, and not in the agreement of tokens: the prediction gives them all the same embedding."
        )
    return sentences + [
        f"{MOST_ITEMS} of {count} {items}, drawn at random, are compared."
        for items, count in (("contexts", kept.size), ("tokens", seen.size))
        if count > MOST_ITEMS
    ]


class _Sums:
    """Correlations over pairs with weights (n x n, None for 1) on many selections of items (b x n).

    With ``c = 1 - w`` the items that a selection leaves out, ``w^T K w = 1^T K 1 - 2 c^T K 1 + c^T K c`` for symmetric
    K, which is cheap because few items are left out.
    """

    def __init__(self, mask: Float | None, draws: Float) -> None:
        self.mask, self.left_out, self.selections = mask, csr_array(1.0 - draws), len(draws)
        self.pairs = np.sum(draws, axis=1) ** 2 if mask is None else self._sum(mask)
        self._sums: dict[int, tuple[Float, Float]] = {}

    def _sum(self, K: Float) -> Float:
        rows = K.sum(axis=1)
        if not self.left_out.nnz:
            return np.full(self.left_out.shape[0], rows.sum())
        both = np.asarray(self.left_out.multiply(self.left_out @ K).sum(axis=1)).ravel()
        return np.asarray(rows.sum() - 2.0 * (self.left_out @ rows) + both)

    def _masked(self, M: Float) -> Float:
        return M if self.mask is None else self.mask * M

    def _of(self, M: Float) -> tuple[Float, Float]:
        """Sums of the entries of M and of their squares, computed once per matrix."""
        if id(M) not in self._sums:
            masked = self._masked(M)
            self._sums[id(M)] = self._sum(masked), self._sum(masked * M)
        return self._sums[id(M)]

    def correlation(self, X: Float, Y: Float, stabiliser: float = 0.0) -> Float:
        """Of the entries of X with those of Y."""
        (x, xx), (y, yy), xy = self._of(X), self._of(Y), self._sum(self._masked(X) * Y)
        return correlation_of_sums(self.pairs, x, y, xx, yy, xy, stabiliser=stabiliser)


def _trace_cleared(X: Float) -> tuple[Float, float]:
    """X with a diagonal of 0, and its trace."""
    trace = float(np.trace(X))
    np.fill_diagonal(X, 0.0)
    return X, trace


def _gathered(M: Float, orders: Int) -> Float:
    """M with rows and columns in each order, one flat matrix per row."""
    reordered = np.empty((len(orders), *M.shape), dtype=M.dtype)
    for place, order in enumerate(orders):
        np.take(M.take(order, axis=0), order, axis=1, out=reordered[place], mode="clip")
    return reordered.reshape(len(orders), -1)


def _unit_sums(M: Float, unit: Int, weight: Float) -> Float:
    """Sum of ``w_i w_j M_ij`` over the items of each two units."""
    return group_sums(group_sums(M * np.outer(weight, weight), unit).T, unit)


def _unit_cosines(cosines: Float, unit: Int) -> Float:
    """Cosines between the mean directions of units, with a diagonal of 0."""
    Y = _unit_sums(cosines, unit, 1.0 / np.bincount(unit)[unit])
    size = np.sqrt(np.maximum(np.diag(Y), 0.0))
    with np.errstate(invalid="ignore", divide="ignore"):
        Y = np.where(np.outer(size, size) > 0, Y / np.outer(size, size), 0.0)
    return _trace_cleared(Y)[0]


def _quadratic(weights: Float, M: Float) -> Float:
    """``w^T M w`` for each row w of the weights, each a permutation of the others."""
    if np.ptp(weights) == 0:
        return np.full(len(weights), float(weights[0, 0]) ** 2 * M.sum())
    return np.asarray(np.einsum("bi,bi->b", weights @ M, weights))


def full_cosines(columns: Float) -> Float:
    """Cosines between columns; each has cosine 1 with itself, even a column of 0."""
    matrix = cosines(columns)
    np.fill_diagonal(matrix, 1.0)
    return matrix
