"""Checks of what a user gives: whole numbers, seeds, tolerances, embeddings, names of files."""

from __future__ import annotations

import operator

import numpy as np
from numpy.typing import ArrayLike

from tokengeom.core.errors import InputError, ProblemError
from tokengeom.core.numerics import Float, Matrix, dense

LARGEST_EMBEDDING = 1e100
"""Largest entry of embeddings, and the inverse of the smallest: their squares are finite and not 0."""


def whole_number(name: str, value: object) -> int:
    """A whole number of any library as Python's, which never wraps around."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InputError(f"{name} must be a whole number; got {value!r}.") from None


def check_seed(seed: int) -> None:
    """Refuse a seed below 0, which no generator takes."""
    if seed < 0:
        raise InputError(f"The seed must be a whole number of at least 0; got {seed}.")


def check_tolerance(tolerance: float | None) -> None:
    """Refuse a relative gap to reach that is not between 0 and 1; None stands for the default."""
    if tolerance is not None and not 0.0 < tolerance < 1.0:
        raise ProblemError(f"The tolerance is a relative gap between 0 and 1, such as 1e-6; got {tolerance!r}.")


def check_embeddings(given: Matrix, m: int) -> Float:
    """Embeddings as a d x m float64 array, or an error that names the shape, entry or column at fault."""
    try:
        H = dense(given)
    except (TypeError, ValueError) as cause:
        raise ProblemError(
            f"Embeddings must be a d x m array of numbers; got {type(given).__name__}: {cause}"
        ) from cause
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


def is_plain_name(name: str) -> bool:
    """Whether a text is the name of a file or folder, without a path."""
    return name not in ("", ".", "..") and not set(name) & {"/", "\\", "\0"}
