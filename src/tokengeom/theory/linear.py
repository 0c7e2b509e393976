"""Where training converges when embeddings are fixed and only the decoder is trained.

::

    W_k = W* + R_k W^mm + o(R_k),   R_k -> infinity,   CE(W_k) -> loss_floor

for gradient descent with a small step and for the norm-constrained path [thrampoulidis2024, Thm 2, 3], where
``W*`` (V x d, in ``F^``) minimises the loss reduced to the effective supports and ``W^mm`` (V x d, in its
complement) is NTP-SVM on them. When the data are compatible and separable the effective supports are the
supports and the floor is the entropy; otherwise docs/theory.md 2.2 holds. Every answer carries a certificate that can
be checked without solving again.

A linear prediction on disk, and proving it again from there.

The folder holds the data (P, pi, H), the answers (W*, W^mm, effective supports) and their proofs (multipliers,
witnesses, refutations). ``verify_linear`` judges all of them afresh, without solving.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokengeom.errors import InputError
from tokengeom.folders import read_manifest, write_manifest, written_beside
from tokengeom.html_table import html_table
from tokengeom.numerics import Bool
from tokengeom.problems.base import Certificate
from tokengeom.problems.compatibility import CompatibilitySystem
from tokengeom.problems.effective_support import EffectiveSupportProblem, ReducedLoss
from tokengeom.problems.linear_data import LinearData, check_duplicates, check_embeddings, check_probabilities
from tokengeom.problems.ntp_svm import MarginProblem
from tokengeom.problems.supports import margins
from tokengeom.solvers.compatibility import CompatibilityAnswer, project_on_data_subspace, solve_compatibility
from tokengeom.solvers.effective_support import EffectiveSupport, find_effective_support
from tokengeom.solvers.ntp_svm import orthonormal_factor, solve_ntp_svm
from tokengeom.solvers.reduced_newton import solve_reduced_loss
from tokengeom.theory.answers import Answer, compatibility_answer, separability_answer
from tokengeom.theory.verification import AGREEMENT, Verification, close, files_unchanged

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


FORMAT, FORMAT_VERSION = "tokengeom-linear", 1
ARRAYS = "linear.safetensors"
CERTIFICATES = ("certificate", "finite_certificate", "support_certificate")
PROOF = 1e-7
"""Residual below which a refutation is one."""


def save_linear(prediction: LinearPrediction, folder: str | Path) -> None:
    """Write a prediction with its proofs; an older result of that name stays until the new one is whole."""
    from safetensors.numpy import save_file

    data = prediction.data
    arrays = {
        "P": data.P,
        "pi": data.pi,
        "H": data.H,
        "W_star": prediction.W_star,
        "W_mm": prediction.W_mm,
        "effective_support": prediction.effective_support.astype(np.uint8),
        "multipliers": prediction.multipliers,
        "blocking": prediction.blocking,
        "compatible": prediction.compatible.proof,
        "separable": prediction.separable.proof,
    }
    content: dict[str, Any] = {
        "compatible": _answer_content(prediction.compatible),
        "separable": _answer_content(prediction.separable),
        "margin": prediction.margin if np.isfinite(prediction.margin) else None,
        "loss_floor": prediction.loss_floor,
        "entropy": prediction.entropy,
        "context_names": None if data.context_names is None else list(data.context_names),
        "token_names": None if data.token_names is None else list(data.token_names),
    }
    for name in CERTIFICATES:
        content[name] = getattr(prediction, name).to_dict()
    with written_beside(Path(folder), FORMAT) as work:
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, work / ARRAYS)
        write_manifest(work, FORMAT, FORMAT_VERSION, content)


def load_linear(folder: str | Path) -> LinearPrediction:
    """Read a prediction back; its certificates are the stored ones, ``verify_linear`` computes them afresh."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    path = Path(folder)
    manifest = read_manifest(path, FORMAT, FORMAT_VERSION)
    try:
        arrays = load_file(path / ARRAYS)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path} is incomplete or damaged: {error}. Predict again.") from error
    P = arrays["P"]
    data = LinearData(P > 0, P, arrays["pi"], arrays["H"], manifest["context_names"], manifest["token_names"])
    proofs = {name: _certificate(manifest[name]) for name in CERTIFICATES}
    return LinearPrediction(
        data=data,
        compatible=_answer(manifest["compatible"], arrays["compatible"]),
        separable=_answer(manifest["separable"], arrays["separable"]),
        W_star=arrays["W_star"],
        W_mm=arrays["W_mm"],
        margin=np.inf if manifest["margin"] is None else manifest["margin"],
        loss_floor=manifest["loss_floor"],
        entropy=manifest["entropy"],
        effective_support=arrays["effective_support"].astype(bool),
        multipliers=arrays["multipliers"],
        blocking=arrays["blocking"],
        **proofs,
    )


