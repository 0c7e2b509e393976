"""How often the proxy ``S~`` solves NTP-SVM*, and the smallest support pattern where it does not.

``S~ = U Sigma V^T`` solves NTP-SVM* if ``U V^T <= 0`` off support. Where the dual solution is not unique, a failed test
does not refute this, and the certified solver decides: the proxy is exact if its nuclear norm is within the tolerance
of a proven bound. A counter-example is a pattern for which a feasible L has a smaller nuclear norm than the proxy, so
it does not rest on a tolerance. All patterns of few tokens and contexts are tried in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement, permutations
from typing import ClassVar

import numpy as np

from tokengeom.extending import (
    AbstractProgress,
    Bool,
    Figure,
    HeatmapPanel,
    NuclearADMM,
    NuclearSVM,
    Panel,
    catalogue,
    proxy_exactness,
)
from tokengeom_studies.base import AbstractStudy, Check, Findings, Recipe, Table
from tokengeom_studies.common.random_data import random_supports

ROUNDING = 1e-12
"""Relative distance of a bound from the nuclear norm of the proxy that proves the proxy optimal up to rounding."""


@dataclass(frozen=True)
class Verdict:
    """Whether the proxy of one pattern is exact, by two tests.

    ``by_sign``
        Result of the sign test; None where it cannot decide.
    ``excess``
        ``||S~||_* / ||L||_* - 1`` with the solver's feasible L; positive where L has the smaller nuclear norm.
    ``largest_excess``
        ``||S~||_* / bound - 1 >= excess``: no feasible L gives a larger excess.
    """

    by_sign: bool | None
    excess: float
    largest_excess: float
    tolerance: float

    @property
    def exact(self) -> bool:
        """Whether the proxy is optimal: by the sign test where it decides, else within the solver's tolerance."""
        return self.largest_excess <= 2.0 * self.tolerance if self.by_sign is None else self.by_sign

    @property
    def refuted(self) -> bool:
        """Whether a feasible L has a smaller nuclear norm than the proxy by more than the tolerance."""
        return self.excess > 2.0 * self.tolerance

    @property
    def contradicts(self) -> bool:
        """Whether sign test and solver contradict each other, which would be an error in theory or code."""
        return (self.by_sign is True and self.refuted) or (self.by_sign is False and self.largest_excess <= ROUNDING)

    @property
    def undecided(self) -> bool:
        """Whether neither the sign test nor the solver decides."""
        return self.by_sign is None and not (self.exact or self.refuted)


def judge(S: Bool, tolerance: float) -> Verdict:
    """Test the proxy of a pattern S (V x m) by signs and by the solver."""
    problem = NuclearSVM.from_support(S)
    test = proxy_exactness(problem)
    proof = NuclearADMM(tolerance=tolerance)(problem).certificate
    norm = test.nuclear_norm
    return Verdict(test.exact, norm / proof.value - 1.0, norm / proof.bound - 1.0, tolerance)


@dataclass(frozen=True)
class Cell:
    """Verdicts on random patterns with the same V, m and support size k."""

    V: int
    m: int
    k: int
    verdicts: Sequence[Verdict]

    @property
    def share(self) -> float:
        """Share of the patterns whose proxy is exact."""
        return float(np.mean([v.exact for v in self.verdicts]))

    @property
    def excess(self) -> float:
        """Mean excess of the proxy's nuclear norm."""
        return float(np.mean([max(v.excess, 0.0) for v in self.verdicts]))


@dataclass(frozen=True, eq=False)
class Search:
    """All patterns of V tokens and m contexts: how many, how many are refuted, and the one with the largest excess.

    ``kinds``
        Number of refuted patterns up to renaming of tokens.
    """

    V: int
    m: int
    patterns: int
    refuted: int
    kinds: int
    worst: Bool | None
    excess: float


