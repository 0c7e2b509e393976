"""Random data of the linear model, tolerances, and the constraints of NTP-SVM for cvxpy."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tokengeom.core.numerics import Bool, Float
from tokengeom.problems.linear_data import LinearData

# Tolerances, each with its reason.
EXACT = 1e-10  # two direct methods on well-scaled data of a few hundred numbers
INTERIOR = 2e-6  # what cvxpy's interior-point solvers promise, with a margin for the scale of the data
CERTIFIED = 1e-8  # the relative gap that the project promises


@st.composite
def linear_data(draw: st.DrawFn, most_tokens: int = 6, most_contexts: int = 7, most_dimensions: int = 7) -> LinearData:
    """Data of any kind: separable or not, compatible or not, one-hot and full supports included."""
    V = draw(st.integers(2, most_tokens))
    m = draw(st.integers(1, most_contexts))
    d = draw(st.integers(1, most_dimensions))
    return random_data(np.random.default_rng(draw(st.integers(0, 2**32 - 1))), V, m, d)


def random_data(rng: np.random.Generator, V: int, m: int, d: int) -> LinearData:
    """Random supports of random sizes, probabilities, weights and Gaussian embeddings."""
    sizes = rng.integers(1, V + 1, size=m)
    S = np.zeros((V, m), dtype=bool)
    P = np.zeros((V, m))
    for j, size in enumerate(sizes):
        tokens = rng.choice(V, size=size, replace=False)
        S[tokens, j] = True
        P[tokens, j] = rng.dirichlet(np.ones(size)) * 0.9 + 0.1 / size
    pi = rng.uniform(0.5, 1.5, size=m)
    return LinearData(S, P / P.sum(axis=0), pi / pi.sum(), rng.standard_normal((d, m)))


def margin_constraints(W: Any, S: Bool, H: Float) -> list[Any]:
    """The constraints of NTP-SVM on a cvxpy variable, written pair by pair as in the paper."""
    constraints = []
    for j in range(S.shape[1]):
        tokens, others = np.flatnonzero(S[:, j]), np.flatnonzero(~S[:, j])
        logits = W @ H[:, j]
        constraints += [logits[z] == logits[tokens[0]] for z in tokens[1:]]
        constraints += [logits[tokens[0]] - logits[v] >= 1 for v in others]
    return constraints
