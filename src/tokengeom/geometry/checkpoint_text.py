"""A text as a trained model's tokenizer sees it: statistics, which row of W each token is, and the prediction.

The loss is that of the model as it is, over all its rows and all the text's next tokens. The geometry is compared on
the next tokens that the text has (or the commonest of them): W's other rows have nothing to be compared with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tokengeom.errors import StatisticsError
from tokengeom.progress import SilentProgress
from tokengeom.statistics.count import count
from tokengeom.statistics.cuts import CommonestTokens, MostFrequentContexts, PairArrays, support_policy
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.predict import predict
from tokengeom.theory.proxy import ProxyPrediction
from tokengeom.training.objective import SoftLabels

if TYPE_CHECKING:
    from tokengeom.corpus.locate import ReadingOptions
    from tokengeom.corpus.tokenizers import AbstractTokenizer
    from tokengeom.factors import Factors
    from tokengeom.models.checkpoint_head import Head
    from tokengeom.progress import AbstractProgress
    from tokengeom.statistics.count import Corpus
    from tokengeom.theory.features import FeaturePrediction

EXACT_ENTRIES = 2_000_000
"""Largest V x m for which L_mm is solved unless told otherwise: 989 x 2000 took 100 s on one busy core."""
PROXY_COMPONENTS = 128
_BLOCK_ENTRIES = 2**24
"""Logits of one block of contexts in the loss: 128 MB in float64."""


@dataclass(frozen=True, eq=False)
class CheckpointText:
    """What a model is held against.

    ``counted``     statistics of the chosen contexts with every token of the tokenizer: row z is token z
    ``stats``       the same with the compared tokens only
    ``tokens``      id of each of these tokens, V
    ``prediction``  of ``stats``: L_mm with its proof, or the proxy
    """

    counted: NextTokenStatistics
    stats: NextTokenStatistics
    tokens: NDArray[np.int64]
    prediction: FeaturePrediction | ProxyPrediction

    @property
    def contexts(self) -> NDArray[np.int32]:
        """Ids of all counted contexts, which the model reads."""
        if self.counted.contexts is None:
            raise StatisticsError("These statistics do not know the tokens of their contexts, which a model must read.")
        return self.counted.contexts

    @property
    def places(self) -> NDArray[np.int64]:
        """Where the compared contexts are among the counted ones: a cut of the tokens can empty a context."""
        place = {tuple(row): j for j, row in enumerate(self.contexts.tolist())}
        return np.array([place[tuple(row)] for row in np.asarray(self.stats.contexts).tolist()], np.int64)

    @property
    def is_proxy(self) -> bool:
        """Whether the proxy stands for L_mm."""
        return isinstance(self.prediction, ProxyPrediction)

    def loss_gap(self, readout: Factors, head: Head) -> float:
        """``CE - H`` in nats over all rows of the model and all next tokens; ``readout`` is on ``contexts``."""
        P, pi, rows = self.counted.P, self.counted.pi, head.rows
        most = max(1, _BLOCK_ENTRIES // rows)
        total = 0.0
        for first in range(0, self.counted.m, most):
            last = min(first + most, self.counted.m)
            pairs = slice(P.indptr[first], P.indptr[last])
            start = (P.indptr[first : last + 1] - P.indptr[first]).astype(np.int64)
            block = SoftLabels(
                rows, start, P.indices[pairs].astype(np.int64), P.data[pairs], pi[first:last], last - first
            )
            L = type(readout)(readout.W, readout.H[:, first:last], readout.bias).logits
            total += block.loss_gap(head.capped(L))
        return total


def prepare_text(
    text: Corpus,
    tokenizer: AbstractTokenizer,
    *,
    context: int = 4,
    contexts: int = 400,
    vocabulary: int | None = None,
    support: str = "raw",
    proxy: bool | None = None,
    reading: ReadingOptions | None = None,
    progress: AbstractProgress | None = None,
) -> CheckpointText:
    """Count a text with a model's own tokenizer and predict its geometry.

    Parameters
    ----------
    context, contexts
        Tokens in a context, and how many of the most frequent contexts are kept.
    vocabulary
        How many of the commonest next tokens are compared; by default all that the text has.
    support
        Support policy of the prediction: ``raw``, ``count:TAU`` or ``top-p:P``; the loss is that of all the windows.
    proxy
        Whether the proxy stands for L_mm; by default only where L_mm would take minutes.
    """
    shown, policy, most = progress or SilentProgress(), support_policy(support), MostFrequentContexts(contexts)
    counted = count(text, context=context, tokenizer=tokenizer, cuts=[most], reading=reading, progress=shown)
    seen = int(np.count_nonzero(np.diff(counted.counts.tocsr().indptr)))
    cut = CommonestTokens(seen if vocabulary is None else min(vocabulary, seen))
    stats = counted.cut(cut, *([] if policy is None else [policy]))
    if stats.V < 2:
        raise StatisticsError(
            f"A geometry needs at least two tokens; {stats.V} token follows the {stats.m} chosen contexts. Use a longer "
            "text, more contexts or shorter ones."
        )
    with shown.stage("Predicting", None):
        return CheckpointText(counted, stats, _tokens_kept(counted, cut), _predict(stats, proxy))


def _tokens_kept(counted: NextTokenStatistics, cut: CommonestTokens) -> NDArray[np.int64]:
    """Ids of the tokens that the cut keeps, in the order of its rows."""
    context = np.repeat(np.arange(counted.m), counted.support_sizes)
    token = counted.counts.indices.astype(np.int64)
    return cut.in_memory(PairArrays(context, token, counted.counts.data, np.arange(counted.V))).rows


def _predict(stats: NextTokenStatistics, proxy: bool | None) -> Any:
    large = stats.V * stats.m > EXACT_ENTRIES
    if proxy if proxy is not None else large:
        return predict(stats, proxy=True, components=min(PROXY_COMPONENTS, min(stats.V, stats.m) - 1))
    return predict(stats)
