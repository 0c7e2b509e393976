"""Questions about one token or context: the methods `neighbours` and `explain` of everything that has W and H."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokengeom.ask.item_report import (
    SMALLEST_SHOWN,
    Follows,
    Group,
    ItemReport,
    Logit,
    Measured,
    Pull,
    Pulled,
    SharedFeatures,
    Support,
)
from tokengeom.ask.item_search import Item, find_item, names_of
from tokengeom.ask.named_vectors import Items, NamedVectors, frequency_of
from tokengeom.ask.neighbours import SHARED, EmbeddedItems, Neighbours, SimilarPairs, members, overlaps, same_support
from tokengeom.core.errors import InputError
from tokengeom.core.factors import Factors, FactorsInside, HasFactors
from tokengeom.core.numerics import Bool, Float, Int, log_sum_exp, rounded_percent
from tokengeom.core.settings import takes

if TYPE_CHECKING:
    from pandas import DataFrame

    from tokengeom.statistics.next_token import NextTokenStatistics

Observed = HasFactors | tuple[object, object]
MOST_LISTED = 100
"""Next tokens, or contexts, that an explanation lists."""
MOST_NAMED = 5
"""Items of a group that are named."""
OFF_SUPPORT = 3
"""Tokens outside the support whose logits are listed."""
PULLED_TOWARDS, SMALLEST_COSINE = 3, 0.05
"""Neighbours whose cosine is explained, and the smallest cosine that is."""
PULLS_LISTED, SUBSTANTIAL = 5, 0.25
"""Contributions to a cosine that are listed (the sum of the others is given), and the share of the largest one from
which on those that rest on two windows or more come first."""
NOT_FIXED = 0.05
"""Relative length of the residual of a vector from which on its conditions are said not to fix it."""


@dataclass(frozen=True, eq=False)
class Pulls:
    """What the optimality conditions of a prediction say: each vector is a sum of vectors of the other kind.

    ``h_j = sum_z X_zj w_z`` and ``w_z = sum_j Y_zj h_j``, X and Y on merged tokens and contexts (``theory.pulls``).

    ``geometry``
        W and H of the prediction.
    ``row_of``, ``column_of``
        Merged row of each token, V, and merged column of each context, m; -1 for a context without conditions.
    ``on_contexts``, ``on_tokens``
        X per token and context, V' x m'; Y without ``context_share``, V' x m'.
    ``groups``
        Tokens and contexts that are shown together.
    ``delta``
        Proven bound: half of what all squared residuals, weighted with ``weights``, add up to at most.
    ``context_share``
        What each context is of its merged column in Y, m: Y of a context is that of the column times this.
    ``weights``
        Of tokens (V) and contexts (m) in the gamma_2 norm, with ties the smallest of a context's features; None where
        all weigh the same.
    """

    geometry: HasFactors
    row_of: Int
    column_of: Int
    on_contexts: Float
    on_tokens: Float
    groups: Mapping[Items, Int]
    delta: float
    context_share: Float | float = 1.0
    weights: tuple[Float, Float] | None = None

    def on(self, item: Item) -> Float:
        """Column j of X (V) for a context, row z of Y (m) for a token; 0 for a context without conditions."""
        if item.items == "contexts":
            column = self.column_of[item.index]
            return np.zeros(self.row_of.size) if column < 0 else np.asarray(self.on_contexts[:, column][self.row_of])
        row = np.append(self.on_tokens[self.row_of[item.index]], 0.0)
        return np.asarray(row[self.column_of] * self.context_share)

    def residual(self, item: Item) -> float:
        """``||x - sum|| / ||x||`` of the item's vector; NaN where it is 0."""
        W, H = self.geometry.W, self.geometry.H
        vector, others = (H[:, item.index], W) if item.items == "contexts" else (W[item.index], H.T)
        size = float(np.linalg.norm(vector))
        return float(np.linalg.norm(vector - others.T @ self.on(item))) / size if size > 0 else float("nan")

    def note(self, item: Item) -> str:
        """Where the conditions do not fix the item: why; empty otherwise."""
        if not self.residual(item) > NOT_FIXED:
            return ""
        if self.weights is not None:
            weight = self.weights[item.items == "contexts"][item.index]
            return (
                f"The gamma_2 norm gives this {item.kind} the weight {weight:.1e}: the optimality conditions do not "
                "fix its vector, and the residuals above are what they leave open."
            )
        left = rounded_percent(self.residual(item))
        return f"The prediction is proven only so far that {left} of the vector is left open."


