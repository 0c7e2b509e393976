"""Arithmetic that every room shares: stable sums of exponentials, centring, gaps that do not cancel.

One BLAS thread for small matrices: threads that spin for work cost more than they bring.

Measured at V = 104, m = 400 on 2 cores: 0.13 s with one thread, 2.3 s with two while another process was
running; on a quiet machine the two are equal.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Bool = NDArray[np.bool_]
Arrays = dict[str, NDArray[Any]]
"""Arrays by name, as safetensors holds them."""


def log_sum_exp(x: Float, axis: int = 0) -> Float:
    """``log sum exp(x)`` along an axis; ``-inf`` where every entry is ``-inf`` (an empty sum)."""
    top = np.max(x, axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        total = np.log(np.sum(np.exp(x - top), axis=axis))
    return np.asarray(total + np.squeeze(top, axis=axis))


def centre_columns(x: Float) -> Float:
    """Subtract from each column its mean: the representative of logits that softmax cannot tell apart."""
    return np.asarray(x - x.mean(axis=0, keepdims=True))


def unit_columns(columns: Float) -> Float:
    """Columns divided by their norms: directions; a column of 0 has none and stays 0."""
    norms = np.linalg.norm(columns, axis=0)
    return np.asarray(columns / np.where(norms > 0, norms, 1.0))


def cosines(columns: Float) -> Float:
    """Cosines between the columns of a matrix; 0 where a column is 0."""
    directions = unit_columns(columns)
    return np.asarray(np.clip(directions.T @ directions, -1.0, 1.0))


def x_log_x(x: Float) -> Float:
    """``x log x`` with the limit 0 at 0."""
    return np.asarray(x * np.log(np.where(x > 0, x, 1.0)))


def excess_exponential(u: Float) -> Float:
    """``exp(u) - 1 - u >= 0``, without the cancellation at small u.

    A Kullback-Leibler divergence is ``sum p (exp(u) - 1 - u)`` with ``u = log q - log p``: every term is
    positive, so that a divergence of 1e-30 is a number and not the rounding of a difference.
    """
    small = np.abs(u) < 1e-2
    v = np.where(small, u, 0.0)
    series = v * v * (0.5 + v * (1 / 6 + v * (1 / 24 + v * (1 / 120 + v * (1 / 720 + v / 5040)))))
    return np.where(small, series, np.expm1(u) - u)


THREADED_WORK = 5e8
"""Multiplications of one Gram product (V^2 m) from which more than one thread pays."""


def blas_threads_for(rows: int, columns: int) -> Any:
    """Limit BLAS to one thread, as a context, where an iteration's products are small."""
    work = float(rows) * columns * min(rows, columns)
    controller = _controller()
    if work >= THREADED_WORK or controller is None:
        return nullcontext()
    return controller.limit(limits=1, user_api="blas")


@cache
def _controller() -> Any:
    """Find the BLAS libraries once; None where the helper package is missing, which only costs time."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController()
