"""How complete supports are: what a longer text would add to them, estimated from tokens that followed only once.

A support has the tokens that were seen after a context. A longer text may add tokens; how many follows from how many
were seen only a few times:

    Good-Turing    the next window of context j has a token outside its support with probability about f1_j / n_j
    Good-Toulmin   twice the text shows about f1 - f2 + f3 - ... further pairs of context and next token

where
    n_j     number of windows of context j
    f1_j    number of tokens that followed context j exactly once
    f_i     number of pairs of context and next token that were seen exactly i times

[good1953; good1956]. The series has terms of full size for frequent pairs, which are noise; they are damped by binomial
weights, ``P(Bin(k, 1/2) >= i)`` [efron1976]. A context gains a token in twice the text with a probability of at most
about that of having a token that followed exactly once (with counts that are Poisson, ``exp(-a) (1 - exp(-a))`` is at
most ``a exp(-a)``), so the share of such contexts estimates, from above, how many supports would grow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from tokengeom.core.numerics import Float
from tokengeom.statistics.supports import column_sums, column_sums_in_parts

_WEIGHTS = 12
"""Number of trials k of the binomial weights: pairs that were seen more often do not enter the series."""
_FEWEST = 3
_MOST_CONTEXTS = 1000


@dataclass(frozen=True, eq=False)
class Completeness:
    """Estimates of what a longer text would add to the supports.

    ``counts``
        The V x m table of counts that the estimates are from.
    ``windows``
        Number n of windows.
    ``growing``
        Number of contexts that have a token seen exactly once.
    ``singles``
        Number of pairs that were seen exactly once.
    ``pairs``
        Number of pairs of context and next token that were seen.
    ``new_pairs``, ``new_pairs_error``
        Good-Toulmin estimate of the pairs that twice the text would add, and its standard error.
    """

    counts: sparse.csc_array
    windows: int
    growing: int
    singles: int
    pairs: int
    new_pairs: float
    new_pairs_error: float

    @cached_property
    def missing(self) -> Float:
        """Good-Turing estimate per context, m: probability that its next window has a token outside its support."""
        once = column_sums(self.counts.data == 1, self.counts.indptr)
        return np.asarray(once / column_sums(self.counts.data, self.counts.indptr))

    @property
    def missing_share(self) -> float:
        """Good-Turing estimate over all contexts: share of further windows with a token outside the support."""
        return self.singles / self.windows

    @property
    def growing_share(self) -> float:
        """Share of the contexts that have a token seen exactly once: about as many supports grow in twice the text."""
        return float(self.growing / self.counts.shape[1])

    @property
    def sentences(self) -> list[str]:
        """The estimates, and what they mean for a prediction, one sentence each."""
        if not self.singles:
            return ["Every token of every support followed its context at least twice: supports look complete."]
        return [
            f"Supports may be incomplete: about {_percent(self.missing_share)} of further windows of these contexts "
            "would have a token outside the support (Good-Turing).",
            f"Twice the text would add about {self.new_pairs:,.0f} tokens (standard error {self.new_pairs_error:,.0f}) "
            f"to supports that have {self.pairs:,} in all (Good-Toulmin), in up to {_percent(self.growing_share)} of "
            "the contexts. A prediction treats a token outside the support as impossible.",
        ]

    def to_dict(self) -> dict[str, Any]:
        """The estimates over all contexts as plain data."""
        return {
            "missing_share": self.missing_share,
            "growing_share": self.growing_share,
            "pairs": self.pairs,
            "pairs_seen_once": self.singles,
            "new_pairs_in_twice_the_text": self.new_pairs,
            "new_pairs_error": self.new_pairs_error,
        }


def _percent(share: float) -> str:
    return "less than 0.1%" if share < 0.001 else f"{100 * share:.0f}%" if share >= 0.1 else f"{100 * share:.2g}%"


def estimate_completeness(counts: sparse.csc_array) -> Completeness:
    """Estimate from a V x m table of counts what a longer text would add to its supports."""
    once = column_sums_in_parts(counts.data == 1, counts.indptr)
    times = range(1, _WEIGHTS + 1)
    seen = np.array([np.count_nonzero(counts.data == i) for i in times])
    weight = np.array([(-1) ** (i + 1) * _binomial_tail(i) for i in times])
    return Completeness(
        counts=counts,
        windows=int(counts.data.sum()),
        growing=sum(int(np.count_nonzero(part)) for part in once),
        singles=int(seen[0]),
        pairs=int(counts.nnz),
        new_pairs=max(0.0, float(weight @ seen)),
        new_pairs_error=float(np.sqrt(weight**2 @ seen)),
    )


def _binomial_tail(i: int) -> float:
    """``P(Bin(k, 1/2) >= i)`` with k trials; scipy.stats has it too, but takes a second to load."""
    return float(sum(math.comb(_WEIGHTS, j) for j in range(i, _WEIGHTS + 1)) / 2**_WEIGHTS)


def half_text_correlation(counts: sparse.csc_array, seed: int = 0) -> float | None:
    """Correlation between the cosines of centred supports from all windows and from a random half of them.

    Every window is kept with probability 1/2. The cosines are those of the proxy S~ between different contexts: 1 means
    that half of the text predicts the same geometry. Of many contexts, the 1,000 most frequent are used. None where
    fewer than three contexts are left, or all cosines are equal.
    """
    totals = np.asarray(counts.sum(axis=0)).ravel()
    table = sparse.csc_array(counts[:, np.sort(np.argsort(-totals, kind="stable")[:_MOST_CONTEXTS])])
    half = np.random.default_rng(seed).binomial(table.data, 0.5)
    thinned = sparse.csc_array((half, table.indices, table.indptr), shape=table.shape)
    left = np.flatnonzero(np.asarray(thinned.sum(axis=0)).ravel())
    if left.size < _FEWEST:
        return None
    above = np.triu_indices(left.size, 1)
    whole, part = (support_cosines(sparse.csc_array(one[:, left]))[above] for one in (table, thinned))
    usable = np.isfinite(whole) & np.isfinite(part)
    whole, part = whole[usable], part[usable]
    if whole.size < _FEWEST or min(np.ptp(whole), np.ptp(part)) < np.finfo(np.float64).eps:
        return None
    return float(np.corrcoef(whole, part)[0, 1])


def support_cosines(counts: sparse.csc_array) -> Float:
    """Cosines between the centred supports of contexts, m x m; NaN for a support that is the whole vocabulary."""
    V = counts.shape[0]
    S = sparse.csc_array(((counts.data > 0).astype(np.float64), counts.indices, counts.indptr), shape=counts.shape)
    k = np.asarray(S.sum(axis=0)).ravel()
    inner = np.asarray((S.T @ S).todense()) - np.outer(k, k) / V
    length = np.sqrt(k * (1 - k / V))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(inner / np.outer(length, length))