def verify_linear(folder: str | Path) -> Verification:
    """Prove a saved prediction again from its arrays, without solving."""
    prediction = load_linear(folder)
    return Verification.of(
        {
            **files_unchanged(Path(folder)),
            **_conditions(prediction),
            **_limit(prediction),
        }
    )


def _conditions(prediction: LinearPrediction) -> dict[str, bool]:
    data = prediction.data
    system, problem = CompatibilitySystem(data.S, data.P, data.H), MarginProblem(data.S, data.H)
    checks = {}
    if prediction.compatible:
        residual = system.certify(prediction.compatible.proof, None).primal_residual
        checks["the witness of compatibility solves its equations"] = residual <= PROOF
    else:
        proof = system.refute(prediction.compatible.proof)
        checks["the refutation of compatibility is one"] = PROOF * abs(proof.value) >= proof.primal_residual
    if prediction.separable:
        missing = problem.certify(prediction.separable.proof, None).primal_residual
        checks["the witness of separability separates"] = missing <= PROOF
        size = float(np.linalg.norm(prediction.W_mm))
        checks["the margin is the one claimed"] = close(prediction.margin, 1 / size if size else np.inf)
    else:
        checks["the refutation of separability is one"] = problem.refute(prediction.separable.proof).value <= PROOF
    return checks


def _limit(prediction: LinearPrediction) -> dict[str, bool]:
    data, S = prediction.data, prediction.effective_support
    direction = MarginProblem(S, data.H).certify(prediction.W_mm, prediction.multipliers)
    limit = prediction.certificate.relative_gap * (1 + 1e-6) + AGREEMENT
    support = EffectiveSupportProblem(data.S, data.H).certify(prediction.W_mm, prediction.blocking)
    loss = ReducedLoss(S, data.P, data.pi, data.H)
    finite = loss.certify(prediction.W_star, loss.distribution(prediction.W_star))
    gap = direction.relative_gap if prediction.W_mm.any() else 0.0
    off = ~S
    separated = not off.any() or float(margins(prediction.W_mm @ data.H, S)[off].min()) >= 1 - PROOF
    return {
        "the effective supports contain the supports": bool((S >= data.S).all()),
        "the direction keeps every effective support above the rest": separated,
        "what the direction cannot separate is proven inseparable": support.holds(PROOF),
        f"the direction is proven within {limit:.1e} of the smallest norm": gap <= limit,
        "the finite part is stationary for the reduced loss": finite.dual_residual <= PROOF,
        "the floor of the loss is the one claimed": abs(finite.value - prediction.loss_floor) <= PROOF,
        "the entropy is the one claimed": close(data.entropy, prediction.entropy),
    }


def _answer_content(answer: Answer) -> dict[str, Any]:
    return {
        "holds": answer.holds,
        "sentence": answer.sentence,
        "certificate": answer.certificate.to_dict(),
        "contexts": list(answer.contexts),
        "pairs": [list(pair) for pair in answer.pairs],
    }


def _answer(content: dict[str, Any], proof: Any) -> Answer:
    return Answer(
        holds=content["holds"],
        sentence=content["sentence"],
        certificate=_certificate(content["certificate"]),
        proof=proof,
        contexts=tuple(content["contexts"]),
        pairs=tuple((j, v) for j, v in content["pairs"]),
    )


def _certificate(content: dict[str, float]) -> Certificate:
    return Certificate(**{name: value for name, value in content.items() if name != "relative_gap"})
