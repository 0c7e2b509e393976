"""Where training converges when embeddings are fixed and only the decoder is trained.

::

    W_k = W* + R_k W^mm + o(R_k),   R_k -> infinity,   CE(W_k) -> loss_floor

for gradient descent with a small step and for the norm-constrained path [thrampoulidis2024, Thm 2, 3], where
``W*`` (V x d, in ``F^``) minimises the loss reduced to the effective supports and ``W^mm`` (V x d, in its
complement) is NTP-SVM on them. When the data are compatible and separable the effective supports are the
supports and the floor is the entropy; otherwise docs/theory.md 2.2 holds. Every answer carries a certificate that can
be checked without solving again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokengeom.html_table import html_table
from tokengeom.problems.columns import Bool
from tokengeom.problems.compatibility import CompatibilitySystem
from tokengeom.problems.linear_data import LinearData, check_duplicates, check_embeddings, check_probabilities
from tokengeom.problems.ntp_svm import MarginProblem
from tokengeom.problems.reduced_loss import ReducedLoss
from tokengeom.solvers.compatibility import CompatibilityAnswer, project_on_data_subspace, solve_compatibility
from tokengeom.solvers.effective_support import EffectiveSupport, find_effective_support
from tokengeom.solvers.ntp_svm import orthonormal_factor, solve_ntp_svm
from tokengeom.solvers.reduced_newton import solve_reduced_loss
from tokengeom.theory.answers import Answer, compatibility_answer, separability_answer

if TYPE_CHECKING:
    from tokengeom.numerics import Float
    from tokengeom.problems.base import Certificate, Solution
    from tokengeom.solvers.least_distance import MarginAnswer


@dataclass(frozen=True, eq=False)
class LinearPrediction:
    """The limit of training, with proofs.

    ``compatible``, ``separable``
        Answers: truthy or not, each with a sentence and a certificate.
    ``W_star``, ``W_mm``
        Finite part and diverging direction, V x d. ``W_mm`` is 0 when nothing diverges.
    ``margin``
        Largest margin of a unit-Frobenius-norm decoder on the data's own supports: ``1 / ||W_mm||`` when
        separable, ``inf`` when no token is off support, and 0 when the data are not separable.
    ``loss_floor``, ``entropy``
        Infimum of the loss, and the entropy it would reach on compatible and separable data, in nats.
    ``effective_support``
        V x m booleans; equal to the supports when the data are separable.
    ``certificate``
        Certificate of ``W_mm`` as NTP-SVM on the effective supports.
    """

    data: LinearData
    compatible: Answer
    separable: Answer
    W_star: Float
    W_mm: Float
    margin: float
    loss_floor: float
    entropy: float
    effective_support: Bool
    certificate: Certificate
    finite_certificate: Certificate
    support_certificate: Certificate
    multipliers: Float = field(repr=False)
    blocking: Float = field(repr=False)

    @property
    def reaches_entropy(self) -> bool:
        """Whether the loss can come as close to the entropy as one likes."""
        return bool(self.compatible) and bool(self.separable)

    @property
    def effective_margin(self) -> float:
        """``1 / ||W_mm||``: margin between effective supports and the other tokens; ``inf`` without any."""
        size = float(np.linalg.norm(self.W_mm))
        return 1.0 / size if size > 0 else float("inf")

    def finite_part(self, W: Float) -> Float:
        """Projection of any W (V x d) on ``F^``, the part that converges to ``W_star``."""
        R, U = orthonormal_factor(self.data.H)
        return np.asarray(project_on_data_subspace(W @ U, self.effective_support, R) @ U.T)

    def summary(self) -> str:
        """Which case holds and why, in plain words."""
        return " ".join([self.compatible.sentence, self.separable.sentence, *self._consequence()])

    def to_dict(self) -> dict[str, Any]:
        """The numbers of the prediction as plain data."""
        return {
            "compatible": bool(self.compatible),
            "separable": bool(self.separable),
            "margin": self.margin,
            "loss_floor": self.loss_floor,
            "relative_gap": self.certificate.relative_gap if self.W_mm.any() else 0.0,
            "entropy_nats": self.entropy,
            "norm_W_star": float(np.linalg.norm(self.W_star)),
            "norm_W_mm": float(np.linalg.norm(self.W_mm)),
        }

    def _repr_html_(self) -> str:
        rows = [
            ("compatible", "yes" if self.compatible else "no"),
            ("separable", "yes" if self.separable else "no"),
            ("margin", f"{self.margin:.6g}"),
            ("infimum of the loss", f"{self.loss_floor:.6g} nats"),
            ("entropy floor H", f"{self.entropy:.6g} nats"),
            *(self.certificate.rows() if self.W_mm.any() else [("W_mm", "0: nothing diverges")]),
        ]
        sentences = [self.compatible.sentence, self.separable.sentence, *self._consequence()]
        return html_table("Prediction for the linear model", rows, sentences)

    def save(self, folder: str | Path) -> None:
        """Write the prediction with its proofs; `tokengeom verify` checks them without solving."""
        from tokengeom.theory.linear_storage import save_linear

        save_linear(self, folder)

    def _consequence(self) -> list[str]:
        if self.reaches_entropy:
            floor = f"So the loss can come as close to the entropy {self.entropy:.6g} nats as one likes."
        else:
            excess = self.loss_floor - self.entropy
            floor = (
                f"So the loss stops at {self.loss_floor:.6g} nats, {excess:.3g} above the entropy {self.entropy:.6g}."
            )
        size = float(np.linalg.norm(self.W_star))
        if not self.W_mm.any():
            return [floor, f"Nothing diverges: training converges to W* of norm {size:.6g}."]
        added = int(np.count_nonzero(self.effective_support & ~self.data.S))
        where = "the supports" if added == 0 else f"the effective supports ({added} more pairs)"
        direction = (
            f"Training converges on the data subspace to W* of norm {size:.6g} and diverges along W^mm, "
            f"which separates {where} with margin {self.effective_margin:.6g} per unit of norm "
            f"(relative gap {self.certificate.relative_gap:.1g})."
        )
        return [floor, direction]


def predict_linear(stats: Any, H: Any, tolerance: float = 1e-9) -> LinearPrediction:
    """Predict the limit of training from statistics (``P`` and ``pi`` are used) and embeddings H (d x m)."""
    data = linear_data(stats, H)
    system = CompatibilitySystem(data.S, data.P, data.H)
    margin_problem = MarginProblem(data.S, data.H)
    compatible = solve_compatibility(system)
    separable = solve_ntp_svm(margin_problem, tolerance)
    effective = find_effective_support(data.S, data.H, separable, tolerance)
    finite, floor = _finite_part(data, compatible, separable, effective)
    return _assemble(data, compatible, separable, effective, finite, floor)


def linear_data(stats: Any, H: Any) -> LinearData:
    """Check statistics-like input and embeddings, and take names where the statistics have them."""
    S, probabilities, weights = check_probabilities(stats.P, getattr(stats, "pi", None))
    embeddings = check_embeddings(H, S.shape[1])
    contexts = getattr(stats, "contexts", None)
    if contexts is not None and not callable(contexts):
        check_duplicates(contexts, embeddings)
    text = getattr(stats, "context_text", None)
    named = contexts is not None or getattr(stats, "labels", None) is not None
    names = [str(text(j)) for j in range(S.shape[1])] if callable(text) and named else None
    vocabulary = getattr(stats, "vocabulary", None)
    tokens = [str(token) for token in vocabulary] if vocabulary is not None else None
    return LinearData(S, probabilities, weights, embeddings, names, tokens)


def _finite_part(
    data: LinearData, compatible: CompatibilityAnswer, separable: MarginAnswer, effective: EffectiveSupport
) -> tuple[Solution[Float, Float], float]:
    if compatible.compatible and separable.separable:
        return compatible.solution, data.entropy
    solution = solve_reduced_loss(ReducedLoss(effective.S, data.P, data.pi, data.H))
    return solution, solution.certificate.value


def _assemble(
    data: LinearData,
    compatible: CompatibilityAnswer,
    separable: MarginAnswer,
    effective: EffectiveSupport,
    finite: Solution[Float, Float],
    floor: float,
) -> LinearPrediction:
    direction = effective.direction.solution
    multipliers = direction.dual if direction.dual is not None else np.zeros(data.S.shape)
    size = float(np.linalg.norm(direction.x))
    margin = (1.0 / size if size > 0 else float("inf")) if separable.separable else 0.0
    return LinearPrediction(
        data=data,
        compatible=compatibility_answer(data, compatible),
        separable=separability_answer(data, separable),
        W_star=finite.x,
        W_mm=direction.x,
        margin=margin,
        loss_floor=floor,
        entropy=data.entropy,
        effective_support=effective.S,
        certificate=direction.certificate,
        finite_certificate=finite.certificate,
        support_certificate=effective.certificate,
        multipliers=multipliers,
        blocking=effective.A,
    )
