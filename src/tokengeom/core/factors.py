"""`Factors`: a decoder W and context embeddings H, the one type for them wherever they come from.

A prediction, a trained model, a checkpoint and a file of arrays all give ``logits = W H (+ bias)``. W and H are
determined only up to ``W R, R^T H`` with R orthogonal, so cosines and Gram matrices are compared. A constant added to a
column of logits does not change its softmax, so token embeddings are compared with their mean removed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from tokengeom.core.errors import ProblemError
from tokengeom.core.numerics import Float, Int, Matrix, centre_columns, dense, unit_columns

LARGEST_EMBEDDING = 1e100
"""Largest entry of embeddings, and the inverse of the smallest: their squares are finite and not 0."""


@runtime_checkable
class HasFactors(Protocol):
    """Anything with a decoder W (V x d) and context embeddings H (d x m): a run, a prediction, factors."""

    @property
    def W(self) -> Float:
        """Decoder, one row per token, V x d."""

    @property
    def H(self) -> Float:
        """Context embeddings, one column per context, d x m."""


@dataclass(frozen=True, eq=False, repr=False)
class Factors:
    """A decoder and context embeddings, with ``logits = W H (+ bias)``.

    where
        W      one row per token, V x d
        H      one column per context, d x m
        bias   V, or None: part of the logits, not of the geometry of the tokens
    """

    W: Float
    H: Float
    bias: Float | None = None

    @staticmethod
    def of(given: HasFactors | tuple[object, object]) -> Factors:
        """Checked factors of any object with ``W`` and ``H`` (and perhaps ``bias``), or of a pair ``(W, H)``."""
        if isinstance(given, tuple | list) and len(given) == 2:
            W, H, bias = given[0], given[1], None
        elif hasattr(given, "W") and hasattr(given, "H"):
            W, H, bias = given.W, given.H, getattr(given, "bias", None)
        else:
            raise ProblemError(
                f"A run must have W (V x d) and H (d x m), or be the pair (W, H); got {type(given).__name__}. "
                "Pass what train returned, or (W, H) of a checkpoint."
            )
        factors = Factors(finite_matrix("W", W), finite_matrix("H", H), _finite_vector("bias", bias))
        if factors.W.shape[1] != factors.H.shape[0]:
            hint = " H looks transposed: pass H.T." if factors.W.shape[1] == factors.H.shape[1] else ""
            raise ProblemError(
                f"W (V x d) and H (d x m) must share d; got W {factors.W.shape} with d={factors.W.shape[1]} and H "
                f"{factors.H.shape} with d={factors.H.shape[0]}.{hint}"
            )
        if factors.bias is not None and factors.bias.shape != (factors.W.shape[0],):
            raise ProblemError(f"bias must have V={factors.W.shape[0]} entries; got shape {factors.bias.shape}.")
        return factors

    def __repr__(self) -> str:
        (V, d), m = self.W.shape, self.H.shape[1]
        return f"Factors(V={V:,}, d={d:,}, m={m:,}{'' if self.bias is None else ', bias'})"

    @property
    def logits(self) -> Float:
        """``L = W H (+ bias)``, V x m; infinite or NaN where the factors are too large, without a warning."""
        with np.errstate(over="ignore", invalid="ignore"):
            L = self.W @ self.H
        return L if self.bias is None else L + self.bias[:, None]

    def rows(self, tokens: Int) -> Factors:
        """Factors of some tokens and all contexts; the same object where these are all tokens, in order."""
        if np.array_equal(tokens, np.arange(self.W.shape[0])):
            return self
        return Factors(self.W[tokens], self.H, None if self.bias is None else self.bias[tokens])

    def part(self, tokens: Int, contexts: Int) -> Factors:
        """Some tokens and contexts."""
        return Factors(self.W[tokens], self.H[:, contexts], None if self.bias is None else self.bias[tokens])

    @cached_property
    def tokens(self) -> Float:
        """Token embeddings as columns, d x V, with their mean removed."""
        return centre_columns(self.W).T

    @cached_property
    def token_directions(self) -> Float:
        """Unit vectors of the tokens, d x V; 0 for a token without a direction."""
        return unit_columns(self.tokens)

    @cached_property
    def context_directions(self) -> Float:
        """Unit vectors of the contexts, d x m; 0 for a context without a direction."""
        return unit_columns(self.H)

    @cached_property
    def centred_logits(self) -> tuple[Float, Float]:
        """Factors (V x k, k x m) of the logits with each column's mean removed, the bias among them."""
        W = self.tokens.T
        if self.bias is None:
            return W, self.H
        ones = np.ones((1, self.H.shape[1]))
        return np.column_stack([W, self.bias - self.bias.mean()]), np.vstack([self.H, ones])

    def require_logits(self, logits: Float, tolerance: float = 1e-4) -> None:
        """Refuse factors that do not reproduce the model's own logits."""
        require_equal_logits(self.logits, logits, tolerance)

    def require_sizes(self, V: int, m: int) -> None:
        """Refuse factors whose numbers of tokens and contexts are not those of the prediction."""
        if self.W.shape[0] != V:
            raise ProblemError(
                f"Run and prediction must have the same vocabulary; the prediction has V={V} tokens and W of the run "
                f"has {self.W.shape[0]} rows (shape {self.W.shape}). Likely a padded or transposed W, or other "
                "statistics."
            )
        if self.H.shape[1] != m:
            raise ProblemError(
                f"Run and prediction must have the same contexts; the prediction has m={m} and H of the run has "
                f"{self.H.shape[1]} columns (shape {self.H.shape}). Likely a transposed H, or other statistics."
            )

    def require_decoder(self, shape: tuple[int, ...]) -> None:
        """Refuse a decoder whose shape is not that of the prediction for fixed embeddings."""
        if self.W.shape != shape:
            raise ProblemError(
                f"Run and prediction must have the same decoder shape V x d; the prediction's is {shape} and the "
                f"run's is {self.W.shape}. Train with the embeddings that the prediction was made for."
            )


