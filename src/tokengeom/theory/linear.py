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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np

from tokengeom.core.errors import InputError, ProblemError
from tokengeom.core.factors import finite_matrix
from tokengeom.core.numerics import Bool, Float, Matrix
from tokengeom.problems.base import Certificate, Solution
from tokengeom.problems.linear_data import LinearData, SoftLabels
from tokengeom.problems.linear_limit import CompatibilitySystem, ReducedLoss
from tokengeom.problems.ntp_svm import MarginProblem
from tokengeom.results.contract import SAME, AbstractResult, data_frame
from tokengeom.results.convert import Digest, Within, from_manifest
from tokengeom.solvers.effective_support import EffectiveSupport, find_effective_support
from tokengeom.solvers.finite_part import (
    CompatibilityAnswer,
    projection_on_data_subspace,
    solve_compatibility,
    solve_reduced_loss,
)
from tokengeom.solvers.least_distance import MarginAnswer
from tokengeom.solvers.ntp_svm import orthonormal_factor, solve_ntp_svm
from tokengeom.statistics.arrays_file import SavedArrays
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.conditions import Condition, describe_compatibility, describe_separability
from tokengeom.theory.storage import NotNegative, entries_of, write_arrays

if TYPE_CHECKING:
    from pandas import DataFrame

ARRAYS = "linear.safetensors"
_ANSWERS = ("W_star", "W_mm", "multipliers", "blocking")


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
        project, U = self._projection
        given = finite_matrix("W", W)
        if given.shape != self.W_mm.shape:
            raise ProblemError(f"W must have the shape {self.W_mm.shape} of the embeddings' model; got {given.shape}.")
        return np.asarray(project(given @ U) @ U.T)

    @cached_property
    def _projection(self) -> tuple[Callable[[Float], Float], Float]:
        R, U = orthonormal_factor(self.data.H)
        return projection_on_data_subspace(self.effective_support, R), U

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
        write_arrays(folder / ARRAYS, arrays)
        return entries_of(
            LinearEntries,
            self,
            margin=self.margin if np.isfinite(self.margin) else None,
            context_names=self.data.context_names,
            token_names=self.data.token_names,
        )

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> LinearPrediction:
        saved, arrays = from_manifest(LinearEntries, manifest, folder), SavedArrays(folder / ARRAYS)
        data = _read_data(saved, arrays)
        shape, decoder = (data.V, data.m), (data.V, data.d)
        grown = arrays.wholes("effective_support", shape, 0, 1, np.uint8) != 0
        if not grown.any(axis=0).all():
            raise arrays.damaged("an effective support is empty")
        shapes = {"W_star": decoder, "W_mm": decoder, "multipliers": shape, "blocking": shape}
        stated = {name: value for name, value in vars(saved).items() if name not in ("context_names", "token_names")}
        stated |= {name: arrays.floats(name, of) for name, of in shapes.items()}
        stated["margin"] = np.inf if saved.margin is None else saved.margin
        for name in ("compatible", "separable"):
            stated[name] = _read_condition(name, stated[name], arrays, data)
        return cls(data=data, effective_support=grown, **stated)


@dataclass(frozen=True)
class LinearEntries:
    """Entries of the manifest of a `LinearPrediction`."""

    compatible: Condition
    separable: Condition
    margin: NotNegative | None
    loss_floor: Annotated[float, Within(-SAME)]
    entropy: Annotated[float, Within(-SAME)]
    context_names: Sequence[str] | None
    token_names: Sequence[str] | None
    statistics_hash: Digest | None
    certificate: Certificate
    finite_certificate: Certificate
    support_certificate: Certificate


def _read_data(saved: LinearEntries, arrays: SavedArrays) -> LinearData:
    """The data of a saved prediction, checked as those that a user gives."""
    P = arrays.floats("P", (None, None), 0.0, 1.0)
    V, m = P.shape
    H = arrays.floats("H", (None, m))
    try:
        checked = LinearData.of(LinearData(P > 0, P, arrays.shares("pi", m), H), H)
    except InputError as error:
        raise arrays.damaged(str(error).rstrip(".")) from error
    contexts, tokens = saved.context_names, saved.token_names
    for what, names, size in (("context_names", contexts, m), ("token_names", tokens, V)):
        if names is not None and len(names) != size:
            raise arrays.damaged(f"{what} must have {size} entries; it has {len(names)}")
    # Not the checked P, which was divided by its sums: a prediction is loaded as it was saved.
    return replace(checked, P=P, pi=arrays.shares("pi", m), context_names=contexts, token_names=tokens)


def _read_condition(name: str, saved: Condition, arrays: SavedArrays, data: LinearData) -> Condition:
    if any(j >= data.m for j in saved.contexts) or any(j >= data.m or v >= data.V for j, v in saved.pairs):
        raise arrays.damaged(f"{name}: contexts and pairs must be numbers of contexts and tokens")
    return replace(saved, proof=arrays.floats(name, (data.V, data.d if saved.holds else data.m)))


def predict_linear(stats: SoftLabels, embeddings: Matrix, tolerance: float = 1e-9) -> LinearPrediction:
    """Predict the limit of training a decoder on fixed embeddings H (d x m, columns in the order of ``stats``).

    ``tolerance`` is the residual and relative gap that every certificate must reach.
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
        compatible=describe_compatibility(data, *_proven(compatible.compatible, compatible.solution)),
        separable=describe_separability(data, *_proven(separable.separable, separable.solution)),
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


def _proven(holds: bool, solution: Solution[Float, Float]) -> tuple[bool, Certificate, Float | None]:
    """Whether a condition holds, how good the proof is, and the proof: a decoder, or a dual that refutes it."""
    return holds, solution.certificate, solution.x if holds else solution.dual


def _finite_part(
    data: LinearData, compatible: CompatibilityAnswer, separable: MarginAnswer, effective: EffectiveSupport
) -> tuple[Solution[Float, Float], float]:
    if compatible.compatible and separable.separable:
        return compatible.solution, data.entropy
    solution = solve_reduced_loss(ReducedLoss(effective.S, data.P, data.pi, data.H))
    return solution, solution.certificate.value
