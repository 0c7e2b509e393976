"""Agreement of a run's contexts, or tokens, with those of several predictions, over pairs of items.

With ``x_ij`` the cosine of items i and j in the run and ``y_ij`` in a prediction:

``agreement``    correlation of x and y over pairs of different units: contexts of different supports, or different
                 tokens. An item with itself, or with an item of its own support, says nothing about arrangement
``cka``          centred kernel alignment over the same pairs, ``sum a b / sqrt(sum a^2 sum b^2)`` with a and b the
                 products of vectors whose mean is removed, so that norms count [kornblith2019]
``similarity``   the papers' SIM, over all pairs including each item with itself [zhao2024]

Every number depends on the items only through cosines or Gram matrices, so it does not change under the rotation that W
and H are known up to. Tokens come with their mean removed, so a softmax shift does not change it either.

All of them are built from sums over pairs. On a selection w of the items (0 or 1 each) such a sum is ``w^T K w``, so
many selections are one matrix product. A permutation of units gives every unit the mean direction of another one; then
only sums over pairs of units change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from tokengeom.comparison.agreement import AbstractNumbers, Better, ItemKind, Name
from tokengeom.comparison.similarity import NO_VARIATION, STABILISER, group_means, group_sums
from tokengeom.core.numerics import Float, Int, cosines, unit_columns

MOST_ITEMS = 1000
"""Items of which all pairs are used; of more, this many are drawn at random (8 MB per matrix)."""
KINDS = ("agreement", "cka", "similarity")
GATHERED = 4_000_000
"""Entries of permuted matrices held at once (32 MB)."""
MANY_UNITS = 300
"""Units from which permuted matrices are held in float32: their sums are then exact to about 1e-6."""

_Matrices = tuple[Float, Float]
"""Cosines between items, and the Gram matrix of their centred vectors."""
_Sum = Float | float
"""A sum over pairs of items, or one per selection."""


@dataclass(frozen=True, eq=False)
class SimilarityNumbers(AbstractNumbers):
    """Numbers ``(key, {item}_{kind})``, such as ``("limit", "context_agreement")`` and ``("PMI", "token_cka")``.

    where
        items     "contexts", "tokens" or "held-out contexts"
        run       d x n, the run's items as columns
        targets   key -> r x n, the predicted items; one without a direction (0) has cosine 0 with all others
        groups    unit of each item, n; None where each item is its own
        floors    keys of the predictions whose Gaussian floors are wanted; None for all
        sample    which of the items given to `of` these are, n; None for all
    """

    items: ItemKind
    run: Float
    targets: Mapping[str, Float]
    groups: Int | None = None
    floors: tuple[str, ...] | None = None
    sample: Int | None = None

    @staticmethod
    def of(
        items: ItemKind,
        run: Float,
        targets: Mapping[str, Float],
        groups: Int | None = None,
        floors: tuple[str, ...] | None = None,
    ) -> SimilarityNumbers:
        """Numbers of these items, or of `MOST_ITEMS` of them, drawn at random with a fixed seed."""
        n, kept = run.shape[1], None
        if n > MOST_ITEMS:
            kept = np.sort(np.random.default_rng(0).choice(n, MOST_ITEMS, replace=False))
            run, targets = run[:, kept], {key: target[:, kept] for key, target in targets.items()}
            groups = None if groups is None else groups[kept]
        units = None if groups is None else np.unique(groups, return_inverse=True)[1].reshape(-1)
        return SimilarityNumbers(items, run, targets, units, floors, kept)

    @property
    def size(self) -> int:
        """Number of items."""
        return int(self.run.shape[1])

    @property
    def better(self) -> Mapping[Name, Better]:
        """Higher for all of them: 1 is best."""
        return {(key, self.number(kind)): "higher" for key in self.targets for kind in KINDS}

    def number(self, kind: str) -> str:
        """Name of a number of one of the `KINDS`, such as "context_agreement"."""
        return f"{self.items.removesuffix('s').removeprefix('held-out ')}_{kind}"

    def without_direction(self, key: str) -> int:
        """Number of items without a direction in a prediction."""
        return int(np.sum(~self.targets[key].any(axis=0)))

    def resampled(self, draws: Float) -> Mapping[Name, Float]:
        """Each number on each selection of items."""
        return self._numbers(*self._run, draws, self._target_matrices)

    def _numbers(self, X: Float, K: Float, draws: Float, targets: Mapping[str, _Matrices]) -> dict[Name, Float]:
        """Each number of items with cosines X and Gram matrix K (n x n) on each selection."""
        apart, everywhere = _Sums(self._apart, draws), _Sums(None, draws)
        numbers = {}
        for key, (Y, G) in targets.items():
            numbers[key, self.number("agreement")] = apart.correlation(X, Y)
            numbers[key, self.number("cka")] = apart.alignment(K, G)
            numbers[key, self.number("similarity")] = everywhere.correlation(X, Y, STABILISER)
        return numbers

    def permuted(self, orders: Int) -> Mapping[Name, Float]:
        """Each number when units exchange their mean directions (for CKA, mean vectors) in the predictions.

        Within a unit the predicted cosine is then 1. Instead of predictions the run's sums over pairs of units are
        permuted, by the inverse of each order: one gathering serves every prediction.
        """
        (X, K), unit = self._run, self.units
        n = np.bincount(unit).astype(np.float64)
        (sum_x, inside_x), (sum_xx, inside_xx), (sum_k, _) = (
            _trace_cleared(group_sums(group_sums(M, unit).T, unit)) for M in (X, X * X, K)
        )
        kk = float(np.vdot(self._apart * K, K))
        apart, inside = float(n.sum() ** 2 - n @ n), float(n @ n)
        x, xx = float(sum_x.sum()), float(sum_xx.sum())
        pairs = [_unit_matrices(target, unit) for target in self.targets.values()]
        if not (pairs and len(orders)):
            return {}
        kind = np.float32 if n.size > MANY_UNITS else np.float64
        Ys, Gs = (np.stack([matrices[k].ravel().astype(kind) for matrices in pairs]) for k in (0, 1))
        xy, kg = (np.empty((len(orders), len(pairs))) for _ in range(2))
        step = max(1, GATHERED // n.size**2)
        back = np.argsort(orders, axis=1)
        for start in range(0, len(orders), step):
            part = slice(start, start + step)
            xy[part] = _gathered(sum_x.astype(kind, copy=False), back[part]) @ Ys.T
            kg[part] = _gathered(sum_k.astype(kind, copy=False), back[part]) @ Gs.T
        numbers, size = {}, n[back]
        for place, key in enumerate(self.targets):
            Y, G = pairs[place]
            y, yy, gg = (_quadratic(size, M) for M in (Y, Y * Y, G * G))
            numbers[key, self.number("agreement")] = _correlation(apart, x, y, xx, yy, xy[:, place])
            numbers[key, self.number("cka")] = cosine_of_products(kg[:, place], kk, gg)
            sums = (x + inside_x, y + inside, xx + inside_xx, yy + inside, xy[:, place] + inside_x)
            numbers[key, self.number("similarity")] = _correlation(apart + inside, *sums, STABILISER)
        return numbers

    def gaussian(self, rng: np.random.Generator, count: int) -> Mapping[Name, Float]:
        """Each number of Gaussian embeddings of the run's shape; tokens with their mean removed."""
        targets = {k: M for k, M in self._target_matrices.items() if self.floors is None or k in self.floors}
        whole = np.ones((1, self.size))
        drawn = [
            self._numbers(*_matrices(self._as_items(rng.standard_normal(self.run.shape))), whole, targets)
            for _ in range(count)
        ]
        return {name: np.array([values[name][0] for values in drawn]) for name in drawn[0]} if drawn else {}

    def of_other_run(self, run: Float) -> Mapping[Name, float]:
        """The numbers of another run, given by the same items as this one, such as the model before training."""
        other = _matrices(self._as_items(self._sampled(run)))
        numbers = self._numbers(*other, np.ones((1, self.size)), self._target_matrices)
        return {name: float(values[0]) for name, values in numbers.items()}

    def with_other_runs(self, runs: list[Float]) -> Mapping[Name, float]:
        """Mean of each number between this run and others, under the names of every prediction."""
        others = {str(place): _matrices(self._sampled(other)) for place, other in enumerate(runs)}
        numbers = self._numbers(*self._run, np.ones((1, self.size)), others)
        names = [self.number(kind) for kind in KINDS]
        mean = {name: float(np.mean([numbers[place, name] for place in others])) for name in names}
        return {(key, name): mean[name] for key in self.targets for name in names}

    def _sampled(self, run: Float) -> Float:
        return run if self.sample is None else run[:, self.sample]

    def _as_items(self, run: Float) -> Float:
        return run - run.mean(axis=1, keepdims=True) if self.items == "tokens" else run

    @cached_property
    def _run(self) -> _Matrices:
        return _matrices(self.run)

    @cached_property
    def _target_matrices(self) -> dict[str, _Matrices]:
        return {key: _matrices(target) for key, target in self.targets.items()}

    @cached_property
    def _apart(self) -> Float:
        """1 for pairs of different units, 0 for others, n x n."""
        return np.asarray(self.units[:, None] != self.units[None, :], dtype=np.float64)


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
    """Correlations over the pairs of a mask (n x n, None for all) on many selections of items (b x n).

    With ``c = 1 - w`` the items that a selection leaves out, ``w^T K w = 1^T K 1 - 2 c^T K 1 + c^T K c`` for symmetric
    K, which is cheap because few items are left out.
    """

    def __init__(self, mask: Float | None, draws: Float) -> None:
        self.mask, self.left_out = mask, csr_array(1.0 - draws)
        self.pairs = np.sum(draws, axis=1) ** 2 if mask is None else self._sum(mask)
        self._of_x: tuple[Float, Float, Float] | None = None
        self._of_K: Float | None = None

    def _sum(self, K: Float) -> Float:
        rows = K.sum(axis=1)
        if not self.left_out.nnz:
            return np.full(self.left_out.shape[0], rows.sum())
        both = np.asarray(self.left_out.multiply(self.left_out @ K).sum(axis=1)).ravel()
        return np.asarray(rows.sum() - 2.0 * (self.left_out @ rows) + both)

    def _masked(self, X: Float) -> Float:
        return X if self.mask is None else self.mask * X

    def correlation(self, X: Float, Y: Float, stabiliser: float = 0.0) -> Float:
        """Of the entries of X, the same in every call, with those of Y."""
        if self._of_x is None:
            masked = self._masked(X)
            self._of_x = masked, self._sum(masked), self._sum(masked * X)
        masked, x, xx = self._of_x
        theirs = self._masked(Y)
        y, yy, xy = self._sum(theirs), self._sum(theirs * Y), self._sum(masked * Y)
        return _correlation(self.pairs, x, y, xx, yy, xy, stabiliser)

    def alignment(self, K: Float, G: Float) -> Float:
        """``<K, G> / (||K|| ||G||)`` over the pairs of the mask; K is the same in every call. NaN where one is 0."""
        masked = self._masked(K)
        if self._of_K is None:
            self._of_K = self._sum(masked * K)
        return cosine_of_products(self._sum(masked * G), self._of_K, self._sum(self._masked(G) * G))