class AnswersQuestions:
    """Methods of everything that has W and H for the tokens and contexts of statistics."""

    if TYPE_CHECKING:

        @property
        def W(self) -> Float:
            """Decoder, one row per token, V x d."""

        @property
        def H(self) -> Float:
            """Context embeddings, one column per context, d x m."""

    @takes()
    def to_frame(self, items: Items = "tokens", stats: NextTokenStatistics | None = None) -> DataFrame:
        """Data frame with one row per token or per context, indexed by name: frequency, supports and coordinates.

        ``stats`` name them; they are needed only for names in a result that was loaded.
        """
        return NamedVectors.of(self, items, stats or getattr(self, "stats", None)).to_frame()

    @takes()
    def neighbours(
        self,
        text: str,
        k: int = 10,
        items: Items | None = None,
        stats: NextTokenStatistics | None = None,
        *,
        other_supports: bool = False,
    ) -> Neighbours:
        """The tokens or contexts that are nearest to one, with cosines and the supports that they share.

        Parameters are those of `tokengeom.neighbours`. A prediction that was made in this session needs no ``stats``.
        """
        named = self._named_by(stats)
        item = find_item(named, text, items, partial(self._placed_item, named))
        if item.placed is not None:
            return replace(item.placed.nearest(item, k), source=self._source)
        nearest = EmbeddedItems(self, named).nearest(item, k, other_supports=other_supports)
        return replace(nearest, source=self._source)

    @takes()
    def pairs(self, k: int = 10, items: Items = "contexts", stats: NextTokenStatistics | None = None) -> SimilarPairs:
        """The most similar pairs of contexts, or of tokens, among those with different supports."""
        return replace(EmbeddedItems(self, self._named_by(stats)).pairs(items, k), source=self._source)

    @takes()
    def explain(
        self,
        text: str,
        k: int = 10,
        items: Items | None = None,
        stats: NextTokenStatistics | None = None,
        *,
        measured: Observed | Sequence[Observed] | Mapping[str, Observed] | None = None,
    ) -> ItemReport:
        """What the text says about a token or context, where it lies, and what pulls it there.

        Parameters are those of `tokengeom.explain`, where ``measured`` are runs, models or pairs (W, H), not folders.
        """
        named, runs = self._named_by(stats), measured_by_name(measured)
        item = find_item(named, text, items, partial(self._placed_item, named))
        if item.placed is not None:
            return item.placed.report(item, self._source, k, runs)
        return _explain(self, item, named, k, runs)

    def _named_by(self, stats: NextTokenStatistics | None) -> NextTokenStatistics:
        """The statistics that name tokens and contexts: those given, or its own."""
        named: NextTokenStatistics | None = stats if stats is not None else getattr(self, "stats", None)
        if named is None:
            raise InputError(
                f"This {type(self).__name__} has no names of tokens and contexts: pass the statistics that it is for "
                "with stats=..., or on the command line --stats FOLDER."
            )
        return named

    @property
    def _source(self) -> str:
        """What this geometry is, after a comma."""
        return "as measured"

    def _pulls(self) -> Pulls | str:
        """What pulls each item; or why that is not known."""
        return "Only predictions have optimality conditions, which say what pulls an item; measurements have none."

    def _features(self, item: Item, near: Sequence[int], stats: NextTokenStatistics) -> tuple[SharedFeatures, ...]:
        """A context's cosines with itself and with others by the features that they share; none without ties."""
        return ()

    def _placed_item(self, stats: NextTokenStatistics, text: str) -> Item | None:
        """The context of a text that was not counted, with its place; None where this geometry has none for it."""
        return None

    def _logits_after(self, j: int) -> Mapping[str, Float]:
        """Logits of all tokens after context j, by name; those called "logit" have a softmax."""
        return _model_logits(self, j)


class PlainFactors(AnswersQuestions, FactorsInside):
    """Factors of any object, or of a pair (W, H), with the questions that can be asked; ``source`` is what they are."""

    _source = ""

    def __init__(self, given: Observed, source: str = "as measured") -> None:
        self.factors, self._source = Factors.of(given), source
        self.statistics_hash = getattr(given, "statistics_hash", None)


def _model_logits(given: HasFactors, j: int) -> dict[str, Float]:
    logits = np.asarray(given.W @ given.H[:, j], np.float64)
    bias = getattr(given, "bias", None)
    return {"logit": logits if bias is None else logits + bias}


