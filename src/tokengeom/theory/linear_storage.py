"""A linear prediction on disk, and proving it again from there.

The folder holds the data (P, pi, H), the answers (W*, W^mm, effective supports) and their proofs (multipliers,
witnesses, refutations). ``verify_linear`` judges all of them afresh, without solving.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tokengeom.errors import InputError
from tokengeom.folders import read_manifest, write_manifest, written_beside
from tokengeom.problems.base import Certificate
from tokengeom.problems.columns import margins
from tokengeom.problems.compatibility import CompatibilitySystem
from tokengeom.problems.effective_support import EffectiveSupportProblem
from tokengeom.problems.linear_data import LinearData
from tokengeom.problems.ntp_svm import MarginProblem
from tokengeom.problems.reduced_loss import ReducedLoss
from tokengeom.theory.answers import Answer
from tokengeom.theory.linear import LinearPrediction
from tokengeom.theory.verification import AGREEMENT, Verification, close, files_unchanged

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
