"""`ContextFeatures`: what contexts have in common, as a sparse matrix ``Phi`` with one row per feature.

``Phi`` is F x m: ``Phi[f, j]`` is the weight of feature f where context j has it, else 0. A feature is a span of a
context, which tokens stand where, counted from the end of the context:

``positions``   one token at one place: "old" in the last place
``pairs``       two neighbouring tokens at one place: "the old" one place before the last
``suffixes``    the last 1, 2, ... tokens, fewer than the whole context
``self``        the whole context, which no other context has

Kinds are combined as in ``"positions+suffixes+self"`` and weighted as in ``"3*positions+self"``. A span that belongs to
several kinds (the last token is a position and a suffix) is one feature, with the largest of its weights. Contexts that
share features are tied: in the model ``H = A Phi`` they share columns of A.

Tokens of a span are numbered together, from its last token backwards: ``code_k = rank of (code_{k-1}, token_k)`` among
the pairs that occur. The sorted pairs of each step are kept; they find the features of any other context.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from tokengeom.core.errors import StatisticsError
from tokengeom.core.numerics import Float, Int
from tokengeom.core.settings import nearest_hint
from tokengeom.statistics.windows import ABSENT

KINDS = ("positions", "pairs", "suffixes", "self")
OWN = "own"
"""Name of features that a user gave as a matrix."""
_CODE_OF_TOKEN_0 = 2
Span = tuple[int, int]
"""Places of the last and of the first token of a span, counted from the end of the context: 0 is its last token."""


def parse_ties(ties: str, length: int) -> dict[Span, float]:
    """Spans of contexts of ``length`` tokens, and their weights, from a sum such as ``"3*positions+self"``."""
    weights: dict[Span, float] = {}
    for term in ties.split("+"):
        match = re.fullmatch(r"\s*(?:([0-9.eE-]+)\s*\*)?\s*([a-z]+)\s*", term)
        if match is None or match[2] not in KINDS:
            named = term.strip() if match is None else match[2]
            raise StatisticsError(
                f"ties must be a sum of {', '.join(KINDS)}, each with a weight if wanted, such as "
                f"'3*positions+suffixes+self'; got {ties!r}.{nearest_hint(named, KINDS)}"
            )
        weight = _weight(match[1], ties)
        for span in _spans(match[2], length):
            weights[span] = max(weight, weights.get(span, 0.0))
    return dict(sorted(weights.items(), key=lambda item: (item[0][1] - item[0][0], item[0])))


def _weight(given: str | None, ties: str) -> float:
    try:
        weight = 1.0 if given is None else float(given)
    except ValueError:
        weight = np.nan
    if not 0.0 < weight < np.inf:
        raise StatisticsError(f"Weights of ties must be positive numbers; got {given!r} in {ties!r}.")
    return weight


def _spans(kind: str, length: int) -> list[Span]:
    if kind == "positions":
        return [(place, place) for place in range(length)]
    if kind == "pairs":
        return [(place, place + 1) for place in range(length - 1)]
    if kind == "suffixes":
        return [(0, first) for first in range(length - 1)]
    return [(0, length - 1)]


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
        (last place, number of tokens) -> sorted pairs of a code and a token before it, as numbers in base ``base``.
    ``length``, ``base``
        Fields of a context, and codes that a field can have.
    ``given_names``
        Names of the rows of a matrix of the user's.
    """

    ties: str
    matrix: sparse.csc_array
    weights: dict[Span, float]
    steps: dict[tuple[int, int], Int]
    length: int = 0
    base: int = 0
    given_names: tuple[str, ...] | None = None

    @staticmethod
    def of_contexts(contexts: ArrayLike, ties: str) -> ContextFeatures:
        """Features of contexts given as an m x L array of token ids, oldest first."""
        fields = _codes(contexts)
        m, length = fields.shape
        weights, base = parse_ties(ties, length), int(fields.max(initial=0)) + 1
        steps: dict[tuple[int, int], Int] = {}

        def number(key: tuple[int, int], pairs: Int) -> Int:
            steps[key], codes = np.unique(pairs, return_inverse=True)
            return codes.reshape(-1)

        codes = _span_codes(fields, weights, base, number)
        matrix = _matrix(codes, weights, [steps[span[0], _tokens(span)].size for span in weights], m)
        return ContextFeatures(ties, matrix, weights, steps, length, base)

    @staticmethod
    def from_matrix(matrix: ArrayLike | sparse.sparray, names: tuple[str, ...] | None = None) -> ContextFeatures:
        """Features that are given as an F x m matrix: embeddings, or the root of a kernel."""
        given: Any = matrix if sparse.issparse(matrix) else np.asarray(matrix, np.float64)
        if getattr(given, "ndim", 0) != 2 or 0 in given.shape:
            raise StatisticsError(f"Features must be an F x m matrix; got shape {getattr(given, 'shape', None)}.")
        own = sparse.csc_array(given, dtype=np.float64)
        own.sort_indices()
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
        return (0, self.length - 1) in self.weights

    def of(self, contexts: ArrayLike) -> sparse.csc_array:
        """The same rows for other contexts, F x k: a feature that none of the own contexts has is left out."""
        if not self.weights:
            raise StatisticsError(
                "Features that were given as a matrix are not known for other contexts. Use ties made of "
                f"{', '.join(KINDS)}, or give the columns of these contexts yourself."
            )
        fields = _codes(contexts)
        if fields.shape[1] != self.length:
            raise StatisticsError(
                f"Contexts must have {self.length} tokens, as the others have; got {fields.shape[1]}."
            )
        fields = np.where(fields < self.base, fields, -1)

        def number(key: tuple[int, int], pairs: Int) -> Int:
            known = self.steps[key]
            at = np.minimum(np.searchsorted(known, pairs), known.size - 1)
            return np.where(known[at] == pairs, at, -1)

        codes = _span_codes(fields, self.weights, self.base, number)
        return _matrix(codes, self.weights, self._sizes, len(fields))

    @property
    def _sizes(self) -> list[int]:
        return [self.steps[span[0], _tokens(span)].size for span in self.weights]

    @cached_property
    def _starts(self) -> Int:
        """First row of each span, and F."""
        return np.concatenate(([0], np.cumsum(self._sizes))).astype(np.int64)

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
        """Kind of feature f: position, pair, suffix or self; `OWN` for a matrix of the user's."""
        if not self.weights:
            return OWN
        last, first = self._span(f)
        if (last, first) == (0, self.length - 1):
            return "self"
        if first == last:
            return "position"
        return "suffix" if last == 0 and "suffixes" in self.ties else "pair"

    def _span(self, f: int) -> Span:
        return list(self.weights)[int(np.searchsorted(self._starts, f, side="right")) - 1]

    def tokens(self, f: int) -> tuple[list[int], int]:
        """Token ids of feature f, oldest first, and how many tokens of the context come after them."""
        last, _ = span = self._span(f)
        code = f - int(self._starts[list(self.weights).index(span)])
        ids = []
        for count in range(_tokens(span), 0, -1):
            code, field = divmod(int(self.steps[last, count][code]), self.base)
            ids.append(field - _CODE_OF_TOKEN_0)
        return ids, last

    def name(self, f: int, text: Callable[[list[int]], str] = lambda ids: " ".join(map(str, ids))) -> str:
        """Feature f in words; ``text`` makes text of token ids."""
        if not self.weights:
            return f"feature {f}" if self.given_names is None else self.given_names[f]
        ids, after = self.tokens(f)
        shown = text([token for token in ids if token != ABSENT])
        if self.kind(f) == "self":
            return f"the context \u201c{shown}\u201d itself"
        return f"\u2026 {shown}" + (f", {after} before the end" if after else "")

    @property
    def names(self) -> list[str]:
        """The name of each feature, with token ids for tokens."""
        return [self.name(f) for f in range(self.F)]


