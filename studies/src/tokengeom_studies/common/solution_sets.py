"""The set of all solutions of NTP-SVM*, single solutions that a rule selects, and supports with several solutions.

A dual G of NTP-SVM* fixes the singular vectors of every solution: with ``U, V`` those of a solution of largest rank r,

    L = U M V^T,   M symmetric and positive semidefinite, r x r,   trace M = ||L||_*

so the solutions are the M with this trace for which L is equal on each support, with margins of at least 1. An average
of solutions from many starts has the largest rank and the largest number of margins above 1. It lies inside the set,
and the equations that hold for it hold for all of them. What is left are a few free directions,

    M(t) = M_0 + sum_k t_k N_k,   slack(t) = slack_0 + B t >= 0,

in which a convex rule is minimised with a barrier, ``-log det M(t) - sum log slack(t)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np

from tokengeom.extending import Bool, Float, NuclearADMM, NuclearSVM, centre_columns

TOLERANCE = 1e-9
"""Proven relative gap of each solution."""
STARTS = (0.1, 1.0, 4.0)
"""Standard deviations of the entries of random starts."""
ZERO = 1e-3
"""A singular value (as a share of the largest) or a slack below this, in the average, is 0 in every solution."""
SHARPNESS = 200.0
"""R of the smooth minimum ``-log(sum exp(-R slack)) / R``."""
WEIGHTS = tuple(10.0**k for k in range(9))
"""Weights of a rule against the barrier, one after the other."""
MOST_TOKENS = 8
"""Up to as many tokens all permutations are tried for automorphisms."""

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

Rule = Callable[[Float], tuple[float, Float, Float]]
"""t -> value, gradient and Hessian."""


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
    n, chosen = len(elements), set()
    for shift in elements:
        moved = [place[tuple((a + b) % d for a, b, d in zip(token, shift, dims, strict=True))] for token in elements]
        image = [copy * n + k for copy in range(copies) for k in moved] + list(range(copies * n, copies * n + fixed))
        chosen |= {tuple(sorted(image[z] for z in orbit)) for orbit in orbits}
    S = np.zeros((copies * n + fixed, len(chosen)), np.bool_)
    for j, tokens in enumerate(sorted(chosen)):
        S[list(tokens), j] = True
    return S


@dataclass(frozen=True, eq=False)
class SolutionSet:
    """The solutions of NTP-SVM* for supports S without equal rows, equal columns or full columns.

    ``average``
        A solution inside the set, V x m.
    ``U``, ``Vt``
        Its singular vectors, V x r and r x m.
    ``M``, ``N``
        ``M_0``, r x r, and the free directions, k x r x r.
    ``slack``, ``B``
        Slacks of the margins that are not 1 in all solutions, and their change with t.
    ``spread``
        Largest relative Frobenius distance between two solutions that were found.
    ``gap``
        Largest proven relative gap of these solutions.
    """

    S: Bool
    returned: Float
    average: Float
    U: Float
    Vt: Float
    M: Float
    N: Float
    slack: Float
    B: Float
    lower_bound: float
    spread: float
    gap: float

    @staticmethod
    def of(S: Bool, *, starts: int = 6, seed: int = 0) -> SolutionSet:
        """Solve from ``starts`` random starts of each size, and find what all solutions have in common."""
        problem, solver = NuclearSVM.from_support(S, merge=False), NuclearADMM(tolerance=TOLERANCE, max_iterations=5000)
        rng = np.random.default_rng(seed)
        solutions = [solver(problem)]
        for size in STARTS:
            solutions += [solver(problem, start=size * rng.standard_normal(problem.shape)) for _ in range(starts)]
        logits = np.array([centre_columns(np.asarray(each.x)) for each in solutions])
        average = logits.mean(axis=0)
        U, s, Vt = np.linalg.svd(average, full_matrices=False)
        r = int((s > ZERO * s[0]).sum())
        U, Vt, M = U[:, :r], Vt[:r], np.diag(s[:r])
        equations, margins = _maps(S)
        slack = margins @ average.ravel() - 1.0
        free = slack > ZERO
        basis = _symmetric_basis(r)
        L = np.array([(U @ each @ Vt).ravel() for each in basis])
        trace = np.trace(basis, axis1=1, axis2=2)
        constraints = np.vstack([equations @ L.T, margins[~free] @ L.T, trace[None]])
        N = np.tensordot(_null_space(constraints), basis, axes=(0, 0))
        moved = np.array([(U @ each @ Vt).ravel() for each in N]).reshape(len(N), S.size)
        length = float(np.linalg.norm(average))
        return SolutionSet(
            S=S,
            returned=logits[0],
            average=average,
            U=U,
            Vt=Vt,
            M=M,
            N=N,
            slack=slack[free],
            B=margins[free] @ moved.T,
            lower_bound=max(each.certificate.bound for each in solutions),
            spread=max(float(np.linalg.norm(a - b)) for a in logits for b in logits) / length,
            gap=max(each.certificate.relative_gap for each in solutions),
        )

    @property
    def dimension(self) -> int:
        """Number k of free directions; 0 where the solution is unique."""
        return len(self.N)

    def logits(self, t: Float) -> Float:
        """The solution at t, V x m."""
        return np.asarray(self.U @ (self.M + np.tensordot(t, self.N, axes=1)) @ self.Vt)

    def excess(self, L: Float) -> float:
        """Relative excess of the nuclear norm of L over the smallest, after L is scaled to a smallest margin of 1."""
        equations, margins = _maps(self.S)
        smallest = float((margins @ L.ravel()).min())
        unequal = float(np.abs(equations @ L.ravel()).max(initial=0.0))
        if smallest <= 0.0:
            return float("inf")
        return float(np.linalg.svd(L, compute_uv=False).sum()) / smallest / self.lower_bound - 1.0 + unequal

    def smallest_frobenius(self) -> Float:
        """The solution of smallest Frobenius norm; L_in is orthogonal to all solutions, so it is also nearest to it."""

        def rule(t: Float) -> tuple[float, Float, Float]:
            M = self.M + np.tensordot(t, self.N, axes=1)
            products = np.einsum("aij,bij->ab", self.N, self.N)
            return float(np.vdot(M, M)), 2.0 * np.einsum("aij,ij->a", self.N, M), 2.0 * products

        return self.logits(self._minimise(rule))

    def analytic_centre(self) -> Float:
        """The solution that minimises the barrier alone: it has the largest rank."""
        return self.logits(self._newton(np.zeros(self.dimension), None, 0.0))

    def largest_margins(self) -> Float | None:
        """The solution whose smallest margin, of those that are not 1 in all, is largest; None without such margins."""
        if not self.slack.size:
            return None

        def rule(t: Float) -> tuple[float, Float, Float]:
            slack = self.slack + self.B @ t
            low = slack.min()
            weight = np.exp(-SHARPNESS * (slack - low))
            total = weight.sum()
            p = weight / total
            mean = self.B.T @ p
            spread = (self.B.T * p) @ self.B - np.outer(mean, mean)
            return float(np.log(total) / SHARPNESS - low), -mean, SHARPNESS * spread

        return self.logits(self._minimise(rule))

    def symmetric(self) -> Float:
        """The solution that the solver returns, averaged over all permutations of tokens and contexts that keep S."""
        images = [self.returned[np.ix_(rows, columns)] for rows, columns in automorphisms(self.S)]
        return np.asarray(np.mean(images, axis=0))

    def _minimise(self, rule: Rule) -> Float:
        t = np.zeros(self.dimension)
        for weight in WEIGHTS:
            t = self._newton(t, rule, weight)
        return t

    def _barrier(self, t: Float) -> tuple[float, Float, Float] | None:
        M, slack = self.M + np.tensordot(t, self.N, axes=1), self.slack + self.B @ t
        values = np.linalg.eigvalsh(M)
        if values[0] <= 0.0 or slack.min(initial=1.0) <= 0.0:
            return None
        inverse = np.linalg.inv(M)
        moved = inverse @ self.N
        gradient = -np.trace(moved, axis1=1, axis2=2) - self.B.T @ (1.0 / slack)
        hessian = np.einsum("aij,bji->ab", moved, moved) + (self.B.T / slack**2) @ self.B
        return float(-np.log(values).sum() - np.log(slack).sum()), gradient, hessian

    def _newton(self, t: Float, rule: Rule | None, weight: float) -> Float:
        """Newton's method with backtracking on ``weight * rule + barrier``."""

        def at(t: Float) -> tuple[float, Float, Float] | None:
            barrier = self._barrier(t)
            if barrier is None or rule is None:
                return barrier
            value, gradient, hessian = rule(t)
            return weight * value + barrier[0], weight * gradient + barrier[1], weight * hessian + barrier[2]

        here = at(t)
        assert here is not None, "the average solution lies inside the set"
        for _ in range(60):
            value, gradient, hessian = here
            step = np.linalg.lstsq(hessian, -gradient, rcond=1e-12)[0]
            decrease = float(-gradient @ step)
            if decrease <= 1e-10:
                break
            size = 1.0
            while size > 1e-12:
                there = at(t + size * step)
                if there is not None and there[0] <= value - 0.25 * size * decrease:
                    break
                size *= 0.5
            else:
                break
            t, here = t + size * step, there
        return t


