"""The verb `rivals`: which explanation fits the geometry of a run best, on the same contexts and tokens.

Each explanation makes tokens and contexts from the statistics alone (``explanations/``, one file each). Their cosines
and Gram matrices are compared with the run's: SIM and CKA, with intervals, a permutation null, and the paired
difference to the best.

Held-out contexts: support groups are split at random into folds. Each explanation is fitted without a fold and then
places its contexts by its own rule. A fold holds whole groups, so no evaluated context shares its support with one that
the tokens were made from. A token that follows no kept context is not in the fit, and held-out contexts are read on the
other tokens. The explanations are made without these contexts; the run itself was trained on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tokengeom.errors import ProblemError
from tokengeom.factors import Factors
from tokengeom.geometry.agreement import DrawnNumbers, draw
from tokengeom.geometry.compare import (
    CompareSettings,
    Observed,
    hash_of,
    require_same_statistics,
    run_limitations,
    run_of,
)
from tokengeom.geometry.explanations.base import AbstractFit, AbstractRival
from tokengeom.geometry.rival_numbers import FoldedNumbers, RivalNumbers
from tokengeom.geometry.rival_table import Lead, RivalRow, Rivals
from tokengeom.numerics import blas_threads_for
from tokengeom.progress import SilentProgress
from tokengeom.results import load
from tokengeom.settings import make, member, member_names, option, takes
from tokengeom.statistics.next_token import NextTokenStatistics, statistics_of
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.proxy import ProxyPrediction

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scipy.sparse import csc_array

    from tokengeom.numerics import Int
    from tokengeom.progress import AbstractProgress, AbstractStage

EXPLANATIONS = "tokengeom.geometry.explanations"
HELD_OUT = "held-out contexts"
MOST_ITEMS = 500
"""Items up to which all are evaluated; of more, this many are drawn at random (125,000 pairs, 2 MB per matrix)."""
FEWEST = 3
"""Smallest number of held-out contexts, and of supports that are kept, in a fold that is evaluated."""
RANDOM_SPLITS = 4
"""Random splits into folds: which supports are held out together changes SIM by about as much as rivals differ."""
FEW_ENTRIES = 100_000
"""Tokens times supports up to which a solve for L_mm takes about a tenth of a second."""

_Numbers = RivalNumbers | FoldedNumbers


@dataclass(frozen=True)
class RivalSettings(CompareSettings):
    """Which explanations are compared, and how."""

    held_out: float = option(
        0.2,
        "Share of the contexts to hold out when explanations are fitted, and to evaluate them on; at most 0.5, 0 for "
        "none.",
    )
    k: float = option(1.0, "k of shifted PMI, whose shift is log k.")
    explanations: tuple[str, ...] | str | None = option(
        None, "Which explanations, by file name; all by default.", choices=lambda: member_names(EXPLANATIONS)
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.held_out != 0:
            _check_share(self.held_out)


@takes(RivalSettings)
def rivals(
    stats: NextTokenStatistics | str | Path,
    run: Observed | str | Path,
    prediction: FeaturePrediction | ProxyPrediction | str | Path | None = None,
    *,
    progress: AbstractProgress | None = None,
    **settings: object,
) -> Rivals:
    """Compare explanations of a run's geometry.

    Parameters
    ----------
    stats
        Statistics that the run was trained on, or the path of saved ones.
    run
        What ``train`` returned, the path of a saved run, any object with W (V x d) and H (d x m), or the pair (W, H).
    prediction
        Prediction of learned features, or its path; L_mm is solved for where it is not given. A prediction of the proxy
        alone, for statistics that are too large to solve, leaves L_mm out. L_mm is solved for again in every fold.
    """
    chosen = make(RivalSettings, settings, "rivals")
    stats, observed = statistics_of(stats, "rivals"), run_of(run)
    given = _checked_prediction(prediction, stats)
    require_same_statistics("statistics", stats.hash, "run", hash_of(observed))
    factors = Factors.of(observed)
    factors.require_sizes(stats.V, stats.m)
    members, left_out = explanations_of(chosen, given)
    folds = make_folds(stats, chosen.held_out, chosen.seed, random_splits(stats)) if chosen.held_out else []
    shown = (progress or SilentProgress()).stage("Fitting explanations", len(members) * (1 + len(folds)))
    with blas_threads_for(stats.V, stats.m), shown as stage:
        fits = {rival.name: _fit(rival, stats, stage) for rival in members}
        families: list[_Numbers] = [_contexts(factors, fits, chosen.seed), _tokens(factors, fits, chosen.seed)]
        if folds:
            fresh = [rival for rival in explanations_of(chosen, None)[0] if rival.name in fits]
            families.append(_held_out(factors, fresh, folds, chosen.seed, stage))
        rows = [row for numbers in families for row in _rows(draw(numbers, **chosen.draws), members)]
    evaluated = families[-1].size if folds else 0
    limitations = [*run_limitations(observed), *_sampling_limitations(factors, fits)]
    limitations += _held_out_limitations(folds, evaluated, stats) if chosen.held_out else []
    limitations += [f"{name} was left out, because the given prediction is of the proxy alone." for name in left_out]
    return Rivals(tuple(rows), evaluated, tuple(limitations), **chosen.draws)


def explanations_of(
    settings: RivalSettings, prediction: FeaturePrediction | ProxyPrediction | None
) -> tuple[tuple[AbstractRival, ...], tuple[str, ...]]:
    """The explanations that the settings ask for, simplest first, and the names of those that are left out."""
    named = settings.explanations
    names = member_names(EXPLANATIONS) if named is None else (named,) if isinstance(named, str) else named
    classes = [
        member(EXPLANATIONS, name, AbstractRival, "An explanation")  # type: ignore[type-abstract]
        for name in dict.fromkeys(names)
    ]
    classes.sort(key=lambda rival: (rival.order, rival.name))
    made = [(rival.name, rival.of(settings, prediction)) for rival in classes]
    members = tuple(rival for _, rival in made if rival is not None)
    if not members:
        raise ProblemError(
            f"At least one explanation is needed; explanations={named!r} leaves none with this prediction. Choose "
            f"among {', '.join(member_names(EXPLANATIONS))}, or pass no prediction."
        )
    return members, tuple(name for name, rival in made if rival is None)


def _checked_prediction(
    given: FeaturePrediction | ProxyPrediction | str | Path | None, stats: NextTokenStatistics
) -> FeaturePrediction | ProxyPrediction | None:
    if given is None:
        return None
    found: object = load(given) if isinstance(given, str | Path) else given
    if not isinstance(found, FeaturePrediction | ProxyPrediction):
        raise ProblemError(
            "Rivals explain learned tokens and contexts: the prediction must be of learned features, or left out; got "
            f"{type(found).__name__}. Call predict(stats) without embeddings."
        )
    require_same_statistics("statistics", stats.hash, "prediction", hash_of(found))
    if isinstance(found, FeaturePrediction):
        _require_same_supports(stats, found)
    return found


def _require_same_supports(stats: NextTokenStatistics, prediction: FeaturePrediction) -> None:
    theirs = prediction.P
    if theirs.shape != stats.P.shape or (theirs.astype(bool) != stats.P.astype(bool)).nnz:
        raise ProblemError(
            f"The prediction must be for these statistics; it has {theirs.shape[0]} tokens, {theirs.shape[1]} contexts "
            f"and {theirs.nnz} pairs, and the statistics {stats.V}, {stats.m} and {stats.table.nnz}. Predict again "
            "from these statistics, or leave the prediction out."
        )


def _fit(rival: AbstractRival, stats: NextTokenStatistics, stage: AbstractStage) -> AbstractFit:
    found = rival.fit(stats)
    stage.advance(1, rival.name)
    return found


def _contexts(run: Factors, fits: Mapping[str, AbstractFit], seed: int) -> RivalNumbers:
    chosen = _sample(run.H.shape[1], seed)
    return RivalNumbers("contexts", run.H[:, chosen], {name: fit.contexts(chosen) for name, fit in fits.items()})


def _tokens(run: Factors, fits: Mapping[str, AbstractFit], seed: int) -> RivalNumbers:
    chosen = _sample(run.W.shape[0], seed)
    return RivalNumbers("tokens", run.tokens[:, chosen], {name: fit.tokens(chosen) for name, fit in fits.items()})


def _held_out(
    run: Factors, members: Sequence[AbstractRival], folds: Sequence[Fold], seed: int, stage: AbstractStage
) -> FoldedNumbers:
    """Numbers of explanations that are fitted without a fold and placed on it, for every fold."""
    columns, numbers = [], []
    for fold in folds:
        chosen = _sample(fold.columns.size, seed)
        columns.append(fold.columns[chosen])
        placed = {rival.name: _fit(rival, fold.kept, stage).place(fold.P[:, chosen]) for rival in members}
        numbers.append(RivalNumbers(HELD_OUT, run.H[:, columns[-1]], placed))
    return FoldedNumbers(HELD_OUT, columns, numbers)


def _sample(count: int, seed: int) -> Int:
    """All items, or `MOST_ITEMS` drawn at random."""
    if count <= MOST_ITEMS:
        return np.arange(count, dtype=np.int64)
    return np.sort(np.random.default_rng(seed).choice(count, MOST_ITEMS, replace=False))


def _rows(drawn: DrawnNumbers, members: Sequence[AbstractRival]) -> list[RivalRow]:
    """Rows of one kind of items, best first; of equal ones, the simpler explanation first."""
    numbers, found = drawn.numbers, drawn.agreements()
    assert isinstance(numbers, _Numbers)
    value = {rival.name: found[f"{rival.name} similarity"].value for rival in members}
    order = sorted(members, key=lambda rival: -np.nan_to_num(value[rival.name], nan=-2.0))
    best = f"{order[0].name} similarity"
    return [
        RivalRow(
            rival.name,
            rival.meaning,
            numbers.items,
            found[f"{rival.name} similarity"],
            found[f"{rival.name} cka"],
            Lead(*drawn.difference(best, f"{rival.name} similarity")),
            int(numbers.without_direction(rival.name).size),
        )
        for rival in order
    ]


@dataclass(frozen=True, eq=False)
class Fold:
    """Statistics of the kept contexts, and the contexts that are held out.

    ``columns``
        Held-out contexts that are evaluated, by their place in the full statistics.
    ``P``
        Their next-token probabilities on the kept tokens, V' x k.
    ``lost_tokens``
        Number of tokens that follow no kept context. A held-out context that only such tokens follow is not evaluated.
    """

    kept: NextTokenStatistics
    columns: Int
    P: csc_array
    lost_tokens: int


def random_splits(stats: NextTokenStatistics) -> int:
    """Number of random splits into folds: one where statistics are large, because every fold solves for L_mm."""
    return RANDOM_SPLITS if stats.V * stats.groups.count <= FEW_ENTRIES else 1


def make_folds(stats: NextTokenStatistics, share: float, seed: int, splits: int = 1) -> list[Fold]:
    """Folds of support groups, ``1/share`` of about equal size per random split.

    Groups are taken in random order, and each goes to the fold with the fewest contexts. A fold with fewer than
    `FEWEST` contexts that can be placed, or that leaves fewer than `FEWEST` supports, is dropped; none may remain.
    """
    _check_share(share)
    rng, count, found = np.random.default_rng(seed), round(1.0 / share), []
    for _ in range(splits):
        fold_of = _assign_groups(stats.groups.multiplicity, count, rng)
        enough = [fold for fold in range(count) if np.count_nonzero(fold_of != fold) >= FEWEST]
        found += [leave_out(stats, np.flatnonzero(fold_of[stats.groups.label] == fold)) for fold in enough]
    return [fold for fold in found if fold.columns.size >= FEWEST]


def _check_share(share: float) -> None:
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
    seen = np.asarray(stats.S[:, kept].sum(axis=1)).ravel() > 0
    mass = np.asarray(stats.P[seen].sum(axis=0)).ravel()
    placed = columns[mass[columns] > 0]
    inside = stats.P[seen].tocsc()
    return Fold(
        NextTokenStatistics.from_probabilities(inside[:, kept], stats.pi[kept] / stats.pi[kept].sum()),
        placed,
        (inside[:, placed] / mass[placed]).tocsc(),
        int((~seen).sum()),
    )


def _sampling_limitations(run: Factors, fits: Mapping[str, AbstractFit]) -> list[str]:
    found = []
    for items, count in (("contexts", run.H.shape[1]), ("tokens", run.W.shape[0])):
        if count > MOST_ITEMS:
            found.append(f"{MOST_ITEMS} of {count} {items}, drawn at random, are evaluated.")
    truncated = [name for name, fit in fits.items() if fit.is_truncated]
    if truncated:
        found.append(f"Only the leading singular vectors of {', '.join(truncated)} are used: the statistics are large.")
    return found


def _held_out_limitations(folds: Sequence[Fold], evaluated: int, stats: NextTokenStatistics) -> list[str]:
    if not folds:
        return ["No contexts were held out: there are too few supports to split into folds."]
    splits = random_splits(stats)
    found = [
        f"Held out: {evaluated} contexts in {len(folds)} folds ({splits} random split{'s' if splits > 1 else ''}); "
        "contexts with the same support are in the same fold. Tokens come from the other contexts, each explanation "
        "places the held-out contexts by its own rule, and numbers are means over folds. A fold in which an "
        "explanation or the run gives all contexts the same direction is not counted. The run was trained on all "
        "contexts. Pairs are formed within folds, so these numbers cannot be compared with those of all contexts. "
        "Intervals do not include the variation between random splits."
    ]
    if evaluated < stats.m:
        found.append(
            f"{stats.m - evaluated} contexts were not evaluated: no token that follows them also follows a "
            "context outside their fold, or they were not drawn, or their fold is too small."
        )
    return found
