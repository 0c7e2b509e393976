"""Numbers of a run's logits: their agreement with a prediction's, how economical they are, how W and H share them.

``logit_cosine``      cosine of the centred logits with those of a prediction, 1 is best
``finite_distance``   ``||P_F(L) - L_in||_F``, which falls to 0 in the limit of training

With learned features, F = span ``(e_z - e_z') e_j^T`` for z, z' in S_j, so
``P_F(L)`` subtracts the in-support mean, and only the logits on support are needed. Logits are given by their factors,
and no V x m matrix is formed.

Where a disagreement comes from (`Disagreement`):

``efficiency``       smallest norm of logits with this loss, divided by the norm of the run's logits: in (0, 1]. Low
                     means logits that are larger than the loss needs
``split``            agreement of W and H with the balanced factors of the run's own logits, ``U Sigma^{1/2}`` and
                     ``Sigma^{1/2} V^T`` of ``L = U Sigma V^T``: 1 where both factors share the logits equally
``split_exponent``   slope of ``log ||W^T u_k||`` against ``log sigma_k``: 1/2 when balanced, below it where the tokens
                     are the lazy factor, above it where the contexts are

Prediction and logits can agree while the embeddings do not, if the split is far from balanced: gradient flow keeps
``W^T W - H H^T``, so an imbalance at the start remains.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy.sparse import csc_array

from tokengeom.comparison.agreement import AbstractNumbers, Better, ItemKind, Name
from tokengeom.comparison.similarity_numbers import SimilarityNumbers
from tokengeom.comparison.target import NormName
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import Float, Int
from tokengeom.results.convert import Number
from tokengeom.theory.at_loss import NORMS

CHUNK = 1 << 20
"""Pairs whose logits are computed at once, which bounds the memory for a long corpus to this times d."""
MOST_DENSE = 1 << 25
"""Tokens that occur times contexts up to which their logits are held as a matrix (256 MB)."""
SLOW_PERMUTATIONS = 20
"""Permutations of the finite part beyond that, where each takes about a second: just enough for a 5th percentile."""
LOW_EFFICIENCY = 0.7
"""Efficiency below which the diagnosis names a cause."""
FAR_EXPONENT = 0.15
"""Distance of the split exponent from 1/2 from which on a factor is called lazy."""
SMALLEST_SINGULAR = 1e-3
"""Singular values below this share of the largest are left out of the exponent."""
LARGE_FACTOR = 2_000_000
"""Entries of W from which its singular values come from ``W^T W``: exact to 1e-8 of the largest, instead of 1e-16."""


@dataclass(frozen=True, eq=False)
class FiniteLogits:
    """``L_in`` on support, one entry per pair: token z, context j, and the value that ``P_F(L)`` converges to.

    ``sizes`` are the support sizes of the contexts, m.
    """

    token: Int
    context: Int
    value: Float
    sizes: Float

    @staticmethod
    def of(P: csc_array | Float) -> FiniteLogits:
        """From V x m probabilities, dense or scipy sparse."""
        table = csc_array(P, copy=True)  # the arrays of statistics cannot be changed
        table.eliminate_zeros()
        sizes = np.diff(table.indptr)
        context = np.repeat(np.arange(table.shape[1], dtype=np.int64), sizes)
        token = table.indices.astype(np.int64)
        empty = FiniteLogits(token, context, np.zeros(token.size), sizes.astype(np.float64))
        return FiniteLogits(token, context, empty.centre(np.log(table.data)), empty.sizes)

    def centre(self, x: Float) -> Float:
        """Subtract from each pair's value the mean over its context: ``P_F`` on support."""
        mean = np.bincount(self.context, x, minlength=self.sizes.size) / np.maximum(self.sizes, 1.0)
        return np.asarray(x - mean[self.context])

    @cached_property
    def seen(self) -> tuple[Int, Int]:
        """Tokens that occur, in order, and the place among them of each pair's token."""
        tokens, place = np.unique(self.token, return_inverse=True)
        return tokens, place.reshape(-1)

    @property
    def is_small(self) -> bool:
        """Whether the logits of all tokens that occur fit in memory as a matrix."""
        return self.seen[0].size * self.sizes.size <= MOST_DENSE

    def permuted_logits(self, state: Factors, places: Iterable[Int]) -> Iterator[Float]:
        """Logits on support for each ``place`` (m), where context j has the embedding of context ``place[j]``."""
        W, H = state.centred_logits
        tokens, row = self.seen
        if self.is_small:
            L = W[tokens] @ H
            for place in places:
                yield np.asarray(L[row, place[self.context]])
            return
        for place in places:
            column, logits = place[self.context], np.empty(self.token.size)
            for start in range(0, self.token.size, CHUNK):
                part = slice(start, start + CHUNK)
                logits[part] = np.einsum("ed,de->e", W[self.token[part]], H[:, column[part]])
            yield logits

    def squared_errors(self, state: Factors) -> Float:
        """``||P_F(L)_j - L_in_j||^2`` of each context, m."""
        return next(self.permuted_errors(state, [np.arange(self.sizes.size)]))

    def permuted_errors(self, state: Factors, places: Iterable[Int]) -> Iterator[Float]:
        """The same for each permutation of the contexts."""
        for logits in self.permuted_logits(state, places):
            error = self.centre(logits) - self.value
            yield np.asarray(np.bincount(self.context, error * error, minlength=self.sizes.size), dtype=np.float64)

    def distance(self, state: Factors) -> float:
        """``||P_F(L) - L_in||_F``."""
        return float(np.sqrt(self.squared_errors(state).sum()))


