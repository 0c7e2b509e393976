"""Supports with symmetries: block designs, and how symmetric a pattern is.

Tokens are the points of a design and contexts its blocks. In a 2-design any two tokens share equally many contexts,
``S S^T = (r - lambda) I + lambda 11^T``. In a partially balanced design that number depends on how the two tokens are
related in an association scheme: cells of a grid (in the same line or not) or pairs of n things (with a common member
or not).

`off_support_classes` counts the classes of off-support pairs (token, context) that the coherent closure of a pattern
distinguishes (two-dimensional Weisfeiler-Leman refinement [weisfeiler1968]). Averaging over the classes is a
trace-preserving conditional expectation, which raises no nuclear norm, and keeps logits feasible. So some L_mm is
constant on each class, and with one class the centred L_mm is S~.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from tokengeom.extending import Bool, InputError, Int

MOST_REFINED = 400
"""Tokens and contexts together up to which classes are counted."""


@dataclass(frozen=True, eq=False)
class Design:
    """A pattern with its name and family."""

    name: str
    family: str
    S: Bool

    @property
    def concurrences(self) -> Int:
        """Contexts that two different tokens share: the numbers that occur, rising."""
        return np.unique(_shared(self.S)[~np.eye(self.S.shape[0], dtype=bool)])

    @property
    def is_2_design(self) -> bool:
        """Whether supports have one size, tokens one number of contexts, and pairs of tokens one number too."""
        shared = _shared(self.S)
        one_size = np.unique(self.S.sum(axis=0)).size == 1
        return bool(one_size and np.unique(np.diag(shared)).size == 1 and self.concurrences.size == 1)


def _shared(S: Bool) -> Int:
    counts = S.astype(np.int64)
    return np.asarray(counts @ counts.T)


def blocks(sets: Sequence[Sequence[int]], V: int) -> Bool:
    """The V x m pattern of lists of tokens."""
    S = np.zeros((V, len(sets)), dtype=bool)
    for j, tokens in enumerate(sets):
        S[list(tokens), j] = True
    return S


def all_subsets(V: int, k: int) -> Design:
    """Every support of k tokens once."""
    return Design(f"all supports of {k} of {V}", "all supports", blocks(list(combinations(range(V), k)), V))


def projective_plane(q: int) -> Design:
    """Points and lines of the projective plane over GF(q), q prime: q^2 + q + 1 of each."""
    _prime(q)
    points = [(1, y, z) for y, z in product(range(q), repeat=2)] + [(0, 1, z) for z in range(q)] + [(0, 0, 1)]
    table = np.array(points)
    return Design(f"projective plane of order {q}", "2-design", (table @ table.T) % q == 0)


def projective_space_lines() -> Design:
    """The 15 points and 35 lines of the projective space over GF(2)."""
    lines = {tuple(sorted((a, b, a ^ b))) for a, b in combinations(range(1, 16), 2)}
    return Design("lines of PG(3, 2)", "2-design", blocks([[x - 1 for x in line] for line in sorted(lines)], 15))


def net(q: int, classes: int) -> Design:
    """Cells of a q x q grid and the lines of some parallel classes of the affine plane over GF(q), q prime.

    Two classes are rows and columns, three add the symbols of the cyclic Latin square, and all q + 1 are the affine
    plane, a 2-design.
    """
    _prime(q)
    slopes = [(1, 0), (0, 1), *((a, 1) for a in range(1, q))][:classes]
    cells = list(product(range(q), repeat=2))
    lines = [[i for i, (x, y) in enumerate(cells) if (a * x + b * y) % q == c] for a, b in slopes for c in range(q)]
    family = "2-design" if classes == q + 1 else "partially balanced"
    name = f"affine plane of order {q}" if classes == q + 1 else f"{classes} parallel classes of order {q}"
    return Design(name, family, blocks(lines, q * q))


def hadamard(q: int) -> Design:
    """Paley's Hadamard 2-design: translates of the squares modulo a prime q = 3 mod 4."""
    _prime(q)
    if q % 4 != 3:
        raise InputError(f"Paley's design needs a prime q = 3 mod 4; got q={q}.")
    squares = sorted({x * x % q for x in range(1, q)})
    return Design(f"Hadamard design on {q}", "2-design", blocks([[(x + c) % q for x in squares] for c in range(q)], q))


