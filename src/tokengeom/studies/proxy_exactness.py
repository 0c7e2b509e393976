"""How often the proxy ``S~`` is itself the answer, and the smallest pattern where it is not.

``S~ = U Sigma V^T`` solves NTP-SVM* if ``U V^T <= 0`` off support; where another dual exists that test cannot say no,
and the certified solver decides: the proxy is exact if its nuclear norm is within the tolerance of a proven bound. A
counter-example is a pattern whose proxy is beaten by a feasible answer, so that no numerical doubt is left. All
patterns of few tokens and contexts are tried in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement, permutations
from typing import ClassVar

import numpy as np

from tokengeom.figures.base import Figure, HeatmapPanel, Panel
from tokengeom.numerics import Bool
from tokengeom.problems.instances import catalogue
from tokengeom.problems.nuclear_svm import NuclearSVM
from tokengeom.progress import AbstractProgress
from tokengeom.solvers.nuclear_admm import NuclearADMM
from tokengeom.studies.base import AbstractStudy, Check, Findings, Recipe
from tokengeom.studies.feature_runs import Tables, random_supports
from tokengeom.theory.closed_forms import proxy_exactness

ROUNDING = 1e-12
"""A bound this close to the proxy's nuclear norm, relatively, proves it optimal beyond the solver's tolerance."""


@dataclass(frozen=True)
class Verdict:
    """The proxy of one pattern.

    ``by_sign``
        What the sign test says; None where it cannot decide.
    ``excess``
        ``||S~||_* / ||L||_* - 1`` with the solver's feasible L: positive where the proxy is beaten.
    ``doubt``
        ``||S~||_* / bound - 1 >= excess``: no answer beats the proxy by more.
    """

    by_sign: bool | None
    excess: float
    doubt: float
    tolerance: float

    @property
    def exact(self) -> bool:
        """Whether the proxy is optimal: by its signs where they decide, else within the solver's tolerance."""
        return self.doubt <= 2.0 * self.tolerance if self.by_sign is None else self.by_sign

    @property
    def refuted(self) -> bool:
        """Whether a feasible answer beats the proxy by more than rounding and tolerance."""
        return self.excess > 2.0 * self.tolerance

    @property
    def contradicts(self) -> bool:
        """Whether sign test and solver disagree, which neither theory nor code may do."""
        return (self.by_sign is True and self.refuted) or (self.by_sign is False and self.doubt <= ROUNDING)

    @property
    def undecided(self) -> bool:
        """Whether neither signs nor solver could say."""
        return self.by_sign is None and not (self.exact or self.refuted)


def judge(S: Bool, tolerance: float) -> Verdict:
    """Test the proxy of a pattern (V x m) by signs and by the solver."""
    problem = NuclearSVM.from_support(S)
    test = proxy_exactness(problem)
    proof = NuclearADMM(tolerance=tolerance)(problem).certificate
    norm = test.nuclear_norm
    return Verdict(test.exact, norm / proof.value - 1.0, norm / proof.bound - 1.0, tolerance)


@dataclass(frozen=True)
class Cell:
    """Verdicts on random patterns of one V, m and k."""

    V: int
    m: int
    k: int
    verdicts: Sequence[Verdict]

    @property
    def share(self) -> float:
        """Share of patterns whose proxy is exact."""
        return float(np.mean([v.exact for v in self.verdicts]))

    @property
    def excess(self) -> float:
        """Mean excess of the proxy's nuclear norm."""
        return float(np.mean([max(v.excess, 0.0) for v in self.verdicts]))


@dataclass(frozen=True, eq=False)
class Search:
    """All patterns of V tokens and m contexts: how many, how many refuted, and the one with the largest excess.

    ``kinds``
        Refuted patterns that no renaming of tokens turns into one another.
    """

    V: int
    m: int
    patterns: int
    refuted: int
    kinds: int
    worst: Bool | None
    excess: float