class FactorsInside:
    """W, H and bias of an object that keeps them in ``factors``."""

    factors: Factors

    @property
    def W(self) -> Float:
        """Decoder, one row per token, V x d."""
        return self.factors.W

    @property
    def H(self) -> Float:
        """Context embeddings, one column per context, d x m."""
        return self.factors.H

    @property
    def bias(self) -> Float | None:
        """Bias of the tokens, V, or None."""
        return self.factors.bias


def require_equal_logits(product: Float, logits: Float, tolerance: float = 1e-4) -> None:
    """Refuse logits computed from W and H that differ from the model's own."""
    error = float(np.max(np.abs(product - logits), initial=0.0))
    scale = max(1.0, float(np.max(np.abs(logits), initial=0.0)))
    if not error <= tolerance * scale:
        raise ProblemError(
            f"W H (+ bias) must equal the model's logits; the largest difference is {error:.3g} at a scale of "
            f"{scale:.3g}. Likely causes: a final norm whose gain was not folded, a bias, or a padded vocabulary."
        )


def logit_inner(x: Factors, y: Factors) -> float:
    """``<L_x, L_y>`` of centred logits, computed from the factors without forming the logits."""
    (A, B), (C, D) = x.centred_logits, y.centred_logits
    return float(np.sum((A.T @ C) * (B @ D.T)))


def factored_logit_distance(x: Factors, y: Factors) -> float:
    """Distance between centred normalised logits, ``sqrt(2 - 2 cos)``; NaN where one of them is 0."""
    size = np.sqrt(logit_inner(x, x) * logit_inner(y, y))
    return float(np.sqrt(max(2.0 - 2.0 * logit_inner(x, y) / size, 0.0))) if size > 0 else float("nan")


def finite_matrix(name: str, given: object) -> Float:
    """A matrix of finite numbers, from an array or a PyTorch tensor; anything else is refused by this name."""
    matrix = _as_array(name, given)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ProblemError(f"{name} must be a matrix with rows and columns; got shape {matrix.shape}.")
    bad = np.argwhere(~np.isfinite(matrix))
    if bad.size:
        i, j = bad[0]
        raise ProblemError(
            f"{name} must be finite; got {name}[{i}, {j}]={matrix[i, j]} ({len(bad)} such entries of {matrix.size}). "
            "Likely a run that diverged: lower its learning rate."
        )
    return matrix


def _finite_vector(name: str, given: object) -> Float | None:
    if given is None:
        return None
    vector = _as_array(name, given)
    if not np.isfinite(vector).all():
        count = int((~np.isfinite(vector)).sum())
        raise ProblemError(f"{name} must be finite; {count} of {vector.size} entries are not.")
    return vector


def _as_array(name: str, given: object) -> Float:
    """A NumPy array from an array or a PyTorch tensor on any device."""
    plain = given.detach().cpu() if hasattr(given, "detach") else given
    try:
        return dense(plain)
    except (TypeError, ValueError) as cause:
        raise ProblemError(f"{name} must be an array of numbers; got {type(given).__name__}: {cause}") from cause


def check_embeddings(given: Matrix, m: int) -> Float:
    """Embeddings as a d x m float64 array, or an error that names the shape, entry or column at fault."""
    H = _as_array("Embeddings", given)
    if H.ndim != 2 or H.shape[1] != m or H.shape[0] == 0:
        hint = " They look transposed: pass H.T." if H.ndim == 2 and H.shape[0] == m else ""
        raise ProblemError(
            f"Embeddings must have shape (d, m) with one column per context, here (d, {m}); got shape {H.shape}.{hint}"
        )
    bad = np.argwhere(~np.isfinite(H))
    if bad.size:
        i, j = bad[0]
        raise ProblemError(
            f"Embeddings must be finite; got H[{i}, {j}]={H[i, j]} (context {j}; {len(bad)} such entries in all)."
        )
    sizes = np.abs(H).max(axis=0)
    extreme = np.flatnonzero((sizes > LARGEST_EMBEDDING) | ((sizes < 1 / LARGEST_EMBEDDING) & (sizes > 0)))
    if extreme.size:
        raise ProblemError(
            f"Embeddings must have entries between {1 / LARGEST_EMBEDDING:.0e} and {LARGEST_EMBEDDING:.0e}, so that "
            f"squares can be computed; the largest of column {extreme[0]} is {sizes[extreme[0]]:.3g}. Scale them."
        )
    zero = np.flatnonzero(~H.any(axis=0))
    if zero.size:
        raise ProblemError(
            f"Every context needs a nonzero embedding, because its logits would stay 0 whatever W is; column "
            f"{zero[0]} of H is 0 ({zero.size} such columns in all). Drop the context or give it an embedding."
        )
    return H


def check_duplicates(contexts: ArrayLike, H: Float) -> None:
    """Refuse two columns of H for the same context that differ; ``contexts`` has one row per context."""
    rows = np.asarray(contexts)
    _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    representative = first[inverse.reshape(-1)]
    clash = np.flatnonzero(np.any(H[:, representative] != H, axis=0))
    if clash.size:
        j, i = int(clash[0]), int(representative[clash[0]])
        distance = float(np.linalg.norm(H[:, j] - H[:, i]))
        raise ProblemError(
            f"A context must have one embedding; contexts {i} and {j} are both {rows[j].tolist()} but their "
            f"embeddings are {distance:.3g} apart. Merge the two contexts, or give them the same column of H."
        )
