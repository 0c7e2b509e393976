"""Explanations of a run, each at its best, and rows that compare them.

Free choices are made on other items than those they are judged on. Support groups (or tokens) are split at random into
three folds, and a pair of items from folds a and b is explained by what fits best on the pairs inside the other folds
(`CrossFit`): one of several candidates, such as a rival at each value of its parameter, or a sum of all explanations
with weights that are not negative, by least squares, which shows what they explain together. Both are functions of
cosines, and return cosines.

Parameters are chosen for contexts and tokens separately, and a grid is widened while its best value lies on an edge and
is better than the values inside it (`try_candidates`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np

from tokengeom.comparison.agreement import CONTEXTS_AND_TOKENS, Agreement, AssessedNumbers, ItemKind
from tokengeom.comparison.explanations.base import AbstractFit, AbstractRival, ExplanationInfo, FitInputs
from tokengeom.comparison.inputs import Inputs
from tokengeom.comparison.similarity import NO_VARIATION, correlation_of_sums
from tokengeom.comparison.similarity_numbers import KINDS, Geometry, SimilarityNumbers, full_cosines, pairs_apart
from tokengeom.comparison.target import COUNTS
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import Float, Int
from tokengeom.results.convert import Number, Within
from tokengeom.statistics.next_token import NextTokenStatistics

FOLDS = 3
FEWEST_IN_FOLD = 4
"""Units in a fold; with fewer, everything is chosen and judged on all items."""
WIDENED = 12
"""How often a grid is widened at most: by a factor of a million."""
WORTH_WIDENING = 1e-3
"""Gain in agreement from the values inside a grid to its edge from which on it is widened."""
RESOLUTION = 1e-3
"""Differences of agreement below this are within the accuracy of the solvers."""


@dataclass(frozen=True, eq=False)
class CrossFit:
    """The pairs of n items that count, and their folds.

    where
        weight   weight of each pair, n x n; 0 for pairs that do not count
        fold     fold of each item, n
    """

    weight: Float
    fold: Int

    @staticmethod
    def of(units: Int, *, by_unit: bool = False) -> CrossFit:
        """Folds of whole units; ``by_unit`` counts each pair of units once, instead of each pair of items."""
        sizes = np.bincount(units)
        weights = 1.0 / sizes[units] if by_unit else None
        folds = FOLDS if sizes.size >= FOLDS * FEWEST_IN_FOLD else 1
        fold = np.random.default_rng(0).permutation(np.arange(sizes.size) % folds)
        return CrossFit(pairs_apart(units, weights), fold[units])

    def agreements(self, X: Float, candidates: Sequence[Float]) -> Float:
        """Correlation of X with each candidate over all pairs; NaN where one of them does not vary."""
        everything = np.unique(self.fold)
        return np.array([self._correlation(sums, everything) for sums in self._with_each(X, candidates)])

    def choose(self, X: Float, candidates: Sequence[Float]) -> tuple[Float, int]:
        """For each pair of items the candidate that agrees best with X on other items, and which is best on all."""
        sums = self._with_each(X, candidates)

        def best(folds: Int) -> int:
            values = np.array([self._correlation(of, folds) for of in sums])
            return int(np.argmax(np.nan_to_num(values, nan=-2.0)))

        chosen = np.empty_like(X)
        for inside, folds in self._blocks():
            chosen[inside] = candidates[best(folds)][inside]
        return chosen, best(np.unique(self.fold))

    def together(self, X: Float, explanations: Sequence[Float]) -> Float:
        """What all explanations together say of X: for each pair of items the sum that fits X best on other items."""
        matrices = [X, *explanations]
        k = len(matrices)
        first = np.array([self._total(self.weight * M) for M in matrices])
        second = np.empty((k, k, *first.shape[1:]))
        for i in range(k):
            masked = self.weight * matrices[i]
            for j in range(i, k):
                second[i, j] = second[j, i] = self._total(masked * matrices[j])
        count = self._total(self.weight)
        combined = np.empty_like(X)
        for inside, folds in self._blocks():
            part = np.ix_(folds, folds)
            pairs = count[part].sum()
            if not pairs > 0:
                combined[inside] = 0.0
                continue
            means = np.array([of[part].sum() for of in first]) / pairs
            products = np.array([[second[i, j][part].sum() for j in range(k)] for i in range(k)]) / pairs
            covariance = products - np.outer(means, means)
            weights = _non_negative(covariance[1:, 1:], covariance[1:, 0])
            fitted = means[0] - weights @ means[1:]
            combined[inside] = fitted + sum(w * M[inside] for w, M in zip(weights, explanations, strict=True) if w > 0)
        return combined

    def _blocks(self) -> Iterator[tuple[tuple[Any, ...], Int]]:
        """Pairs of items of each two folds, as an index, and the folds that a choice for them is made on."""
        folds = np.unique(self.fold)
        for a in folds:
            for b in folds:
                inside = np.ix_(np.flatnonzero(self.fold == a), np.flatnonzero(self.fold == b))
                yield inside, np.setdiff1d(folds, [a, b]) if folds.size > 1 else folds

    def _total(self, weighted: Float) -> Float:
        """Sum over the pairs of each two folds."""
        member = np.eye(FOLDS)[self.fold]
        return np.asarray(member.T @ weighted @ member)

    def _with_each(self, X: Float, candidates: Sequence[Float]) -> list[tuple[Float, ...]]:
        """For each candidate, the sums over pairs of folds that a correlation with X needs."""
        masked = self.weight * X
        of_x = self._total(self.weight), self._total(masked), self._total(masked * X)
        weight, of = self.weight, self._total
        return [(*of_x, of(weight * Y), of(weight * Y * Y), of(masked * Y)) for Y in candidates]

    @staticmethod
    def _correlation(sums: tuple[Float, ...], folds: Int) -> float:
        pairs, x, xx, y, yy, xy = (of[np.ix_(folds, folds)].sum() for of in sums)
        return float(correlation_of_sums(pairs, x, y, xx, yy, xy))


def _non_negative(A: Float, b: Float) -> Float:
    """``argmin w^T A w / 2 - b^T w`` over ``w >= 0``, for a covariance A; 0 for what does not vary."""
    from scipy.optimize import nnls

    weights = np.zeros_like(b)
    # What does not vary but for rounding would get a weight without bound.
    varied = np.diag(A) > NO_VARIATION
    if not varied.any():
        return weights
    values, Q = np.linalg.eigh(A[np.ix_(varied, varied)])
    kept = values > 1e-12 * max(float(values.max(initial=0.0)), 1e-300)
    root = np.sqrt(values[kept])
    weights[varied] = nnls(root[:, None] * Q[:, kept].T, (Q[:, kept].T @ b[varied]) / root)[0]
    return weights


@dataclass(frozen=True, eq=False)
class Explained:
    """An explanation of a run: what it is, and its geometry of the compared contexts and tokens."""

    info: ExplanationInfo
    contexts: Geometry
    tokens: Geometry

    @staticmethod
    def by_factors(info: ExplanationInfo, factors: Factors, inputs: Inputs, seeds: int = 1) -> Explained:
        """What a prediction says of the items of these inputs; ``seeds`` is that of `Geometry.of`."""
        return Explained(info, *(Geometry.of(inputs.vectors(factors, items), seeds) for items in CONTEXTS_AND_TOKENS))

    def of(self, items: ItemKind) -> Geometry:
        """Its geometry of contexts or of tokens."""
        return self.tokens if items == "tokens" else self.contexts


@dataclass(frozen=True, eq=False)
class Trial:
    """A candidate, its fit, and its agreement with the run's contexts and tokens."""

    candidate: AbstractRival
    fit: AbstractFit
    scores: tuple[float, ...]


