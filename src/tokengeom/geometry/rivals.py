"""Contexts left out: explanations are made from the others, and judged on these; every context has its turn.

Whole support groups are left out, so that no context which is judged shares its support with one that the tokens were
made from. A token that follows none of the kept contexts has no token; what is left out is read on the other tokens.

The verb `rivals`: which of six explanations gives the geometry of a run best, on the same contexts and tokens.

Each rival makes tokens and contexts from the statistics alone (``rival_rules``). Their cosines and Grams are held
against the run's: SIM and CKA, with intervals, a permutation null, and the paired difference to the best. Held-out
contexts are left out when the tokens are made (``held_out``), and placed by each rival's own rule (``rival_fits``). They
are held out from the explanations alone: the run itself was trained on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokengeom.errors import ProblemError
from tokengeom.factors import Factors
from tokengeom.geometry.agreement import Drawn, check_draws, draw
from tokengeom.geometry.compare import run_state
from tokengeom.geometry.rival_numbers import FoldedNumbers, RivalNumbers
from tokengeom.geometry.rival_rules import AbstractRival, MaximumMargin, all_rivals
from tokengeom.geometry.rival_table import Lead, RivalRow, Rivals
from tokengeom.numerics import blas_threads_for
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.proxy import ProxyPrediction

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokengeom.factors import Factors
    from tokengeom.geometry.rival_fits import AbstractFit
    from tokengeom.numerics import Int
    from tokengeom.statistics.next_token import NextTokenStatistics


FEWEST = 3
"""Contexts, and supports of the others, below which there is nothing to judge, or nothing to judge it with."""
DEALS = 4
"""Times that folds are dealt: which supports are left out together moves SIM by about as much as rivals differ."""
FEW_ENTRIES = 100_000
"""Tokens times supports up to which a solve for L_mm takes about a tenth of a second."""


@dataclass(frozen=True, eq=False)
class Split:
    """Statistics of the kept contexts, and what is judged.

    ``columns``
        Contexts that are judged, in the order of the statistics that were split.
    ``P``
        Their next-token probabilities on the kept tokens, V' x k.
    ``lost_tokens``
        Tokens that follow no kept context. Left-out contexts that only such tokens follow cannot be placed or judged.
    """

    kept: NextTokenStatistics
    columns: Int
    P: Any
    lost_tokens: int


def deals_for(stats: NextTokenStatistics) -> int:
    """How often folds are dealt: once where statistics are large, since every turn solves for L_mm again."""
    return DEALS if stats.V * stats.groups.count <= FEW_ENTRIES else 1


def folds(stats: NextTokenStatistics, share: float, seed: int, deals: int = 1) -> list[Split]:
    """Deal support groups into ``1/share`` folds of about equal size, ``deals`` times anew; each fold is left out once.

    Groups are drawn at random and go where the fewest contexts are. A fold in which fewer than ``FEWEST`` contexts can
    be placed, or that leaves fewer than ``FEWEST`` supports to others, is not judged; there may be none that is.
    """
    if not 0.0 < share <= 0.5:
        raise ProblemError(
            f"The share of contexts to hold out must be above 0 and at most 0.5; got held_out={share}. 0.2 is usual, "
            "0 holds none out."
        )
    rng, count, found = np.random.default_rng(seed), round(1.0 / share), []
    for _ in range(deals):
        fold_of = _dealt(stats.groups.multiplicity, count, rng)
        enough = [fold for fold in range(count) if np.count_nonzero(fold_of != fold) >= FEWEST]
        found += [leave_out(stats, np.flatnonzero(fold_of[stats.groups.label] == fold)) for fold in enough]
    return [split for split in found if split.columns.size >= FEWEST]


def _dealt(sizes: Int, count: int, rng: np.random.Generator) -> Int:
    """Fold of each group."""
    filled, fold_of = np.zeros(count), np.empty(sizes.size, dtype=np.int64)
    for group in rng.permutation(sizes.size):
        fold_of[group] = np.argmin(filled)
        filled[fold_of[group]] += sizes[group]
    return fold_of


def leave_out(stats: NextTokenStatistics, columns: Int) -> Split:
    """Leave out these contexts."""
    kept = np.setdiff1d(np.arange(stats.m), columns)
    seen = np.asarray(stats.S[:, kept].sum(axis=1)).ravel() > 0
    mass = np.asarray(stats.P[seen].sum(axis=0)).ravel()
    placed = columns[mass[columns] > 0]
    inside = stats.P[seen].tocsc()
    return Split(
        NextTokenStatistics.from_probabilities(inside[:, kept], stats.pi[kept] / stats.pi[kept].sum()),
        placed,
        (inside[:, placed] / mass[placed]).tocsc(),
        int((~seen).sum()),
    )


__all__ = ["RivalRow", "Rivals", "rivals"]

_Numbers = RivalNumbers | FoldedNumbers
HELD_OUT = "held-out contexts"
MOST_ITEMS = 500
"""Items up to which all are judged; of more, this many are drawn at random (125,000 pairs, 2 MB a matrix)."""


def rivals(
    stats: NextTokenStatistics,
    run: Any,
    prediction: FeaturePrediction | ProxyPrediction | None = None,
    *,
    held_out: float = 0.2,
    k: float = 1.0,
    resamples: int = 200,
    permutations: int = 200,
    seed: int = 0,
) -> Rivals:
    """Hold a run against six explanations of its geometry.

    Parameters
    ----------
    stats
        What the run was trained on.
    run
        What ``train`` returned, any object with W (V x d) and H (d x m), or the pair (W, H).
    prediction
        Of learned features, for L_mm, which is else solved for. A prediction of the proxy alone, for statistics beyond
        the solver's size, leaves L_mm out.
    held_out
        Share of the contexts that explanations are made without, and then judged on, until every context has had
        its turn; 0 for none. Each turn solves for L_mm again.
    k
        Of shifted PMI: the shift is log k.
    resamples, permutations
        Draws behind the intervals and the null; 0 leaves them out (NaN).
    """
    check_draws(resamples, permutations)
    factors = Factors.of(run)
    factors.require_sizes(stats.V, stats.m)
    members = _members(stats, prediction, k)
    draws = {"resamples": resamples, "permutations": permutations, "seed": seed}
    with blas_threads_for(stats.V, stats.m):
        fits = {rival.name: rival.fit(stats) for rival in members}
        families: list[_Numbers] = [_contexts(factors, fits, seed), _tokens(factors, fits, seed)]
        splits = folds(stats, held_out, seed, deals_for(stats)) if held_out else []
        if splits:
            families.append(_held_out(factors, members, splits, seed))
        rows = [row for numbers in families for row in _rows(draw(numbers, **draws), members)]
    judged = families[-1].size if splits else 0
    caveats = [*run_state(run), *_sampling(factors, fits)]
    caveats += _leaving_out(splits, judged, stats) if held_out else []
    if isinstance(prediction, ProxyPrediction):
        caveats.append("L_mm was not solved for: the proxy stands alone for what supports explain.")
    return Rivals(tuple(rows), judged, tuple(caveats), **draws)


def _members(stats: NextTokenStatistics, prediction: Any, k: float) -> tuple[AbstractRival, ...]:
    if prediction is not None and not isinstance(prediction, FeaturePrediction | ProxyPrediction):
        raise ProblemError(
            "Rivals explain learned tokens and contexts, and need a prediction of those, or none; got "
            f"{type(prediction).__name__}. Call predict(stats) without embeddings."
        )
    if isinstance(prediction, ProxyPrediction):
        return all_rivals(k)[:-1]
    if prediction is not None:
        _require_same(stats, prediction)
    return all_rivals(k, prediction)


def _require_same(stats: NextTokenStatistics, prediction: FeaturePrediction) -> None:
    theirs = prediction.P
    if theirs.shape != stats.P.shape or (theirs.astype(bool) != stats.P.astype(bool)).nnz:
        raise ProblemError(
            f"The prediction must be for these statistics; it has {theirs.shape[0]} tokens, {theirs.shape[1]} contexts "
            f"and {theirs.nnz} pairs, and the statistics {stats.V}, {stats.m} and {stats.table.nnz}. Predict again "
            "from these statistics, or leave the prediction out."
        )


def _contexts(run: Factors, fits: Mapping[str, AbstractFit], seed: int) -> RivalNumbers:
    chosen = _chosen(run.H.shape[1], seed)
    return RivalNumbers("contexts", run.H[:, chosen], {name: fit.contexts(chosen) for name, fit in fits.items()})


def _tokens(run: Factors, fits: Mapping[str, AbstractFit], seed: int) -> RivalNumbers:
    chosen = _chosen(run.W.shape[0], seed)
    return RivalNumbers("tokens", run.tokens[:, chosen], {name: fit.tokens(chosen) for name, fit in fits.items()})


def _held_out(run: Factors, members: Sequence[AbstractRival], splits: Sequence[Split], seed: int) -> FoldedNumbers:
    """Explanations made from the kept contexts, on those left out, turn by turn."""
    fresh = [MaximumMargin() if isinstance(rival, MaximumMargin) else rival for rival in members]
    columns, turns = [], []
    for split in splits:
        chosen = _chosen(split.columns.size, seed)
        columns.append(split.columns[chosen])
        placed = {rival.name: rival.fit(split.kept).place(split.P[:, chosen]) for rival in fresh}
        turns.append(RivalNumbers(HELD_OUT, run.H[:, columns[-1]], placed))
    return FoldedNumbers(HELD_OUT, columns, turns)


def _chosen(count: int, seed: int) -> Int:
    """All items, or so many drawn at random that their pairs fit in memory."""
    if count <= MOST_ITEMS:
        return np.arange(count, dtype=np.int64)
    return np.sort(np.random.default_rng(seed).choice(count, MOST_ITEMS, replace=False))


def _rows(drawn: Drawn, members: Sequence[AbstractRival]) -> list[RivalRow]:
    """Rows of one kind of items, best first; equal numbers keep the simpler explanation first."""
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


def _sampling(run: Factors, fits: Mapping[str, AbstractFit]) -> list[str]:
    found = []
    for items, count in (("contexts", run.H.shape[1]), ("tokens", run.W.shape[0])):
        if count > MOST_ITEMS:
            found.append(f"Of {count} {items}, {MOST_ITEMS} drawn at random are judged.")
    cut = [name for name, fit in fits.items() if fit.is_truncated]
    if cut:
        found.append(f"Of {', '.join(cut)} only the leading singular vectors were kept: the statistics are large.")
    return found


def _leaving_out(splits: Sequence[Split], judged: int, stats: NextTokenStatistics) -> list[str]:
    if not splits:
        return ["No contexts were held out: there are too few supports to leave some out and judge by the others."]
    found = [
        f"Held out: {judged} contexts in {len(splits)} turns (deals: {deals_for(stats)}), each with all that share its "
        "support. Tokens come from the other contexts, each rival places the held-out ones by its own rule, and numbers "
        "are means over turns; one in which a rival or the run gives all contexts one direction does not count. The "
        "run was trained on all contexts. Pairs are those within a turn, so that these numbers and those of all "
        "contexts are not to be held against each other. Intervals do not cover the luck of the deals."
    ]
    if judged < stats.m:
        found.append(
            f"{stats.m - judged} contexts are never judged held out: only tokens follow them that no context outside "
            "their turn has, or they were not drawn, or their turn is too small."
        )
    return found
