"""Contexts that the text does not have: a prediction with ties for a report, and the test that it must pass.

Contexts that share tokens are tied (`tokengeom.theory.tied`), so the prediction has a place for any context. A tenth of
the contexts, drawn with a fixed seed, is held out: the prediction is solved without them, and on their windows it is
compared with Kneser-Ney smoothing, with the prediction without ties, backed off to suffixes, and with the frequencies
of the next tokens, which know the same contexts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csc_array

from tokengeom.comparison.explanations.base import ContextStatistics
from tokengeom.comparison.explanations.kneser_ney import Backoff, KneserNey
from tokengeom.core.numerics import Float, Int, log_sum_exp
from tokengeom.statistics.context_features import ContextFeatures
from tokengeom.statistics.next_token import NextTokenStatistics, restricted
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.tied import TiedPrediction

CUT, COUNTED, UNSEEN, UNTIED = "unseen-cut", "unseen-counted", "unseen", "unseen-untied"
"""Stages: the larger cut of the text, its contexts that are not held out, the prediction, and that without ties."""
TIES = "positions+suffixes+self"
SIZES = ((4_000, 299), (2_500, 249), (1_500, 199), (800, 127))
"""Contexts and next tokens to keep: the first of these that costs at most `MOST_COST`, or the last."""
MOST_COST = 1e7
"""Entries that one step of the solver touches; some hundred steps of this size take 10 to 40 s on two cores."""
FEATURES_PER_CONTEXT, PASSES_OF_TIES, TIMES = 1.6, 5_500, (0.5, 1.5)
"""Features of natural text, passes over the entries of a step in the whole solve, and the range of both: on six texts
there were 1.2 to 1.9 features per context, and the solve took 0.4 to 1.5 times as long."""
FEWEST = 300
"""Contexts from which on a tenth of them says something."""
HELD_OUT, SEED = 0.1, 0
TOLERANCE = 5e-3
USUAL_SHARE = 0.2
"""Loss gap of the prediction at least, as a share of the gap of a uniform guess: a smaller gap takes minutes."""
BOOTSTRAPS = 2_000
TIED, KNESER_NEY, FREQUENCIES = "tied contexts", "Kneser-Ney", "frequencies of next tokens"
BACKED_OFF = "contexts without ties, backed off"


def cost(V: int, m: int, F: float) -> float:
    """About how many entries one step of the solver touches, with F features."""
    return V * (m + 2.0 * F) + V**2 * F / 50


def expected_cost(stats: NextTokenStatistics) -> float | None:
    """About what the largest cut of the text will cost, before it is counted; None where there is none."""
    whole = stats.effects[0].before if stats.effects else stats.totals
    if not stats.has_counts or stats.contexts is None or stats.contexts.shape[1] < 2 or whole.m < FEWEST:
        return None
    sizes = ((min(whole.m, contexts), min(whole.V, tokens + 1)) for contexts, tokens in SIZES)
    costs = [cost(V, m, FEATURES_PER_CONTEXT * m) for m, V in sizes]
    return next((one for one in costs if one <= MOST_COST), costs[-1])


def is_possible(stats: NextTokenStatistics) -> bool:
    """Whether contexts have tokens that can be shared, and are enough for a test."""
    has_tokens = stats.has_counts and stats.contexts is not None and stats.contexts.shape[1] > 1
    return has_tokens and stats.m >= FEWEST and stats.V > 1


def largest_cut(stats: NextTokenStatistics) -> NextTokenStatistics | None:
    """The largest of the cuts that is solved in time; None where too few contexts are left, or they have no tokens."""
    if not is_possible(stats):
        return None
    for contexts, tokens in SIZES:
        cut = stats.limited(top_contexts=contexts, vocabulary=tokens, rest="merge")
        if not is_possible(cut):
            return None
        assert cut.contexts is not None, "it is possible"
        if cost(cut.V, cut.m, ContextFeatures.of_contexts(cut.contexts, TIES).F) <= MOST_COST:
            break
    return cut


def why_not_made(is_cut: bool) -> str:
    """Why there is no prediction, in a sentence; ``is_cut`` where there were contexts enough."""
    why = "the loss asked for was not reached"
    if not is_cut:
        why = f"it needs counted contexts of two tokens or more, and at least {FEWEST} of them"
    return f"No prediction was made for contexts that the text does not have: {why}."


def held_out(m: int) -> Int:
    """Contexts that are held out of m, in order."""
    drawn = np.random.default_rng(SEED).permutation(m)[: max(round(HELD_OUT * m), 1)]
    return np.sort(drawn).astype(np.int64)


def without_held_out(cut: NextTokenStatistics) -> NextTokenStatistics:
    """The contexts that are not held out."""
    kept = np.setdiff1d(np.arange(cut.m), held_out(cut.m))
    said = f"a tenth of the contexts held out (seed {SEED})"
    read = None if cut.text_counts is None else cut.text_counts[kept]
    return restricted(cut, said, cut.table[:, kept], cut.vocabulary, kept, read)


def gap_for(counted: NextTokenStatistics, reached: float | None) -> float:
    """The loss gap that a network reached, but at least the usual one, which is solved in time."""
    return max(reached or 0.0, USUAL_SHARE * (float(np.log(counted.V)) - float(counted.entropy)))


@dataclass(frozen=True)
class HeldOutScore:
    """How well one predictor knows the windows of the contexts that were held out.

    ``loss``, ``right``, ``variation``
        Mean loss, share of windows whose next token is the most probable one, and total variation between the predicted
        probabilities and the frequencies of what followed a context, mean over windows.
    """

    name: str
    loss: float
    right: float
    variation: float


@dataclass(frozen=True, eq=False)
class UnseenContexts:
    """The prediction with ties, and what it was tested on.

    ``cut``
        All contexts, those that are held out among them.
    ``tied``
        The prediction without them, with its statistics.
    ``untied``
        The prediction for the same statistics and loss gap without ties; None where there is none.
    """

    cut: NextTokenStatistics
    tied: TiedPrediction
    untied: LossPrediction | None = None

    @property
    def counted(self) -> NextTokenStatistics:
        """Statistics of the contexts that were not held out."""
        assert self.tied.stats is not None, "they are put in"
        return self.tied.stats

    @cached_property
    def out(self) -> Int:
        """Contexts of the cut that were held out."""
        return held_out(self.cut.m)

    @cached_property
    def counts(self) -> csc_array:
        """What followed them, V x k."""
        return csc_array(self.cut.table[:, self.out])

    @cached_property
    def log_probabilities(self) -> dict[str, Float]:
        """Predictor -> logarithms of the probabilities of next tokens after the contexts that were held out, V x k."""
        assert self.cut.contexts is not None, "the stage asks"
        tokens = self.cut.contexts[self.out]
        number = np.maximum(np.asarray(self.counted.table.sum(axis=1)).reshape(-1, 1), 1)
        logits = {
            TIED: self.tied.W @ np.asarray((self.tied.features.of(tokens).T @ self.tied.A.T).T),
            KNESER_NEY: smoothed(self.counted, tokens, self.discount),
            FREQUENCIES: np.repeat(np.log(number), self.out.size, axis=1),
        }
        if self.untied is not None:
            q = np.exp(self.untied.L - log_sum_exp(self.untied.L)[None, :])
            logits[BACKED_OFF] = np.log(backed_off(self.counted, tokens, q, number / number.sum()))
        return {name: values - log_sum_exp(values)[None, :] for name, values in logits.items()}

    @cached_property
    def discount(self) -> float:
        """The discount of Kneser-Ney with the lowest loss on a tenth of the counted contexts, fitted to the others."""
        known, tenth = without_held_out(self.counted), held_out(self.counted.m)
        assert self.counted.contexts is not None, "the stage asks"
        tokens, counts = self.counted.contexts[tenth], csc_array(self.counted.table[:, tenth])

        def loss(D: float) -> float:
            logits = smoothed(known, tokens, D)
            return float(_losses(counts, logits - log_sum_exp(logits)[None, :]).sum())

        losses = {D: loss(D) for D in KneserNey.grid}
        # As for every rival, a grid on whose edge the best value lies is widened.
        while (best := min(losses, key=lambda D: losses[D])) in (min(losses), max(losses)):
            wider = KneserNey.next_value(best, up=best == max(losses))
            if wider in losses:
                break
            losses[wider] = loss(wider)
        return best

    @cached_property
    def rows(self) -> tuple[HeldOutScore, ...]:
        """The test."""
        n = float(self.counts.sum())
        return tuple(
            HeldOutScore(
                name,
                float(_losses(self.counts, log_p).sum() / n),
                _right(self.counts, log_p) / n,
                _variation(self.counts, log_p) / n,
            )
            for name, log_p in self.log_probabilities.items()
        )

    @cached_property
    def ahead(self) -> tuple[float, float, float]:
        """Loss with ties minus that of Kneser-Ney, with its 95% interval over the contexts that were held out."""
        tied, other = (_losses(self.counts, self.log_probabilities[name]) for name in (TIED, KNESER_NEY))
        difference, n = tied - other, np.asarray(self.counts.sum(axis=0)).ravel()
        drawn = np.random.default_rng(SEED).integers(0, n.size, (BOOTSTRAPS, n.size))
        means = difference[drawn].sum(axis=1) / n[drawn].sum(axis=1)
        low, high = np.quantile(means, (0.025, 0.975))
        return float(difference.sum() / n.sum()), float(low), float(high)

    def to_dict(self) -> dict[str, Any]:
        """The test as plain data."""
        return {
            "contexts": self.cut.m,
            "vocabulary": self.cut.V,
            "coverage": self.cut.coverage,
            "loss_gap": self.tied.loss_gap,
            "held_out_contexts": int(self.out.size),
            "held_out_windows": int(self.counts.sum()),
            "test": {row.name: {"loss": row.loss, "right": row.right, "variation": row.variation} for row in self.rows},
        }


def smoothed(counted: NextTokenStatistics, tokens: np.ndarray[Any, Any], discount: float) -> Float:
    """Kneser-Ney's logits for other contexts, V x k, from the suffixes of the counted ones: nothing followed them."""
    k = len(tokens)
    contexts = ContextStatistics(csc_array((counted.V, k)), np.zeros(k, np.int64), tokens)
    return Backoff.of(ContextStatistics.of(counted), discount).logits(contexts).toarray()