def try_candidates(
    kind: type[AbstractRival],
    stats: NextTokenStatistics,
    known: FitInputs,
    score: Callable[[AbstractFit], Sequence[float]],
) -> list[Trial]:
    """Every candidate of an explanation, with more of them where the best one lies on the edge of a grid.

    ``score`` gives the agreement of a fit with the run's contexts, and tokens, each of which is to be best.
    """
    new = list(kind.candidates(known.on(stats)))
    trials: list[Trial] = []
    single = len(new) < 2
    for _ in range(WIDENED):
        fits = [(candidate, candidate.fit(stats)) for candidate in new]
        trials += [Trial(candidate, fit, () if single else tuple(score(fit))) for candidate, fit in fits]
        if single:
            break
        new = _beyond(trials)
        if not new:
            break
    return trials


def _beyond(trials: Sequence[Trial]) -> list[AbstractRival]:
    """Candidates beyond the best one, for contexts or tokens, where it is on an edge and better than those inside."""
    tried = [trial.candidate for trial in trials]
    new: list[AbstractRival] = []
    on_edge = [bool(candidate.beyond(tried)) for candidate in tried]
    for place in range(len(trials[0].scores)):
        scores = np.nan_to_num([trial.scores[place] for trial in trials], nan=-2.0)
        best, inside = int(np.argmax(scores)), np.max(scores[~np.array(on_edge)], initial=-2.0)
        if on_edge[best] and scores[best] > inside + WORTH_WIDENING:
            new += [candidate for candidate in tried[best].beyond(tried) if candidate not in [*new, *tried]]
    return new


