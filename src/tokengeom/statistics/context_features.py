"""`ContextFeatures`: what contexts have in common, as a sparse matrix ``Phi`` with one row per feature.

``Phi`` is F x m: ``Phi[f, j]`` is the weight of feature f where context j has it, else 0. A feature is a span of a
context, which tokens stand where, counted from the end of the context:

``positions``   one token at one place: "old" in the last place
``pairs``       two neighbouring tokens at one place: "the old" one place before the last
``suffixes``    the last 1, 2, ... tokens, fewer than the whole context
``self``        the whole context, which no other context has
``kernel``      each set of places with its tokens, and the weights with which ``Phi^T Phi`` is the kernel of an MLP at
                its start (`statistics.mlp_kernel`); ``kernel:3`` is that of an MLP with 3 hidden layers

Kinds are combined as in ``"positions+suffixes+self"`` and weighted as in ``"3*positions+self"``. A span that belongs to
several kinds (the last token is a position and a suffix) is one feature, with the largest of its weights. Contexts that
share features are tied: in the model ``H = A Phi`` they share columns of A.

Tokens of a span are numbered together, from its last token backwards: ``code_k = rank of (code_{k-1}, token_k)`` among
the pairs that occur. The sorted pairs of each step are kept; they find the features of any other context. The first
token of a shorter context has nothing before it: spans that begin there are left out, except the context itself and
those of ``kernel``, to which an absent token is one of its own, as it is to the network.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from tokengeom.core.errors import StatisticsError
from tokengeom.core.numerics import Int
from tokengeom.core.resources import fewer_contexts, require_memory
from tokengeom.core.settings import nearest_hint
from tokengeom.statistics.mlp_kernel import LAYERS, subset_weights
from tokengeom.statistics.windows import ABSENT

KERNEL = "kernel"
KINDS = ("positions", "pairs", "suffixes", "self", KERNEL)
LONGEST_KERNEL = 8
"""Tokens of a context up to which its sets of places, 2 to this power, are features."""
OWN = "own"
"""Name of features that a user gave as a matrix."""
_CODE_OF_TOKEN_0 = 2
BLOCK = 1 << 14
"""Contexts whose columns are put together at a time."""
BYTES_PER_ENTRY, SORTED = 20, 5
"""Bytes that making one feature of one context takes at the peak; and what sorting takes, in features per context."""
Span = tuple[int, ...]
"""Places of the tokens of a span, from the last to the first, counted from the end of the context: 0 is its last."""


def parse_ties(ties: str, length: int) -> dict[Span, float]:
    """Spans of contexts of ``length`` tokens, and their weights, from a sum such as ``"3*positions+self"``."""
    weights: dict[Span, float] = {}
    for term in ties.split("+"):
        match = re.fullmatch(r"\s*(?:([0-9.eE-]+)\s*\*)?\s*([a-z]+)(?::([1-9]))?\s*", term)
        if match is None or match[2] not in KINDS or (match[3] and match[2] != KERNEL):
            named = term.strip() if match is None else match[2]
            raise StatisticsError(
                f"ties must be a sum of {', '.join(KINDS)}, each with a weight if wanted, such as "
                f"'3*positions+suffixes+self'; got {ties!r}.{nearest_hint(named, KINDS)}"
            )
        weight = _weight(match[1], ties)
        for span, of_kind in _spans(match[2], length, int(match[3] or LAYERS)).items():
            weights[span] = max(weight * of_kind, weights.get(span, 0.0))
    return dict(sorted(weights.items(), key=lambda item: (len(item[0]), item[0])))


def _weight(given: str | None, ties: str) -> float:
    try:
        weight = 1.0 if given is None else float(given)
    except ValueError:
        weight = np.nan
    if not 0.0 < weight < np.inf:
        raise StatisticsError(f"Weights of ties must be positive numbers; got {given!r} in {ties!r}.")
    return weight


def _spans(kind: str, length: int, layers: int) -> dict[Span, float]:
    """Spans of a kind, and the weight that the kind gives them."""
    if kind == KERNEL:
        if length > LONGEST_KERNEL:
            raise StatisticsError(
                f"ties='kernel' makes features of all sets of places, for contexts of at most {LONGEST_KERNEL} tokens; "
                f"got {length}. Use 'positions+pairs+self', which has most of the weight of that kernel."
            )
        weights = subset_weights(length, layers)
        sets = ((places, weights[k]) for k in range(length + 1) for places in combinations(range(length), k))
        return {places: weight for places, weight in sets if weight > 0.0}
    if kind == "positions":
        spans: list[Span] = [(place,) for place in range(length)]
    elif kind == "pairs":
        spans = [(place, place + 1) for place in range(length - 1)]
    elif kind == "suffixes":
        spans = [tuple(range(count)) for count in range(1, length)]
    else:
        spans = [tuple(range(length))]
    return dict.fromkeys(spans, 1.0)


@dataclass(frozen=True, eq=False, repr=False)
class ContextFeatures:
    """Features of contexts; make them with `of_contexts` or `from_matrix`.

    ``ties``
        Kinds and weights as they were given; `OWN` for a matrix of the user's.
    ``matrix``
        ``Phi``, F x m, sparse.
    ``weights``
        Span -> weight, in the order of the rows.
    ``steps``
        Beginning of a span -> sorted pairs of a code and a token before it, as numbers in base ``base``.
    ``length``, ``base``
        Fields of a context, and codes that a field can have.
    ``given_names``
        Names of the rows of a matrix of the user's.
    """

    ties: str
    matrix: sparse.csc_array
    weights: dict[Span, float]
    steps: dict[Span, Int]
    length: int = 0
    base: int = 0
    given_names: tuple[str, ...] | None = None

    @staticmethod
    def of_contexts(contexts: ArrayLike, ties: str) -> ContextFeatures:
        """Features of contexts given as an m x L array of token ids, oldest first."""
        given = _checked(contexts)
        m, length = given.shape
        weights, base = parse_ties(ties, length), int(given.max(initial=ABSENT)) + _CODE_OF_TOKEN_0 + 1
        kind = np.int32 if m < 2**31 else np.int64
        require_memory(
            BYTES_PER_ENTRY * m * (len(weights) + SORTED),
            f"Features of {m:,} contexts, {len(weights)} each,",
            lambda share: f"{fewer_contexts(share, m)}, or use fewer kinds of ties.",
        )
        steps: dict[Span, Int] = {}

        def number(beginning: Span, pairs: Int) -> tuple[Int, int]:
            steps[beginning], codes = np.unique(pairs, return_inverse=True)
            return codes.reshape(-1).astype(kind), steps[beginning].size

        matrix = _matrix(_span_codes(given, weights, base, number, KERNEL in ties), weights, m)
        return ContextFeatures(ties, matrix, weights, steps, length, base)

    @staticmethod
    def from_matrix(matrix: ArrayLike | sparse.sparray, names: tuple[str, ...] | None = None) -> ContextFeatures:
        """Features that are given as an F x m matrix: embeddings, or the root of a kernel."""
        given: Any = matrix if sparse.issparse(matrix) else np.asarray(matrix, np.float64)
        if getattr(given, "ndim", 0) != 2 or 0 in given.shape:
            raise StatisticsError(f"Features must be an F x m matrix; got shape {getattr(given, 'shape', None)}.")
        own = sparse.csc_array(given, dtype=np.float64)
        own.sum_duplicates()
        own.eliminate_zeros()
        if not np.isfinite(own.data).all():
            raise StatisticsError("Features must be finite; the matrix holds NaN or infinity.")
        if names is not None and len(names) != own.shape[0]:
            raise StatisticsError(f"Features need one name per row; got {len(names)} names, {own.shape[0]} rows.")
        return ContextFeatures(OWN, own, {}, {}, given_names=None if names is None else tuple(names))

    def __repr__(self) -> str:
        return f"ContextFeatures({self.ties!r}, F={self.F:,}, m={self.m:,})"

    @property
    def F(self) -> int:
        """Number of features."""
        return int(self.matrix.shape[0])

    @property
    def m(self) -> int:
        """Number of contexts."""
        return int(self.matrix.shape[1])

    @property
    def has_self(self) -> bool:
        """Whether each context has a feature that no other has, so that any logits are within reach."""
        return bool(self.weights) and tuple(range(self.length)) in self.weights

    def of(self, contexts: ArrayLike) -> sparse.csc_array:
        """The same rows for other contexts, F x k: a feature that none of the own contexts has is left out."""
        if not self.weights:
            raise StatisticsError(
                "Features that were given as a matrix are not known for other contexts. Use ties made of "
                f"{', '.join(KINDS)}, or give the columns of these contexts yourself."
            )
        given = _checked(contexts)
        if given.shape[1] != self.length:
            raise StatisticsError(f"Contexts must have {self.length} tokens, as the others have; got {given.shape[1]}.")

        def number(beginning: Span, pairs: Int) -> tuple[Int, int]:
            known = self.steps[beginning]
            at = np.minimum(np.searchsorted(known, pairs), known.size - 1)
            return np.where(known[at] == pairs, at, -1), known.size

        found = _span_codes(given, self.weights, self.base, number, KERNEL in self.ties)
        return _matrix(found, self.weights, len(given))

    @cached_property
    def _starts(self) -> Int:
        """First row of each span, and F."""
        return np.cumsum([0, *(self.steps[span].size for span in self.weights)], dtype=np.int64)

    @property
    def rows(self) -> int:
        """Number of rows that the spans have together: F."""
        return int(self._starts[-1])

    @cached_property
    def numbers(self) -> Int:
        """Row of each context's feature in each span, m x spans; F where it has none."""
        numbers = np.full((self.m, len(self.weights)), self.F, np.int64)
        contexts = np.repeat(np.arange(self.m), np.diff(self.matrix.indptr))
        numbers[contexts, np.searchsorted(self._starts, self.matrix.indices, side="right") - 1] = self.matrix.indices
        return numbers

    def kind(self, f: int) -> str:
        """Kind of feature f: position, pair, suffix, self, or places for any others; `OWN` for a user's matrix."""
        return self._kind_of(self._span(f)) if self.weights else OWN

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds that features have here."""
        return tuple(dict.fromkeys(map(self._kind_of, self.weights))) or (OWN,)

    def _kind_of(self, span: Span) -> str:
        if span == tuple(range(self.length)):
            return "self"
        if len(span) == 1:
            return "position"
        if "suffixes" in self.ties and span == tuple(range(len(span))):
            return "suffix"
        return "pair" if len(span) == 2 and span[1] == span[0] + 1 else "places"

    def _span(self, f: int) -> Span:
        return list(self.weights)[int(np.searchsorted(self._starts, f, side="right")) - 1]

    def tokens(self, f: int) -> tuple[list[int], Span]:
        """Token ids of feature f, oldest first, and how many tokens of the context come after each."""
        span = self._span(f)
        code = f - int(self._starts[list(self.weights).index(span)])
        ids = []
        for count in range(len(span), 0, -1):
            code, field = divmod(int(self.steps[span[:count]][code]), self.base)
            ids.append(field - _CODE_OF_TOKEN_0)
        return ids, span[::-1]

    def name(self, f: int, text: Callable[[list[int]], str] = lambda ids: " ".join(map(str, ids))) -> str:
        """Feature f in words; ``text`` makes text of token ids."""
        if not self.weights:
            return f"feature {f}" if self.given_names is None else self.given_names[f]
        ids, after = self.tokens(f)
        if not ids:
            return "any context"
        parts, run = list[str](), list[int]()
        for k, token in enumerate(ids):
            run += [token] if token != ABSENT else []
            gap = after[k] - after[k + 1] - 1 if k + 1 < len(ids) else 0
            if gap or k + 1 == len(ids):
                parts, run = [*parts, text(run), *["_"] * gap], []
        shown = " ".join(part for part in parts if part)
        if self.kind(f) == "self":
            return f"the context \u201c{shown}\u201d itself"
        return f"\u2026 {shown}" + (f", {after[-1]} before the end" if after[-1] else "")

    @property
    def names(self) -> list[str]:
        """The name of each feature, with token ids for tokens."""
        return [self.name(f) for f in range(self.F)]


def _checked(contexts: ArrayLike) -> NDArray[np.integer[Any]]:
    """Token ids of contexts, one per row."""
    given = np.asarray(contexts)
    if given.ndim != 2 or not np.issubdtype(given.dtype, np.integer) or 0 in given.shape:
        raise StatisticsError(
            f"Contexts must be an m x L array of token ids; got shape {given.shape} of {given.dtype}. Statistics that "
            "were not counted from a text have no tokens: give features as a matrix."
        )
    return given


def beginnings(spans: Iterable[Span]) -> list[Span]:
    """The spans and all their beginnings, shorter ones first: each is numbered from the one before."""
    return sorted(
        {span[:count] for span in spans for count in range(len(span) + 1)}, key=lambda span: (len(span), span)
    )


def _span_codes(
    given: NDArray[np.integer[Any]],
    weights: dict[Span, float],
    base: int,
    number: Callable[[Span, Int], tuple[Int, int]],
    absent_is_token: bool,
) -> Iterator[tuple[Int, int]]:
    """For each span in turn, the code of each context, -1 where it has none, and how many codes there are.

    ``number`` numbers the pairs of one step, and counts them. A token is a field >= 0, of which 0 is `ABSENT` and 1 the
    start of a document. Codes are kept only while longer spans need them.
    """
    (m, length), codes, left = given.shape, dict[Span, Int](), beginnings(weights)
    while left:
        span = left.pop(0)
        token = given[:, length - 1 - span[-1]] if span else np.full(m, -_CODE_OF_TOKEN_0)
        field = token.astype(np.int64) + _CODE_OF_TOKEN_0
        code = codes[span[:-1]].astype(np.int64) if span else field
        unknown = (code < 0) | (field < 0) | (field >= base)
        ranks, size = number(span, np.where(unknown, -1, code * base + field))
        codes[span] = np.where(unknown, -1, ranks)
        if span in weights:
            # A shorter context does not have a span that begins before it, unless the span is the context itself.
            absent = (token == ABSENT) & (0 < len(span) < length) & (not absent_is_token)
            yield np.where(absent, -1, codes[span]), size
        needed = {longer[:-1] for longer in left if longer}
        codes = {beginning: kept for beginning, kept in codes.items() if beginning in needed}


def _matrix(found: Iterable[tuple[Int, int]], weights: dict[Span, float], m: int) -> sparse.csc_array:
    """The sparse matrix of features: one entry per context and span that it has."""
    kind, rows_of_all, weight = np.int32 if m * len(weights) < 2**31 else np.int64, 0, np.array(list(weights.values()))
    numbers: NDArray[Any] = np.empty((m, len(weights)), kind)
    for column, (codes, size) in enumerate(found):
        numbers[:, column] = np.where(codes >= 0, codes + kind(rows_of_all), -1)
        rows_of_all += size
    there = numbers >= 0
    ends: NDArray[Any] = np.concatenate(([0], np.cumsum(there.sum(axis=1)))).astype(kind)
    rows, values = numbers.reshape(-1), np.empty(ends[-1])
    for begin in range(0, m, BLOCK):
        part = slice(begin, min(begin + BLOCK, m))
        had, filled = there[part], slice(ends[part.start], ends[part.stop])
        # Entries move to the front of the same array, past none that is still to be read.
        rows[filled] = numbers[part][had]
        values[filled] = np.broadcast_to(weight, had.shape)[had]
    return sparse.csc_array((values, rows[: ends[-1]], ends), shape=(rows_of_all, m))
