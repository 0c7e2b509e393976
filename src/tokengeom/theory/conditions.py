"""The two conditions of the linear model, compatibility and separability: yes or no, with a proof and a sentence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from tokengeom.core.numerics import Float
from tokengeom.problems.base import Certificate
from tokengeom.results.convert import Skipped, Within, to_plain

if TYPE_CHECKING:
    from tokengeom.problems.linear_data import LinearData

Index = Annotated[int, Within(0)]
VISIBLE = 1e-7
"""Entries of a proof below this share of its largest are rounding."""


@dataclass(frozen=True, eq=False)
class Condition:
    """Whether a condition holds, and why. Its truth value is ``holds``.

    ``holds``, ``sentence``
        The answer, and the answer as a sentence.
    ``certificate``
        How good the proof is.
    ``proof``
        Where it holds, a decoder (V x d) that satisfies it; where it does not, the V x m matrix that refutes it.
    ``contexts``, ``pairs``
        Where it does not hold, the contexts and the (context, token) pairs that the proof uses; else empty.
    """

    holds: bool
    sentence: str
    certificate: Certificate
    proof: Annotated[Float, Skipped] = field(default_factory=lambda: np.zeros((0, 0)), repr=False)
    contexts: tuple[Index, ...] = ()
    pairs: tuple[tuple[Index, Index], ...] = ()

    def __bool__(self) -> bool:
        return self.holds

    def __str__(self) -> str:
        return self.sentence

    def to_dict(self) -> dict[str, Any]:
        """Everything but the proof as plain data."""
        plain: dict[str, Any] = to_plain(self)
        return plain


def describe_compatibility(data: LinearData, holds: bool, certificate: Certificate, proof: Float | None) -> Condition:
    """The condition, in a sentence and with the contexts in conflict, from its proof."""
    residual = certificate.primal_residual
    if holds and proof is not None:
        sentence = (
            f"The data are compatible: one W gives every context its log-probability ratios (residual {residual:.1g})."
        )
        return Condition(True, sentence, certificate, proof)
    Y = proof if proof is not None else np.zeros(data.S.shape)
    size = np.linalg.norm(Y, axis=0)
    contexts = [int(j) for j in np.argsort(-size, kind="stable") if size[j] > VISIBLE * size.max()]
    sentence = (
        f"The data are not compatible: the log-probability ratios of {data.list_contexts(contexts)} contradict "
        "each other, because their embeddings are linearly dependent "
        f"(proof residual {residual:.1g})."
    )
    return Condition(False, sentence, certificate, Y, tuple(contexts))


def describe_separability(data: LinearData, holds: bool, certificate: Certificate, proof: Float | None) -> Condition:
    """The condition, in a sentence and with the pairs in conflict, from its proof."""
    if holds and proof is not None:
        size = float(np.linalg.norm(proof))
        sentence = "The data are separable: no token is off support, so there are no margin constraints."
        if size > 0:
            sentence = (
                f"The data are separable with margin {1.0 / size:.6g} (relative gap {certificate.relative_gap:.1g})."
            )
        return Condition(True, sentence, certificate, proof)
    A = proof if proof is not None else np.zeros(data.S.shape)
    weights = np.where(data.S, 0.0, -A)
    j, v = np.nonzero(VISIBLE * float(weights.max()) < weights.T)
    order = np.argsort(-weights[v, j], kind="stable")
    pairs = tuple((int(j[i]), int(v[i])) for i in order)
    contexts = tuple(dict.fromkeys(pair[0] for pair in pairs))
    sentence = (
        f"The data are not separable: no W lowers the logits of {data.list_pairs(pairs)} all at once, "
        f"because a convex combination of these constraints vanishes (proof residual "
        f"{certificate.primal_residual:.1g})."
    )
    return Condition(False, sentence, certificate, A, contexts, pairs)
