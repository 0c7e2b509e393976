"""The linear model in the limit of training: fixed embeddings, and a decoder that is trained.

::

    W_k = W_star + R_k W_mm + o(R_k),   R_k -> infinity,   CE(W_k) -> loss_floor

for compatible and separable data, under gradient descent with a small step and along the norm-constrained path
[thrampoulidis2024]. For other data the limit of the loss and the finite part are proven, and the direction was checked
(docs/theory.md 2.2). Here

``W_star``      finite part, V x d: minimises the loss reduced to the effective supports, in ``F^``
``W_mm``        diverging direction, V x d: NTP-SVM on the effective supports, in the complement of ``F^``
``loss_floor``  infimum of the loss

When the data are compatible and separable, the effective supports are the supports and the floor is the entropy. Every
answer has a certificate that can be checked without solving again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from safetensors.numpy import save_file

from tokengeom.core.checks import Entries
from tokengeom.core.errors import ProblemError
from tokengeom.core.numerics import Bool, Float, Matrix, dense
from tokengeom.problems.base import LARGEST_GAP, Certificate, Solution
from tokengeom.problems.compatibility import CompatibilitySystem
from tokengeom.problems.effective_support import EffectiveSupportProblem, ReducedLoss
from tokengeom.problems.linear_data import LinearData, SoftLabels
from tokengeom.problems.ntp_svm import MarginProblem
from tokengeom.problems.supports import margins
from tokengeom.results.contract import ALONE, SAME, AbstractResult, NearbyResults, close, data_frame
from tokengeom.solvers.compatibility import CompatibilityAnswer, project_on_data_subspace, solve_compatibility
from tokengeom.solvers.effective_support import EffectiveSupport, find_effective_support
from tokengeom.solvers.least_distance import MarginAnswer
from tokengeom.solvers.ntp_svm import orthonormal_factor, solve_ntp_svm
from tokengeom.solvers.reduced_newton import solve_reduced_loss
from tokengeom.statistics.arrays_file import SavedArrays
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.conditions import (
    Condition,
    compatibility,
    describe_compatibility,
    describe_separability,
    separability,
)
from tokengeom.theory.recomputed import (
    SAME_PROBABILITY,
    against_statistics,
    read_certificate,
    same_certificate,
    same_shares,
)

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
    ``certificate``, ``multipliers``
        Certificate of ``W_mm`` as NTP-SVM on the effective supports, with multipliers, V x m.
    ``finite_certificate``
        Certificate of ``W_star``.
    ``support_certificate``, ``blocking``
        Certificate of the effective supports, with multipliers, V x m.
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

    def checks(self, beside: NearbyResults = ALONE) -> dict[str, bool | None]:
        """Everything that the saved proofs show without solving."""
        return {
            **_condition_checks(self),
            **_limit_checks(self),
            **_claim_checks(self),
            **against_statistics(self, beside, self._compare),
            "that the embeddings are the ones given: they are kept nowhere else": None,
        }

    def _compare(self, stats: NextTokenStatistics) -> dict[str, bool | None]:
        data = self.data
        if (stats.V, stats.m) != (data.V, data.m):
            return {"there is one row per token and one column per context of the statistics": False}
        named = stats.contexts is not None or stats.labels is not None
        contexts = [stats.context_text(j) for j in range(stats.m)] if named else None
        return {
            "probabilities and shares are those of the statistics": bool(
                np.abs(dense(stats.P) - data.P).max() <= SAME_PROBABILITY
            )
            and same_shares(data.pi, stats.pi),
            "the names are those of the statistics": _as_list(data.token_names) == list(stats.vocabulary)
            and _as_list(data.context_names) == contexts,
        }

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
            return [floor, f"Nothing diverges: gradient descent converges to W_star of norm {size:.6g}."]
        added = int(np.count_nonzero(self.effective_support & ~self.data.S))
        where = "the supports" if added == 0 else f"the effective supports ({added} more pairs)"
        direction = (
            f"Gradient descent converges on the data subspace to W_star of norm {size:.6g} and diverges along W_mm, "
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
        saved, arrays = Entries(manifest, folder), SavedArrays(folder / ARRAYS)
        data = _read_data(saved, arrays)
        shape, decoder = (data.V, data.m), (data.V, data.d)
        grown = arrays.wholes("effective_support", shape, 0, 1, np.uint8) != 0
        if not grown.any(axis=0).all():
            raise saved.damaged("an effective support is empty")
        rest: dict[str, Any] = {name: read_certificate(saved.inside(name), finite=False) for name in _CERTIFICATES}
        for name in ("compatible", "separable"):
            inside = saved.inside(name)
            proof = arrays.floats(name, decoder if inside.flag("holds") else shape)
            rest[name] = Condition.read(inside, proof, shape)
        return LinearPrediction(
            data=data,
            W_star=arrays.floats("W_star", decoder),
            W_mm=arrays.floats("W_mm", decoder),
            margin=saved.within("margin", 0.0) if saved.has("margin") else np.inf,
            loss_floor=saved.within("loss_floor", -SAME),
            entropy=saved.within("entropy", -SAME),
            effective_support=grown,
            multipliers=arrays.floats("multipliers", shape),
            blocking=arrays.floats("blocking", shape),
            statistics_hash=saved.digest("statistics_hash") if saved.has("statistics_hash") else None,
            **rest,
        )


def _read_data(saved: Entries, arrays: SavedArrays) -> LinearData:
    """The data of a saved prediction, checked as those that a user gives."""
    P = arrays.floats("P", (None, None), 0.0, 1.0)
    V, m = P.shape
    H = arrays.floats("H", (None, m))
    try:
        checked = LinearData.of(LinearData(P > 0, P, arrays.shares("pi", m), H), H)
    except ProblemError as error:
        raise saved.damaged(str(error).rstrip(".")) from error
    contexts, tokens = (saved.texts(name) if saved.has(name) else None for name in ("context_names", "token_names"))
    for name, found, size in (("context_names", contexts, m), ("token_names", tokens, V)):
        if found is not None and len(found) != size:
            raise saved.damaged(f"{name} must have {size} entries; it has {len(found)}")
    # Not the checked P, which was divided by its sums: a prediction is loaded as it was saved.
    return replace(checked, P=P, pi=arrays.shares("pi", m), context_names=contexts, token_names=tokens)


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
    data, compatible, separable = prediction.data, prediction.compatible, prediction.separable
    system, problem = CompatibilitySystem(data.S, data.P, data.H), MarginProblem(data.S, data.H)
    checks = {}
    if compatible:
        residual = system.certify(compatible.proof, None).primal_residual
        checks["a decoder solves the equations of compatibility"] = residual <= PROOF
    else:
        proof = system.refute(compatible.proof)
        checks["the refutation of compatibility is valid"] = PROOF * abs(proof.value) >= proof.primal_residual
    margin = 0.0
    if separable:
        missing = problem.certify(separable.proof, None).primal_residual
        checks["a decoder separates the supports"] = missing <= PROOF
        size = float(np.linalg.norm(prediction.W_mm))
        margin = 1 / size if size else np.inf
    else:
        checks["the refutation of separability is valid"] = problem.refute(separable.proof).value <= PROOF
    checks["the margin is the one claimed"] = close(prediction.margin, margin)
    described = describe_compatibility(data, compatible.holds, compatible.certificate, compatible.proof)
    checks["compatibility is described as its proof shows it"] = compatible.agrees(described)
    described = describe_separability(data, separable.holds, separable.certificate, separable.proof)
    checks["separability is described as its proof shows it"] = separable.agrees(described)
    return checks


def _claim_checks(prediction: LinearPrediction) -> dict[str, bool]:
    """Whether certificates are those of the saved answers and proofs."""
    data, S = prediction.data, prediction.effective_support
    compatible, separable = prediction.compatible, prediction.separable
    system, problem = CompatibilitySystem(data.S, data.P, data.H), MarginProblem(data.S, data.H)
    direction = MarginProblem(S, data.H).certify(prediction.W_mm, prediction.multipliers)
    support = EffectiveSupportProblem(data.S, data.H).certify(prediction.W_mm, prediction.blocking)
    solved = system.certify(compatible.proof, None) if compatible else system.refute(compatible.proof)
    if compatible:
        # The bound is that of a dual that is not kept. It equals the value, as W_star lies in the data subspace.
        solved = replace(solved, dual_residual=compatible.certificate.dual_residual, bound=solved.value)
    reduced = ReducedLoss(S, data.P, data.pi, data.H)
    finite = reduced.certify(prediction.W_star, reduced.distribution(prediction.W_star))
    return {
        "the certificate of the direction is the one claimed": same_certificate(direction, prediction.certificate),
        "the certificate of the effective supports is the one claimed": same_certificate(
            support, prediction.support_certificate
        ),
        "the certificate of compatibility is the one claimed": same_certificate(solved, compatible.certificate),
        "the certificate of separability is the one claimed": same_certificate(
            direction if separable else problem.refute(separable.proof), separable.certificate
        ),
        "the certificate of the finite part is the one claimed": same_certificate(
            compatible.certificate if prediction.reaches_entropy else finite, prediction.finite_certificate
        ),
    }


def _limit_checks(prediction: LinearPrediction) -> dict[str, bool]:
    data, S = prediction.data, prediction.effective_support
    direction = MarginProblem(S, data.H).certify(prediction.W_mm, prediction.multipliers)
    limit = prediction.certificate.relative_gap * (1 + 1e-6) + SAME
    support = EffectiveSupportProblem(data.S, data.H).certify(prediction.W_mm, prediction.blocking)
    loss = ReducedLoss(S, data.P, data.pi, data.H)
    finite = loss.certify(prediction.W_star, loss.distribution(prediction.W_star))
    gap = direction.relative_gap if prediction.W_mm.any() else 0.0
    size = float(np.linalg.norm(prediction.W_star))
    outside = float(np.linalg.norm(prediction.W_star - prediction.finite_part(prediction.W_star)))
    off = ~S
    separated = not off.any() or float(margins(prediction.W_mm @ data.H, S)[off].min()) >= 1 - PROOF
    return {
        "the effective supports contain the supports": bool((S >= data.S).all()),
        "the direction separates every effective support from the other tokens": separated,
        "the pairs that the direction does not separate are proven inseparable": support.holds(PROOF),
        f"the direction is proven within {limit:.1e} of the smallest norm": gap <= min(limit, LARGEST_GAP),
        "the finite part is stationary for the reduced loss": finite.dual_residual <= PROOF,
        "the finite part lies in the data subspace": outside <= PROOF * max(1.0, size),
        "the floor of the loss is the one claimed": abs(finite.value - prediction.loss_floor) <= PROOF,
        "the entropy is the one claimed": close(data.entropy, prediction.entropy),
    }


def _as_list(names: Sequence[str] | None) -> list[str] | None:
    return None if names is None else list(names)
