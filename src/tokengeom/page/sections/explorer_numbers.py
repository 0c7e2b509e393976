"""Numbers of the explorer: rotations, neighbours and disagreements of unit vectors, packed as integers.

Neighbours are sorted by the rounded cosine, then by frequency, so their order does not depend on the last digits of a
sum. A packed array is base64 of little-endian integers: value = integer * step.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokengeom.core.numerics import Float, Int

NEIGHBOURS, WORST, AXES = 12, 3, 3
"""Neighbours per item, items with the largest differences, and axes of the map."""
COSINE_STEP = 1e-4
MISSING = -32_768
"""Stands for the cosine of a missing neighbour."""
BLOCK = 512
"""Items whose cosines with all others are computed at a time."""


@dataclass(frozen=True, eq=False)
class NearestItems:
    """Nearest items of every item, n x k, and their cosines in steps of `COSINE_STEP`, or `MISSING`."""

    items: Int
    cosines: Int


def unit_rows(rows: Float) -> NDArray[np.float32]:
    """Rows of length 1, and 0 for rows without a direction."""
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    scale = np.where(length > 1e-9 * max(float(length.max(initial=0.0)), 1e-300), length, np.inf)
    return np.asarray(rows / scale, dtype=np.float32)


def leading_axes(rows: NDArray[np.float32]) -> Float:
    """The directions with the largest sums of squares, d x 3 (fewer where d is smaller); signs fixed by the rows."""
    _, vectors = np.linalg.eigh(np.asarray(rows.T @ rows, dtype=np.float64))
    axes = vectors[:, ::-1][:, :AXES]
    along = rows @ axes
    largest = np.abs(along).argmax(axis=0)
    return np.asarray(axes * np.where(along[largest, np.arange(axes.shape[1])] < 0, -1.0, 1.0))


def best_rotation(rows: NDArray[np.float32], onto: NDArray[np.float32]) -> Float:
    """The orthogonal map R, d x d', with the smallest ``||rows R - onto||``."""
    U, _, Vt = np.linalg.svd(np.asarray(rows.T @ onto, dtype=np.float64), full_matrices=False)
    return np.asarray(U @ Vt)


def on_three_axes(places: Float) -> NDArray[np.float32]:
    """Coordinates on three axes, of which some may be empty."""
    filled = np.zeros((len(places), AXES), dtype=np.float32)
    filled[:, : places.shape[1]] = places
    return np.clip(filled, -1.0, 1.0)


