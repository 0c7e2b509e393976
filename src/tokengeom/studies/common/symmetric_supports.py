"""Supports with symmetries: those of a few orbits of a product of cyclic groups."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from tokengeom.numerics import Bool

PATTERNS: Sequence[tuple[tuple[int, ...], int, int, Sequence[Sequence[int]]]] = (
    ((5,), 1, 0, [[0, 1]]),
    ((4,), 2, 0, [[2, 3, 4, 6], [5]]),
    ((2, 2), 2, 0, [[1, 2, 4, 5], [2], [0, 3, 5, 6]]),
    ((2, 4), 1, 0, [[0, 1, 4, 5], [7]]),
    ((9,), 1, 0, [[0, 1, 2, 3]]),
    ((3, 3), 1, 0, [[3, 4, 7, 8]]),
    ((2, 4), 1, 1, [[5], [0, 1, 6, 7, 8]]),
    ((4,), 2, 1, [[3], [5, 8], [1, 3, 5, 6]]),
    ((10,), 1, 0, [[0, 1]]),
    ((10,), 1, 0, [[0, 2, 4, 6, 8], [0, 3]]),
    ((2, 4), 1, 2, [[0, 3, 4, 7, 8], [1]]),
    ((2, 2), 2, 2, [[2, 5, 6, 8], [0, 1], [5]]),
    ((2, 2), 2, 2, [[0, 4, 6, 9], [0, 1, 3, 4, 6, 8, 9], [6]]),
    ((5,), 2, 0, [[0, 1, 5, 6], [2, 3, 5, 6, 9]]),
    ((5,), 2, 0, [[2, 4, 5, 8], [0, 9]]),
    ((5,), 2, 0, [[0, 1, 3, 4, 8], [1, 4], [5, 8]]),
    ((5,), 2, 0, [[0, 1, 2, 5, 6], [4, 5], [1, 9]]),
    ((2, 2), 3, 0, [[0, 3, 5, 6, 7, 9], [2]]),
    ((4,), 3, 0, [[9], [2, 4, 7, 8, 10], [2, 3]]),
    ((6,), 2, 0, [[0, 1, 4, 7, 9, 11], [9]]),
    ((12,), 1, 0, [[6], [0, 1, 4, 5, 8, 9]]),
)
"""What `supports` takes, for patterns with several solutions of NTP-SVM*. They were found by a random search among
60,000 patterns of such orbits; of 1,440 random patterns without symmetry none had several solutions."""


def supports(dims: Sequence[int], copies: int, fixed: int, orbits: Sequence[Sequence[int]]) -> Bool:
    """Supports that a group maps onto themselves, V x m, in the order of their tokens.

    ``dims``
        Orders of the cyclic groups whose product acts on the tokens.
    ``copies``, ``fixed``
        Number of copies of the group among the tokens, and number of tokens that it leaves in place.
    ``orbits``
        Tokens of one support of each orbit.
    """
    elements = list(product(*map(range, dims)))
    place = {element: k for k, element in enumerate(elements)}
    n, found = len(elements), set()
    for shift in elements:
        moved = [place[tuple((a + b) % d for a, b, d in zip(one, shift, dims, strict=True))] for one in elements]
        image = [copy * n + k for copy in range(copies) for k in moved] + list(range(copies * n, copies * n + fixed))
        found |= {tuple(sorted(image[z] for z in orbit)) for orbit in orbits}
    S = np.zeros((copies * n + fixed, len(found)), np.bool_)
    for j, tokens in enumerate(sorted(found)):
        S[list(tokens), j] = True
    return S
