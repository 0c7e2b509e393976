"""Uniqueness of L_mm: what its certificate proves about every solution, and how far apart solutions were found.

NTP-SVM* need not have a unique solution. With a feasible dual G of proven gap ``eps = value - <B, G>``, every
solution L satisfies ``sum_{v off S_g} |G[v,g]| sqrt(a_v n_g) (L[in,g] - L[v,g] - 1) <= eps``, so

``slack of (v, g) <= eps / (|G[v,g]| sqrt(a_v n_g))``

where ``slack`` is the excess of a margin over 1, V' x g, and G the scaled dual. The column space of L lies in that of
the singular vectors of G with singular value 1, whose number bounds the rank of every solution (as eps -> 0). The
bound on a slack says nothing where G is 0; `measure_spread` compares solutions from random starts instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokengeom.errors import ProblemError

if TYPE_CHECKING:
    from tokengeom.numerics import Float
    from tokengeom.problems.backend import Array
    from tokengeom.problems.base import Solution
    from tokengeom.problems.nuclear_svm import NuclearSVM
    from tokengeom.solvers.nuclear_admm import NuclearADMM

UNIT_TOLERANCE = 1e-3
"""A singular value of the dual within this of 1 counts as 1: far above the rounding of a gap of 1e-6."""
UNIQUE_SPREAD = 1e-2
"""Ten times the square root of the gap 1e-6: solutions closer than this cannot be distinguished at that gap."""


@dataclass(frozen=True)
class SolutionBounds:
    """What holds for every solution.

    ``slack_bound``
        V' x g; upper bound on the excess of each off-support margin over 1, NaN on support, ``inf`` where G is 0.
    ``rank_bound``
        Number of unit singular values of the dual: no solution has a larger rank, up to the gap.
    """

    slack_bound: Float
    rank_bound: int

    def tight_share(self, within: float = 1e-2) -> float:
        """Share of off-support entries whose margin is proven to be 1 up to ``within``."""
        counted = ~np.isnan(self.slack_bound)
        return float((self.slack_bound[counted] <= within).mean()) if counted.any() else 1.0


def solution_bounds(problem: NuclearSVM, solution: Solution[Array, Array]) -> SolutionBounds:
    """Bounds from the certificate alone, valid for every solution."""
    if 0 in problem.shape:
        return SolutionBounds(np.zeros(problem.shape), 0)
    backend = problem.backend
    G = backend.to_numpy(solution.dual)
    proof = solution.certificate
    scale = backend.to_numpy(problem.row_scale) * backend.to_numpy(problem.column_scale)
    # A gap is known no better than rounding; a gap of 0 would give 0 / 0.
    gap = max(proof.value - proof.bound, 1e-14 * proof.value)
    with np.errstate(divide="ignore"):
        bound = gap / (np.maximum(-G, 0.0) * scale)
    slack = np.where(problem.reduction.S_red, np.nan, bound)
    unit = backend.to_numpy(backend.fast_singular_values(backend.asarray(G)))
    return SolutionBounds(slack, int((unit > 1.0 - UNIT_TOLERANCE).sum()))


@dataclass(frozen=True)
class Spread:
    """Largest relative Frobenius distance between solutions found from random starts.

    ``logits``, ``token_gram``, ``context_gram``
        Each in [0, 2]; 0 means that all solves agree. ``gap`` is the largest proven gap among the solves.
    """

    logits: float
    token_gram: float
    context_gram: float
    solves: int
    gap: float

    @property
    def looks_unique(self) -> bool:
        """Whether the solutions agree within what their gap allows."""
        return bool(self.logits <= max(UNIQUE_SPREAD, 10.0 * self.gap**0.5))

    @property
    def sentence(self) -> str:
        """The finding as a sentence."""
        if self.looks_unique:
            return f"{self.solves} solves from random starts agree (relative distance {self.logits:.1e})."
        return (
            f"L_mm is not unique: {self.solves} solves, each proven optimal to {self.gap:.0e}, differ by "
            f"{self.logits:.1e} in the logits, {self.token_gram:.1e} in the token Gram and "
            f"{self.context_gram:.1e} in the context Gram."
        )


def measure_spread(problem: NuclearSVM, solver: NuclearADMM, *, solves: int = 3, seed: int = 0) -> Spread:
    """The distances between solves from random starts, in logits and Grams of the scaled merged problem."""
    if solves < 2:
        raise ProblemError(f"A spread needs at least two solves; got solves={solves}. Use 2 or more, or 0 for none.")
    if 0 in problem.shape:
        return Spread(0.0, 0.0, 0.0, solves, 0.0)
    rng = np.random.default_rng(seed)
    proxy = problem.backend.to_numpy(problem.proxy())
    found, gaps = [], []
    for _ in range(solves):
        start = proxy + rng.standard_normal(proxy.shape) * np.abs(proxy).mean() * 4.0
        solution = solver(problem, start=start)
        found.append(problem.backend.to_numpy(problem.scale(solution.x)))
        gaps.append(solution.certificate.relative_gap)
    tokens = [half_gram(X) for X in found]
    contexts = [half_gram(X.T) for X in found]
    return Spread(_largest(found), _largest(tokens), _largest(contexts), solves, max(gaps))


def half_gram(X: Float) -> Float:
    """``(X X^T)^{1/2}``: the Gram matrix of the rows of W when ``X = W H`` is balanced."""
    U, s, _ = np.linalg.svd(X, full_matrices=False)
    return np.asarray((U * s) @ U.T)


def _largest(found: list[Float]) -> float:
    first = found[0]
    return max(float(np.linalg.norm(other - first) / np.linalg.norm(first)) for other in found[1:])
