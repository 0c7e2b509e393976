"""Synthetic languages with known probabilities of the next token.

Each gives documents of token ids to count, and the true conditionals ``P`` and shares ``pi`` that the counts converge
to. For exact statistics without sampling, use ``NextTokenStatistics.from_probabilities(truth.P, truth.pi)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tokengeom.core.errors import InputError

Ids = NDArray[np.int32]
"""Ids of tokens."""

_BATCH = 1 << 16
_LARGEST_SIZE = 1_000_000


@dataclass(frozen=True, eq=False)
class Truth:
    """The true probabilities of a language.

    ``contexts``
        m x L token ids, oldest first.
    ``P``
        V x m probabilities of the next token, zero outside the supports.
    ``pi``
        Share of each context, shape m.
    """

    contexts: Ids
    P: sparse.csc_array
    pi: NDArray[np.float64]

    @property
    def S(self) -> sparse.csc_array:
        """True supports, V x m of zeros and ones."""
        return sparse.csc_array((np.ones(self.P.nnz, np.int8), self.P.indices, self.P.indptr), shape=self.P.shape)


@dataclass(frozen=True, eq=False)
class WindowLanguage:
    """Independent windows: a context drawn from ``pi``, then a next token drawn from its conditional."""

    truth: Truth

    def documents(self, n: int, seed: int) -> Iterator[Ids]:
        """Yield n documents of one window each: the L tokens of a context and the next token."""
        rng = np.random.default_rng(seed)
        P = self.truth.P
        columns = np.repeat(np.arange(P.shape[1]), np.diff(P.indptr))
        upper = np.cumsum(P.data * self.truth.pi[columns])
        for begin in range(0, n, _BATCH):
            size = min(_BATCH, n - begin)
            drawn = np.searchsorted(upper, rng.random(size) * upper[-1], side="right")
            contexts = self.truth.contexts[columns[drawn]]
            yield from np.column_stack((contexts, P.indices[drawn].astype(np.int32)))


@dataclass(frozen=True, eq=False)
class MarkovLanguage:
    """A Markov chain of order L: each token depends on the L tokens before it."""

    truth: Truth

    def documents(self, number: int, length: int, seed: int) -> Iterator[Ids]:
        """Yield ``number`` chains of ``length`` tokens, whose first tokens are drawn from the stationary shares."""
        rng = np.random.default_rng(seed)
        contexts, P = self.truth.contexts, self.truth.P
        V, m = P.shape
        order = contexts.shape[1]
        if length < order:
            raise InputError(f"A document of this chain has at least {order} tokens; got length {length}.")
        upper, tokens = _padded_conditionals(P)
        state = rng.choice(m, size=number, p=self.truth.pi)
        text = np.empty((number, length), np.int32)
        text[:, :order] = contexts[state]
        for position in range(order, length):
            place = (rng.random(number)[:, None] >= upper[state]).sum(axis=1)
            text[:, position] = tokens[state, place]
            state = (state * V + text[:, position]) % m
        yield from text


def _padded_conditionals(P: sparse.csc_array) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Cumulative probabilities and tokens of each column, as rows of equal length; the last bound is never reached."""
    sizes = np.diff(P.indptr)
    inside = np.arange(sizes.max()) < sizes[:, None]
    upper = np.ones(inside.shape)
    tokens = np.zeros(inside.shape, np.int64)
    p = np.zeros(inside.shape)
    p[inside], tokens[inside] = P.data, P.indices
    upper[inside] = np.cumsum(p, axis=1)[inside]
    upper[np.arange(len(sizes)), sizes - 1] = 1.0
    return upper, tokens


def planted_supports(
    V: int, sizes: Sequence[int], *, concentration: float = 1.0, zipf: float = 0.0, seed: int = 0
) -> WindowLanguage:
    """A language with random supports of the given sizes, one context per size.

    Parameters
    ----------
    V
        Vocabulary size.
    sizes
        Support size of each context; their number is m.
    concentration
        Parameter of the symmetric Dirichlet distribution of the probabilities in a support.
    zipf
        Shares of the contexts are proportional to ``1 / rank^zipf``; 0 makes them equal.
    """
    bad = [size for size in sizes if not 1 <= size <= V]
    if bad or not len(sizes):
        raise InputError(f"Support sizes must lie in 1..V={V}, and at least one is needed; got {bad or 'none'}.")
    rng = np.random.default_rng(seed)
    supports = [np.sort(rng.choice(V, size=size, replace=False)) for size in sizes]
    return _windows(V, supports, concentration, zipf, rng)