def triangular(n: int, supports: str) -> Design:
    """Tokens are the pairs of n things.

    ``supports``
        "stars" (all pairs with one thing), "triangles" (the pairs of three things), "meeting" (all pairs that meet a
        given pair in one thing) or "disjoint" (all pairs that do not meet a given pair).
    """
    pairs = list(combinations(range(n), 2))
    index = {pair: i for i, pair in enumerate(pairs)}
    common = {"meeting": 1, "disjoint": 0}
    if supports == "stars":
        sets = [[index[pair] for pair in pairs if thing in pair] for thing in range(n)]
    elif supports == "triangles":
        sets = [[index[pair] for pair in combinations(three, 2)] for three in combinations(range(n), 3)]
    else:
        sets = [[index[b] for b in pairs if len({*a} & {*b}) == common[supports]] for a in pairs]
    return Design(f"{supports} among pairs of {n}", "partially balanced", blocks(sets, len(pairs)))


def crosses(n: int, centre: bool) -> Design:
    """Cells of an n x n grid; each support is the row and the column of a cell, with or without the cell."""
    cells = list(product(range(n), repeat=2))
    sets = [
        [i for i, (x, y) in enumerate(cells) if (x == a) != (y == b) or (centre and (x, y) == (a, b))] for a, b in cells
    ]
    name = f"row and column of a cell, {n} x {n}, {'with' if centre else 'without'} the cell"
    return Design(name, "partially balanced", blocks(sets, n * n))


def runs(V: int, k: int) -> Design:
    """Runs of k tokens on a circle of V: partially balanced with V // 2 classes."""
    return Design(
        f"runs of {k} on a circle of {V}", "cyclic", blocks([[(i + j) % V for j in range(k)] for i in range(V)], V)
    )


def complement(design: Design) -> Design:
    """The off-support tokens of each context as its support."""
    return Design(f"complement of {design.name}", design.family, ~design.S)


def designs(size: str) -> list[Design]:
    """The designs of a recipe: "none", "few" or "many"."""
    if size == "none":
        return []
    few = [
        all_subsets(6, 2), projective_plane(2), net(3, 4), hadamard(7), net(3, 2),
        triangular(5, "stars"), triangular(5, "triangles"), triangular(6, "disjoint"), crosses(3, centre=True),
    ]  # fmt: skip
    if size == "few":
        return [*few, complement(projective_plane(2)), complement(triangular(5, "triangles"))]
    chosen = [
        *few, all_subsets(8, 3), all_subsets(10, 4), projective_plane(3), projective_plane(5), projective_plane(7),
        projective_space_lines(), net(5, 6), net(7, 8), hadamard(11), hadamard(19), hadamard(23), hadamard(31),
        net(5, 2), net(5, 3), net(5, 4), net(7, 2), net(7, 3), net(7, 4), net(7, 6),
        triangular(8, "stars"), triangular(8, "triangles"), triangular(8, "meeting"), triangular(8, "disjoint"),
        crosses(5, centre=True), crosses(5, centre=False),
    ]  # fmt: skip
    return [*chosen, *map(complement, chosen), runs(31, 3), runs(31, 8), runs(31, 15), runs(32, 8)]


def off_support_classes(S: Bool) -> int | None:
    """Classes of off-support pairs in the coherent closure of a pattern; None where it is too large to refine."""
    V, m = S.shape
    if V + m > MOST_REFINED:
        return None
    colours = np.zeros((V + m, V + m), dtype=np.int64)
    colours[:V, V:], colours[V:, :V] = 1 + S, 3 + S.T
    colours[V:, V:] = 5
    np.fill_diagonal(colours, 6 + (np.arange(V + m) >= V))
    rng = np.random.default_rng(0)
    count = 0
    while True:
        # A random hash of the multiset of colour pairs over all third items; equal sums are equal multisets.
        left, right = rng.random((2, int(colours.max()) + 1))
        sums = np.round(left[colours] @ right[colours], 7)
        _, colours = np.unique(np.stack([colours.ravel(), _numbered(sums).ravel()]), axis=1, return_inverse=True)
        colours = np.reshape(colours, (V + m, V + m))
        classes = int(colours.max()) + 1
        if classes == count:
            return int(np.unique(colours[:V, V:][~S]).size)
        count = classes


def _numbered(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Int:
    return np.reshape(np.unique(values, return_inverse=True)[1], values.shape)


def _prime(q: int) -> None:
    if q < 2 or any(q % x == 0 for x in range(2, int(q**0.5) + 1)):
        raise InputError(f"The order of the field must be a prime; got q={q}.")