class ProxyExactness(AbstractStudy):
    """Exactness of the proxy over random patterns, and the smallest counter-example."""

    question: ClassVar[str] = "How often is the centred support matrix itself the max-margin direction?"
    # Random supports of one size; m and k are multiples and shares of V. Paper has larger V and more draws.
    small: ClassVar[Recipe] = {
        "seed": 0,
        "V": [4, 8, 16],
        "contexts_per_token": [0.5, 1.0, 2.0, 4.0, 8.0],
        "support_share": [0.125, 0.25, 0.5, 0.75],
        "draws": 40,
        "search_V": 4,
        "search_contexts": 4,
        "tolerance": 1e-6,
    }
    paper: ClassVar[Recipe] = {
        "seed": 0,
        "V": [4, 8, 16, 32],
        "contexts_per_token": [0.5, 1.0, 2.0, 4.0, 8.0],
        "support_share": [0.0625, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75],
        "draws": 100,
        "search_V": 5,
        "search_contexts": 4,
        "tolerance": 1e-6,
    }

    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Test random patterns, known instances, and all small patterns."""
        rng = np.random.default_rng(recipe["seed"])
        grid = _grid(recipe)
        with progress.stage("Random patterns", float(len(grid))) as stage:
            cells = []
            for V, m, k in grid:
                drawn = [judge(random_supports(rng, V, m, k), recipe["tolerance"]) for _ in range(recipe["draws"])]
                cells.append(Cell(V, m, k, drawn))
                stage.advance(1.0, f"V={V}, m={m}, k={k}")
        sizes = [(V, m) for V in range(2, recipe["search_V"] + 1) for m in range(1, recipe["search_contexts"] + 1)]
        with progress.stage("All small patterns", float(len(sizes))) as stage:
            searches = []
            for V, m in sizes:
                searches.append(search(V, m, recipe["tolerance"]))
                stage.advance(1.0, f"V={V}, m={m}")
        known = [judge(instance.S, recipe["tolerance"]) for instance in catalogue()]
        checks = _checks(cells, searches, known)
        tables = {"random": _random_table(cells), "small": _search_table(searches)}
        return self.findings(recipe, _sentence(cells, searches), checks, _figures(cells), tables)


def _grid(recipe: Recipe) -> list[tuple[int, int, int]]:
    found = []
    for V in recipe["V"]:
        sizes = sorted({max(1, round(share * V)) for share in recipe["support_share"]})
        found += [(V, max(1, round(r * V)), k) for k in sizes for r in recipe["contexts_per_token"] if k < V]
    return found


def search(V: int, m: int, tolerance: float) -> Search:
    """Try every multiset of m supports over V tokens; the solver runs only where the sign test fails."""
    patterns, kinds, refuted = 0, set(), 0
    worst, most = None, 0.0
    for S in _patterns(V, m):
        patterns += 1
        if proxy_exactness(NuclearSVM.from_support(S)):
            continue
        verdict = judge(S, tolerance)
        if not verdict.refuted:
            continue
        refuted += 1
        kinds.add(_renamed_least(S))
        # Of patterns that are equal up to rounding the first is kept, so that the result does not depend on rounding.
        if verdict.excess > most * (1.0 + 1e-6):
            worst, most = S, verdict.excess
    return Search(V, m, patterns, refuted, len(kinds), worst, most)


def _patterns(V: int, m: int) -> Iterator[Bool]:
    supports = [list(s) for k in range(1, V) for s in combinations(range(V), k)]
    for chosen in combinations_with_replacement(supports, m):
        S = np.zeros((V, m), dtype=np.bool_)
        for j, support in enumerate(chosen):
            S[support, j] = True
        yield S


def _renamed_least(S: Bool) -> tuple[int, ...]:
    """A key that is the same for all renamings of tokens and orders of contexts."""
    weights = 1 << np.arange(S.shape[0])
    return min(tuple(sorted((weights @ S[list(p)]).tolist())) for p in permutations(range(S.shape[0])))


def as_sets(S: Bool) -> str:
    """Supports as sets of tokens, counted from 1."""
    return ", ".join("{" + ",".join(str(z + 1) for z in np.flatnonzero(column)) + "}" for column in S.T)


def _smallest(searches: Sequence[Search]) -> Search | None:
    return next((s for s in searches if s.refuted), None)


def _checks(cells: Sequence[Cell], searches: Sequence[Search], known: Sequence[Verdict]) -> list[Check]:
    verdicts = [*known, *(v for cell in cells for v in cell.verdicts)]
    smallest = _smallest(searches)
    tried_before = [s for s in searches if smallest is not None and s.V < smallest.V]
    return [
        Check("contradictions between sign test and solver", float(sum(v.contradicts for v in verdicts)), high=0.0),
        Check("undecided patterns", float(sum(v.undecided for v in verdicts)), high=0.0),
        Check("share of known instances that are exact", float(np.mean([v.exact for v in known])), low=1.0),
        Check("excess of the smallest counter-example", smallest.excess if smallest else 0.0, low=1e-3),
        Check("counter-examples with fewer tokens", float(sum(s.refuted for s in tried_before)), high=0.0),
    ]


def _sentence(cells: Sequence[Cell], searches: Sequence[Search]) -> str:
    verdicts = [v for cell in cells for v in cell.verdicts]
    share = float(np.mean([v.exact for v in verdicts]))
    worst = max(cells, key=lambda c: c.excess)
    always = sum(c.share == 1.0 for c in cells)
    text = (
        f"The proxy is exact in {share:.0%} of {len(verdicts):,} random patterns (in all patterns of {always} of "
        f"{len(cells)} settings). The mean excess of its nuclear norm over a setting is at most {worst.excess:.1%} "
        f"(V={worst.V}, m={worst.m}, k={worst.k}). "
    )
    smallest = _smallest(searches)
    if smallest is None or smallest.worst is None:
        return text + f"There is no counter-example up to V={searches[-1].V} tokens and m={searches[-1].m} contexts."
    return text + (
        f"The smallest counter-example has V={smallest.V} tokens and m={smallest.m} contexts: supports "
        f"{as_sets(smallest.worst)}, with an excess of {smallest.excess:.2%} ({smallest.refuted} of "
        f"{smallest.patterns} patterns of that size are counter-examples, {smallest.kinds} up to renaming of tokens). "
        f"There is none with fewer tokens and up to {max(s.m for s in searches)} contexts, or with as many tokens and "
        "fewer contexts."
    )


def _random_table(cells: Sequence[Cell]) -> Table:
    return {
        "V": [c.V for c in cells],
        "m": [c.m for c in cells],
        "support_size": [c.k for c in cells],
        "draws": [len(c.verdicts) for c in cells],
        "share_exact": [c.share for c in cells],
        "mean_excess": [c.excess for c in cells],
        "largest_excess": [max(v.excess for v in c.verdicts) for c in cells],
        "decided_by_sign": [float(np.mean([v.by_sign is not None for v in c.verdicts])) for c in cells],
    }


def _search_table(searches: Sequence[Search]) -> Table:
    return {
        "V": [s.V for s in searches],
        "m": [s.m for s in searches],
        "patterns": [s.patterns for s in searches],
        "refuted": [s.refuted for s in searches],
        "kinds": [s.kinds for s in searches],
        "worst_supports": ["" if s.worst is None else as_sets(s.worst) for s in searches],
        "worst_excess": [s.excess for s in searches],
    }


def _figures(cells: Sequence[Cell]) -> list[Figure]:
    shares: list[Panel] = []
    excesses: list[Panel] = []
    largest = max(c.excess for c in cells) or 1.0
    for V in dict.fromkeys(c.V for c in cells):
        mine = {(c.k, c.m): c for c in cells if c.V == V}
        rows, columns = sorted({k for k, _ in mine}), sorted({m for _, m in mine})
        x, y = [str(m) for m in columns], [str(k) for k in rows]
        exact = np.array([[mine[k, m].share for m in columns] for k in rows])
        excess = np.array([[mine[k, m].excess for m in columns] for k in rows])
        axes = ("contexts m", "support size k", x, y)
        shares.append(HeatmapPanel(f"V = {V}", exact, *axes, low=0.0, high=1.0, colour_label="share exact"))
        excesses.append(HeatmapPanel(f"V = {V}", excess, *axes, low=0.0, high=largest, colour_label="mean excess"))
    how = f"{len(cells[0].verdicts)} random patterns per cell, every support of k tokens."
    return [
        Figure("proxy-exactness", "How often the proxy is exact", f"Share of exact proxies; {how}", shares),
        Figure("proxy-excess", "How far the proxy is from optimal", f"Excess of its nuclear norm; {how}", excesses),
    ]