def random_soft_labels(V: int = 10, m: int = 50, k: int = 6, *, zipf: float = 0.0, seed: int = 0) -> WindowLanguage:
    """The random setting of [thrampoulidis2024, Fig. 4]: m supports of k tokens, probabilities from Dirichlet(1)."""
    return planted_supports(V, [k] * m, zipf=zipf, seed=seed)


def markov_chain(V: int, order: int, branching: int, *, concentration: float = 1.0, seed: int = 0) -> MarkovLanguage:
    """A chain in which ``branching`` random tokens may follow each of the ``V^order`` contexts.

    The id after the newest token's, cyclically, is always among them: then all contexts lead to one recurrent class,
    and the stationary shares are unique.
    """
    if not 1 <= branching <= V or order < 1 or V**order > _LARGEST_SIZE:
        raise InputError(
            f"branching must lie in 1..V, order must be 1 or more, and V^order at most {_LARGEST_SIZE:,}; "
            f"got V={V}, order={order}, branching={branching}."
        )
    rng = np.random.default_rng(seed)
    m = V**order
    supports = []
    for state in range(m):
        always = (state + 1) % V
        others = rng.choice(np.delete(np.arange(V), always), size=branching - 1, replace=False)
        supports.append(np.sort(np.append(others, always)))
    P = _conditionals(V, supports, concentration, rng)
    return MarkovLanguage(Truth(_digits(m, V, order), P, _stationary(P)))


def _windows(
    V: int, supports: list[NDArray[np.int64]], concentration: float, zipf: float, rng: np.random.Generator
) -> WindowLanguage:
    m, length = len(supports), 1
    while V**length < m:
        if V == 1:
            raise InputError(f"With one token there is only one context, and {m} are needed. Use 2 or more tokens.")
        length += 1
    share = 1.0 / np.arange(1, m + 1) ** zipf
    P = _conditionals(V, supports, concentration, rng)
    return WindowLanguage(Truth(_digits(m, V, length), P, share / share.sum()))


def _conditionals(
    V: int, supports: list[NDArray[np.int64]], concentration: float, rng: np.random.Generator
) -> sparse.csc_array:
    if not concentration > 0:
        raise InputError(f"The concentration of a Dirichlet distribution must be positive; got {concentration}.")
    sizes = np.array([support.size for support in supports])
    starts = np.concatenate(([0], np.cumsum(sizes)))
    weights = rng.gamma(concentration, size=starts[-1])
    # A weight that underflows would remove its token from the support.
    weights = np.maximum(weights, np.finfo(np.float64).tiny * 1e20)
    p = weights / np.repeat(np.add.reduceat(weights, starts[:-1]), sizes)
    return sparse.csc_array((p, np.concatenate(supports), starts), shape=(V, sizes.size))


def _digits(m: int, V: int, length: int) -> Ids:
    """The first m contexts of ``length`` tokens in the order of ids."""
    return np.array([np.arange(m) // V**place % V for place in reversed(range(length))], np.int32).T.copy()


def _stationary(P: sparse.csc_array) -> NDArray[np.float64]:
    """Stationary shares of the chain's contexts, by lazy power iteration (which converges for periodic chains too)."""
    V, m = P.shape
    state = np.repeat(np.arange(m), np.diff(P.indptr))
    target = (state * V + P.indices) % m
    step = sparse.csr_array((P.data, (target, state)), shape=(m, m))
    share = np.full(m, 1 / m)
    for _ in range(100_000):
        new = 0.5 * (share + step @ share)
        if np.abs(new - share).sum() < 1e-15:
            break
        share = new
    return np.asarray(share / share.sum())
