"""The verb `compare_texts`: two texts side by side, how alike their predicted geometries are and what moved most.

Both texts are restricted to the tokens and contexts that they share, and these are put in the order of their names. So
the numbers depend neither on the order of the two texts nor on that of tokens and contexts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np
from scipy import sparse

from tokengeom.ask.named_vectors import item_names
from tokengeom.comparison.agreement import CONTEXTS_AND_TOKENS, Agreement, Name, assess
from tokengeom.comparison.movement import PredictedHalves, Sides, movement_of
from tokengeom.comparison.similarity import directed_in_all
from tokengeom.comparison.similarity_numbers import SimilarityNumbers, sampling_limitations
from tokengeom.comparison.target import AT_LOSS_ENTRIES
from tokengeom.comparison.text_comparison import NUMBERS, ComparedText, CompareTextsSettings, TextComparison
from tokengeom.core.errors import InputError
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import Int, blas_threads_for, rounded_percent
from tokengeom.core.progress import AbstractProgress, SilentProgress
from tokengeom.core.settings import make, takes
from tokengeom.problems.base import LARGEST_GAP
from tokengeom.problems.regularised_logits import Merging
from tokengeom.statistics.next_token import NextTokenStatistics, statistics_of
from tokengeom.statistics.shared import FEWEST_IN_HALVES, same_support_units, shared_halves, shared_statistics
from tokengeom.statistics.supports import canonical
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.predict import predict
from tokengeom.theory.proxy import LIMIT_ENTRIES, ProxyPrediction, predict_leading_proxy

if TYPE_CHECKING:
    from tokengeom.keywords import CompareTextsKeywords

LOSS_GAP = 0.2
"""Loss gap in nats at which texts are compared by default. In the limit a token that was seen once counts as much as
any other: halves of one text then agree about half as much as here."""
SMALLEST_GAP = 1e-6
"""Loss gap in nats below which predictions at a loss have no meaning."""


Prediction = FeaturePrediction | LossPrediction | ProxyPrediction


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
        Loss above the entropy floor, in nats, at which the geometries are predicted; 0 for the limit of training, where
        they depend on the supports alone. By default 0.2, or half the gap of a uniform guess where that is less.
    progress
        Where to show the work; by default nowhere.
    """
    chosen, shown = make(CompareTextsSettings, settings, "compare_texts"), progress or SilentProgress()
    given = [statistics_of(text, "compare_texts") for text in (first, second)]
    shared = [_in_order_of_names(text) for text in shared_statistics(given[0], given[1])]
    gap, notes = _choose_gap(shared, loss_gap)
    is_proxy, why = _choose_proxy(shared, loss_gap, gap, chosen)
    gap, notes = (None, why) if is_proxy else (gap, notes + why)
    parts, why = _choose_halves(shared, gap, is_proxy, chosen)
    predictions = _predictions([*shared, *parts], gap, is_proxy, chosen, shown)
    with shown.stage("Comparing", None), blas_threads_for(shared[0].V, shared[0].m):
        units = same_support_units(shared)
        notes += why + _limitations(predictions, shared)
        sides = [{"contexts": known.H, "tokens": Factors(known.W, known.H).tokens} for known in predictions]
        halves = PredictedHalves(parts, sides[2:]) if parts else None
        # Which geometry is permuted must not depend on the order of the texts.
        order = sorted((0, 1), key=lambda k: shared[k].hash)
        agreements = _agreements([sides[k] for k in order], units, halves, chosen)
        ask = shared, halves, chosen.top, chosen.neighbours
        contexts = movement_of("contexts", sides, units, *ask)
        tokens = movement_of("tokens", sides, np.arange(shared[0].V, dtype=np.int64), *ask)
    return TextComparison(
        first=_compared(given[0], shared[0], shared[1]),
        second=_compared(given[1], shared[1], shared[0]),
        agreements=agreements,
        tokens=tokens,
        contexts=contexts,
        loss_gap=gap,
        is_proxy=is_proxy,
        limitations=tuple(notes),
        settings=asdict(chosen) | {"loss_gap": loss_gap},
        halves=None if halves is None else halves.size,
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


def _uniform_gap(texts: Sequence[NextTokenStatistics]) -> float:
    """The smallest loss gap of a uniform guess, in nats: predictions have a loss gap below it."""
    return min(math.log(text.V) - text.entropy for text in texts)


def _choose_gap(shared: Sequence[NextTokenStatistics], asked: float | None) -> tuple[float | None, list[str]]:
    """Loss gap of the predictions, None for the limit, and a sentence where it is not the usual one."""
    if asked is not None and not asked >= 0.0:
        raise InputError(f"loss_gap must be a number of nats above 0, or 0 for the limit of training; got {asked!r}.")
    if asked is not None:
        return asked or None, []
    half = _uniform_gap(shared) / 2
    if half >= LOSS_GAP:
        return LOSS_GAP, []
    if half < SMALLEST_GAP:
        return None, ["The limit is compared: in one of the texts a uniform guess has next to no loss gap."]
    return half, [
        f"The loss gap of the predictions is {half:.3g} nats, half that of a uniform guess in one of the texts: the "
        f"usual one, {LOSS_GAP:g} nats, is larger than that."
    ]


def _is_large(texts: Sequence[NextTokenStatistics], gap: float | None, norm: str) -> Merging | None:
    """The largest of the problems to solve, where it would take long; otherwise None."""
    largest = max((Merging.of(text.S if gap is None else text.P) for text in texts), key=lambda size: size.entries)
    return largest if largest.entries > (LIMIT_ENTRIES if gap is None else AT_LOSS_ENTRIES[norm]) else None


def _choose_proxy(
    shared: Sequence[NextTokenStatistics], asked: float | None, gap: float | None, settings: CompareTextsSettings
) -> tuple[bool, list[str]]:
    """Whether to compare the proxy, and a sentence that says why."""
    if settings.proxy and asked:
        raise InputError("The proxy has no loss: give a loss gap, or ask for the proxy, not both.")
    if settings.proxy is not None:
        return settings.proxy, ["The proxy was asked for: it is not proven to be near L_mm."] if settings.proxy else []
    large = _is_large(shared, gap, settings.norm)
    if large is None:
        return False, []
    what = "L_mm" if gap is None else f"the prediction at a loss gap of {gap:g} nats"
    return True, [
        f"The proxy stands in for {what}: {large.a.size:,} distinct tokens x {large.n.size:,} distinct contexts would "
        "take minutes. It is not proven to be near L_mm. Ask for the prediction with proxy=False (--no-proxy)."
    ]


def _choose_halves(
    shared: Sequence[NextTokenStatistics], gap: float | None, is_proxy: bool, settings: CompareTextsSettings
) -> tuple[tuple[NextTokenStatistics, ...], list[str]]:
    """Two halves of each text, and a sentence where there are none although they were not declined."""
    if settings.halves is False:
        return (), []
    halves = shared_halves(shared[0], shared[1], settings.seed)
    why = ""
    if halves is None:
        why = f"fewer than {FEWEST_IN_HALVES} tokens or contexts would be in all four halves."
    elif gap is not None and gap >= _uniform_gap(halves):
        why = f"in a half, a uniform guess has a smaller loss gap than {gap:.3g} nats."
    elif not (is_proxy or settings.halves) and _is_large(halves, gap, settings.norm):
        why = "four more predictions of this size would take long. Ask for them with halves=True (--halves)."
    if why or halves is None:
        return (), [
            f"The texts were not split into halves: {why} So it is not known how alike two samples of one text would "
            "be, and what moved most may be chance."
        ]
    return halves, []


def _predictions(
    texts: Sequence[NextTokenStatistics],
    gap: float | None,
    is_proxy: bool,
    settings: CompareTextsSettings,
    progress: AbstractProgress,
) -> list[Prediction]:
    """The prediction for each text; equal statistics have the same one."""

    def made(stats: NextTokenStatistics) -> Prediction:
        if is_proxy:
            return predict_leading_proxy(stats, progress)
        if gap is None:
            return predict(stats, tolerance=settings.tolerance, progress=progress)
        return predict(stats, loss_gap=gap, norm=settings.norm, tolerance=settings.tolerance, progress=progress)

    known: dict[str, Prediction] = {}
    for stats in texts:
        if stats.hash not in known:
            known[stats.hash] = made(stats)
    return [known[stats.hash] for stats in texts]


def _agreements(
    sides: Sequence[Sides], units: Int, halves: PredictedHalves | None, settings: CompareTextsSettings
) -> dict[str, Agreement]:
    """The numbers that `compare` gives, between two predictions, over items with a direction in both."""
    agreements: dict[Name, Agreement] = {}
    for items in CONTEXTS_AND_TOKENS:
        pair = [side[items] for side in sides]
        kept = directed_in_all(pair)
        groups = units[kept] if items == "contexts" else None
        numbers = SimilarityNumbers.of(items, pair[0][:, kept], {"": pair[1][:, kept]}, groups)
        agreements |= assess(numbers, settings.permutations, settings.seed).agreements()
        if halves is not None:
            name = "", numbers.number("agreement")
            agreements[name] = halves.corrected(agreements[name], items, settings.seed)
    return {number: agreements["", number] for number in NUMBERS}


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
    whole, halves = predictions[:2], predictions[2:]
    for name, prediction in zip(("first", "second"), whole, strict=True):
        about, proof = [], _proof(prediction)
        if isinstance(prediction, FeaturePrediction):
            about = list(prediction.warnings)
            if prediction.spread is not None and not prediction.spread.looks_unique:
                about.append(f"{prediction.spread.sentence} Smaller movements have no meaning.")
        elif isinstance(prediction, ProxyPrediction) and prediction.captured < 0.999:
            about.append(
                f"the proxy's leading directions hold {rounded_percent(prediction.captured, 1)} of its squared norm."
            )
        if proof > LARGEST_GAP:
            about.append(f"the prediction is proven only to a relative gap of {proof:.1e}.")
        sentences += [f"The {name} text: {sentence}" for sentence in about]
    proof = max(map(_proof, halves), default=0.0)
    if proof > LARGEST_GAP:
        sentences.append(f"A half of one of the texts: the prediction is proven only to a relative gap of {proof:.1e}.")
    kept = directed_in_all(known.H for known in whole)
    if kept.size < shared[0].m:
        sentences.append(
            f"{shared[0].m - kept.size:,} of {shared[0].m:,} contexts have no predicted direction in one of the texts, "
            "because every shared token follows them: they are left out of the agreement."
        )
    return sentences + sampling_limitations(shared[0].V, kept, np.arange(shared[0].V, dtype=np.int64))


def _proof(prediction: Prediction) -> float:
    """Relative gap to which a prediction is proven; 0 for the proxy, which needs no proof."""
    if isinstance(prediction, ProxyPrediction):
        return 0.0
    return prediction.certificate.relative_gap if isinstance(prediction, FeaturePrediction) else prediction.relative_gap
