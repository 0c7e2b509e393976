"""Radix sort of rows of integers: compiled code, loaded only where there are many rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from tokengeom.core.numerics import Int

_Words = NDArray[np.uint64]
_Kernel = Callable[..., int]


def sort_rows(
    keys: Sequence[Int], token: NDArray[np.int32], count: Int | None
) -> tuple[list[Int], NDArray[np.int32], Int | None]:
    """Rows sorted by the first key, then the second, and so on, then by token; the count of each row moves with it.

    Nothing is negative, and without ``count`` every row counts 1, as in the result. Rows with one key are moved
    themselves, as two words: the key, and the token with the count. Of rows with more keys the order is found, key by
    key from the last to the first.
    """
    if len(keys) == 1 and (count is None or int(count.max(initial=0)) < 2**32):
        row = token.astype(np.uint64) << np.uint64(32)
        if count is not None:
            row |= count.view(np.uint64)
        first, row = _sorted(keys[0].astype(np.uint64), row, 4)
        counts = None if count is None else (row & np.uint64(2**32 - 1)).view(np.int64)
        return [first.view(np.int64)], (row >> np.uint64(32)).astype(np.int32), counts
    order = np.arange(token.size, dtype=np.uint64)
    columns: list[NDArray[np.integer[Any]]] = [token, *reversed(keys)]
    for column in columns:
        order = _sorted(column[order].astype(np.uint64), order, 8)[1]
    return [key[order] for key in keys], token[order], None if count is None else count[order]


def _sorted(first: _Words, second: _Words, from_byte: int) -> tuple[_Words, _Words]:
    """Rows of two words sorted by the first, and rows with equal ones by the second from one of its bytes on."""
    spare = (np.empty_like(first), np.empty_like(second))
    moves = _sort_by_bytes(first, second, *spare, from_byte)
    return spare if moves % 2 else (first, second)


def _by_bytes(first: _Words, second: _Words, first_out: _Words, second_out: _Words, from_byte: int) -> int:
    """Sort by each byte, from the lowest to the highest, moving rows between the arrays; return the number of moves.

    Every move keeps the order of rows whose byte is equal. A byte that is the same in all rows is skipped.
    """
    size, low = first.size, np.uint64(255)
    histograms = np.zeros((16, 256), np.int64)
    for i in range(size):
        word = first[i]
        for byte in range(8):
            histograms[8 + byte, word & low] += 1
            word >>= np.uint64(8)
        word = second[i] >> np.uint64(8 * from_byte)
        for byte in range(from_byte, 8):
            histograms[byte, word & low] += 1
            word >>= np.uint64(8)
    moves = 0
    for byte in range(from_byte, 16):
        places, shift = histograms[byte], np.uint64(8 * (byte % 8))
        sorted_by = first if byte >= 8 else second
        if size == 0 or places[(sorted_by[0] >> shift) & low] == size:
            continue
        total = 0
        for value in range(256):
            number = places[value]
            places[value] = total
            total += number
        for i in range(size):
            value = (sorted_by[i] >> shift) & low
            place = places[value]
            places[value] = place + 1
            first_out[place] = first[i]
            second_out[place] = second[i]
        first, first_out = first_out, first
        second, second_out = second_out, second
        moves += 1
    return moves


def _compiled(function: _Kernel) -> _Kernel:
    try:
        kernel: _Kernel = numba.njit(function, nogil=True, cache=True)
    except RuntimeError:  # no folder for the cache can be written: compile in each process
        kernel = numba.njit(function, nogil=True)
    return kernel


_sort_by_bytes = _compiled(_by_bytes)
