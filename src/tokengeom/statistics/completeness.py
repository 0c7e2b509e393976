"""What a longer text would add to supports, estimated from tokens that followed only once.

A support has the tokens that were seen after a context. A longer text may add tokens; how many follows from how
many were seen only a few times:

    Good-Turing    the next window of context j has a token outside its support with probability about f1_j / n_j
    Good-Toulmin   twice the text shows about f1 - f2 + f3 - ... further pairs of context and next token

where
    n_j     number of windows of context j
    f1_j    number of tokens that followed context j exactly once
    f_i     number of pairs of context and next token that were seen exactly i times

[good1953; good1956]. The series has terms of full size for frequent pairs, which are noise; they are damped by
binomial weights, ``P(Bin(k, 1/2) >= i)`` [efron1976]. A context gains a token in twice the text with a probability
of at most about that of having a token that followed exactly once (with counts that are Poisson,
``exp(-a) (1 - exp(-a))`` is at most ``a exp(-a)``), so the share of such contexts estimates, from above, how many
supports would grow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from tokengeom.core.numerics import Float, rounded_percent
from tokengeom.statistics.supports import column_sums, column_sums_in_parts

_WEIGHTS = 12
"""Number of trials k of the binomial weights of `Completeness`: pairs that were seen more often do not enter it."""


@dataclass(frozen=True, eq=False)
class Completeness:
    """Estimates for a table of counts.

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
        new = f"{self.new_pairs:,.0f} token{'' if round(self.new_pairs) == 1 else 's'}"
        return [
            f"Supports may be incomplete: about {_percent(self.missing_share)} of further windows of these contexts "
            "would have a token outside the support (Good-Turing).",
            f"Twice the text would add about {new} (standard error {self.new_pairs_error:,.0f}) to supports that have "
            f"{self.pairs:,} in all (Good-Toulmin), in up to {_percent(self.growing_share)} of the contexts. A "
            "prediction treats a token outside the support as impossible.",
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
    return "less than 0.1%" if share < 0.001 else rounded_percent(share) if share >= 0.1 else f"{100 * share:.2g}%"


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