def _explain(
    asked: AnswersQuestions, item: Item, stats: NextTokenStatistics, k: int, measured: Mapping[str, Observed]
) -> ItemReport:
    embedded = EmbeddedItems(asked, stats)
    nearest = embedded.nearest(item, k, other_supports=True)
    shared, sizes = overlaps(stats, item)
    same = same_support(shared, sizes, item.index)
    logits, tokens, gap = _logits(asked, item, stats, k)
    pulls = asked._pulls()
    notes = [note for note in nearest.notes if note != item.note]
    pulled: tuple[Pulled, ...] = ()
    if isinstance(pulls, str):
        notes.append(pulls)
    elif embedded.norms(item.items)[item.index] > 0 and sizes[item.index] > 0:
        pulled = tuple(pulled_towards(embedded, pulls, item, other) for other in (item.index, *_near(nearest, pulls)))
        notes += [pulls.note(item)] if pulls.note(item) else []
    return ItemReport(
        item,
        asked._source,
        *_share_and_count(stats, item),
        _support(stats, item),
        _group(embedded, item, same),
        _companions(stats, item, shared, k),
        logits,
        gap,
        nearest,
        pulled,
        {name: _measured(run, item, stats, nearest, same, tokens, k) for name, run in measured.items()},
        tuple(notes),
        asked._features(item, [row.index for row in nearest.rows[:PULLED_TOWARDS]], stats),
    )


def _near(nearest: Neighbours, pulls: Pulls) -> list[int]:
    """Neighbours whose cosines are explained: the nearest ones, of those that are shown together the first."""
    group = pulls.groups[nearest.item.items]
    near = [row.index for row in nearest.rows if row.cosine >= SMALLEST_COSINE]
    first = {int(group[index]): index for index in reversed(near)}
    return [index for index in near if first[int(group[index])] == index][:PULLED_TOWARDS]


def measured_by_name(given: object) -> dict[str, Any]:
    """What was measured, by name: that of its folder, its own, or "run"; equal names are numbered."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return dict(given)
    runs: dict[str, Any] = {}
    for run in given if isinstance(given, list) else [given]:
        name = Path(run).name if isinstance(run, str | Path) else str(getattr(run, "name", None) or "run")
        number = sum(known == name or known.startswith(f"{name} (") for known in runs)
        runs[f"{name} ({number + 1})" if number else name] = run
    return runs


def _share_and_count(stats: NextTokenStatistics, item: Item) -> tuple[float, int | None]:
    """Share of the text's windows with the item, and their number where counted."""
    if not stats.has_counts:
        return float(frequency_of(stats, item.items)[item.index]), None
    if item.items == "contexts":
        count = int((stats.context_counts if stats.text_counts is None else stats.text_counts)[item.index])
    else:
        count = int(stats.counts.data[stats.counts.indices == item.index].sum())
    return count / stats.text_windows, count


def _support(stats: NextTokenStatistics, item: Item) -> Support:
    inside = members(stats, item)
    if item.items == "contexts":
        share, left_out = _column(stats, item.index)[inside], float(stats.left_out[item.index])
        contexts, weight = np.full(inside.size, item.index), share
    else:
        share, left_out = stats.P.data[stats.P.indices == item.index], 0.0
        contexts, weight = inside, share * stats.pi[inside]
    in_text = share * (1 - stats.left_out[contexts])
    merged = float(in_text[inside == stats.other].sum()) if item.items == "contexts" else 0.0
    windows = np.rint(share * stats.context_counts[contexts]).astype(np.int64) if stats.has_counts else None
    names = names_of(stats, SHARED[item.items])
    order = np.argsort(-weight, kind="stable")[:MOST_LISTED]
    rows = (Follows(names[inside[i]], None if windows is None else int(windows[i]), float(in_text[i])) for i in order)
    return Support(int(inside.size), tuple(rows), left_out, merged)


def _column(stats: NextTokenStatistics, j: int) -> Float:
    """Probabilities of all tokens after context j, V."""
    return np.asarray(stats.P[:, [j]].toarray()[:, 0])


def _group(embedded: EmbeddedItems, item: Item, same: Bool) -> Group:
    others = np.flatnonzero(same)
    others = others[others != item.index]
    frequency = frequency_of(embedded.stats, item.items)
    first = others[np.argsort(-frequency[others], kind="stable")[:MOST_NAMED]]
    names = tuple(names_of(embedded.stats, item.items)[i] for i in first)
    if not others.size or not embedded.norms(item.items)[item.index] > 0:
        return Group(int(others.size) + 1, names)
    cosine = embedded.cosines(item.items, item.index)[others]
    return Group(int(others.size) + 1, names, float(cosine.min()), float(cosine.max()))


def _companions(stats: NextTokenStatistics, item: Item, shared: Int, k: int) -> tuple[tuple[str, int], ...]:
    if item.items == "contexts":
        return ()
    others = np.flatnonzero(shared)
    others = others[others != item.index]
    order = np.lexsort((others, -frequency_of(stats, "tokens")[others], -shared[others]))[:k]
    names = names_of(stats, "tokens")
    return tuple((names[i], int(shared[i])) for i in others[order])


