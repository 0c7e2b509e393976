"""Contexts that the text does not have: the test on contexts that were held out, and the data of the box."""

from __future__ import annotations

from typing import Any

import numpy as np

from tokengeom.core.numerics import Float, Int
from tokengeom.page.formatting import count, fixed, listed, percent
from tokengeom.page.sections.base import Page, Section
from tokengeom.page.sections.explorer_numbers import in_bytes, pack
from tokengeom.page.unseen import DOCUMENTS, KNESER_NEY, PIECES_OF_TEXT, STEPS, TIED, UnseenContexts
from tokengeom.statistics.context_features import Span

EXAMPLES, NEXT = 6, 4
"""Contexts that were held out in the table, and next tokens of each."""
MOST_FEATURES, MOST_PLACED = 60_000, 10_000
"""Features and counted contexts that the box has, the most frequent ones; 60,000 features are 5 MB of the page."""
MOST_NAMES = 20_000
"""Tokens of the text that the box knows besides those of its contexts."""
LOSS_DIGITS = 3


def unseen(page: Page) -> Section | None:
    """The section; None where no training with ties was made."""
    known = page.contents.unseen
    if known is None:
        return None
    data = box_data(known)
    view = {
        "cut": _cut(known),
        "how": _how(known),
        "rows": [
            (row.name, fixed(row.loss, LOSS_DIGITS), percent(row.right), fixed(row.variation, LOSS_DIGITS))
            for row in known.rows
        ],
        "verdict": verdict(known),
        "examples": _examples(known),
        "data": data,
        "kept": _kept(known, data["features"]["values"]["shape"][0], len(data["labels"])),
    }
    return Section("unseen", "Contexts that the text does not have", view)


def _cut(known: UnseenContexts) -> str:
    cut = known.cut
    size = f"{count(cut.m, 'context')} and {count(cut.V, 'next token')}"
    kept = "it is not known what share of the text's windows they have"
    if cut.coverage is not None:
        kept = f"they have {'all' if cut.coverage == 1 else percent(cut.coverage)} of the text's windows"
    end = f"{percent(cut.merged_share)} of these windows end in the token that stands for all others"
    if not cut.merged_share:
        end = "none of these windows ends in a token that stands for others"
    return f"This section has its own cut of the text, {size}: {kept}, and {end}."


def _how(known: UnseenContexts) -> str:
    k, kept = known.out.size, known.counted.effects[-1].cut
    were = "was" if k == 1 else "were"
    only = {
        DOCUMENTS: f"Every tenth document was held out; {count(k, 'context')} {were} in no other document.",
        PIECES_OF_TEXT: "The text has fewer than ten documents, so it was cut into about a hundred pieces, of which "
        f"every tenth was held out; {count(k, 'context')} {were} in no other piece.",
    }.get(kept, f"{count(k, 'context')}, drawn at random with a fixed seed, {were} held out.")
    return (
        f"{only} Features were trained on what is left, {count(known.counted.m, 'context')}, to a loss gap of "
        f"{fixed(known.tied.loss_gap, 3)} nats: one training of {STEPS} steps with AdamW in "
        f"{known.tied.settings['dim']} dimensions. It has no proof; tokengeom predict --ties makes a prediction that "
        "is proven, for a few thousand contexts. The table is about the "
        f"{count(int(known.windows.sum()), 'window')} of the contexts that were held out. All know the same windows; "
        f"the discount of Kneser-Ney, {known.discount:g}, is the best of a grid on {known.tuned.size:,} contexts "
        "that were trained on. Total variation is the share of probability that would have to be moved to get from "
        "the prediction to what followed, a mean over windows: less is better. Without ties a context that was not "
        "trained on has no place: in its stead stands its longest suffix that was counted, with what followed that, "
        "which the prediction gives in the limit of training. A token that never followed it has no probability, so "
        "the loss may have no bound (a dash)."
    )


def verdict(known: UnseenContexts) -> str:
    """What is best in the table, to the digits shown, and by how much ties and Kneser-Ney differ."""
    losses = {row.name: round(row.loss, LOSS_DIGITS) for row in known.rows}
    right = {row.name: percent(row.right) for row in known.rows}
    most = percent(max(row.right for row in known.rows))
    lowest = listed(name for name, loss in losses.items() if loss == min(losses.values()))
    often = listed(name for name, share in right.items() if share == most)
    ahead, low, high = known.ahead
    clear = "clearly lower" if high < 0 else "clearly higher" if low > 0 else "not clearly different"
    return (
        f"Lowest loss: {lowest}. Most often right: {often}. The loss of {TIED} minus that of {KNESER_NEY} is "
        f"{fixed(ahead, 3)} nats, with a 95% interval from {fixed(low, 3)} to {fixed(high, 3)} over the contexts that "
        f"were held out: {clear}."
    )