def best_for_contexts(trials: Sequence[Trial]) -> AbstractFit | None:
    """The fit whose contexts agree best with the run; None where there is none."""
    if len(trials) < 2:
        return trials[0].fit if trials else None
    return max(trials, key=lambda trial: np.nan_to_num(trial.scores[0], nan=-2.0)).fit


@dataclass(frozen=True, eq=False)
class Chooser:
    """Chooses free parameters for a run, on folds of its contexts (each pair of supports counts once) and tokens."""

    inputs: Inputs
    folds: Mapping[ItemKind, CrossFit]

    @staticmethod
    def of(inputs: Inputs) -> Chooser:
        """For the items of these inputs."""
        return Chooser(
            inputs,
            {items: CrossFit.of(inputs.units(items), by_unit=items == "contexts") for items in CONTEXTS_AND_TOKENS},
        )

    def observed(self, items: ItemKind) -> Float:
        """Mean cosines of the items over the runs."""
        runs = self.inputs.geometries[items]
        return runs[0].cosines if len(runs) == 1 else np.mean([run.cosines for run in runs], axis=0)

    def explain(
        self, kind: type[AbstractRival], stats: NextTokenStatistics, known: FitInputs
    ) -> tuple[Explained, AbstractFit] | None:
        """An explanation by statistics of the tokens that occur, and the fit that is best for contexts.

        None where it is left out.
        """
        trials = try_candidates(kind, stats, known, self._scores)
        best = best_for_contexts(trials)
        if best is None:
            return None
        about = kind.info()
        if len(trials) < 2:
            return Explained(about, *(self._geometry(best, items) for items in CONTEXTS_AND_TOKENS)), best
        chosen = {items: self._chosen(trials, items) for items in CONTEXTS_AND_TOKENS}
        values = [trials[place].candidate.chosen for _, place in chosen.values()]
        said = values[0] if values[0] == values[1] else f"{values[0]} for contexts and {values[1]} for tokens"
        parameters = f"{said}, the best of {len(trials)}; chosen on other items than those that are judged"
        return Explained(replace(about, parameters=parameters), *(geometry for geometry, _ in chosen.values())), best

    def _vectors(self, fit: AbstractFit, items: ItemKind) -> Float:
        contexts, tokens = self.inputs.drawn
        return fit.tokens(tokens) if items == "tokens" else fit.contexts(contexts)

    def _geometry(self, fit: AbstractFit, items: ItemKind) -> Geometry:
        return Geometry.of(self._vectors(fit, items), fit.seeds)

    def _scores(self, fit: AbstractFit) -> list[float]:
        return [
            float(self.folds[items].agreements(self.observed(items), [full_cosines(self._vectors(fit, items))])[0])
            for items in CONTEXTS_AND_TOKENS
        ]

    def _chosen(self, trials: Sequence[Trial], items: ItemKind) -> tuple[Geometry, int]:
        """Cosines of the candidates that fit best on other items, and which candidate is best on all."""
        candidates = [full_cosines(self._vectors(trial.fit, items)) for trial in trials]
        cosines, best = self.folds[items].choose(self.observed(items), candidates)
        return replace(self._geometry(trials[best].fit, items), cosines=cosines), best

    def together(self, explained: Sequence[Explained]) -> Explained:
        """What all explanations say together."""
        geometries = []
        for items in CONTEXTS_AND_TOKENS:
            cosines = [explanation.of(items).cosines for explanation in explained]
            combined = self.folds[items].together(self.observed(items), cosines)
            np.fill_diagonal(combined, 1.0)
            geometries.append(Geometry(combined))
        return Explained(COUNTS.info, *geometries)


