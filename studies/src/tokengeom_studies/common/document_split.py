"""A text of which whole documents are held out: what is trained on, what chooses, what is judged, and the scores.

The documents are split at random into three parts. One is trained on; windows of the second choose discounts and when
to stop; windows of the third are judged. Contexts of the last two that were counted in training are *known*, others
*new*. Contexts with a token that no context of training has are left out, as are next tokens that never followed one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import log_softmax

from tokengeom import NextTokenStatistics, count
from tokengeom.extending import ContextStatistics, Float, InputError, Int, explanation_classes
from tokengeom_studies.base import Recipe
from tokengeom_studies.common.held_out_text import HeldOutText
from tokengeom_studies.common.split_texts import SplitText, documents_of

DISCOUNTS = (0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
OFTEN = 3
"""Windows of a context in the judged documents from which on their frequencies are compared with a prediction."""
NEW, ALL = "new", "all"
KINDS = (NEW, ALL)
"""Judged windows: after contexts that were not counted in training, and all."""


class DocumentSplit:
    """One split of a text.

    where
        text      contexts of training, then new ones of the other two parts, which are held out
        chosen    counts of the windows that choose, V x M; of new contexts alone
        judged    kind of window -> counts of the windows that are judged, V x M
        facts     sizes, as a row has them
    """

    def __init__(self, recipe: Recipe, split: int) -> None:
        trained, choosing, judging = _counted(recipe, split)
        parts = [SplitText.of(trained, part) for part in (choosing, judging)]
        rows = [tuple(row) for row in np.asarray(trained.contexts).tolist()]
        rows += [tuple(row) for part in parts for row in part.contexts[~part.known].tolist()]
        column = {context: j for j, context in enumerate(dict.fromkeys(rows))}
        m, shape = trained.m, (trained.V, len(column))
        choose, judge = (_table(part, column, shape) for part in parts)
        table = sparse.hstack([sparse.csc_array(trained.table), (choose + judge)[:, m:]], format="csc")
        new = np.arange(len(column)) >= m
        contexts = np.array(list(column), np.asarray(trained.contexts).dtype)
        self.text = HeldOutText(NextTokenStatistics.from_counts(table, contexts=contexts), ~new, recipe["device"])
        self.chosen = sparse.csc_array(choose.multiply(new))
        self.judged = {NEW: sparse.csc_array(judge.multiply(new)), ALL: judge}
        number = np.asarray(self.judged[NEW].sum(axis=0)).ravel()
        self.facts = {
            **{"contexts": m, "tokens": trained.V, "windows": trained.n, "entropy": self.text.entropy},
            "one_next_token": float(np.mean(np.diff(sparse.csc_array(trained.table).indptr) == 1)),
            **{"held_out_windows": judging.n, "judged": int(judge.sum()), "new": int(number.sum())},
            **{"new_contexts": int((number > 0).sum()), "new_often": int((number >= OFTEN).sum())},
            "all_often": int((np.asarray(judge.sum(axis=0)).ravel() >= OFTEN).sum()),
        }

    @property
    def contexts(self) -> Any:
        """Tokens of all contexts, M x L."""
        return np.asarray(self.text.stats.contexts)

    def choosing_loss(self, log_p: Float) -> float:
        """Loss on the windows that choose."""
        return float(-self.chosen.multiply(log_p).sum() / self.chosen.sum())

    def scores(self, log_p: Float, others: Mapping[str, Float]) -> dict[str, dict[str, Any]]:
        """Of each kind of window: loss, share of right top tokens, and two total variations.

        variation   to the frequencies of what followed, over contexts with `OFTEN` windows or more
        to          to each of ``others``, probabilities by name, over all contexts
        All are means over windows.
        """
        p, top, found = np.exp(log_p), log_p.argmax(axis=0), {}
        for kind, counts in self.judged.items():
            C = counts.toarray()
            n = C.sum(axis=0)
            moved, often = 0.5 * np.abs(C - n * p).sum(axis=0), n >= OFTEN
            found[kind] = {
                "loss": float(-(C * log_p).sum() / n.sum()),
                "right": float(C[top, np.arange(n.size)].sum() / n.sum()),
                "variation": float(moved[often].sum() / n[often].sum()) if often.any() else None,
                "to": {name: float(0.5 * np.abs(p - q).sum(axis=0) @ n / n.sum()) for name, q in others.items()},
            }
        return found

    def frequencies(self) -> Float:
        """Log-probabilities that ignore the context, V x M."""
        shares = np.asarray(self.text.trained.table.sum(axis=1), float).reshape(-1, 1)
        return np.repeat(np.log(np.maximum(shares, 1.0) / shares.sum()), len(self.contexts), axis=1)

    def kneser_ney(self) -> tuple[Float, float]:
        """Log-probabilities of Kneser-Ney, V x M, with the discount whose loss is lowest where it is chosen."""
        (kind,) = [kind for kind in explanation_classes(None) if kind.name == "Kneser-Ney"]
        trained, k = self.text.trained, int((~self.text.kept).sum())
        nothing = sparse.csc_array((trained.V, k))
        new = ContextStatistics(nothing, np.zeros(k, np.int64), self.contexts[~self.text.kept])
        made = {}
        for discount in DISCOUNTS:
            rule = kind(discount=discount).rule(trained)  # type: ignore[attr-defined, call-arg]
            logits = [rule(given).toarray() for given in (ContextStatistics.of(trained), new)]
            made[discount] = np.asarray(log_softmax(np.hstack(logits), axis=0))
        best = min(made, key=lambda discount: self.choosing_loss(made[discount]))
        return made[best], best

    def backed_off(self) -> sparse.csc_array:
        """Shares that make each context of counted ones, m x M: itself, or all that end in its longest such suffix.

        A new context is the mean of the counted contexts that share its longest counted suffix, weighted by windows:
        so its predicted probabilities are those of the suffix as the untied prediction has them, and nothing else is
        fitted. Contexts that share nothing are the mean of all.
        """
        windows = np.asarray(self.text.trained.table.sum(axis=0), float).ravel()
        m, length = windows.size, self.contexts.shape[1]
        ends: dict[tuple[int, ...], list[int]] = {}
        for j, context in enumerate(self.contexts[:m].tolist()):
            for size in range(length):
                ends.setdefault(tuple(context[length - size :]), []).append(j)
        parts = [sparse.eye_array(m, format="csc")]
        for context in self.contexts[m:].tolist():
            suffix = next(key for size in range(length - 1, -1, -1) if (key := tuple(context[length - size :])) in ends)
            share = np.zeros((m, 1))
            share[ends[suffix], 0] = windows[ends[suffix]] / windows[ends[suffix]].sum()
            parts.append(sparse.csc_array(share))
        return sparse.csc_array(sparse.hstack(parts, format="csc"))


def _counted(recipe: Recipe, split: int) -> list[NextTokenStatistics]:
    """Statistics of the parts that are trained on, that choose, and that are judged, with one numbering of tokens."""
    documents = documents_of(recipe)
    order, held = np.random.default_rng(split).permutation(len(documents)), round(recipe["held_out"] * len(documents))
    if not 1 < held < len(documents) - held:
        raise InputError(f"Too few documents ({len(documents)}) to hold out {recipe['held_out']:.0%} of them.")
    ends: Sequence[Int] = np.split(order, [held, held + held // 2])
    options: dict[str, Any] = {"context": recipe["context"]}
    tokens = count(documents, tokenizer=recipe["tokenizer"], **options).tokenizer
    judged, choosing, trained = (
        count([documents[i] for i in sorted(part)], tokenizer=tokens, **options) for part in ends
    )
    return [trained.limited(vocabulary=recipe["vocabulary"], rest="merge"), choosing, judged]


def _table(part: SplitText, column: Mapping[tuple[int, ...], int], shape: tuple[int, int]) -> sparse.csc_array:
    """Counts of the windows of a part, in the columns of all contexts."""
    columns = np.array([column[tuple(context)] for context in part.contexts.tolist()])
    return sparse.csc_array(sparse.coo_array((part.windows, (part.token, columns[part.place])), shape=shape))