@dataclass(frozen=True, eq=False)
class LogitNumbers(AbstractNumbers):
    """``logit_cosine`` with each prediction (by key) and, if L_in is known, ``finite_distance``, over m contexts.

    Contexts are permuted one by one: columns of logits keep their sizes.
    """

    permutes_items: ClassVar[bool] = True
    run: Factors
    targets: Mapping[str, Factors]
    groups: Int
    finite: FiniteLogits | None = None
    items: ItemKind = "contexts"

    @property
    def units(self) -> Int:
        return self.groups

    @property
    def better(self) -> Mapping[Name, Better]:
        cosines: dict[Name, Better] = {(key, "logit_cosine"): "higher" for key in self.targets}
        return cosines | ({("", "finite_distance"): "lower"} if self.finite else {})

    def resampled(self, draws: Float) -> Mapping[Name, Float]:
        numbers: dict[Name, Float] = {}
        if self._errors is not None:
            numbers["", "finite_distance"] = np.sqrt(draws @ self._errors)
        own = draws @ self._own
        for key, (pulled, theirs) in self._products.items():
            cross = np.einsum("im,im->m", self.run.centred_logits[1], pulled)
            numbers[key, "logit_cosine"] = cosine_of_products(draws @ cross, own, draws @ theirs)
        return numbers

    def permuted(self, orders: Int) -> Mapping[Name, Float]:
        numbers: dict[Name, Float] = {}
        if self.finite is not None:
            few = orders if self.finite.is_small else orders[:SLOW_PERMUTATIONS]
            errors = [by_context.sum() for by_context in self.finite.permuted_errors(self.run, few)]
            numbers["", "finite_distance"] = np.sqrt(errors)
        B, own = self.run.centred_logits[1], self._own.sum()
        for key, (pulled, theirs) in self._products.items():
            cross = np.array([float(np.vdot(pulled, B[:, order])) for order in orders])
            numbers[key, "logit_cosine"] = cosine_of_products(cross, own, theirs.sum())
        return numbers

    @cached_property
    def _errors(self) -> Float | None:
        return None if self.finite is None else self.finite.squared_errors(self.run)

    @cached_property
    def _own(self) -> Float:
        return _column_norms(self.run)

    @cached_property
    def _products(self) -> dict[str, tuple[Float, Float]]:
        """Key -> ``A^T C D`` with logits ``A B`` of the run and ``C D`` of the prediction, and norms of ``C D``.

        ``<A B_o, C D> = <A^T C D, B_o>``: one matrix of the size of B serves every permutation o of the contexts.
        """
        A, _ = self.run.centred_logits
        products = {}
        for key, target in self.targets.items():
            C, D = target.centred_logits
            products[key] = (A.T @ C) @ D, _column_norms(target)
        return products


