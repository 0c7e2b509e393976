"""Contexts that the text does not have: features of contexts, trained on a part of a text, and tested on the rest.

Contexts that share tokens share vectors (`tokengeom.models.networks.tied`), so the simplest network that reads contexts
has a place for any context. It is trained once, on a larger cut of the text than that of the other stages. A tenth of
the documents is held out: after those of their contexts that no other document has, it is compared with Kneser-Ney
smoothing and with the frequencies of the next tokens, which know the same windows. Nothing in it is proven: the
prediction that is proven, `predict(..., ties=...)`, is for a few thousand contexts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any

import numpy as np
from scipy.sparse import coo_array, csc_array, csr_array

from tokengeom.comparison.explanations.base import ContextStatistics
from tokengeom.comparison.explanations.kneser_ney import Backoff, KneserNey
from tokengeom.core.numerics import Float, Int, log_sum_exp
from tokengeom.core.resources import Estimate
from tokengeom.corpus.documents import Ids
from tokengeom.statistics.cuts import Totals
from tokengeom.statistics.next_token import NextTokenStatistics, restricted
from tokengeom.statistics.supports import canonical
from tokengeom.training.settings import TrainingSettings
from tokengeom.training.simulation import Simulation
from tokengeom.training.tied_replicates import TiedReplicates, replicate_bytes

CUT, COUNTED, UNSEEN = "unseen-cut", "unseen-counted", "unseen"
"""Stages: the larger cut of the text, its windows that are not held out, and the training."""
MOST_CONTEXTS, MOST_TOKENS = 120_000, 4_000
"""Contexts and next tokens that are kept at most: all windows of a novel of 1 MB, of which 9% end in other tokens."""
FEWEST = 300
"""Contexts from which on a tenth of them says something."""
STEPS, SEEN, LARGEST_BATCH = 100, 2.0, 4_096
"""Steps of the training; how often it sees each window, unless its batches were larger than the largest."""
HOW: dict[str, Any] = {
    "model": "tied",
    "ties": "positions+suffixes+self",
    "dim": 64,
    "last_norm": True,
    "head_start": 0.1,
    "feature_start": 0.3,
    "optimizer": "adamw",
    "learning_rate": 1e-2,
    "rate_schedule": "cosine",
    "weight_decay": 1.0,
    "reduction": "mean",
    "steps": STEPS,
}
"""The training, as keywords of `train`: of those tried on three texts, among the best on held-out contexts of each."""
REHEARSED, AROUND, SPREAD = 3, 1.2, 1.3
"""Steps that are measured beforehand, the time of everything in units of that of the steps, and a factor around it."""
PARTS, FEWEST_DOCUMENTS, PIECES = 10, 10, 100
"""One of so many documents is held out; a text with fewer than the fewest is cut into about so many pieces."""
DOCUMENTS, PIECES_OF_TEXT, DRAWN = (
    "the windows that are not in every tenth document",
    "the windows that are not in every tenth piece of the text",
    "the contexts that are not in a tenth of them, drawn at random",
)
"""What was kept of the cut, in the words that the statistics record."""
SEED, TUNED, AT_ONCE, BOOTSTRAPS = 0, 2_000, 1_000, 2_000
TIED, KNESER_NEY, FREQUENCIES = "tied contexts", "Kneser-Ney", "frequencies of next tokens"
UNTIED = "without ties, longest suffix"


def sizes(stats: NextTokenStatistics, given: NextTokenStatistics | None) -> Totals | None:
    """Sizes from which the larger cut is made, those of given statistics or of the text; None where it has no use."""
    has_tokens = stats.has_counts and stats.contexts is not None and stats.contexts.shape[1] > 1
    if not has_tokens or find_spec("torch") is None:
        return None
    text = stats.effects[0].before if stats.effects else stats.totals
    whole = text if given is None else given.totals
    return whole if whole.m >= FEWEST and whole.V > 1 else None


def estimate(stats: NextTokenStatistics, whole: Totals, device: str) -> Estimate:
    """How long the training takes, from a few steps of one of its size, and its memory.

    Its cut is not counted yet: there are as many contexts, tokens and windows as the text has and the cut keeps, but
    they are drawn at random.
    """
    assert stats.contexts is not None, "they are asked for"
    m, V, random = min(whole.m, MOST_CONTEXTS), min(whole.V, MOST_TOKENS + 1), np.random.default_rng(SEED)
    tokens = random.integers(0, whole.V, (m, stats.contexts.shape[1]))
    table = coo_array((np.ones(m, np.int64), (random.integers(0, V, m), np.arange(m))), shape=(V, m))
    alike = NextTokenStatistics.from_counts(table, contexts=tokens)
    trained = TiedReplicates(alike, [TrainingSettings(**{**training(alike, device), "batch": batch_for(whole.n)})])
    list(trained.advance(REHEARSED))
    began = time.perf_counter()
    list(trained.advance(2 * REHEARSED))
    seconds = AROUND * STEPS * (time.perf_counter() - began) / REHEARSED
    needed = replicate_bytes(V, m, trained.weights(0)["A"].shape[1], HOW["dim"], 4)
    return Estimate("", seconds / SPREAD, seconds * SPREAD, needed)


def why_not_made(is_cut: bool) -> str:
    """Why there is no such training, in a sentence; ``is_cut`` where there were contexts enough."""
    why = f"it needs counted contexts of two tokens or more, and at least {FEWEST} of them"
    if find_spec("torch") is None:
        why = "it needs torch, which is not installed here (pip install 'tokengeom[networks]')"
    elif is_cut:
        why = "the training diverged, or no context was left to hold out"
    return f"Nothing was trained to place contexts that the text does not have: {why}."


def parts(documents: Iterator[Ids], cut: NextTokenStatistics) -> tuple[Iterator[Ids], str]:
    """The held-out part of the documents of a text, as token ids, and what the cut is without it."""
    few = cut.corpus["documents"] < FEWEST_DOCUMENTS
    length = max(int(cut.corpus["tokens"]) // PIECES, 1)

    def pieces() -> Iterator[Ids]:
        for ids in documents:
            yield from (ids[begin : begin + length] for begin in range(0, ids.size, length)) if few else (ids,)

    held = (ids for number, ids in enumerate(pieces()) if number % PARTS == PARTS - 1)
    return held, PIECES_OF_TEXT if few else DOCUMENTS


def without_windows(cut: NextTokenStatistics, out: NextTokenStatistics, said: str) -> NextTokenStatistics:
    """A cut without the windows of some statistics that were not cut; contexts with no other window are left out."""
    assert cut.contexts is not None, "it is possible"
    assert out.contexts is not None, "they have the same contexts"
    row = {name: z for z, name in enumerate(cut.vocabulary)}
    other = -1 if cut.other is None else cut.other
    z = np.array([row.get(name, other) for name in out.vocabulary])
    column = {context.tobytes(): j for j, context in enumerate(cut.contexts)}
    j = np.array([column.get(context.tobytes(), -1) for context in out.contexts])
    pairs = out.counts.tocoo()
    known = (z[pairs.row] >= 0) & (j[pairs.col] >= 0)
    removed = coo_array((pairs.data[known], (z[pairs.row[known]], j[pairs.col[known]])), shape=cut.table.shape)
    left = canonical((cut.counts - removed.tocsc()).tocoo())
    kept = np.flatnonzero(np.diff(left.indptr))
    return restricted(cut, said, left[:, kept], cut.vocabulary, kept, None)


def drawn(m: int) -> Int:
    """A tenth of m contexts, in order."""
    return np.sort(np.random.default_rng(SEED).permutation(m)[: max(round(m / PARTS), 1)]).astype(np.int64)


def without_drawn(cut: NextTokenStatistics) -> NextTokenStatistics:
    """A cut without a tenth of its contexts, where the documents are not known."""
    kept = np.setdiff1d(np.arange(cut.m), drawn(cut.m))
    read = None if cut.text_counts is None else cut.text_counts[kept]
    return restricted(cut, DRAWN, cut.table[:, kept], cut.vocabulary, kept, read)


def is_part(counted: NextTokenStatistics, cut: NextTokenStatistics) -> bool:
    """Whether statistics can be a cut without what is held out."""
    if counted.effects[-1].cut == DRAWN:
        return without_drawn(cut).hash == counted.hash
    place = _places(counted, cut)
    if counted.vocabulary != cut.vocabulary or (place < 0).any():
        return False
    return bool((cut.table[:, place] - counted.table).min() >= 0)


def _places(counted: NextTokenStatistics, cut: NextTokenStatistics) -> Int:
    """Number of each counted context in the cut; -1 where it has none."""
    assert cut.contexts is not None, "it is possible"
    assert counted.contexts is not None, "it is possible"
    column = {context.tobytes(): j for j, context in enumerate(cut.contexts)}
    return np.array([column.get(context.tobytes(), -1) for context in counted.contexts], np.int64)


def training(counted: NextTokenStatistics, device: str) -> dict[str, Any]:
    """Keywords of the training on these statistics."""
    return {**HOW, "batch": batch_for(counted.n), "device": device, "seed": SEED}


def batch_for(windows: int) -> int:
    """Windows per step."""
    return min(max(round(SEEN * windows / STEPS), 1), LARGEST_BATCH)


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
    """The trained features, and what they were tested on.

    ``cut``
        All contexts, those that are held out among them.
    ``tied``
        The training without them, with its statistics.
    """

    cut: NextTokenStatistics
    tied: Simulation

    @property
    def counted(self) -> NextTokenStatistics:
        """Statistics of the windows that were not held out."""
        assert self.tied.stats is not None, "they are put in"
        return self.tied.stats

    @cached_property
    def out(self) -> Int:
        """Contexts of the cut of which no window was counted."""
        return np.setdiff1d(np.arange(self.cut.m), _places(self.counted, self.cut))

    @cached_property
    def counts(self) -> csc_array:
        """What followed them, V x k."""
        return csc_array(self.cut.table[:, self.out])

    @cached_property
    def windows(self) -> Float:
        """Number of windows of each, k."""
        return np.asarray(self.counts.sum(axis=0), np.float64).ravel()

    def log_probabilities(self, which: Int | slice) -> dict[str, Float]:
        """Predictor -> logarithms of the probabilities of next tokens after some of these contexts, V x size."""
        assert self.cut.contexts is not None, "the stage asks"
        tokens = self.cut.contexts[self.out[which]]
        return {
            TIED: self.tied.logits_of(self.tied.features.of(tokens)),
            KNESER_NEY: smoothed(self._backoff, tokens),
            UNTIED: self._suffixes.log_probabilities(tokens),
            FREQUENCIES: np.repeat(self._frequencies, len(tokens), axis=1),
        }

    @cached_property
    def _frequencies(self) -> Float:
        number = np.maximum(np.asarray(self.counted.table.sum(axis=1)).reshape(-1, 1), 1)
        return np.asarray(np.log(number / number.sum()))

    @cached_property
    def _backoff(self) -> Backoff:
        return Backoff.of(ContextStatistics.of(self.counted), self.discount)

    @cached_property
    def _suffixes(self) -> LongestSuffix:
        return LongestSuffix.of(self.counted)

    @cached_property
    def tuned(self) -> Int:
        """Counted contexts by which the discount of Kneser-Ney is chosen: some of a tenth."""
        tenth = drawn(self.counted.m)
        return np.sort(np.random.default_rng(SEED).permutation(tenth)[:TUNED])

    @cached_property
    def discount(self) -> float:
        """The discount of Kneser-Ney with the lowest loss on these contexts, fitted to the other nine tenths."""
        known, some = ContextStatistics.of(without_drawn(self.counted)), self.tuned
        assert self.counted.contexts is not None, "the stage asks"
        tokens, counts = self.counted.contexts[some], csc_array(self.counted.table[:, some])

        def loss(D: float) -> float:
            backoff = Backoff.of(known, D)
            return sum(
                float(_losses(counts[:, part], smoothed(backoff, tokens[part])).sum()) for part in _some_of(some.size)
            )

        losses = {D: loss(D) for D in KneserNey.grid}
        # As for every rival, a grid on whose edge the best value lies is widened.
        while (best := min(losses, key=lambda D: losses[D])) in (min(losses), max(losses)):
            wider = KneserNey.next_value(best, up=best == max(losses))
            if wider in losses:
                break
            losses[wider] = loss(wider)
        return best

    @cached_property
    def _scores(self) -> dict[str, tuple[Float, Float, Float]]:
        """Predictor -> of each context's windows together: losses, how many are right, and total variation."""
        found: dict[str, list[tuple[Float, Float, Float]]] = {}
        for part in _some_of(self.out.size):
            counts, windows = self.counts[:, part].toarray(), self.windows[part]
            for name, log_p in self.log_probabilities(part).items():
                right = counts[log_p.argmax(axis=0), np.arange(windows.size)]
                moved = 0.5 * np.abs(counts - windows * np.exp(log_p)).sum(axis=0)
                found.setdefault(name, []).append((_losses(self.counts[:, part], log_p), right, moved))
        return {name: tuple(map(np.concatenate, zip(*each, strict=True))) for name, each in found.items()}  # type: ignore[misc]

    @cached_property
    def rows(self) -> tuple[HeldOutScore, ...]:
        """The test."""
        n = self.windows.sum()
        return tuple(HeldOutScore(name, *(float(x.sum() / n) for x in each)) for name, each in self._scores.items())

    @cached_property
    def ahead(self) -> tuple[float, float, float]:
        """Loss with ties minus that of Kneser-Ney, with its 95% interval over the contexts that were held out."""
        difference, n = self._scores[TIED][0] - self._scores[KNESER_NEY][0], self.windows
        random = np.random.default_rng(SEED)
        means = np.empty(BOOTSTRAPS)
        for b in range(BOOTSTRAPS):
            some = random.integers(0, n.size, n.size)
            means[b] = difference[some].sum() / n[some].sum()
        low, high = np.quantile(means, (0.025, 0.975))
        return float(difference.sum() / n.sum()), float(low), float(high)

    def to_dict(self) -> dict[str, Any]:
        """The test as plain data."""
        return {
            "contexts": self.cut.m,
            "vocabulary": self.cut.V,
            "coverage": self.cut.coverage,
            "merged_share": self.cut.merged_share,
            "loss_gap": self.tied.loss_gap,
            "kept": self.counted.effects[-1].cut,
            "held_out_contexts": int(self.out.size),
            "held_out_windows": int(self.windows.sum()),
            "test": {row.name: {"loss": row.loss, "right": row.right, "variation": row.variation} for row in self.rows},
        }


