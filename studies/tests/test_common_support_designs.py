"""Designs: their incidence identities, and the classes of off-support pairs against orbits found by brute force."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from tokengeom.extending import Bool, InputError
from tokengeom_studies.common.random_data import random_supports
from tokengeom_studies.common.support_designs import (
    Design,
    all_subsets,
    complement,
    crosses,
    designs,
    hadamard,
    net,
    off_support_classes,
    projective_plane,
    projective_space_lines,
    runs,
    triangular,
)


@pytest.mark.parametrize(
    ("design", "V", "m", "k", "shared"),
    [
        (all_subsets(6, 3), 6, 20, 3, 4),
        (projective_plane(3), 13, 13, 4, 1),
        (net(5, 6), 25, 30, 5, 1),
        (hadamard(11), 11, 11, 5, 2),
        (projective_space_lines(), 15, 35, 3, 1),
        (complement(projective_plane(2)), 7, 7, 4, 2),
    ],
)
def test_2_designs_satisfy_their_incidence_identity(design: Design, V: int, m: int, k: int, shared: int) -> None:
    S = design.S.astype(int)
    assert S.shape == (V, m)
    assert (S.sum(axis=0) == k).all()
    r = m * k // V
    assert ((r - shared) * np.eye(V) + shared == S @ S.T).all()
    # The identity counts pairs: each of the k - 1 partners of a token in its r contexts.
    assert r * (k - 1) == shared * (V - 1)
    assert design.is_2_design


def test_partially_balanced_designs_follow_their_association_scheme() -> None:
    grid = net(3, 2)
    assert grid.concurrences.tolist() == [0, 1]
    assert not grid.is_2_design
    # Pairs of n things: two pairs with a common member are in one triangle, disjoint ones in none.
    S = triangular(6, "triangles").S.astype(int)
    assert np.unique(S @ S.T).tolist() == [0, 1, 4]
    assert triangular(6, "stars").S.sum(axis=0).tolist() == [5] * 6
    assert triangular(6, "meeting").S.sum(axis=0).tolist() == [8] * 15
    assert triangular(6, "disjoint").S.sum(axis=0).tolist() == [6] * 15
    assert crosses(4, centre=True).S.sum(axis=0).tolist() == [7] * 16
    assert crosses(4, centre=False).S.sum(axis=0).tolist() == [6] * 16
    assert np.unique((S := runs(9, 4).S.astype(int)).T @ S).tolist() == [0, 1, 2, 3, 4]


def test_names_are_different_and_declared_2_designs_are_2_designs() -> None:
    for size in ("few", "many"):
        found = designs(size)
        assert len({design.name for design in found}) == len(found)
        for design in found:
            assert design.is_2_design == (design.family in ("2-design", "all supports"))


def off_support_orbits(S: Bool) -> int:
    """Orbits of off-support pairs under all renamings of tokens that map the supports on themselves."""
    V, m = S.shape
    place = {tuple(column): j for j, column in enumerate(S.T.tolist())}
    pairs = {(v, j): (v, j) for v in range(V) for j in range(m) if not S[v, j]}
    for p in permutations(range(V)):
        images = [place.get(tuple(S[np.argsort(p), j].tolist())) for j in range(m)]
        if None in images:
            continue
        for (v, j), least in list(pairs.items()):
            image = images[j]
            assert image is not None
            pairs[p[v], image] = min(pairs[p[v], image], least)
    # Orbits of a group: the smallest image of a pair names its orbit.
    return len(set(pairs.values()))


@pytest.mark.parametrize("S", [projective_plane(2).S, runs(6, 2).S, runs(7, 3).S, all_subsets(5, 2).S, net(2, 2).S])
def test_classes_are_the_orbits_of_symmetric_patterns(S: Bool) -> None:
    assert off_support_classes(S) == off_support_orbits(S)


def test_distances_on_a_long_circle_are_found_in_several_rounds() -> None:
    # A run of 3 leaves 28 of 31 tokens, and a reflection pairs them by their distance.
    assert off_support_classes(runs(31, 3).S) == 14


def test_classes_do_not_depend_on_the_order_of_tokens_and_contexts() -> None:
    rng = np.random.default_rng(0)
    for S in (triangular(5, "triangles").S, random_supports(rng, 6, 5, 2)):
        mixed = S[rng.permutation(S.shape[0])][:, rng.permutation(S.shape[1])]
        assert off_support_classes(mixed) == off_support_classes(S)
    assert off_support_classes(np.ones((300, 200), dtype=bool)) is None


def test_orders_that_have_no_field_here_are_refused() -> None:
    with pytest.raises(InputError, match="prime"):
        projective_plane(4)
    with pytest.raises(InputError, match="3 mod 4"):
        hadamard(5)
