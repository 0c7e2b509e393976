"""The regularised loss of tied logits ``L = B Phi``: contexts that share features share columns of B.

``min_B CE(B Phi) + lam ||diag(r) B diag(c)||_*``

where

``Phi``    features of the contexts, F x m, sparse
``B``      one column per feature, V' x F; ``B = W A`` with tokens W and features A, and contexts ``H = A Phi``
``r, c``   weights of rows and columns: ``sqrt a`` for merged tokens and 1 for features in the nuclear norm

With ``Phi = I`` this is the problem of ``regularised_logits``. Its dual has the same objective, and a constraint in
which Phi takes part:

``max_R sum_j pi_j Ent(R_j)  s.t.  ||diag(1/r) (P - R) diag(pi) Phi^T diag(1/c)||_2 <= lam``

Any R proves a bound after ``R - P`` is scaled to be feasible. Equal rows of P merge as without ties; contexts are not
merged. In the gamma_2 norm the value is that of factors, ``lam max_i ||w_i|| max_f ||a_f||``, and any weights with
``sum r^2 = sum c^2 = 1`` prove a bound.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
from scipy.sparse import csc_array

from tokengeom.core.numerics import Float, Int
from tokengeom.problems.backend import UNIT, Array, Backend, Blocks
from tokengeom.problems.base import AbstractProblem, Certificate
from tokengeom.problems.columns import Computed
from tokengeom.problems.gamma2 import MaxNormFactors
from tokengeom.problems.regularised_logits import Merging, RegularisedLogits
from tokengeom.problems.supports import first_of_equal


@final
@dataclass(frozen=True, eq=False)
class DistinctFeatures:
    """Features without repetitions: those that the same contexts have in the same ratios are one.

    With ``w_f`` their lengths, ``sum_f w_f b_f`` is all that logits depend on, and the norm is smallest where every
    ``b_f`` is ``w_f`` times one vector b: then it is that of one feature of length ``sqrt(sum w_f^2)``. In the gamma_2
    norm all ``b_f`` are equal up to sign, and the length is ``sum |w_f|``.

    ``matrix``
        Phi of distinct features, F' x m.
    ``number``, ``share``
        Distinct feature of each feature, and ``b_f`` as a multiple of the one of its distinct feature, F.
    """

    matrix: csc_array
    number: Int
    share: Float

    @staticmethod
    def of(Phi: csc_array, *, largest_rows: bool) -> DistinctFeatures:
        """Distinct features for the nuclear norm, or for gamma_2, which ``largest_rows`` says."""
        rows = Phi.tocsr().sorted_indices()
        counts, starts = np.diff(rows.indptr), rows.indptr[:-1]
        length = np.sqrt(np.bincount(np.repeat(np.arange(len(counts)), counts), rows.data**2, minlength=len(counts)))
        length[counts > 0] *= np.sign(rows.data[starts[counts > 0]])
        unit = np.round(rows.data / np.repeat(length, counts), 12)
        keys = (
            (rows.indices[i:j].tobytes(), unit[i:j].tobytes()) for i, j in zip(starts, rows.indptr[1:], strict=True)
        )
        first, number = first_of_equal(keys)
        whole = np.bincount(number, abs(length)) if largest_rows else np.sqrt(np.bincount(number, length**2))
        of_first = np.where(length[first] == 0.0, 1.0, length[first])
        distinct = rows[first].multiply((whole / of_first)[:, None])
        sizes = np.sign(length) if largest_rows else length / np.where(whole == 0.0, 1.0, whole)[number]
        return DistinctFeatures(csc_array(distinct), number, sizes)

    def of_distinct(self, A: Float) -> Float:
        """Vectors of distinct features, d x F', from those of all of them, d x F."""
        first = np.unique(self.number, return_index=True)[1]
        share = self.share[first]
        return np.asarray(A[:, first] / np.where(share == 0.0, 1.0, share))

    def of_all(self, A: Float) -> Float:
        """Vectors of all features, d x F, from those of distinct ones, d x F'."""
        return np.asarray(A[:, self.number] * self.share)