def _logits(
    asked: AnswersQuestions, item: Item, stats: NextTokenStatistics, k: int
) -> tuple[tuple[Logit, ...], Int, float | None]:
    """Logits after a context, the tokens that they are of, and the loss above the entropy where there is one."""
    if item.items == "tokens":
        return (), np.empty(0, np.int64), None
    columns = dict(asked._logits_after(item.index))
    share = _column(stats, item.index)
    highest = columns.get("logit", columns.get("direction"))
    assert highest is not None, "a geometry has one of the two"
    support = np.flatnonzero(share)
    inside = support[np.argsort(-share[support], kind="stable")[:k]]
    outside = np.flatnonzero(share == 0)
    outside = outside[np.argsort(-highest[outside], kind="stable")[:OFF_SUPPORT]]
    tokens = np.concatenate((inside, outside)).astype(np.int64)
    gap = None
    if "logit" in columns:
        columns["probability"] = np.exp(columns["logit"] - log_sum_exp(columns["logit"]))
        gap = context_gap(columns["logit"], share)
        columns["logit"] = columns["logit"] - columns["logit"].mean()
    names = names_of(stats, "tokens")
    rows = (
        Logit(
            names[z], bool(share[z] > 0), float(share[z]), {name: float(column[z]) for name, column in columns.items()}
        )
        for z in tokens
    )
    return tuple(rows), tokens, gap


def context_gap(logits: Float, share: Float) -> float:
    """``KL(p || softmax(logits))`` of one context, in nats: its loss above its entropy."""
    inside = share > 0
    log_q = logits[inside] - log_sum_exp(logits)
    return max(0.0, float(np.sum(share[inside] * (np.log(share[inside]) - log_q))))


def pulled_towards(embedded: EmbeddedItems, pulls: Pulls, item: Item, other: int) -> Pulled:
    """The cosine of an item with another of its kind, or with itself, as a sum of contributions."""
    what = SHARED[item.items]
    vectors, norms = embedded.vectors(item.items), embedded.norms(item.items)
    size = float(norms[item.index] * norms[other])
    strength = pulls.on(item)
    parts = strength * (embedded.vectors(what) @ vectors[other]) / size
    mean = -float(embedded.mean @ vectors[other]) / size if item.items == "tokens" else 0.0
    cosine = float(vectors[item.index] @ vectors[other]) / size
    _, label = np.unique(pulls.groups[what], return_inverse=True)
    sums, counted = np.bincount(label, weights=parts), np.bincount(label)
    windows = _windows_together(embedded.stats, item, other)
    resting = None if windows is None else np.bincount(label, weights=windows).astype(np.int64)
    size_of = np.abs(sums)
    # A token that followed once may be chance: what occurs again comes first, unless it hardly matters.
    again = (size_of >= SUBSTANTIAL * size_of.max(initial=0.0)) & (True if resting is None else resting >= 2)
    largest = np.lexsort((-size_of, ~again))[:PULLS_LISTED]
    largest = largest[size_of[largest] >= SMALLEST_SHOWN]
    frequency, names = frequency_of(embedded.stats, what), names_of(embedded.stats, what)
    rows = []
    for group in largest:
        some = np.flatnonzero(label == group)
        first = some[np.argmax(frequency[some])]
        on = None if resting is None else int(resting[group])
        rows.append(Pull(names[first], int(counted[group]), bool(strength[some].sum() > 0), float(sums[group]), on))
    others, total = float(sums.sum() - sums[largest].sum()), float(sums.sum())
    return Pulled(
        names_of(embedded.stats, item.items)[other],
        other == item.index,
        cosine,
        tuple(rows),
        others,
        mean,
        cosine - total - mean,
    )


def _windows_together(stats: NextTokenStatistics, item: Item, other: int) -> Int | None:
    """Windows in which items of the other kind occur with an item and, if fewer, with another; None if not counted."""
    if not stats.has_counts:
        return None
    table = stats.counts if item.items == "contexts" else stats.counts.T.tocsc()
    return np.asarray(np.minimum(*(table[:, [one]].toarray().ravel() for one in (item.index, other))))


def _measured(
    given: Observed, item: Item, stats: NextTokenStatistics, predicted: Neighbours, same: Bool, tokens: Int, k: int
) -> Measured:
    embedded = EmbeddedItems(given, stats)
    nearest = embedded.nearest(item, k, other_supports=True)
    cosine = embedded.cosines(item.items, item.index)
    near = {row.index for row in nearest.rows}
    probabilities: tuple[float, ...] = ()
    gap = None
    if item.items == "contexts":
        logits = _model_logits(embedded.factors, item.index)["logit"]
        gap = context_gap(logits, _column(stats, item.index))
        probabilities = tuple(float(q) for q in np.exp(logits - log_sum_exp(logits))[tokens])
    return Measured(
        nearest,
        tuple(float(cosine[row.index]) for row in predicted.rows),
        sum(row.index in near for row in predicted.rows),
        _group(embedded, item, same),
        probabilities,
        gap,
    )
