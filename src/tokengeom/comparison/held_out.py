"""Held-out contexts: folds of whole support groups, and numbers of explanations that were made without them.

Support groups are split at random into folds. Each explanation is fitted without a fold and then places its contexts by
its own rule. A fold holds whole groups, so no evaluated context shares its support with one that the tokens were made
from. A token that follows no kept context is not in the fit, and held-out contexts are read on the other tokens. The
explanations are made without these contexts; the run itself was trained on them.

Pairs are formed within folds, because contexts of different folds are placed among different tokens. A number is the
mean over folds, by their sizes. A fold in which an explanation gives all contexts the same cosine counts as 0 for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tokengeom.comparison.agreement import AbstractNumbers, Better, ItemKind, Name
from tokengeom.comparison.explanations.base import ContextStatistics
from tokengeom.comparison.similarity_numbers import Correlations, SimilarityNumbers
from tokengeom.core.errors import ProblemError
from tokengeom.core.numerics import Float, Int
from tokengeom.statistics.next_token import NextTokenStatistics

HELD_OUT: ItemKind = "held-out contexts"
FEWEST = 3
"""Smallest number of held-out contexts, and of supports that are kept, in a fold that is evaluated."""


@dataclass(frozen=True, eq=False)
class Fold:
    """Statistics of the kept contexts, and the contexts that are held out.

    ``kept``
        Statistics of the kept contexts on the tokens that follow them.
    ``kept_columns``, ``kept_tokens``
        The kept contexts and tokens, by their place in the full statistics.
    ``columns``
        Held-out contexts that are evaluated, by their place in the full statistics. A context that only lost tokens
        follow is not evaluated.
    ``contexts``
        What is known of these, on the kept tokens.
    """

    kept: NextTokenStatistics
    kept_columns: Int
    kept_tokens: Int
    columns: Int
    contexts: ContextStatistics

    def limited(self, most: int, rng: np.random.Generator) -> Fold:
        """The fold with at most so many evaluated contexts, drawn at random."""
        if self.columns.size <= most:
            return self
        return self._evaluating(np.sort(rng.choice(self.columns.size, most, replace=False)))

    def among(self, contexts: Int) -> Fold:
        """The fold in which only these contexts, by their place in the full statistics, are evaluated."""
        return self._evaluating(np.flatnonzero(np.isin(self.columns, contexts)))

    def _evaluating(self, some: Int) -> Fold:
        return replace(self, columns=self.columns[some], contexts=self.contexts.select(some))


def make_folds(stats: NextTokenStatistics, share: float, seed: int, most: int | None = None) -> list[Fold]:
    """``1/share`` folds of about equal size.

    Groups are taken in random order, and each goes to the fold with the fewest contexts. A fold with fewer than
    `FEWEST` contexts that can be placed, or that leaves fewer than `FEWEST` supports, is dropped; none may remain.

    ``most``
        Number of contexts that are evaluated in all folds together, about; all by default.
    """
    check_share(share)
    rng, count = np.random.default_rng(seed), round(1.0 / share)
    fold_of = _assign_groups(stats.groups.multiplicity, count, rng)
    enough = [fold for fold in range(count) if np.count_nonzero(fold_of != fold) >= FEWEST]
    folds = [leave_out(stats, np.flatnonzero(fold_of[stats.groups.label] == fold)) for fold in enough]
    folds = [fold for fold in folds if fold.columns.size >= FEWEST]
    return folds if most is None else [fold.limited(max(FEWEST, most // len(folds)), rng) for fold in folds]


def check_share(share: float) -> None:
    """Refuse a share of contexts that leaves too little to fit to."""
    if not 0.0 < share <= 0.5:
        raise ProblemError(
            f"The share of contexts to hold out must be above 0 and at most 0.5; got held_out={share}. 0.2 is usual, "
            "0 holds none out."
        )


def _assign_groups(sizes: Int, count: int, rng: np.random.Generator) -> Int:
    """Fold of each group."""
    filled, fold_of = np.zeros(count), np.empty(sizes.size, dtype=np.int64)
    for group in rng.permutation(sizes.size):
        fold_of[group] = np.argmin(filled)
        filled[fold_of[group]] += sizes[group]
    return fold_of


def leave_out(stats: NextTokenStatistics, columns: Int) -> Fold:
    """The fold that holds out these contexts."""
    kept = np.setdiff1d(np.arange(stats.m), columns)
    seen = np.flatnonzero(np.asarray(stats.S[:, kept].sum(axis=1)).ravel() > 0)
    inside = stats.P.tocsr()[seen].tocsc()
    mass = np.asarray(inside.sum(axis=0)).ravel()
    placed = columns[mass[columns] > 0]
    windows = np.rint(stats.context_counts[placed] * mass[placed]).astype(np.int64) if stats.has_counts else None
    share = stats.pi[placed] * mass[placed] / stats.pi[kept].sum()
    own, others = (None if stats.contexts is None else stats.contexts[some] for some in (placed, kept))
    contexts = ContextStatistics((inside[:, placed] / mass[placed]).tocsc(), share, windows, own)
    table = stats.table.tocsr()[seen].tocsc()[:, kept]
    if stats.has_counts:
        return Fold(NextTokenStatistics.from_counts(table, others), kept, seen, placed, contexts)
    pi = stats.pi[kept] / stats.pi[kept].sum()
    return Fold(NextTokenStatistics.from_probabilities(table, pi, others), kept, seen, placed, contexts)


def held_out_limitations(folds: Sequence[Fold], evaluated: int, m: int, solved: Sequence[str]) -> list[str]:
    """How numbers on held-out contexts must not be read.

    ``evaluated``
        Number of contexts that were evaluated, of m.
    ``solved``
        Explanations that were not fitted again in every fold.
    """
    if not folds:
        return ["No contexts were held out: there are too few supports to split into folds."]
    sentences = [
        f"Held out: {evaluated} contexts in {len(folds)} folds; contexts with the same support are in the same fold. "
        "Tokens come from the other contexts, each explanation places the held-out contexts by its own rule, and "
        "numbers are means over folds. The run was trained on all contexts. Pairs are formed within folds, so these "
        "numbers cannot be compared with those of all contexts. Intervals do not include the variation between random "
        "splits into folds."
    ]
    if evaluated < m:
        sentences.append(
            f"{m - evaluated} contexts were not evaluated: no token that follows them also follows a context outside "
            "their fold, or they were not drawn, or their fold is too small."
        )
    if solved:
        sentences.append(
            f"Not evaluated on held-out contexts: {', '.join(solved)}. Solving or training again without each fold "
            "would take minutes at this size."
        )
    return sentences


@dataclass(frozen=True, eq=False)
class FoldedNumbers(AbstractNumbers):
    """Means of `SimilarityNumbers` over folds.

    where
        parts     numbers of each fold, all with the same predictions
        columns   place of the items of each fold among all items
        groups    unit of each item
    """

    parts: Sequence[SimilarityNumbers]
    columns: Sequence[Int]
    groups: Int
    items: ItemKind = HELD_OUT

    @property
    def size(self) -> int:
        """Number of items."""
        return int(self.groups.size)

    @property
    def better(self) -> Mapping[Name, Better]:
        """Higher for all of them: 1 is best."""
        return self.parts[0].better

    def number(self, kind: str) -> str:
        """Name of a number of one of the kinds of `SimilarityNumbers`."""
        return self.parts[0].number(kind)

    def without_direction(self, key: str) -> int:
        """Number of items without a direction in a prediction."""
        return sum(part.without_direction(key) for part in self.parts)

    def resampled(self, draws: Float) -> Mapping[Name, Float]:
        """Each number on each selection of items."""
        others = self._mean(lambda part, columns: part.resampled(draws[:, columns]))
        # Correlations are averaged before anything is divided by them.
        return {**others, **self._correlations(draws).numbers(self.number("agreement"))}

    def without_training(self) -> Mapping[Name, Float]:
        """What is known about the numbers without each run in turn."""
        return self._correlations(np.ones((1, self.size))).without_each_run(self.number("agreement"))

    def _correlations(self, draws: Float) -> Correlations:
        folds = [part.correlations(draws[:, columns]) for part, columns in zip(self.parts, self.columns, strict=True)]
        keys = list(folds[0].with_runs)
        # One array per fold: explanations and pairs of runs x runs x selections.
        with_runs = self._averaged([np.array([fold.with_runs[key] for key in keys]) for fold in folds])
        between = self._averaged([fold.between[None] for fold in folds])[0]
        seeds = {
            key: (
                self._averaged([fold.seeds[key][0][None, None] for fold in folds])[0, 0],
                self._averaged([fold.seeds[key][1][None] for fold in folds])[0],
            )
            for key in folds[0].seeds
        }
        return Correlations(dict(zip(keys, with_runs, strict=True)), between, seeds)

    def permuted(self, orders: Int) -> Mapping[Name, Float]:
        """Each number when units of the same fold exchange their mean directions."""

        def of_fold(part: SimilarityNumbers, columns: Int) -> Mapping[Name, Float]:
            # The order of its own units in a permutation of all of them is a uniform permutation of a fold.
            own = orders[:, np.unique(self.groups[columns])]
            return part.permuted(np.argsort(np.argsort(own, axis=1), axis=1))

        return self._mean(of_fold)

    def gaussian(self, rng: np.random.Generator, count: int) -> Mapping[Name, Float]:
        """Each number of Gaussian embeddings."""
        return self._mean(lambda part, _: part.gaussian(rng, count))

    def of_other_run(self, columns: Float) -> Mapping[Name, float]:
        """The numbers of the same items in another run."""
        means = self._mean(
            lambda part, own: {name: np.array([x]) for name, x in part.of_other_run(columns[:, own]).items()}
        )
        return {name: float(values[0]) for name, values in means.items()}

    def _mean(self, of_fold: Callable[[SimilarityNumbers, Int], Mapping[Name, Float]]) -> Mapping[Name, Float]:
        """Weighted mean of each number over folds."""
        folds = [of_fold(part, columns) for part, columns in zip(self.parts, self.columns, strict=True)]
        means: dict[Name, Float] = {}
        for number in dict.fromkeys(number for _, number in folds[0]):
            names = [name for name in folds[0] if name[1] == number]
            values = self._averaged([np.array([of_names[name] for name in names])[:, None] for of_names in folds])
            means |= dict(zip(names, values[:, 0], strict=True))
        return means

    def _averaged(self, folds: Sequence[Float]) -> Float:
        """Weighted mean over folds of arrays with explanations in front and selections last.

        A fold in which nothing is defined is left out, and an explanation that is not defined in another counts as 0.
        """
        values, defined = np.array(folds), np.isfinite(folds)
        sizes = np.array([columns.size for columns in self.columns], dtype=np.float64)
        counted = sizes[:, None, None, None] * defined.any(axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):
            mean = (counted * np.where(defined, values, 0.0)).sum(axis=0) / counted.sum(axis=0)
        return np.where(defined.any(axis=0), mean, np.nan)
