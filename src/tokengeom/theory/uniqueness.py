"""Uniqueness of L_mm: what all solutions have in common, how far apart they are, and where the path moves among them.

NTP-SVM* need not have a unique solution. With a feasible dual G of proven gap ``eps = value - <B, G>``, every
solution L satisfies ``sum_{v off S_g} |G[v,g]| sqrt(a_v n_g) (L[in,g] - L[v,g] - 1) <= eps``, so

``slack of (v, g) <= eps / (|G[v,g]| sqrt(a_v n_g))``

where ``slack`` is the excess of a margin over 1, V' x g, and G the scaled dual. The bound on a slack says nothing where
G is 0; `measure_spread` compares solutions from random starts instead.

Every solution lies, up to the gap, between the singular vectors of G with singular value 1, so their number bounds its
rank. With ``X = sum_k s_k a_k b_k^T`` a solution (scaled) and P the projection on the left singular vectors of G whose
values are above ``1 - delta``, ``sum_k s_k ||(I - P) a_k||^2 <= 2 eps / (1 - (1 - delta)^2)``, since ``<X, G>`` is at
least ``||X||_* - eps`` and at most ``sum_k s_k ||G^T a_k||``; the same holds for the right singular vectors.

**Where the regularisation path moves among several solutions.** No rule is known that gives its limit; docs/theory.md
says what was measured. Over the set of solutions the nuclear norm and the margins that are 1 in all of them are
constant, and every other margin m adds about ``exp(-R m)`` to the loss of ``R L``, which favours large margins. But
with ``L(lambda) = R L + E`` the nuclear norm depends on the solution L through terms of order ``1/R`` in E, and these
outlast anything that falls like ``exp(-R)``. E depends on the probabilities. `path_direction` measures the direction at
given losses: the difference of two points of the path, in which the constant part of E cancels. Where L_mm is unique
that is close to its direction; where it is not, smaller losses can change it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Annotated

import numpy as np

from tokengeom.core.errors import ProblemError
from tokengeom.core.numerics import Bool, Float, centre_columns
from tokengeom.results.convert import Within

if TYPE_CHECKING:
    from tokengeom.problems.backend import Array
    from tokengeom.problems.base import Solution
    from tokengeom.problems.nuclear_svm import NuclearSVM
    from tokengeom.solvers.nuclear_admm import NuclearADMM
    from tokengeom.theory.at_loss import LossPrediction

UNIT_TOLERANCE = 1e-3
"""A singular value of the dual within this of 1 counts as 1: far above the rounding of a gap of 1e-6."""
UNIQUE_SPREAD = 1e-2
"""Ten times the square root of the gap 1e-6: solutions closer than this cannot be distinguished at that gap."""
SAME_DIRECTION = 0.05
"""Distance from L_mm, and relative excess of the nuclear norm, up to which the path's direction counts as optimal."""
DIRECTION_GAPS = (1e-4, 1e-6)
PATH_GAPS = (1e-1, 1e-2, 1e-3)
PATH_TOLERANCE = 1e-7
"""Proven gap of the points of the path: solutions differ in the loss by less than the loss itself."""


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

    def tight(self, within: float = 1e-2) -> Bool:
        """Off-support entries, V' x g, whose margin is proven to be 1 up to ``within`` in every solution."""
        return np.asarray(self.slack_bound <= within)

    def tight_share(self, within: float = 1e-2) -> float:
        """Share of off-support entries whose margin is proven to be 1 up to ``within``."""
        counted = ~np.isnan(self.slack_bound)
        return float(self.tight(within)[counted].mean()) if counted.any() else 1.0

    @property
    def sentence(self) -> str:
        """What every solution has in common, as a sentence."""
        return (
            f"Every solution has rank at most {self.rank_bound}, with tokens and contexts in the same "
            f"{self.rank_bound}-dimensional spaces up to the gap, and {100 * self.tight_share():.0f}% of the margins "
            "are 1 in all of them."
        )


def solution_bounds(problem: NuclearSVM, solution: Solution[Array, Array]) -> SolutionBounds:
    """Bounds from the certificate alone, valid for every solution."""
    if 0 in problem.shape:
        return SolutionBounds(np.zeros(problem.shape), 0)
    backend = problem.backend
    G = backend.whole(solution.dual)
    proof = solution.certificate
    scale = np.sqrt(problem.reduction.a)[:, None] * np.sqrt(problem.reduction.n)
    # A gap is known no better than rounding; a gap of 0 would give 0 / 0.
    gap = max(proof.value - proof.bound, 1e-14 * proof.value)
    with np.errstate(divide="ignore"):
        bound = gap / (np.maximum(-G, 0.0) * scale)
    slack = np.where(problem.reduction.S_red, np.nan, bound)
    unit = backend.to_numpy(backend.fast_singular_values(solution.dual))
    return SolutionBounds(slack, int((unit > 1.0 - UNIT_TOLERANCE).sum()))


@dataclass(frozen=True)
class Spread:
    """Largest relative Frobenius distance between any two of the solutions found: L_mm, and those from random starts.

    ``logits``, ``token_gram``, ``context_gram``
        Each in [0, 2]; 0 means that all solutions agree.
    ``solves``, ``gap``
        Number of solves from random starts, and the largest proven gap of all solutions compared.
    """

    logits: Annotated[float, Within(0.0)]
    token_gram: Annotated[float, Within(0.0)]
    context_gram: Annotated[float, Within(0.0)]
    solves: Annotated[int, Within(1)]
    gap: Annotated[float, Within(0.0)]

    @property
    def looks_unique(self) -> bool:
        """Whether the solutions agree within what their gap allows."""
        return bool(self.logits <= max(UNIQUE_SPREAD, 10.0 * self.gap**0.5))

    @property
    def sentence(self) -> str:
        """The finding as a sentence."""
        if self.looks_unique:
            return f"L_mm and {self.solves} solves from random starts agree (relative distance {self.logits:.1e})."
        return (
            f"L_mm is not unique: it and {self.solves} solves from random starts, each proven optimal to "
            f"{self.gap:.0e}, differ by up to {self.logits:.1e} in the logits, {self.token_gram:.1e} in the token Gram "
            f"and {self.context_gram:.1e} in the context Gram."
        )