def _examples(known: UnseenContexts) -> list[dict[str, Any]]:
    """The most frequent contexts that were held out."""
    names, shown = known.cut.vocabulary, np.argsort(-known.windows, kind="stable")[:EXAMPLES]
    predicted, counts = np.exp(known.log_probabilities(shown)[TIED]), known.counts[:, shown].toarray()

    def most(shares: Float) -> list[tuple[str, str]]:
        order = np.argsort(-shares, kind="stable")[:NEXT]
        return [(names[z], percent(float(shares[z]))) for z in order if shares[z] > 0]

    return [
        {
            "text": known.cut.context_text(int(known.out[j])),
            "predicted": most(predicted[:, n]),
            "followed": most(counts[:, n] / known.windows[j]),
        }
        for n, j in enumerate(shown)
    ]


def _kept(known: UnseenContexts, features: int, placed: int) -> str:
    """How much of the training the box has."""
    F, m = known.tied.features.F, known.counted.m
    which = "all features" if features == F else f"the {features:,} most frequent of {F:,} features"
    near = "all contexts" if placed == m else f"the {placed:,} most frequent of {m:,} contexts"
    return (
        f"The box has {which}, and finds neighbours among {near} that were trained on. It computes with 8 bits per "
        "number: its numbers may differ from those of tokengeom place, which has everything."
    )


def most_frequent_features(known: UnseenContexts) -> Int:
    """The features of the box, in order: those of most windows, and of equally frequent ones those of fewer tokens."""
    Phi = known.tied.features.matrix
    windows = (Phi != 0).astype(np.float64) @ known.counted.context_counts
    return np.sort(np.argsort(-windows, kind="stable")[:MOST_FEATURES])


def box_data(known: UnseenContexts) -> dict[str, Any]:
    """What the page's script reads: vectors, tokens of features and of contexts, and names."""
    tied, counted, rows = known.tied, known.counted, most_frequent_features(known)
    contexts, tokenizer = counted.contexts, counted.tokenizer
    assert contexts is not None, "the stage asks"
    assert known.cut.contexts is not None, "the stage asks"
    assert tied.gain is not None, "the training has a last norm"
    ids = np.unique(known.cut.contexts[known.cut.contexts >= 0])
    named = tokenizer if tokenizer is not None and int(ids.max(initial=0)) < tokenizer.size else None
    others: list[str] | None = None
    if named is not None and named.size - ids.size <= MOST_NAMES:
        others = [named.token(token) for token in np.setdiff1d(np.arange(named.size), ids).tolist()]

    def coded(tokens: Any) -> dict[str, Any]:
        """Places of tokens among the names, from 2 on; 1 is the start of a document and 0 an absent token."""
        kind = "uint16" if ids.size + 2 < 2**16 else "uint32"
        return pack(np.where(tokens >= 0, np.searchsorted(ids, tokens) + 2, tokens + 2), kind)

    def of_span(place: int, span: Span) -> dict[str, Any]:
        """Tokens of the features of a span, in order, from a context that has each."""
        found, first = np.unique(tied.features.numbers[:, place], return_index=True)
        some = contexts[first[np.isin(found, rows)]]
        return {
            "span": [span[0], span[-1]],
            "tokens": coded(some[:, some.shape[1] - 1 - span[-1] : some.shape[1] - span[0]]),
        }

    own = np.isin(tied.features.numbers[:, -1], rows)
    # Those whose own feature is there, the most frequent ones first; only the first ones can be neighbours.
    order = np.lexsort((-counted.context_counts, ~own))
    placed = order[: min(int(own.sum()), MOST_PLACED)]
    return {
        "tokenizer": named.kind if named is not None else "token ids",
        "names": [named.token(token) if named is not None else str(token) for token in ids.tolist()],
        "others": others,
        "vocabulary": list(counted.vocabulary),
        "spans": [of_span(place, span) for place, span in enumerate(tied.features.weights)],
        "contexts": coded(contexts[order]),
        "held_out": coded(known.cut.contexts[known.out]),
        "labels": [counted.context_text(int(j)) for j in placed],
        "is_whole": known.cut.coverage == 1,
        "tokens": in_bytes(tied.heads * tied.gain),
        "features": in_bytes(tied.A[:, rows].T),
        "gain": pack(tied.gain, "float32"),
    }
