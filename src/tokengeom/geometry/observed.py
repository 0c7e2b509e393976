"""Reading W and H from whatever holds them, and refusing what does not fit the prediction."""

from __future__ import annotations

from typing import Any

import numpy as np

from tokengeom.errors import ProblemError
from tokengeom.geometry.targets import Factors
from tokengeom.numerics import Float


def observe(run: Any) -> Factors:
    """Factors of a ``Run``, of any object with ``W`` (V x d) and ``H`` (d x m), or of a pair (W, H).

    A ``bias`` (V), where the object has one that is not None, belongs to the logits.
    """
    if isinstance(run, tuple | list) and len(run) == 2:
        W, H, bias = run[0], run[1], None
    elif hasattr(run, "W") and hasattr(run, "H"):
        W, H, bias = run.W, run.H, getattr(run, "bias", None)
    else:
        raise ProblemError(
            f"A run must have W (V x d) and H (d x m), or be the pair (W, H); got {type(run).__name__}. "
            "Pass what train returned, or (W, H) of a checkpoint."
        )
    found = Factors(_finite_matrix("W", W), _finite_matrix("H", H), _bias(bias))
    if found.W.shape[1] != found.H.shape[0]:
        hint = " H looks transposed: pass H.T." if found.W.shape[1] == found.H.shape[1] else ""
        raise ProblemError(
            f"W (V x d) and H (d x m) must share d; got W {found.W.shape} with d={found.W.shape[1]} and H "
            f"{found.H.shape} with d={found.H.shape[0]}.{hint}"
        )
    if found.bias is not None and found.bias.shape != (found.W.shape[0],):
        raise ProblemError(f"bias must have V={found.W.shape[0]} entries; got shape {found.bias.shape}.")
    return found


def require_sizes(run: Factors, V: int, m: int) -> None:
    """Refuse a run of another vocabulary or of other contexts than the prediction's."""
    if run.W.shape[0] != V:
        raise ProblemError(
            f"Run and prediction must have one vocabulary; the prediction has V={V} tokens and W of the run has "
            f"{run.W.shape[0]} rows (shape {run.W.shape}). Likely a padded or transposed W, or other statistics."
        )
    if run.H.shape[1] != m:
        raise ProblemError(
            f"Run and prediction must have the same contexts; the prediction has m={m} and H of the run has "
            f"{run.H.shape[1]} columns (shape {run.H.shape}). Likely a transposed H, or other statistics."
        )


def require_decoder(run: Factors, shape: tuple[int, ...]) -> None:
    """Refuse a decoder whose dimension is not that of the embeddings that the prediction was made for."""
    if run.W.shape != shape:
        raise ProblemError(
            f"Run and prediction must have one decoder shape V x d; the prediction's is {shape} and the run's is "
            f"{run.W.shape}. Train with the embeddings that the prediction was made for."
        )


def _finite_matrix(name: str, X: Any) -> Float:
    try:
        matrix = np.asarray(X.detach().cpu() if hasattr(X, "detach") else X, dtype=np.float64)
    except (TypeError, ValueError) as cause:
        raise ProblemError(f"{name} must be a matrix of numbers; got {type(X).__name__}: {cause}") from cause
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


def _bias(bias: Any) -> Float | None:
    if bias is None:
        return None
    found = np.asarray(bias.detach().cpu() if hasattr(bias, "detach") else bias, dtype=np.float64)
    if not np.isfinite(found).all():
        raise ProblemError(f"bias must be finite; {int((~np.isfinite(found)).sum())} of {found.size} entries are not.")
    return found