def measure_spread(
    problem: NuclearSVM, solver: NuclearADMM, solution: Solution[Array, Array], *, solves: int = 2, seed: int = 0
) -> Spread:
    """The distances between ``solution`` and solves from random starts, in logits and Grams of the scaled problem."""
    if solves < 1:
        raise ProblemError(f"A spread needs at least one solve; got solves={solves}. Use 1 or more, or 0 for none.")
    if 0 in problem.shape:
        return Spread(0.0, 0.0, 0.0, solves, 0.0)
    rng = np.random.default_rng(seed)
    proxy = problem.backend.whole(problem.proxy())
    compared = [solution]
    for _ in range(solves):
        start = proxy + rng.standard_normal(proxy.shape) * np.abs(proxy).mean() * 4.0
        compared.append(solver(problem, start=start[:, problem.columns]))
    scale = np.sqrt(problem.reduction.a)[:, None] * np.sqrt(problem.reduction.n)
    logits = [problem.backend.whole(solved.x) * scale for solved in compared]
    tokens = [half_gram(X) for X in logits]
    contexts = [half_gram(X.T) for X in logits]
    gap = max(solved.certificate.relative_gap for solved in compared)
    return Spread(_largest(logits), _largest(tokens), _largest(contexts), solves, gap)


@dataclass(frozen=True, eq=False)
class PathDirection:
    """The direction in which the regularisation path moves at small losses, compared with L_mm.

    ``direction``
        V x m, columns centred, equal on each support, with smallest margin 1: a feasible point of NTP-SVM*.
    ``distance``
        Frobenius distance from L_mm, both centred and divided by their norms; in [0, 2]. Where L_mm is unique it is
        about 0.01, and falls as the losses do.
    ``excess``
        Relative excess of its nuclear norm over the proven lower bound: near 0 it is itself a solution.
    ``rank``
        Number of its singular values above 1% of the largest.
    ``loss_gaps``
        Loss gaps, in nats, of the two points of the path between which it is measured.
    """

    direction: Float = field(repr=False)
    distance: float
    excess: float
    rank: int
    loss_gaps: tuple[float, float]

    @property
    def is_returned(self) -> bool:
        """Whether the path moves towards L_mm as it was returned."""
        return self.distance <= SAME_DIRECTION

    @property
    def sentence(self) -> str:
        """The finding as a sentence."""
        between = f"between loss gaps of {self.loss_gaps[0]:.0e} and {self.loss_gaps[1]:.0e} nats"
        if self.is_returned:
            return (
                f"The regularisation path moves towards L_mm: {between} its direction is {self.distance:.1e} from it."
            )
        if self.excess <= SAME_DIRECTION:
            return (
                f"The regularisation path moves towards another solution: {between} it moves in a direction of rank "
                f"{self.rank} that is {self.distance:.1e} from L_mm and optimal within {self.excess:.1e}. At smaller "
                "losses the direction may differ."
            )
        return (
            f"The regularisation path is not near its limit: {between} its direction is {self.distance:.1e} from L_mm, "
            f"with a nuclear norm {self.excess:.1e} above the smallest."
        )


def path_gaps(largest: float) -> list[float]:
    """Loss gaps at which the path is solved for its direction, falling: each starts the next; the last two are used."""
    return [gap for gap in PATH_GAPS if gap < 0.5 * largest] + list(DIRECTION_GAPS)


def path_direction(points: Sequence[LossPrediction], L_mm: Float, S: Bool, lower_bound: float) -> PathDirection:
    """The direction from the last but one of the points of the path to the last, compared with L_mm."""
    before, after = points[-2:]
    moved = after.L - before.L
    level = np.where(S, moved, 0.0).sum(axis=0) / S.sum(axis=0)
    moved = np.where(S, level, moved)
    growth = float(np.min(np.where(S, np.inf, level - moved)))
    if not np.isfinite(growth) or growth <= 0.0:
        raise ProblemError(
            "The path has no direction of growth at these losses. Likely every support is the whole vocabulary, or the "
            "points of the path were not solved far enough."
        )
    direction = centre_columns(moved / growth)
    returned = centre_columns(L_mm)
    distance = np.linalg.norm(direction / np.linalg.norm(direction) - returned / np.linalg.norm(returned))
    s = np.linalg.svd(direction, compute_uv=False)
    excess = float(s.sum()) / lower_bound - 1.0
    rank = int((s > 1e-2 * s[0]).sum())
    return PathDirection(direction, float(distance), excess, rank, (before.loss_gap, after.loss_gap))


def half_gram(X: Float) -> Float:
    """``(X X^T)^{1/2}``: the Gram matrix of the rows of W when ``X = W H`` is balanced."""
    U, s, _ = np.linalg.svd(X, full_matrices=False)
    return np.asarray((U * s) @ U.T)


def _largest(matrices: list[Float]) -> float:
    """Largest distance of any two, relative to the first."""
    size = float(np.linalg.norm(matrices[0]))
    return max(float(np.linalg.norm(first - second)) / size for first, second in combinations(matrices, 2))