@dataclass(frozen=True, eq=False)
class LongestSuffix:
    """What followed the longest suffix of a context that was counted: a prediction without ties, where it has none.

    ``rows``, ``counts``
        By length, from 0 to that of a context: last tokens -> row of counts, and the counts (size x V).
    """

    rows: list[dict[bytes, int]]
    counts: list[csr_array]

    @staticmethod
    def of(stats: NextTokenStatistics) -> LongestSuffix:
        """From counted contexts."""
        assert stats.contexts is not None, "the stage asks"
        rows, counts = list[dict[bytes, int]](), list[csr_array]()
        for length in range(stats.contexts.shape[1] + 1):
            ends = _last(stats.contexts, length)
            row = {end: place for place, end in enumerate(dict.fromkeys(ends))}
            belongs = np.array([row[end] for end in ends])
            one = csr_array((np.ones(stats.m), (belongs, np.arange(stats.m))), shape=(len(row), stats.m))
            rows.append(row)
            counts.append(csr_array(one @ stats.counts.T))
        return LongestSuffix(rows, counts)

    def log_probabilities(self, tokens: np.ndarray[Any, Any]) -> Float:
        """Logarithms of shares after these contexts, V x k; minus infinity for what never followed."""
        shares = np.zeros((self.counts[0].shape[1], len(tokens)))
        missing = np.ones(len(tokens), np.bool_)
        for length in range(len(self.rows) - 1, -1, -1):
            row = np.array([self.rows[length].get(end, -1) for end in _last(tokens, length)])
            found = np.flatnonzero(missing & (row >= 0))
            some = self.counts[length][row[found]].toarray().T
            shares[:, found] = some / some.sum(axis=0)
            missing[found] = False
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(shares))


def _last(contexts: np.ndarray[Any, Any], length: int) -> list[bytes]:
    """The last tokens of each context."""
    return [context.tobytes() for context in np.ascontiguousarray(contexts[:, contexts.shape[1] - length :], np.int32)]


def smoothed(backoff: Backoff, tokens: np.ndarray[Any, Any]) -> Float:
    """Kneser-Ney's log-probabilities after contexts that were not counted, V x k, from their suffixes."""
    k, V = len(tokens), backoff.added[0].shape[0]
    logits = backoff.logits(ContextStatistics(csc_array((V, k)), np.zeros(k, np.int64), tokens)).toarray()
    return np.asarray(logits - log_sum_exp(logits)[None, :])


def _some_of(size: int) -> Sequence[slice]:
    """Some contexts at a time: all of their logits take too much memory."""
    return [slice(begin, begin + AT_ONCE) for begin in range(0, size, AT_ONCE)]


def _losses(counts: csc_array, log_p: Float) -> Float:
    """Loss of each context's windows together."""
    return -np.asarray(counts.multiply(log_p).sum(axis=0)).ravel()
