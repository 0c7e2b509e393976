"""Contexts that the text does not have: the test on contexts that were held out, and the data of the box."""

from __future__ import annotations

from typing import Any

import numpy as np

from tokengeom.core.numerics import Float
from tokengeom.page.formatting import count, fixed, listed, percent
from tokengeom.page.sections.base import Page, Section
from tokengeom.page.sections.explorer_numbers import pack
from tokengeom.page.unseen import KNESER_NEY, TIED, UnseenContexts

EXAMPLES, NEXT = 6, 4
"""Contexts that were held out in the table, and next tokens of each."""
MOST_BYTES = 900_000
"""Bytes of the vectors of the box; of more, the leading dimensions."""
MOST_NAMES = 20_000
"""Tokens of the text that the box knows besides those of its contexts."""
LOSS_DIGITS = 3


def unseen(page: Page) -> Section | None:
    """The section; None where no prediction with ties was made."""
    known = page.contents.unseen
    if known is None:
        return None
    view = {
        "cut": _cut(known),
        "how": _how(known),
        "rows": [
            (row.name, fixed(row.loss, LOSS_DIGITS), percent(row.right), fixed(row.variation, LOSS_DIGITS))
            for row in known.rows
        ],
        "verdict": verdict(known),
        "examples": _examples(known),
        "data": box_data(known),
        "kept": _kept(known),
    }
    return Section("unseen", "Contexts that the text does not have", view)


def _cut(known: UnseenContexts) -> str:
    cut = known.cut
    share = "all" if cut.coverage == 1 else "an unknown share" if cut.coverage is None else percent(cut.coverage)
    end = (
        f"; {percent(cut.merged_share)} of these windows end in the token that stands for all others"
        if cut.merged_share
        else ""
    )
    return (
        f"This section has its own cut of the text: {count(cut.m, 'context')} and {count(cut.V, 'next token')}, with "
        f"{share} of the text's windows{end}."
    )


def _how(known: UnseenContexts) -> str:
    k, windows = known.out.size, int(known.counts.sum())
    return (
        f"{count(k, 'context')} of them, drawn at random with a fixed seed, {'was' if k == 1 else 'were'} held out. "
        f"Everything below was predicted without them, from the other {known.counted.m:,}, at a loss gap of "
        f"{fixed(known.tied.loss_gap, 3)} nats (that of the transformer, or a fifth of the gap of a uniform guess "
        "where that is larger or no transformer was trained). The table is about the "
        f"{count(windows, 'window')} of the contexts that were held out. All know the same contexts; the "
        f"discount of Kneser-Ney, {known.discount:g}, is the best of a grid on a tenth of them, and nothing was "
        "chosen for the tied contexts. Without ties, what follows a new context is predicted to be the mean of what "
        "follows those with which it has the longest suffix in common. Total variation is the share of probability "
        "that would have to be moved to get from the prediction to what followed, a mean over windows: less is better."
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
    windows, names = np.asarray(known.counts.sum(axis=0)).ravel(), known.cut.vocabulary
    predicted, counts = np.exp(known.log_probabilities[TIED]), known.counts.toarray()

    def most(shares: Float) -> list[tuple[str, str]]:
        order = np.argsort(-shares, kind="stable")[:NEXT]
        return [(names[z], percent(float(shares[z]))) for z in order if shares[z] > 0]

    return [
        {
            "text": known.cut.context_text(int(known.out[j])),
            "predicted": most(predicted[:, j]),
            "followed": most(counts[:, j] / windows[j]),
        }
        for j in np.argsort(-windows, kind="stable")[:EXAMPLES]
    ]


def _dimensions(known: UnseenContexts) -> int:
    return min(known.tied.rank, max(MOST_BYTES // sum((known.tied.W.shape[0], known.tied.A.shape[1])), 1))


def _kept(known: UnseenContexts) -> str:
    """How much of the prediction the box has."""
    d, strengths = _dimensions(known), np.linalg.norm(known.tied.W, axis=0) * np.linalg.norm(known.tied.A, axis=1)
    share = float(strengths[:d].sum() / strengths.sum()) if strengths.sum() > 0 else 1.0
    which = "all" if d == known.tied.rank else f"the {d} leading ones of"
    return (
        f"The box computes with {which} {count(known.tied.rank, 'dimension')}, which hold {percent(share)} of the "
        "norm of the prediction, in 8 bits per number: its last digits may differ from those of the prediction."
    )


def box_data(known: UnseenContexts) -> dict[str, Any]:
    """What the page's script reads: vectors, tokens and features of the counted contexts, and names."""
    tied, counted, d = known.tied, known.counted, _dimensions(known)
    contexts, tokenizer = counted.contexts, counted.tokenizer
    assert contexts is not None, "the stage asks"
    assert known.cut.contexts is not None, "the stage asks"
    ids = np.unique(known.cut.contexts[known.cut.contexts >= 0])
    named = tokenizer if tokenizer is not None and int(ids.max(initial=0)) < tokenizer.size else None
    place = {int(token): k + 2 for k, token in enumerate(ids)}
    others: list[str] | None = None
    if named is not None and named.size - ids.size <= MOST_NAMES:
        others = [named.token(token) for token in range(named.size) if token not in place]

    def coded(rows: Any) -> dict[str, Any]:
        """Places of tokens among the names, from 2 on; 1 is the start of a document and 0 an absent token."""
        return pack(np.where(rows >= 0, np.searchsorted(ids, rows) + 2, rows + 2), "uint32")

    before = counted.effects[0].before.m if counted.effects else known.cut.m
    return {
        "tokenizer": named.kind if named is not None else "token ids",
        "names": [named.token(int(token)) if named is not None else str(token) for token in ids],
        "others": others,
        "vocabulary": list(counted.vocabulary),
        "spans": [[span[0], span[-1]] for span in tied.features.weights],
        "contexts": coded(contexts),
        "held_out": coded(known.cut.contexts[known.out]),
        "rows": pack(tied.features.numbers, "uint32"),
        "labels": [counted.context_text(j) for j in range(counted.m)],
        "before": before if before > known.cut.m else None,
        "kept": known.cut.m,
        "tokens": _in_bytes(tied.W[:, :d]),
        "features": _in_bytes(tied.A[:d].T),
    }


def _in_bytes(rows: Float) -> dict[str, Any]:
    """Rows as integers from -127 to 127, each with its own step."""
    steps = np.maximum(np.abs(rows).max(axis=1), 1e-30) / 127.0
    return {"values": pack(rows / steps[:, None], "int8", 1.0), "steps": pack(steps, "float32")}