def direction(before: Float, after: Float, S: Bool) -> Float:
    """Direction in which logits moved, without what changed inside supports: V x m, centred columns, norm 1."""
    moved = after - before
    level = np.where(S, moved, 0.0).sum(axis=0) / S.sum(axis=0)
    return _unit(np.where(S, level, moved))


def distance(first: Float, other: Float) -> float:
    """Frobenius distance of centred logits of norm 1, in [0, 2]."""
    return float(np.linalg.norm(_unit(first) - _unit(other)))


def _unit(L: Float) -> Float:
    centred = centre_columns(L)
    return np.asarray(centred / np.linalg.norm(centred))


def _maps(S: Bool) -> tuple[Float, Float]:
    """Linear maps of the entries of L: differences that are 0 on each support, and margins over the other tokens."""
    V, m = S.shape
    place = np.arange(V * m).reshape(V, m)
    equal, margin = [], []
    for j in range(m):
        inside, outside = np.flatnonzero(S[:, j]), np.flatnonzero(~S[:, j])
        equal += [(place[inside[0], j], place[z, j]) for z in inside[1:]]
        margin += [(place[inside[0], j], place[v, j]) for v in outside]
    return _differences(equal, V * m), _differences(margin, V * m)


def _differences(pairs: list[tuple[int, int]], size: int) -> Float:
    rows = np.zeros((len(pairs), size))
    for k, (plus, minus) in enumerate(pairs):
        rows[k, plus], rows[k, minus] = 1.0, -1.0
    return rows


