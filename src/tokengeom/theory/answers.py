"""Yes or no with its proof, in a sentence that names contexts and tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tokengeom.numerics import Float
    from tokengeom.problems.base import Certificate
    from tokengeom.problems.linear_data import LinearData
    from tokengeom.solvers.compatibility import CompatibilityAnswer
    from tokengeom.solvers.least_distance import MarginAnswer

# Entries of a proof below this share of its largest are rounding.
VISIBLE = 1e-7


@dataclass(frozen=True, eq=False)
class Answer:
    """A truthy or falsy answer.

    ``contexts``, ``pairs``
        For a no: the contexts, and the (context, token) pairs, that the proof uses. Empty for a yes.
    ``proof``
        The witness decoder (V x d) for a yes; for a no the V x m matrix that refutes.
    """

    holds: bool
    sentence: str
    certificate: Certificate
    proof: Float = field(repr=False)
    contexts: tuple[int, ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()

    def __bool__(self) -> bool:
        return self.holds

    def __str__(self) -> str:
        return self.sentence


def compatibility_answer(data: LinearData, found: CompatibilityAnswer) -> Answer:
    """Put a solved or refuted compatibility system in words."""
    solution = found.solution
    if found.compatible:
        residual = solution.certificate.primal_residual
        sentence = (
            f"The data are compatible: one W gives every context its log-probability ratios (residual {residual:.1g})."
        )
        return Answer(True, sentence, solution.certificate, solution.x)
    Y = solution.dual if solution.dual is not None else np.zeros(data.S.shape)
    size = np.linalg.norm(Y, axis=0)
    contexts = [int(j) for j in np.argsort(-size, kind="stable") if size[j] > VISIBLE * size.max()]
    sentence = (
        f"The data are not compatible: the log-probability ratios of {data.contexts(contexts)} contradict "
        "each other, because their embeddings are linearly dependent "
        f"(proof residual {solution.certificate.primal_residual:.1g})."
    )
    return Answer(False, sentence, solution.certificate, Y, tuple(contexts))


def separability_answer(data: LinearData, found: MarginAnswer) -> Answer:
    """Put a solved or refuted NTP-SVM in words."""
    solution = found.solution
    if found.separable:
        size = float(np.linalg.norm(solution.x))
        sentence = "The data are separable: no token is off support, so no margin is asked."
        if size > 0:
            sentence = (
                f"The data are separable with margin {1.0 / size:.6g} (relative gap "
                f"{solution.certificate.relative_gap:.1g})."
            )
        return Answer(True, sentence, solution.certificate, solution.x)
    A = solution.dual if solution.dual is not None else np.zeros(data.S.shape)
    weights = np.where(data.S, 0.0, -A)
    j, v = np.nonzero(VISIBLE * float(weights.max()) < weights.T)
    order = np.argsort(-weights[v, j], kind="stable")
    pairs = tuple((int(j[i]), int(v[i])) for i in order)
    contexts = tuple(dict.fromkeys(pair[0] for pair in pairs))
    sentence = (
        f"The data are not separable: no W can push down {data.pairs(pairs)} all at once, "
        f"because a convex combination of these demands vanishes (proof residual "
        f"{solution.certificate.primal_residual:.1g})."
    )
    return Answer(False, sentence, solution.certificate, A, contexts, pairs)