def cosine_of_products(kg: Float, kk: _Sum, gg: _Sum) -> Float:
    """``<K, G> / (||K|| ||G||)`` from inner products; NaN where one of them is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        size = np.sqrt(np.maximum(kk * gg, 0.0))
        return np.where(size > 0, np.clip(kg / size, -1.0, 1.0), np.nan)


def _correlation(pairs: _Sum, x: _Sum, y: _Sum, xx: _Sum, yy: _Sum, xy: _Sum, stabiliser: float = 0.0) -> Float:
    """Correlation from sums over pairs; with a stabiliser it is SIM. NaN where there are no pairs or nothing varies."""
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_x, mean_y, mean_xx, mean_yy, mean_xy = (total / np.asarray(pairs) for total in (x, y, xx, yy, xy))
        variance_x, variance_y = np.maximum(mean_xx - mean_x**2, 0.0), np.maximum(mean_yy - mean_y**2, 0.0)
        covariance = mean_xy - mean_x * mean_y
        if stabiliser:
            return np.asarray((covariance + stabiliser) / (np.sqrt(variance_x * variance_y) + stabiliser))
        varied = np.minimum(variance_x, variance_y) > NO_VARIATION
        return np.where(varied, np.clip(covariance / np.sqrt(variance_x * variance_y), -1.0, 1.0), np.nan)


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


def _unit_matrices(target: Float, unit: Int) -> _Matrices:
    """Cosines between the mean directions of units and the Gram matrix of their mean vectors, with diagonals of 0."""
    Y = cosines(group_means(unit_columns(target), unit))
    means = group_means(_centred(target), unit)
    return _trace_cleared(Y)[0], _trace_cleared(means.T @ means)[0]


def _quadratic(weights: Float, M: Float) -> Float:
    """``w^T M w`` for each row w of the weights, each a permutation of the others."""
    if np.ptp(weights) == 0:
        return np.full(len(weights), float(weights[0, 0]) ** 2 * M.sum())
    return np.asarray(np.einsum("bi,bi->b", weights @ M, weights))


def _matrices(columns: Float) -> _Matrices:
    """Cosines between columns, and the Gram matrix of the columns with their mean removed."""
    centred = _centred(columns)
    return full_cosines(columns), centred.T @ centred


def _centred(columns: Float) -> Float:
    return np.asarray(columns - columns.mean(axis=1, keepdims=True)) if columns.size else columns


def full_cosines(columns: Float) -> Float:
    """Cosines between columns; each has cosine 1 with itself, even a column of 0."""
    matrix = cosines(columns)
    np.fill_diagonal(matrix, 1.0)
    return matrix
