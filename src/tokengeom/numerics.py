"""Arithmetic that every room shares: stable sums of exponentials, centring, gaps that do not cancel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]


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