def _symmetric_basis(r: int) -> Float:
    """An orthonormal basis of symmetric r x r matrices."""
    basis = []
    for i in range(r):
        for j in range(i, r):
            matrix = np.zeros((r, r))
            matrix[i, j] = matrix[j, i] = 1.0 if i == j else 0.5**0.5
            basis.append(matrix)
    return np.array(basis)


def _null_space(A: Float) -> Float:
    """An orthonormal basis of the null space, as columns."""
    _, s, Vt = np.linalg.svd(A)
    rank = int((s > 1e-5 * max(s.max(initial=0.0), 1e-300)).sum())
    return np.asarray(Vt[rank:].T)


def automorphisms(S: Bool) -> Iterator[tuple[list[int], list[int]]]:
    """Permutations of tokens and of contexts, as indices, that leave S as it is; the identity alone for many tokens."""
    V, m = S.shape
    number = {S[:, j].tobytes(): j for j in range(m)}
    orders = permutations(range(V)) if V <= MOST_TOKENS else iter([tuple(range(V))])
    sizes = S.sum(axis=1)
    for rows in orders:
        if (sizes[list(rows)] != sizes).any():
            continue
        moved = S[list(rows)]
        # Column j of the permuted supports is column columns[j] of S; then S[rows][:, inverse] == S.
        columns = [number.get(np.ascontiguousarray(moved[:, j]).tobytes()) for j in range(m)]
        if None not in columns:
            yield list(rows), [int(k) for k in np.argsort(np.array(columns, int))]