@final
@dataclass(frozen=True, eq=False)
class TiedLogits(AbstractProblem["Array | MaxNormFactors", "Array | Blocks"]):
    """``CE(B Phi) + lam ||diag(r) B diag(c)||_*`` on merged tokens, without the entropy floor H.

    ``loss``
        Probabilities, shares, strength and the weights ``r``; its own weights of columns are 1.
    ``P``, ``Phi``
        Probabilities of merged tokens, V' x m, and features of the contexts, F x m, of SciPy.
    ``c``
        Weights of the features, F.
    ``largest_rows``
        Whether the norm is gamma_2, whose value is that of factors; the weights are then those of the bound.

    An answer is ``diag(c) B^T diag(r)``, F x V', or factors W (V' x d) and A (d x F) of B; a dual is ``R - P``.
    """

    loss: RegularisedLogits
    P: csc_array
    Phi: csc_array
    c: Array
    largest_rows: bool = False

    @staticmethod
    def of(P: csc_array, pi: Float, Phi: csc_array, merging: Merging, backend: Backend) -> TiedLogits:
        """The problem with merged tokens in the nuclear norm, at strength 1."""
        loss = merging.problem(P, pi, 1.0, backend)
        return TiedLogits(loss, merging.merged(P), Phi, backend.full((Phi.shape[0],), 1.0))

    @property
    def lam(self) -> float:
        """Strength."""
        return self.loss.lam

    @property
    def backend(self) -> Backend:
        """Where arrays are."""
        return self.loss.backend

    def at(self, lam: float) -> TiedLogits:
        """The same data with another strength."""
        return self._with(replace(self, loss=self.loss.at(lam)))

    def reweighted(self, r: Array, c: Array) -> TiedLogits:
        """The same data in the gamma_2 norm, with these weights of its bound, V' and F."""
        return self._with(replace(self, loss=self.loss.reweighted(r, self.loss.c), c=c, largest_rows=True))

    def _with(self, new: TiedLogits) -> TiedLogits:
        new.__dict__["parts"] = self.parts
        return new

    @cached_property
    def parts(self) -> list[tuple[Any, Any]]:
        """Phi^T and Phi of each block of contexts, on the device."""
        whole = [self.Phi[:, part] for part in self.loss.layout.slices] if self.loss.layout.several else [self.Phi]
        return [(self.backend.sparse(part.T), self.backend.sparse(part)) for part in whole]

    def logits(self, x: Array | MaxNormFactors) -> Blocks:
        """``B Phi``, V' x m, in blocks of contexts."""
        if isinstance(x, MaxNormFactors):
            factors, features = x, x.H.T
            return Computed(self.loss.layout, lambda k: factors.W @ (self.parts[k][0] @ features).T)
        B, r = x / self.c[:, None], self.loss.r
        return Computed(self.loss.layout, lambda k: (self.parts[k][0] @ B).T / r[:, None])

    def loss_gap(self, x: Array | MaxNormFactors) -> float:
        """``CE(B Phi) - H``."""
        return self.loss.loss_gap(self.logits(x))

    def change(self, x: Array | MaxNormFactors) -> Blocks:
        """``softmax(B Phi) - P``, V' x m, in blocks of contexts: the dual that goes with an answer."""
        return self.loss.each(lambda part, L: part.dual_change(L), self.logits(x))

    def of_features(self, change: Blocks) -> Array:
        """``diag(1/c) Phi diag(pi) (R - P)^T diag(1/r)`` of all tokens, F x V', whose spectral norm lam bounds."""
        return self._product(self.loss.each(lambda part, block: part.scaled_dual(block), change))

    def _product(self, blocks: Blocks) -> Array:
        total: Array = 0.0
        for k in range(len(blocks)):
            total = total + self.parts[k][1] @ blocks[k].T
        return total / self.c[:, None]

    @property
    def zero_gap(self) -> float:
        """``CE - H`` of logits 0."""
        return self.loss.zero_gap

    @property
    def largest_lam(self) -> float:
        """Strength from which on logits 0 are optimal."""
        return float(self.backend.fast_singular_values(self._product(self.loss.gradient_at_zero()))[-1])

    def norm(self, x: Array | MaxNormFactors) -> float:
        """The norm of an answer, rounded upwards."""
        if isinstance(x, MaxNormFactors):
            return x.norm(self.backend)
        return self.backend.proven_nuclear_norm(x.T)

    def value(self, x: Array | MaxNormFactors) -> float:
        """The objective of an answer."""
        return self.loss_gap(x) + self.lam * self.norm(x)

    def certify(self, x: Array | MaxNormFactors, dual: Array | Blocks | None) -> Certificate:
        """Certificate of an answer and a change ``R - P``, which is made feasible; value and bound without H."""
        value = self.value(x)
        if dual is None:
            return Certificate(0.0, float("inf"), value, float("-inf"))
        bound, residual = self.loss.proven_bound(dual, self.proven_dual_norm)
        return Certificate(0.0, residual, value, bound)

    def proven_dual_norm(self, change: Blocks) -> float:
        """An upper bound of the dual norm of a change whose columns sum to 0 up to rounding.

        An entry of the product with Phi is a sum of as many rounded terms as its feature has contexts. The norms of
        what is lost there, and of what repairs the columns, are at most those of their factors multiplied.
        """
        norm, scaled = self.backend.norm, self.loss.each(lambda part, block: part.scaled_dual(block), change)
        terms = float(np.bincount(self.Phi.indices).max(initial=0)) + self.Phi.shape[1] / len(scaled)
        lost = 4.0 * (terms + len(scaled)) * UNIT * norm(scaled)
        moved = 1.1 * norm(self.loss.each(RegularisedLogits.column_repair, change))
        spectral = self.backend.proven_spectral_norm(self._product(scaled).T)
        return float(spectral + (lost + moved) * self._size_of_Phi)

    @cached_property
    def _size_of_Phi(self) -> float:
        """Frobenius norm of ``diag(1/c) Phi``, rounded upwards."""
        squares = np.bincount(self.Phi.indices, self.Phi.data**2, minlength=self.Phi.shape[0])
        return 1.01 * float(np.sqrt((squares / self.backend.to_numpy(self.c) ** 2).sum()))