@dataclass(frozen=True)
class Lead:
    """Difference in agreement between two explanations, with its paired 95% interval."""

    value: Number
    low: Number
    high: Number

    @property
    def is_clear(self) -> bool:
        """Whether the low end of the interval is above the resolution."""
        return self.low > RESOLUTION

    @property
    def turned(self) -> Lead:
        """The same difference seen from the other explanation."""
        return Lead(-self.value, -self.high, -self.low)

    def __str__(self) -> str:
        interval = f" [{self.low:.3g}, {self.high:.3g}]" if np.isfinite(self.low) else ""
        return f"{self.value:.3g}{interval}"


@dataclass(frozen=True)
class RivalRow:
    """One explanation, evaluated on one kind of items of a run.

    ``rival``, ``meaning``, ``uses``, ``parameters``, ``ours``
        As in `ExplanationInfo`.
    ``items``
        One of `ItemKind`.
    ``agreement``, ``similarity``
        As in `SimilarityNumbers`, with intervals and, where they were asked for, floors.
    ``behind``
        How far its agreement (`Agreement.fair`) is behind that of the best explanation of these items; 0 for the best.
    ``ahead``
        How far its agreement is ahead of the prediction's; NaN where no prediction was among the explanations.
    ``without_direction``
        Number of items without a direction; they count as unlike all others.
    """

    dropped: ClassVar[tuple[str, ...]] = ("cka",)

    rival: str
    meaning: str
    uses: str
    parameters: str
    ours: bool
    items: ItemKind
    agreement: Agreement
    similarity: Agreement
    behind: Lead
    ahead: Lead
    without_direction: Annotated[int, Within(0)]

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, nested."""
        numbers = {name: getattr(self, name).to_dict() for name in ("agreement", "similarity")}
        return asdict(self) | numbers


def rival_rows(
    assessed: AssessedNumbers, explanations: Mapping[str, ExplanationInfo], prediction: str | None
) -> list[RivalRow]:
    """Rows of the explanations, best first; of equal ones, the first in the mapping.

    ``explanations`` have the keys of their numbers; ``prediction`` is the key of what the others are compared with.
    """
    numbers, agreements = assessed.numbers, assessed.agreements()
    assert isinstance(numbers, SimilarityNumbers)
    agreement, similarity = (numbers.number(kind) for kind in KINDS)
    order = sorted(explanations, key=lambda key: -np.nan_to_num(agreements[key, agreement].fair, nan=-2.0))
    unknown = (float("nan"),) * 3

    def difference(key: str, other: str | None) -> Lead:
        return Lead(*(unknown if other is None else assessed.difference((key, agreement), (other, agreement))))

    return [
        RivalRow(
            rival=explanations[key].name,
            **{name: value for name, value in asdict(explanations[key]).items() if name != "name"},
            items=numbers.items,
            agreement=agreements[key, agreement],
            similarity=agreements[key, similarity],
            behind=difference(order[0], key),
            ahead=difference(key, prediction),
            without_direction=numbers.targets[key].without_direction,
        )
        for key in order
    ]
