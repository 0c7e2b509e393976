"""Interpolated Kneser-Ney n-grams: counts of a context, smoothed with those of its suffixes [kneser1995; chen1999]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, eye_array, hstack, vstack

from tokengeom.comparison.explanations.base import (
    STEP,
    AbstractGridRival,
    AbstractRival,
    ContextStatistics,
    FitInputs,
    Rule,
)
from tokengeom.core.errors import ProblemError
from tokengeom.core.numerics import Float, Int, SparseProduct
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.statistics.windows import ABSENT

TOKEN_BITS = 32


@dataclass(frozen=True)
class KneserNey(AbstractGridRival):
    """``M[z,j] = log p(z | j)``, centred, at power 1/2 or 1, for contexts j and their suffixes u.

    ``p(z | u) = max(n_uz - D, 0) / n_u + (D k_u / n_u) p(z | u')``

    where
        u'     u without its oldest token; without any token, ``p(z | ()) = n_()z / n_()``
        n_uz   how often token z followed u, where u is the whole context; for a shorter u, how many distinct tokens
               came before ``u z``
        n_u    ``sum_z n_uz``
        k_u    number of tokens with ``n_uz > 0``
        D      discount

    A suffix that no context of the fit has is skipped, ``p(z | u) = p(z | u')``. A context of fewer tokens than others
    has fewer suffixes; the start of a document counts as a token.

    ``log p(z | u) - log p(z | u')`` is the same for all tokens but those with ``n_uz > 0``, for which it is higher by
    ``log(1 + max(n_uz - D, 0) / (D k_u p(z | u')))``. So before centring M is ``log p(z | ())`` plus one sparse column
    per suffix of the context: a product of two sparse matrices.
    """

    name = "Kneser-Ney"
    meaning = "smoothed n-grams: log-probabilities from the suffixes of contexts"
    order = 8.5
    uses = "counts and the tokens of contexts"
    parameter = "discount"
    symbol = "D"
    grid = (0.1, 0.3, 0.5, 0.7, 0.9)
    parameters = "D, power"
    discount: float = 0.5
    power: float = 0.5

    def __post_init__(self) -> None:
        if not 0.0 < self.discount <= 1.0:
            raise ProblemError(
                f"Kneser-Ney smoothing needs a discount D above 0 and at most 1; got D={self.discount}. 0.75 is usual."
            )

    @classmethod
    def candidates(cls, known: FitInputs) -> Sequence[AbstractRival]:
        return super().candidates(known) if known.has_tokens else []

    @staticmethod
    def next_value(value: float, *, up: bool) -> float:
        """The next discount on the scale of ``D / (1 - D)``, within 0.001 of both ends at most."""
        odds = value / (1.0 - value) * (STEP if up else 1.0 / STEP)
        return float(f"{min(max(odds / (1.0 + odds), 0.001), 0.999):.3g}")

    def rule(self, stats: NextTokenStatistics) -> Rule:
        return Backoff.of(ContextStatistics.of(stats), self.discount).logits


@dataclass(frozen=True, eq=False)
class Backoff:
    """What suffixes add to log-probabilities; each list has one entry per length from 0.

    where
        keys      suffixes: ``2^32 (place of the suffix without its oldest token) + code of that token``, sorted, s
        added     what is added for the tokens that follow each suffix, V x s
        weights   what is added for every token, ``log(D k_u / n_u)``, s
    """

    discount: float
    keys: list[Int]
    added: list[csc_array]
    weights: list[Float]

    @staticmethod
    def of(contexts: ContextStatistics, discount: float) -> Backoff:
        """From the suffixes of these contexts, shortest first."""
        keys, counts = suffix_counts(contexts)
        number = np.maximum(counts[0].toarray(), 1.0)  # of a token that never occurs too: its logarithm is finite
        made = Backoff(discount, keys, [csc_array(np.log(number / number.sum()))], [np.zeros(1)])
        places: list[Int] = []
        for longer, found in zip(keys[1:], counts[1:], strict=True):
            place = longer >> TOKEN_BITS
            places = [*(shorter[place] for shorter in places), place]
            n, k = np.asarray(found.sum(axis=0)), np.diff(found.indptr)
            weights = np.log(np.divide(discount * k, n, out=np.ones(n.size), where=n > 0))
            made = replace(made, added=[*made.added, made._added(found, places)], weights=[*made.weights, weights])
        return made

    def _added(self, counts: csc_array, places: Sequence[Int]) -> csc_array:
        """``log(1 + max(n_uz - D, 0) / (D k_u p(z | u')))`` of each stored pair.

        ``places``
            Place of each shorter suffix of u; -1 where there is none.
        """
        k = np.diff(counts.indptr)
        log_p = np.zeros(counts.nnz)
        for place, added, weights in zip(places, self.added, self.weights, strict=True):
            u = np.repeat(place, k)
            known = np.flatnonzero(u >= 0)
            if known.size:  # of no pairs, SciPy gives a sparse array, whose shape depends on its version
                log_p[known] += added[counts.indices[known], u[known]] + weights[u[known]]
        ratio = np.maximum(counts.data - self.discount, 0.0) / (self.discount * np.repeat(k, k) * np.exp(log_p))
        return csc_array((np.log1p(ratio), counts.indices, counts.indptr), shape=counts.shape)

    def logits(self, contexts: ContextStatistics) -> SparseProduct:
        """Log-probabilities of these contexts, up to a constant each."""
        P, tokens = contexts.P, contexts.tokens
        assert tokens is not None, "left out where the tokens of contexts are not known"
        places = self._places(tokens)
        own = self._added(csc_array((contexts.counts, P.indices, P.indptr), shape=P.shape), places)
        has = [_indicator(place, keys.size) for place, keys in zip(places, self.keys, strict=True)]
        return SparseProduct(
            hstack([*self.added, own], format="csc"), vstack([*has, eye_array(P.shape[1])], format="csc")
        )

    def _places(self, tokens: NDArray[np.int32]) -> list[Int]:
        """Place of each context's suffix of every length; -1 where the fit does not have it, or it is not a suffix."""
        places = [np.zeros(len(tokens), dtype=np.int64)]
        for length, keys in enumerate(self.keys[1:], start=1):
            wanted = _longer(places[-1], tokens[:, -length])
            place = np.searchsorted(keys, wanted)
            found = (np.append(keys, -2)[place] == wanted) & (tokens[:, -length - 1] != ABSENT)
            places.append(np.where(found, place, -1))
        return places


def suffix_counts(contexts: ContextStatistics) -> tuple[list[Int], list[csc_array]]:
    """Keys of the suffixes of each length, and how many distinct tokens came before each of them and a next token."""
    (V, m), tokens = contexts.P.shape, contexts.tokens
    assert tokens is not None, "left out where the tokens of contexts are not known"
    z, j = contexts.P.indices, np.repeat(np.arange(m), np.diff(contexts.P.indptr))
    place, keys, counts = np.zeros(m, dtype=np.int64), [np.zeros(1, dtype=np.int64)], []
    for oldest in tokens.T[::-1]:
        key = _longer(place, oldest)
        longer, place = np.unique(key[key >= 0]), np.full(m, -1)
        place[key >= 0] = np.searchsorted(longer, key[key >= 0])
        pairs = place[j] >= 0
        seen = csc_array((np.ones(pairs.sum()), (z[pairs], place[j[pairs]])), shape=(V, longer.size))
        shorter = np.repeat(longer >> TOKEN_BITS, np.diff(seen.indptr))
        counts.append(csc_array((np.ones(seen.nnz), (seen.indices, shorter)), shape=(V, keys[-1].size)))
        keys.append(longer)
    return keys[:-1], counts


def _longer(places: Int, oldest: NDArray[np.int32]) -> Int:
    """Keys of suffixes with one more token; -1 where there is none."""
    keys = (places << TOKEN_BITS) + (oldest.astype(np.int64) - ABSENT)
    return np.where((places >= 0) & (oldest != ABSENT), keys, -1)


def _indicator(places: Int, size: int) -> csc_array:
    """1 at the place of each context, size x k."""
    known = np.flatnonzero(places >= 0)
    return csc_array((np.ones(known.size), (places[known], known)), shape=(size, places.size))