def backed_off(counted: NextTokenStatistics, tokens: np.ndarray[Any, Any], q: Float, otherwise: Float) -> Float:
    """Probabilities after other contexts, V x k: the mean of those after the counted contexts that end alike.

    The mean is over the contexts that have the longest suffix in common with the other one, weighted with their shares;
    ``otherwise`` (V x 1) where none has its last token.
    """
    assert counted.contexts is not None, "the stage asks"
    suffixes = ContextFeatures.of_contexts(counted.contexts, "suffixes")
    shared = suffixes.of(tokens)
    has = np.diff(shared.indptr) > 0
    # Features of longer suffixes come later.
    longest = shared.indices[shared.indptr[1:][has] - 1]
    weights = suffixes.matrix.tocsr()[longest].multiply(counted.pi).tocsr()
    mean = np.repeat(otherwise, len(tokens), axis=1)
    mean[:, has] = (weights @ q.T).T / weights.sum(axis=1)
    return np.asarray(mean)


def _losses(counts: csc_array, log_p: Float) -> Float:
    """Loss of each context's windows together."""
    return -np.asarray(counts.multiply(log_p).sum(axis=0)).ravel()


def _right(counts: csc_array, log_p: Float) -> float:
    """Windows whose next token is the most probable one."""
    return float(np.asarray(counts.tocsr()[log_p.argmax(axis=0), np.arange(log_p.shape[1])]).sum())


def _variation(counts: csc_array, log_p: Float) -> float:
    """Total variation between predicted probabilities and frequencies, times the windows of each context, summed."""
    n = np.asarray(counts.sum(axis=0)).ravel()
    return float(0.5 * np.abs(counts.toarray() - n * np.exp(log_p)).sum())