def cosine_of_products(kg: Float, kk: Float | float, gg: Float | float) -> Float:
    """``<K, G> / (||K|| ||G||)`` from inner products; NaN where one of them is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        size = np.sqrt(np.maximum(kk * gg, 0.0))
        return np.where(size > 0, np.clip(kg / size, -1.0, 1.0), np.nan)


def _column_norms(factors: Factors) -> Float:
    """``||L_j||^2`` of each column of the centred logits, m."""
    A, B = factors.centred_logits
    return np.asarray(np.einsum("im,im->m", B, (A.T @ A) @ B))


@dataclass(frozen=True)
class Disagreement:
    """The numbers above; NaN for what is not known.

    ``norm``
        Norm in which the efficiency is measured.
    ``efficiency``, ``efficiency_high``
        Proven lower and upper bound. The lower one comes from the certificate and is close to the efficiency itself;
        the upper one comes from logits with the run's loss, and is 1 where none were found.
    """

    norm: NormName
    efficiency: Number
    efficiency_high: Number
    split_contexts: Number
    split_tokens: Number
    split_exponent: Number

    @property
    def lazy_factor(self) -> str | None:
        """The factor, tokens or contexts, that carries clearly less than half of the logits, if any."""
        away = self.split_exponent - 0.5
        return None if not abs(away) > FAR_EXPONENT else "tokens" if away < 0 else "contexts"

    def sentences(self, noun: str = "run") -> list[str]:
        """What the numbers say about this run, or about the model that was compared."""
        sentences = []
        if np.isfinite(self.efficiency):
            sentences.append(
                f"Efficiency at least {self.efficiency:.3f} (proven, and at most {self.efficiency_high:.3f}): no "
                f"logits with this loss have less than {self.efficiency:.1%} of the {noun}'s {NORMS[self.norm]}."
            )
        if np.isfinite(self.split_contexts):
            known = np.isfinite(self.split_exponent)
            exponent = f"; the split exponent is {self.split_exponent:.2f} (0.5 when balanced)" if known else ""
            sentences.append(
                f"Split: the {noun}'s contexts and tokens agree with the balanced factors of its own logits to "
                f"{self.split_contexts:.3f} and {self.split_tokens:.3f}{exponent}."
            )
        return sentences

    def remedies(self) -> list[str]:
        """What to change in training, for numbers that are low."""
        sentences = []
        if self.efficiency < LOW_EFFICIENCY:
            sentences.append(
                "The logits are larger than the loss needs. A lower learning rate, weight decay or a norm before the "
                "last layer makes them more economical."
            )
        if self.lazy_factor is not None:
            sentences.append(
                f"The {self.lazy_factor} carry less than their share of the logits. A smaller start, or a higher "
                f"learning rate for the {self.lazy_factor}, balances the factors."
            )
        return sentences


def balanced_factors(run: Factors, tokens: Int | None = None) -> tuple[Factors, Float, Float]:
    """Balanced factors of the run's centred logits, ``||W^T u_k||`` (r) and the singular values (r).

    Singular vectors are those of all tokens; rows are given for some ``tokens``, or (None) for all.
    """
    A, B = run.centred_logits
    RA = _root_of_gram(A)
    QB, RB = np.linalg.qr(B.T)
    with np.errstate(over="ignore", invalid="ignore"):
        core = RA @ RB.T
    # Logits that overflow have no factors.
    _, s, Vt = np.linalg.svd(core if np.isfinite(core).all() else np.zeros_like(core))
    r = int((s > SMALLEST_SINGULAR**2 * s[0]).sum()) if s.size and s[0] > 0 else 0
    s, V = s[:r], QB @ Vt[:r].T
    # L V = U Sigma, so U = A X; and W^T U has the first d rows of A^T A X.
    X, root = (B @ V) / s, np.sqrt(s)
    carried = np.linalg.norm((RA.T @ (RA @ X))[: run.W.shape[1]], axis=0) if r else np.zeros(0)
    rows = A if tokens is None else A[tokens]
    return Factors((rows @ X) * root, (V * root).T), carried, s


def _root_of_gram(A: Float) -> Float:
    """A small matrix R with ``R^T R = A^T A``; from the Gram matrix itself where a QR decomposition would take long."""
    if A.size <= LARGE_FACTOR:
        return np.asarray(np.linalg.qr(A, mode="r"))
    values, vectors = np.linalg.eigh(A.T @ A)
    return np.asarray(np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T)


def split_exponent(carried: Float, s: Float) -> float:
    """Slope of ``log ||W^T u_k||`` against ``log sigma_k``; NaN where fewer than three singular values count."""
    kept = (s > SMALLEST_SINGULAR * s[0]) & (carried > 0) if s.size else np.zeros(0, bool)
    if kept.sum() < 3 or np.ptp(np.log(s[kept])) < 1e-6:
        return float("nan")
    return float(np.polyfit(np.log(s[kept]), np.log(carried[kept]), 1)[0])


def disagreement(
    run: Factors, groups: Int, norm: str, efficiency: tuple[float, float], seen: Int | None = None
) -> Disagreement:
    """The numbers of a run; ``groups`` (m) are the units of its contexts, ``seen`` the tokens that follow some."""
    balanced, carried, s = balanced_factors(run, seen)
    if not s.size:
        return Disagreement(norm, *efficiency, *[float("nan")] * 3)
    tokens = (run if seen is None else run.rows(seen)).tokens
    contexts = SimilarityNumbers.of("contexts", run.H, {"": balanced.H}, groups).values()
    similar = SimilarityNumbers.of("tokens", tokens, {"": balanced.tokens}).values()
    split = contexts["", "context_agreement"], similar["", "token_agreement"]
    return Disagreement(norm, *efficiency, *split, split_exponent(carried, s))
