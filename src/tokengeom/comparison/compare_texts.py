"""The verb `compare_texts`: two texts side by side, how alike their predicted geometries are and what moved most.

Both texts are restricted to the tokens and contexts that they share, and these are put in the order of their names. So
the numbers depend neither on the order of the two texts nor on that of tokens and contexts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np
from scipy import sparse

from tokengeom.ask.named_vectors import Items, item_names
from tokengeom.comparison.agreement import CONTEXTS_AND_TOKENS, Agreement, Name, assess, check_permutations
from tokengeom.comparison.similarity import NO_VARIATION
from tokengeom.comparison.similarity_numbers import SimilarityNumbers, sampling_limitations
from tokengeom.comparison.target import AT_LOSS_ENTRIES
from tokengeom.comparison.text_comparison import (
    NUMBERS,
    ComparedText,
    Follower,
    MovedItem,
    Movement,
    Neighbour,
    TextComparison,
)
from tokengeom.core.checks import check_seed, check_tolerance
from tokengeom.core.errors import InputError
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import Float, Int, blas_threads_for, unit_columns
from tokengeom.core.progress import AbstractProgress, SilentProgress
from tokengeom.core.settings import make, option, takes
from tokengeom.problems.base import LARGEST_GAP
from tokengeom.problems.regularised_logits import Merging
from tokengeom.statistics.next_token import NextTokenStatistics, statistics_of
from tokengeom.statistics.shared import shared_statistics
from tokengeom.statistics.supports import canonical
from tokengeom.theory.at_loss import NORMS, LossPrediction, require_norm
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.predict import predict
from tokengeom.theory.proxy import ProxyPrediction, predict_proxy

if TYPE_CHECKING:
    from tokengeom.keywords import CompareTextsKeywords

LIMIT_ENTRIES = 2_000_000
"""Merged tokens times merged contexts up to which L_mm is solved by default: some minutes on one core."""
PROXY_COMPONENTS = 128
"""Leading singular vectors of the proxy."""
BLOCK_ENTRIES = 2_000_000
"""Cosines held at once (16 MB per array)."""
DIGITS = 6
"""Digits to which numbers are rounded before they are ordered: ties are then decided by names, on every machine."""
LISTED = 8
"""Followers that are listed by name."""

Prediction = FeaturePrediction | LossPrediction | ProxyPrediction


@dataclass(frozen=True)
class CompareTextsSettings:
    """Settings of `compare_texts`."""

    top: int = option(20, "Tokens, and contexts, to list among those that moved most.")
    neighbours: int = option(5, "Nearest neighbours to compare.")
    norm: str = option(
        "nuclear",
        "Norm of the logits that is smallest at a loss gap: nuclear, or gamma2, which is nearer to Adam.",
        choices=lambda: tuple(NORMS),
    )
    proxy: bool | None = option(
        None, "Whether to compare the proxy instead of the prediction. By default where the prediction would be large."
    )
    tolerance: float = option(1e-4, "Proven relative gap of both predictions.")
    permutations: int = option(200, "Permutations behind the floors; at least 20, or 0 for no floors.")
    seed: int = option(0, "Seed of permutations and Gaussian embeddings.")

    def __post_init__(self) -> None:
        require_norm(self.norm)
        check_tolerance(self.tolerance)
        check_permutations(self.permutations)
        check_seed(self.seed)
        for name in ("top", "neighbours"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1; got {getattr(self, name)}.")


@takes(CompareTextsSettings)
def compare_texts(
    first: NextTokenStatistics | str | Path,
    second: NextTokenStatistics | str | Path,
    *,
    loss_gap: float | None = None,
    progress: AbstractProgress | None = None,
    **settings: Unpack[CompareTextsKeywords],
) -> TextComparison:
    """Compare the predicted geometries of two texts on the tokens and contexts that both have.

    Parameters
    ----------
    first, second
        Statistics of the two texts, or folders of saved ones; counted with the same tokenizer and context length.
    loss_gap
        Loss above the entropy floor, in nats, at which both geometries are predicted. By default in the limit of
        training, where they depend on the supports alone.
    progress
        Where to show the work; by default nowhere.
    """
    chosen, shown = make(CompareTextsSettings, settings, "compare_texts"), progress or SilentProgress()
    given = [statistics_of(text, "compare_texts") for text in (first, second)]
    shared = [_in_order_of_names(text) for text in shared_statistics(given[0], given[1])]
    is_proxy, notes = _choose_proxy(shared, loss_gap, chosen)
    predictions = _predictions(shared, loss_gap, is_proxy, chosen, shown)
    with shown.stage("Comparing", None), blas_threads_for(shared[0].V, shared[0].m):
        units = _units(shared)
        notes += _limitations(predictions, shared)
        sides = [{"contexts": known.H, "tokens": Factors(known.W, known.H).tokens} for known in predictions]
        # Which geometry is permuted must not depend on the order of the texts.
        order = sorted((0, 1), key=lambda k: shared[k].hash)
        agreements = _agreements([sides[k] for k in order], units, chosen)
        contexts = _movement("contexts", sides, units, shared, chosen)
        tokens = _movement("tokens", sides, np.arange(shared[0].V, dtype=np.int64), shared, chosen)
    return TextComparison(
        first=_compared(given[0], shared[0], shared[1]),
        second=_compared(given[1], shared[1], shared[0]),
        agreements=agreements,
        tokens=tokens,
        contexts=contexts,
        loss_gap=None if is_proxy else loss_gap,
        is_proxy=is_proxy,
        limitations=tuple(notes),
        settings=asdict(chosen) | {"loss_gap": loss_gap},
    )


def _in_order_of_names(stats: NextTokenStatistics) -> NextTokenStatistics:
    """The same statistics with tokens and contexts in the order of their names."""
    names = item_names(stats, "contexts")
    rows = np.array(sorted(range(stats.V), key=stats.vocabulary.__getitem__), dtype=np.int64)
    columns = np.array(sorted(range(stats.m), key=names.__getitem__), dtype=np.int64)
    return replace(
        stats,
        table=canonical(sparse.csr_array(stats.table)[rows][:, columns]),
        vocabulary=tuple(stats.vocabulary[z] for z in rows),
        contexts=None if stats.contexts is None else stats.contexts[columns],
        labels=tuple(names[j] for j in columns) if stats.contexts is None else None,
        text_counts=None if stats.text_counts is None else stats.text_counts[columns],
        claimed=None,
    )


def _choose_proxy(
    shared: Sequence[NextTokenStatistics], loss_gap: float | None, settings: CompareTextsSettings
) -> tuple[bool, list[str]]:
    """Whether to compare the proxy, and a sentence that says why."""
    if settings.proxy and loss_gap is not None:
        raise InputError("The proxy has no loss: give a loss gap, or ask for the proxy, not both.")
    if settings.proxy is not None:
        return settings.proxy, ["The proxy was asked for: it is not proven to be near L_mm."] if settings.proxy else []
    most = LIMIT_ENTRIES if loss_gap is None else AT_LOSS_ENTRIES[settings.norm]
    sizes = [Merging.of(text.S if loss_gap is None else text.P) for text in shared]
    large = max(sizes, key=lambda size: size.entries)
    if large.entries <= most:
        return False, []
    what = "L_mm" if loss_gap is None else f"the prediction at a loss gap of {loss_gap:g} nats"
    return True, [
        f"The proxy stands in for {what}: {large.a.size:,} distinct tokens x {large.n.size:,} distinct contexts would "
        "take minutes. It is not proven to be near L_mm. Ask for the prediction with proxy=False (--no-proxy)."
    ]


def _predictions(
    shared: Sequence[NextTokenStatistics],
    loss_gap: float | None,
    is_proxy: bool,
    settings: CompareTextsSettings,
    progress: AbstractProgress,
) -> list[Prediction]:
    """The prediction for each text; equal statistics have the same one."""

    def made(stats: NextTokenStatistics) -> Prediction:
        if is_proxy:
            with progress.stage("Predicting the proxy", None):
                return predict_proxy(stats, components=min(PROXY_COMPONENTS, min(stats.V, stats.m) - 1))
        if loss_gap is None:
            return predict(stats, tolerance=settings.tolerance, progress=progress)
        return predict(stats, loss_gap=loss_gap, norm=settings.norm, tolerance=settings.tolerance, progress=progress)

    first = made(shared[0])
    return [first, first if shared[0].hash == shared[1].hash else made(shared[1])]


def _units(shared: Sequence[NextTokenStatistics]) -> Int:
    """Unit of each context, m, numbered by first contexts: those of one unit have the same support in both texts."""
    labels = np.stack([np.asarray(text.groups.label, dtype=np.int64) for text in shared])
    _, first, unit = np.unique(labels, axis=1, return_index=True, return_inverse=True)
    place = np.argsort(np.argsort(first))
    return np.asarray(place[unit.reshape(-1)], dtype=np.int64)


def _agreements(sides: Sequence[dict[str, Float]], units: Int, settings: CompareTextsSettings) -> dict[str, Agreement]:
    """The numbers that `compare` gives, between two predictions, over items with a direction in both."""
    agreements: dict[Name, Agreement] = {}
    for items in CONTEXTS_AND_TOKENS:
        pair = [side[items] for side in sides]
        kept = np.flatnonzero(np.logical_and.reduce([vectors.any(axis=0) for vectors in pair]))
        groups = units[kept] if items == "contexts" else None
        numbers = SimilarityNumbers.of(items, pair[0][:, kept], {"": pair[1][:, kept]}, groups)
        agreements |= assess(numbers, permutations=settings.permutations, seed=settings.seed).agreements()
    return {number: agreements["", number] for number in NUMBERS}


def moved_numbers(first: Float, second: Float, units: Int) -> Float:
    """How far each of n items moved, n, from two geometries d x n and e x n with one item per column.

    ``units`` (n) numbers what is not paired: items of the same unit. See `tokengeom.comparison.text_comparison`.
    """
    X, Y, n = unit_columns(first), unit_columns(second), units.size
    moved, step = np.zeros(n), max(1, BLOCK_ENTRIES // max(n, 1))
    for begin in range(0, n, step):
        part = slice(begin, min(begin + step, n))
        apart = units[part, None] != units[None, :]
        x, y = X[:, part].T @ X, Y[:, part].T @ Y
        moved[part] = _one_less_correlation(x, y, apart.astype(np.float64))
    return moved


def _one_less_correlation(x: Float, y: Float, apart: Float) -> Float:
    """1 less the correlation of each row of x and y (b x n) where ``apart`` is 1; exactly 0 for equal rows."""
    pairs = np.maximum(apart.sum(axis=1), 1.0)
    equal = ((x == y) | (apart == 0)).all(axis=1)
    x, y = (apart * (row - ((apart * row).sum(axis=1) / pairs)[:, None]) for row in (x, y))
    xx, yy, xy = ((a * b).sum(axis=1) / pairs for a, b in ((x, x), (y, y), (x, y)))
    varies = np.minimum(xx, yy) > NO_VARIATION
    correlation = np.where(varies, xy / np.sqrt(np.where(varies, xx * yy, 1.0)), 0.0)
    return np.where(equal, 0.0, 1.0 - np.clip(correlation, -1.0, 1.0))


def _movement(
    items: Items,
    sides: Sequence[dict[str, Float]],
    units: Int,
    shared: Sequence[NextTokenStatistics],
    settings: CompareTextsSettings,
) -> Movement:
    """How far all tokens, or all contexts, moved, and those that moved most with their reasons."""
    names = item_names(shared[0], items)
    pair = sides[0][items], sides[1][items]
    moved = moved_numbers(*pair, units)
    order = np.argsort(-np.round(moved, DIGITS), kind="stable")
    # One context per unit: the others have the same supports in both texts.
    top = order[np.sort(np.unique(units[order], return_index=True)[1])[: settings.top]]
    alike = np.bincount(units)[units] - 1
    counts = [sparse.csr_array(text.counts) if items == "tokens" else text.counts for text in shared]
    others = item_names(shared[0], "contexts" if items == "tokens" else "tokens")
    near = _neighbours(pair, top, names, settings.neighbours)
    listed = []
    for k, i in enumerate(top):
        gained, lost = near[k]
        supports = _followers(counts, int(i))
        only = [_only(supports[here], supports[1 - here], others) for here in (0, 1)]
        listed.append(
            MovedItem(
                name=names[i],
                moved=float(moved[i]),
                alike=int(alike[i]),
                gained=gained,
                lost=lost,
                only_first=only[0][:LISTED],
                only_second=only[1][:LISTED],
                in_both=len(supports[0].keys() & supports[1].keys()),
                in_first=len(only[0]),
                in_second=len(only[1]),
            )
        )
    return Movement(names, moved, tuple(listed), items)


def _neighbours(
    pair: tuple[Float, Float], chosen: Int, names: Sequence[str], count: int
) -> list[tuple[tuple[Neighbour, ...], tuple[Neighbour, ...]]]:
    """Neighbours that each of the chosen items gained and lost; equal cosines are neighbours together."""
    units = [unit_columns(vectors) for vectors in pair]
    cosines = [np.round(np.clip(unit[:, chosen].T @ unit, -1.0, 1.0), DIGITS) + 0.0 for unit in units]
    neighbours = []
    for k, i in enumerate(chosen):
        rows = [np.where(np.arange(len(names)) == i, -2.0, cosine[k]) for cosine in cosines]
        nearest = [np.argsort(-row, kind="stable")[:count] for row in rows]
        # An item as near as the last of the nearest is a neighbour too, listed or not.
        near = [(row >= row[best[-1]]) & (row > 0) for row, best in zip(rows, nearest, strict=True)]
        changed = [[j for j in nearest[here] if near[here][j] and not near[1 - here][j]] for here in (1, 0)]
        gained, lost = (
            tuple(Neighbour(names[j], float(cosines[0][k, j]), float(cosines[1][k, j])) for j in some)
            for some in changed
        )
        neighbours.append((gained, lost))
    return neighbours


def _followers(counts: Sequence[sparse.sparray], i: int) -> list[dict[int, int]]:
    """Support of item i in each text, with counts; ``counts`` are compressed along the items."""
    parts = [(table, slice(table.indptr[i], table.indptr[i + 1])) for table in counts]
    return [dict(zip(table.indices[p].tolist(), table.data[p].tolist(), strict=True)) for table, p in parts]


def _only(here: dict[int, int], there: dict[int, int], names: Sequence[str]) -> tuple[Follower, ...]:
    """What is in one support and not in another, most frequent first."""
    followers = [Follower(names[z], count) for z, count in here.items() if z not in there]
    return tuple(sorted(followers, key=lambda follower: (-follower.count, follower.name)))


def _compared(whole: NextTokenStatistics, shared: NextTokenStatistics, other: NextTokenStatistics) -> ComparedText:
    alone = sparse.csc_array(shared.counts - shared.counts.multiply(other.S))
    alone.eliminate_zeros()
    return ComparedText(
        statistics_hash=whole.hash,
        windows=shared.n,
        all_windows=whole.n,
        tokens=whole.V,
        contexts=whole.m,
        only_pairs=int(alone.nnz),
        only_once=int((alone.data == 1).sum()),
    )


def _limitations(predictions: Sequence[Prediction], shared: Sequence[NextTokenStatistics]) -> list[str]:
    """Proof and uniqueness of each prediction, and which items the agreement is about."""
    sentences = []
    for name, prediction in zip(("first", "second"), predictions, strict=True):
        about, proof = [], 0.0
        if isinstance(prediction, FeaturePrediction):
            about, proof = list(prediction.warnings), prediction.certificate.relative_gap
            if prediction.spread is not None and not prediction.spread.looks_unique:
                about.append(f"{prediction.spread.sentence} Smaller movements have no meaning.")
        elif isinstance(prediction, LossPrediction):
            proof = prediction.relative_gap
        elif prediction.captured < 0.999:
            about.append(f"the proxy's leading directions hold {prediction.captured:.1%} of its squared norm.")
        if proof > LARGEST_GAP:
            about.append(f"the prediction is proven only to a relative gap of {proof:.1e}.")
        sentences += [f"The {name} text: {sentence}" for sentence in about]
    kept = np.flatnonzero(np.logical_and.reduce([known.H.any(axis=0) for known in predictions]))
    if kept.size < shared[0].m:
        sentences.append(
            f"{shared[0].m - kept.size:,} of {shared[0].m:,} contexts have no predicted direction in one of the texts, "
            "because every shared token follows them: they are left out of the agreement."
        )
    return sentences + sampling_limitations(shared[0].V, kept, np.arange(shared[0].V, dtype=np.int64))