def cosines_between(rows: NDArray[np.float32], others: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
    """Cosines of unit rows with others, or with each other."""
    return np.asarray(np.clip(rows @ (rows if others is None else others).T, -1.0, 1.0))


def _in_steps(cosines: NDArray[np.float32]) -> Int:
    return np.asarray(np.rint(cosines / COSINE_STEP), dtype=np.int64)


def _largest(numbers: Int, k: int) -> Int:
    """Places of the k largest numbers of each row, largest first, ties in the order of places."""
    n = numbers.shape[1]
    keys = numbers * n - np.arange(n)
    k = min(k, n)
    largest = np.argpartition(-keys, k - 1, axis=1)[:, :k] if k < n else np.tile(np.arange(n), (len(keys), 1))
    order = np.argsort(-np.take_along_axis(keys, largest, axis=1), axis=1, kind="stable")
    return np.asarray(np.take_along_axis(largest, order, axis=1))


def _blocks(n: int) -> Iterator[Int]:
    for begin in range(0, n, BLOCK):
        yield np.arange(begin, min(begin + BLOCK, n))


def _without(numbers: Int, rows: Int, lacking: NDArray[np.bool_]) -> Int:
    """Numbers of pairs, with `MISSING` for an item and itself, and for items without a direction."""
    numbers[:, lacking] = MISSING
    numbers[lacking[rows]] = MISSING
    numbers[np.arange(rows.size), rows] = MISSING
    return numbers


def nearest_items(vectors: NDArray[np.float32]) -> NearestItems:
    """The nearest items of every item by cosine."""
    n = len(vectors)
    k = min(NEIGHBOURS, n)
    lacking = np.asarray(~vectors.any(axis=1))
    items, cosines = np.zeros((n, k), dtype=np.int64), np.full((n, k), MISSING, dtype=np.int64)
    for rows in _blocks(n):
        numbers = _without(_in_steps(cosines_between(vectors[rows], vectors)), rows, lacking)
        items[rows] = _largest(numbers, k)
        cosines[rows] = np.take_along_axis(numbers, items[rows], axis=1)
    return NearestItems(items, cosines)


def compared_items(
    predicted: NDArray[np.float32], measured: NDArray[np.float32], near: NearestItems, near_measured: NearestItems
) -> dict[str, Any]:
    """Cosines of both kinds at the neighbours of either, how far each item disagrees, and with which others most."""
    n = len(predicted)
    worst = min(WORST, n)
    lacking = np.asarray(~(predicted.any(axis=1) & measured.any(axis=1)))
    disagreement = np.full(n, np.nan)
    shape = {"at_predicted": near.items.shape, "at_measured": near_measured.items.shape}
    numbers = {name: np.zeros(size, dtype=np.int64) for name, size in shape.items()}
    numbers |= {name: np.zeros((n, worst), np.int64) for name in ("worst", "worst_predicted", "worst_measured")}
    for rows in _blocks(n):
        expected, seen = (cosines_between(vectors[rows], vectors) for vectors in (predicted, measured))
        disagreement[rows] = _row_disagreement(expected, seen, rows, lacking)
        in_steps = [_without(_in_steps(cosines), rows, lacking) for cosines in (expected, seen)]
        numbers["at_predicted"][rows] = np.take_along_axis(in_steps[1], near.items[rows], axis=1)
        numbers["at_measured"][rows] = np.take_along_axis(in_steps[0], near_measured.items[rows], axis=1)
        difference = np.where(in_steps[0] == MISSING, -1, np.abs(in_steps[0] - in_steps[1]))
        numbers["worst"][rows] = _largest(difference, worst)
        for name, cosines in zip(("worst_predicted", "worst_measured"), in_steps, strict=True):
            numbers[name][rows] = np.take_along_axis(cosines, numbers["worst"][rows], axis=1)
    packed = {
        name: pack(values, "uint16") if name == "worst" else pack(values, "int16") | {"step": COSINE_STEP}
        for name, values in numbers.items()
    }
    return {"disagreement": pack(disagreement, "float32"), **packed}


def _row_disagreement(
    expected: NDArray[np.float32], seen: NDArray[np.float32], rows: Int, lacking: NDArray[np.bool_]
) -> Float:
    """1 - correlation of each row of predicted and measured cosines, over the other items that have directions."""
    kept = np.tile(~lacking, (rows.size, 1))
    kept[np.arange(rows.size), rows] = False
    number = kept.sum(axis=1, keepdims=True)
    centred = []
    for values in (np.asarray(expected, np.float64), np.asarray(seen, np.float64)):
        mean = np.where(kept, values, 0.0).sum(axis=1, keepdims=True) / np.maximum(number, 1)
        centred.append(np.where(kept, values - mean, 0.0))
    size = np.sqrt((centred[0] ** 2).sum(axis=1) * (centred[1] ** 2).sum(axis=1))
    defined = (number[:, 0] > 2) & ~lacking[rows] & (size > 1e-12 * number[:, 0])
    correlation = (centred[0] * centred[1]).sum(axis=1) / np.where(defined, size, 1.0)
    return np.where(defined, np.clip(1.0 - correlation, 0.0, 2.0), np.nan)


def pack(values: NDArray[Any], kind: str, step: float | None = None) -> dict[str, Any]:
    """An array as base64 of little-endian numbers; with ``step``, of value / step rounded."""
    numbers = values if step is None else np.rint(values / step)
    coded = np.ascontiguousarray(numbers, dtype=np.dtype(kind).newbyteorder("<")).tobytes()
    described: dict[str, Any] = {"packed": b64encode(coded).decode("ascii"), "type": kind, "shape": list(values.shape)}
    return described if step is None else described | {"step": step}


def in_bytes(rows: Float) -> dict[str, Any]:
    """Rows as integers from -127 to 127, each with its own step."""
    steps = np.maximum(np.abs(rows).max(axis=1, initial=0.0), 1e-30) / 127.0
    return {"values": pack(rows / steps[:, None], "int8", 1.0), "steps": pack(steps, "float32")}
