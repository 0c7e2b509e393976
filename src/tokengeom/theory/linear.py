"""The linear model in the limit of training: fixed embeddings, and a decoder that is trained.

::

    W_k = W_star + R_k W_mm + o(R_k),   R_k -> infinity,   CE(W_k) -> loss_floor

for gradient descent with a small step and for the norm-constrained path [thrampoulidis2024], where

``W_star``      finite part, V x d: minimises the loss reduced to the effective supports, in ``F^``
``W_mm``        diverging direction, V x d: NTP-SVM on the effective supports, in the complement of ``F^``
``loss_floor``  infimum of the loss

When the data are compatible and separable, the effective supports are the supports and the floor is the entropy; the
general case is docs/theory.md 2.2. Every answer has a certificate that can be checked without solving again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from safetensors.numpy import load_file, save_file

from tokengeom.errors import ProblemError
from tokengeom.numerics import Bool, Float, Matrix
from tokengeom.problems.base import Certificate, Solution
from tokengeom.problems.compatibility import CompatibilitySystem
from tokengeom.problems.effective_support import EffectiveSupportProblem, ReducedLoss
from tokengeom.problems.linear_data import LinearData, SoftLabels
from tokengeom.problems.ntp_svm import MarginProblem
from tokengeom.problems.supports import margins
from tokengeom.results import SAME, AbstractResult, close, data_frame
from tokengeom.solvers.compatibility import CompatibilityAnswer, project_on_data_subspace, solve_compatibility
from tokengeom.solvers.effective_support import EffectiveSupport, find_effective_support
from tokengeom.solvers.least_distance import MarginAnswer
from tokengeom.solvers.ntp_svm import orthonormal_factor, solve_ntp_svm
from tokengeom.solvers.reduced_newton import solve_reduced_loss
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.conditions import Condition, compatibility, separability

if TYPE_CHECKING:
    from pandas import DataFrame

ARRAYS = "linear.safetensors"
PROOF = 1e-7
"""Residual up to which `checks` accepts a witness or a refutation."""
_ANSWERS = ("W_star", "W_mm", "multipliers", "blocking")
_CERTIFICATES = ("certificate", "finite_certificate", "support_certificate")


@dataclass(frozen=True, eq=False, repr=False)
class LinearPrediction(AbstractResult):
    """The limit of training, with certificates.

    ``data``
        Supports, probabilities, weights and embeddings that the prediction is for.
    ``compatible``, ``separable``
        The two conditions: true or false, each with a sentence and a proof.
    ``W_star``, ``W_mm``
        Finite part and diverging direction, V x d. ``W_mm`` is 0 when nothing diverges.
    ``margin``
        Largest margin of a unit-Frobenius-norm decoder on the data's own supports: ``1 / ||W_mm||`` when
        separable, ``inf`` when no token is off support, and 0 when the data are not separable.
    ``loss_floor``, ``entropy``
        Infimum of the loss, and the entropy that it equals on compatible and separable data, in nats.
    ``effective_support``
        V x m booleans; equal to the supports when the data are separable.
    ``certificate``
        Certificate of ``W_mm`` as NTP-SVM on the effective supports, with ``multipliers`` (V x m).
    ``finite_certificate``, ``support_certificate``
        Certificates of ``W_star`` and of the effective supports, the latter with multipliers ``blocking`` (V x m).
    ``statistics_hash``
        Hash of the statistics; None where the prediction is not for `NextTokenStatistics`.
    ``stats``
        The statistics themselves; None in a prediction that was loaded.
    """

    kind: ClassVar[str] = "tokengeom-linear"
    title: ClassVar[str] = "Prediction for the linear model"

    data: LinearData
    compatible: Condition
    separable: Condition
    W_star: Float
    W_mm: Float
    margin: float
    loss_floor: float
    entropy: float
    effective_support: Bool
    certificate: Certificate
    finite_certificate: Certificate
    support_certificate: Certificate
    multipliers: Float
    blocking: Float
    statistics_hash: str | None = None
    stats: NextTokenStatistics | None = None

    @property
    def reaches_entropy(self) -> bool:
        """Whether the loss can come arbitrarily close to the entropy."""
        return bool(self.compatible) and bool(self.separable)

    @property
    def effective_margin(self) -> float:
        """``1 / ||W_mm||``: margin between effective supports and the other tokens; ``inf`` without other tokens."""
        size = float(np.linalg.norm(self.W_mm))
        return 1.0 / size if size > 0 else float("inf")

    def finite_part(self, W: Float) -> Float:
        """Projection of any W (V x d) on ``F^``, the part that converges to ``W_star``."""
        R, U = orthonormal_factor(self.data.H)
        return np.asarray(project_on_data_subspace(W @ U, self.effective_support, R) @ U.T)

    def to_frame(self) -> DataFrame:
        """Data frame with one row per token, indexed by name: its row of ``W_star``, then that of ``W_mm``."""
        V, d = self.W_mm.shape
        columns = [f"{name}_{k}" for name in ("W_star", "W_mm") for k in range(d)]
        names = self.data.token_names
        index = [f"token {z}" for z in range(V)] if names is None else list(names)
        return data_frame(np.hstack([self.W_star, self.W_mm]), columns=columns, index=index).rename_axis("token")

    def summary(self) -> str:
        """Whether each condition holds and why, where the loss converges, and what diverges."""
        return "\n".join([self.compatible.sentence, self.separable.sentence, *self._consequences()])

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
            "statistics_hash": self.statistics_hash,
        }

    def checks(self) -> Mapping[str, bool]:
        """Everything that the saved proofs show without solving."""
        return {**_condition_checks(self), **_limit_checks(self)}

    def _consequences(self) -> list[str]:
        if self.reaches_entropy:
            floor = f"The loss can therefore come arbitrarily close to the entropy, {self.entropy:.6g} nats."
        else:
            excess = self.loss_floor - self.entropy
            floor = (
                f"The loss therefore converges to {self.loss_floor:.6g} nats, {excess:.3g} above the entropy "
                f"{self.entropy:.6g}."
            )
        size = float(np.linalg.norm(self.W_star))
        if not self.W_mm.any():
            return [floor, f"Nothing diverges: training converges to W_star of norm {size:.6g}."]
        added = int(np.count_nonzero(self.effective_support & ~self.data.S))
        where = "the supports" if added == 0 else f"the effective supports ({added} more pairs)"
        direction = (
            f"Training converges on the data subspace to W_star of norm {size:.6g} and diverges along W_mm, "
            f"which separates {where} with margin {self.effective_margin:.6g} per unit of norm "
            f"(relative gap {self.certificate.relative_gap:.1g})."
        )
        return [floor, direction]

    def _facts(self) -> list[tuple[str, str]]:
        return [
            ("compatible", "yes" if self.compatible else "no"),
            ("separable", "yes" if self.separable else "no"),
            ("margin", f"{self.margin:.6g}"),
            ("infimum of the loss", f"{self.loss_floor:.6g} nats"),
            ("entropy floor H", f"{self.entropy:.6g} nats"),
            *(self.certificate.rows() if self.W_mm.any() else [("W_mm", "0: nothing diverges")]),
        ]

    def _write(self, folder: Path) -> dict[str, Any]:
        arrays = {
            "P": self.data.P,
            "pi": self.data.pi,
            "H": self.data.H,
            "effective_support": self.effective_support.astype(np.uint8),
            "compatible": self.compatible.proof,
            "separable": self.separable.proof,
            **{name: getattr(self, name) for name in _ANSWERS},
        }
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, folder / ARRAYS)
        contexts, tokens = self.data.context_names, self.data.token_names
        return {
            "compatible": self.compatible.to_dict(),
            "separable": self.separable.to_dict(),
            "margin": self.margin if np.isfinite(self.margin) else None,
            "loss_floor": self.loss_floor,
            "entropy": self.entropy,
            "context_names": None if contexts is None else list(contexts),
            "token_names": None if tokens is None else list(tokens),
            "statistics_hash": self.statistics_hash,
            **{name: getattr(self, name).to_dict() for name in _CERTIFICATES},
        }

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> LinearPrediction:
        arrays = load_file(folder / ARRAYS)
        P = arrays["P"]
        rest: dict[str, Any] = {name: arrays[name] for name in _ANSWERS}
        rest |= {name: Certificate.from_dict(manifest[name]) for name in _CERTIFICATES}
        return LinearPrediction(
            data=LinearData(P > 0, P, arrays["pi"], arrays["H"], manifest["context_names"], manifest["token_names"]),
            compatible=Condition.from_dict(manifest["compatible"], arrays["compatible"]),
            separable=Condition.from_dict(manifest["separable"], arrays["separable"]),
            margin=np.inf if manifest["margin"] is None else manifest["margin"],
            loss_floor=manifest["loss_floor"],
            entropy=manifest["entropy"],
            effective_support=arrays["effective_support"].astype(bool),
            statistics_hash=manifest["statistics_hash"],
            **rest,
        )


def predict_linear(stats: SoftLabels, embeddings: Matrix, tolerance: float = 1e-9) -> LinearPrediction:
    """Predict the limit of training a decoder on fixed embeddings.

    Parameters
    ----------
    stats
        Next-token statistics, or anything with ``P`` (V x m) and ``pi`` (m).
    embeddings
        H, d x m, with columns in the order of ``stats``.
    tolerance
        Residual and relative gap that every certificate must reach.
    """
    if not tolerance > 0:
        raise ProblemError(f"A tolerance must be > 0; got tolerance={tolerance}.")
    data = LinearData.of(stats, embeddings)
    compatible = solve_compatibility(CompatibilitySystem(data.S, data.P, data.H))
    separable = solve_ntp_svm(MarginProblem(data.S, data.H), tolerance)
    effective = find_effective_support(data.S, data.H, separable, tolerance)
    finite, floor = _finite_part(data, compatible, separable, effective)
    direction = effective.direction.solution
    size = float(np.linalg.norm(direction.x))
    known = stats if isinstance(stats, NextTokenStatistics) else None
    return LinearPrediction(
        data=data,
        compatible=compatibility(data, compatible),
        separable=separability(data, separable),
        W_star=finite.x,
        W_mm=direction.x,
        margin=(1.0 / size if size > 0 else float("inf")) if separable.separable else 0.0,
        loss_floor=floor,
        entropy=data.entropy,
        effective_support=effective.S,
        certificate=direction.certificate,
        finite_certificate=finite.certificate,
        support_certificate=effective.certificate,
        multipliers=direction.dual if direction.dual is not None else np.zeros(data.S.shape),
        blocking=effective.A,
        statistics_hash=None if known is None else known.hash,
        stats=known,
    )


def _finite_part(
    data: LinearData, compatible: CompatibilityAnswer, separable: MarginAnswer, effective: EffectiveSupport
) -> tuple[Solution[Float, Float], float]:
    if compatible.compatible and separable.separable:
        return compatible.solution, data.entropy
    solution = solve_reduced_loss(ReducedLoss(effective.S, data.P, data.pi, data.H))
    return solution, solution.certificate.value


def _condition_checks(prediction: LinearPrediction) -> dict[str, bool]:
    data = prediction.data
    system, problem = CompatibilitySystem(data.S, data.P, data.H), MarginProblem(data.S, data.H)
    checks = {}
    if prediction.compatible:
        residual = system.certify(prediction.compatible.proof, None).primal_residual
        checks["a decoder solves the equations of compatibility"] = residual <= PROOF
    else:
        proof = system.refute(prediction.compatible.proof)
        checks["the refutation of compatibility is valid"] = PROOF * abs(proof.value) >= proof.primal_residual
    if prediction.separable:
        missing = problem.certify(prediction.separable.proof, None).primal_residual
        checks["a decoder separates the supports"] = missing <= PROOF
        size = float(np.linalg.norm(prediction.W_mm))
        checks["the margin is the one claimed"] = close(prediction.margin, 1 / size if size else np.inf)
    else:
        checks["the refutation of separability is valid"] = problem.refute(prediction.separable.proof).value <= PROOF
    return checks


def _limit_checks(prediction: LinearPrediction) -> dict[str, bool]:
    data, S = prediction.data, prediction.effective_support
    direction = MarginProblem(S, data.H).certify(prediction.W_mm, prediction.multipliers)
    limit = prediction.certificate.relative_gap * (1 + 1e-6) + SAME
    support = EffectiveSupportProblem(data.S, data.H).certify(prediction.W_mm, prediction.blocking)
    loss = ReducedLoss(S, data.P, data.pi, data.H)
    finite = loss.certify(prediction.W_star, loss.distribution(prediction.W_star))
    gap = direction.relative_gap if prediction.W_mm.any() else 0.0
    off = ~S
    separated = not off.any() or float(margins(prediction.W_mm @ data.H, S)[off].min()) >= 1 - PROOF
    return {
        "the effective supports contain the supports": bool((S >= data.S).all()),
        "the direction separates every effective support from the other tokens": separated,
        "the pairs that the direction does not separate are proven inseparable": support.holds(PROOF),
        f"the direction is proven within {limit:.1e} of the smallest norm": gap <= limit,
        "the finite part is stationary for the reduced loss": finite.dual_residual <= PROOF,
        "the floor of the loss is the one claimed": abs(finite.value - prediction.loss_floor) <= PROOF,
        "the entropy is the one claimed": close(data.entropy, prediction.entropy),
    }