def _tokens(span: Span) -> int:
    return span[1] - span[0] + 1


def _codes(contexts: ArrayLike) -> Int:
    """Token ids as codes >= 0, of which 0 is `ABSENT` and 1 the start of a document."""
    given = np.asarray(contexts)
    if given.ndim != 2 or not np.issubdtype(given.dtype, np.integer) or 0 in given.shape:
        raise StatisticsError(
            f"Contexts must be an m x L array of token ids; got shape {given.shape} of {given.dtype}. Statistics that "
            "were not counted from a text have no tokens: give features as a matrix."
        )
    return given.astype(np.int64) + _CODE_OF_TOKEN_0


def _span_codes(
    fields: Int, weights: dict[Span, float], base: int, number: Callable[[tuple[int, int], Int], Int]
) -> dict[Span, Int]:
    """The code of each context in each span, -1 where it has none; ``number`` numbers the pairs of one step."""
    codes: dict[Span, Int] = {}
    length = fields.shape[1]
    for last in sorted({last for last, _ in weights}):
        code = np.zeros(len(fields), np.int64)
        for first in range(last, max(first for other, first in weights if other == last) + 1):
            field = fields[:, length - 1 - first]
            unknown = (code < 0) | (field < 0)
            code = np.where(unknown, -1, number((last, first - last + 1), np.where(unknown, -1, code * base + field)))
            if (last, first) in weights:
                # A shorter context does not have a span that begins before it, unless the span is the context itself.
                absent = (field == ABSENT + _CODE_OF_TOKEN_0) & (_tokens((last, first)) < length)
                codes[last, first] = np.where(absent, -1, code)
    return codes


def _matrix(codes: dict[Span, Int], weights: dict[Span, float], sizes: list[int], m: int) -> sparse.csc_array:
    """The sparse matrix of features: one entry per context and span that it has."""
    starts = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    kind = np.int32 if starts[-1] < 2**31 and m * len(codes) < 2**31 else np.int64
    rows: NDArray[Any] = np.empty((m, len(weights)), kind)
    for place, span in enumerate(weights):
        rows[:, place] = np.where(codes[span] < 0, -1, codes[span] + starts[place])
    there = rows >= 0
    values: Float = np.broadcast_to(np.array(list(weights.values())), rows.shape)[there]
    ends = np.concatenate(([0], np.cumsum(there.sum(axis=1)))).astype(kind)
    return sparse.csc_array((values, rows[there], ends), shape=(int(starts[-1]), m))