class ProxyExactness(AbstractStudy):
    """Exactness of the proxy over random patterns, and its smallest failure."""

    name: ClassVar[str] = "proxy-exactness"
    question: ClassVar[str] = "How often is the centred support matrix itself the max-margin direction?"

    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Judge random patterns, known instances, and all small patterns."""
        rng = np.random.default_rng(recipe["seed"])
        grid = _grid(recipe)
        with progress.stage("random patterns", float(len(grid))) as stage:
            cells = []
            for V, m, k in grid:
                drawn = [judge(random_supports(rng, V, m, k), recipe["tolerance"]) for _ in range(recipe["draws"])]
                cells.append(Cell(V, m, k, drawn))
                stage.advance(1.0, f"V={V}, m={m}, k={k}")
        sizes = [(V, m) for V in range(2, recipe["search_V"] + 1) for m in range(1, recipe["search_contexts"] + 1)]
        with progress.stage("all small patterns", float(len(sizes))) as stage:
            searches = []
            for V, m in sizes:
                searches.append(search(V, m, recipe["tolerance"]))
                stage.advance(1.0, f"V={V}, m={m}")
        known = [judge(instance.S, recipe["tolerance"]) for instance in catalogue()]
        tables: Tables = {"random": _random_table(cells), "small": _search_table(searches)}
        return Findings(_sentence(cells, searches), _checks(cells, searches, known), _figures(cells), tables)


def _grid(recipe: Recipe) -> list[tuple[int, int, int]]:
    found = []
    for V in recipe["V"]:
        sizes = sorted({max(1, round(share * V)) for share in recipe["support_share"]})
        found += [(V, max(1, round(r * V)), k) for k in sizes for r in recipe["contexts_per_token"] if k < V]
    return found


def search(V: int, m: int, tolerance: float) -> Search:
    """Try every multiset of m supports of V tokens; the sign test sorts out the exact ones."""
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
        # Equal up to rounding is equal: the first of them is kept, so that the answer does not depend on rounding.
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
    """A name that all renamings of tokens and orders of contexts share."""
    weights = 1 << np.arange(S.shape[0])
    return min(tuple(sorted((weights @ S[list(p)]).tolist())) for p in permutations(range(S.shape[0])))


def as_sets(S: Bool) -> str:
    """Supports as sets of tokens counted from 1."""
    return ", ".join("{" + ",".join(str(z + 1) for z in np.flatnonzero(column)) + "}" for column in S.T)


def _smallest(searches: Sequence[Search]) -> Search | None:
    return next((s for s in searches if s.refuted), None)


def _checks(cells: Sequence[Cell], searches: Sequence[Search], known: Sequence[Verdict]) -> list[Check]:
    verdicts = [*known, *(v for cell in cells for v in cell.verdicts)]
    smallest = _smallest(searches)
    tried_before = [s for s in searches if smallest is not None and s.V < smallest.V]
    return [
        Check("contradictions of sign test and solver", float(sum(v.contradicts for v in verdicts)), high=0.0),
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
        f"The proxy is exact in {share:.0%} of {len(verdicts):,} random patterns (always in {always} of {len(cells)} "
        f"settings); where it is not it is close: its nuclear norm is at most {worst.excess:.1%} too large on average "
        f"(at V={worst.V}, m={worst.m}, k={worst.k}). "
    )
    smallest = _smallest(searches)
    if smallest is None or smallest.worst is None:
        return text + f"No counter-example exists up to V={searches[-1].V} tokens and m={searches[-1].m} contexts."
    return text + (
        f"The smallest counter-example has V={smallest.V} tokens and m={smallest.m} contexts: supports "
        f"{as_sets(smallest.worst)}, beaten by {smallest.excess:.2%} ({smallest.refuted} of {smallest.patterns} "
        f"patterns of that size fail, {smallest.kinds} up to renaming tokens); fewer tokens, or fewer contexts, up to "
        f"{max(s.m for s in searches)} contexts tried, have none."
    )


def _random_table(cells: Sequence[Cell]) -> dict[str, Sequence[float]]:
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


def _search_table(searches: Sequence[Search]) -> dict[str, Sequence[float | str]]:
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
    for V in dict.fromkeys(c.V for c in cells):
        mine = {(c.k, c.m): c for c in cells if c.V == V}
        rows, columns = sorted({k for k, _ in mine}), sorted({m for _, m in mine})
        x, y = [str(m) for m in columns], [str(k) for k in rows]
        exact = np.array([[mine[k, m].share for m in columns] for k in rows])
        excess = np.array([[mine[k, m].excess for m in columns] for k in rows])
        axes = ("contexts m", "support size k", x, y)
        shares.append(HeatmapPanel(f"V = {V}", exact, *axes, low=0.0, high=1.0, colour_label="share exact"))
        excesses.append(HeatmapPanel(f"V = {V}", excess, *axes, low=0.0, colour_label="mean excess"))
    how = f"{len(cells[0].verdicts)} random patterns a cell, every support of k tokens."
    return [
        Figure("proxy-exactness", "How often the proxy is exact", f"Share of exact proxies; {how}", shares),
        Figure("proxy-excess", "How far the proxy is from optimal", f"Excess of its nuclear norm; {how}", excesses),
    ]
