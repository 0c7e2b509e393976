"""A feature prediction on disk: arrays in safetensors, a JSON manifest, and a check that needs no solver.

The folder holds what proves the prediction (merged pattern, logits, dual, probabilities). ``verify_features``
recomputes every proven number from these arrays alone and compares with the manifest.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tokengeom.errors import ProblemError
from tokengeom.folders import read_manifest, write_manifest, written_beside
from tokengeom.problems.base import Certificate
from tokengeom.problems.nuclear_svm import NuclearSVM
from tokengeom.problems.support_reduction import SupportReduction, reduce_support
from tokengeom.theory.closed_forms import proxy_exactness
from tokengeom.theory.feature_prediction import FeaturePrediction
from tokengeom.theory.solution_spread import PinnedDown, Spread
from tokengeom.theory.verification import AGREEMENT, Verification, close, files_unchanged

ARRAYS = "features.safetensors"
FORMAT, FORMAT_VERSION = "tokengeom-features", 1


def save_features(prediction: FeaturePrediction, folder: str | Path) -> Path:
    """Write a prediction to a folder: made beside it and renamed, so that it is old or new, never half."""
    from safetensors.numpy import save_file

    target = Path(folder)
    with written_beside(target, FORMAT) as work:
        save_file(_arrays(prediction), str(work / ARRAYS))
        write_manifest(work, FORMAT, FORMAT_VERSION, _content(prediction))
    return target


def load_features(folder: str | Path) -> FeaturePrediction:
    """Read a prediction back; its certificate is the stored one, ``verify_features`` computes it afresh."""
    from scipy.sparse import csc_array

    manifest = read_manifest(Path(folder), FORMAT, FORMAT_VERSION)
    arrays = _read_arrays(Path(folder))
    reduction = SupportReduction(arrays["S_red"] != 0, arrays["row_of"], arrays["column_of"])
    P = csc_array((arrays["P_data"], arrays["P_indices"], arrays["P_indptr"]), shape=(reduction.V, reduction.m))
    proof = manifest["certificate"]
    spread = manifest["spread"]
    return FeaturePrediction(
        reduction=reduction,
        L_merged=arrays["L_merged"],
        dual_merged=arrays["dual_merged"],
        certificate=Certificate(proof["primal_residual"], proof["dual_residual"], proof["value"], proof["bound"]),
        P=P,
        entropy=manifest["entropy"],
        proxy_nuclear_norm=manifest["proxy_nuclear_norm"],
        proxy_is_exact=manifest["proxy_is_exact"],
        proxy_sentence=manifest["proxy_sentence"],
        pinned=PinnedDown(arrays["slack_bound"], manifest["rank_bound"]),
        spread=None if spread is None else Spread(**spread),
        warnings=tuple(manifest["warnings"]),
        status=manifest["status"],
        seconds=manifest["seconds"],
    )


def verify_features(folder: str | Path, *, tolerance: float | None = None) -> Verification:
    """Prove a saved prediction again from its arrays, without solving.

    ``tolerance``
        Largest gap and residual to accept; by default what the manifest claims.
    """
    prediction = load_features(folder)
    problem = NuclearSVM(prediction.reduction)
    afresh = problem.certify(prediction.L_merged, prediction.dual_merged)
    claimed = prediction.certificate
    limit = claimed.relative_gap * (1 + 1e-6) + AGREEMENT if tolerance is None else tolerance
    same = reduce_support(prediction.P)
    exactness = proxy_exactness(problem)
    checks = {
        **files_unchanged(Path(folder)),
        "the merged pattern is that of the probabilities": _same_reduction(same, prediction.reduction),
        "the logits are feasible": afresh.primal_residual <= max(1e-9, tolerance or 0.0),
        "the dual is feasible": afresh.dual_residual <= max(1e-9, tolerance or 0.0),
        f"the proven gap is within {limit:.1e}": afresh.relative_gap <= limit,
        "the nuclear norm is the one claimed": close(afresh.value, claimed.value),
        "the lower bound is the one claimed": close(afresh.bound, claimed.bound),
        "the proxy's nuclear norm is the one claimed": close(exactness.nuclear_norm, prediction.proxy_nuclear_norm),
    }
    return Verification.of(checks)


def _same_reduction(a: SupportReduction, b: SupportReduction) -> bool:
    return a.S_red.shape == b.S_red.shape and all(
        bool(np.array_equal(x, y)) for x, y in ((a.S_red, b.S_red), (a.row_of, b.row_of), (a.column_of, b.column_of))
    )


def _arrays(prediction: FeaturePrediction) -> dict[str, Any]:
    from scipy.sparse import csc_array

    P = csc_array(prediction.P)
    red = prediction.reduction
    held = {
        "S_red": red.S_red.astype(np.uint8),
        "row_of": red.row_of.astype(np.int64),
        "column_of": red.column_of.astype(np.int64),
        "L_merged": prediction.L_merged,
        "dual_merged": prediction.dual_merged,
        "slack_bound": prediction.pinned.slack_bound,
        "P_data": P.data.astype(np.float64),
        "P_indices": P.indices.astype(np.int64),
        "P_indptr": P.indptr.astype(np.int64),
    }
    return {name: np.ascontiguousarray(value) for name, value in held.items()}


def _content(prediction: FeaturePrediction) -> dict[str, Any]:
    spread = prediction.spread
    return {
        "certificate": prediction.certificate.to_dict(),
        "entropy": prediction.entropy,
        "rank": prediction.rank,
        "rank_bound": prediction.pinned.rank_bound,
        "proxy_nuclear_norm": prediction.proxy_nuclear_norm,
        "proxy_is_exact": prediction.proxy_is_exact,
        "proxy_sentence": prediction.proxy_sentence,
        "spread": None if spread is None else vars(spread),
        "warnings": list(prediction.warnings),
        "status": prediction.status,
        "seconds": prediction.seconds,
    }


def _read_arrays(folder: Path) -> dict[str, Any]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return dict(load_file(str(folder / ARRAYS)))
    except (OSError, SafetensorError) as error:
        raise ProblemError(
            f"A saved feature prediction must hold {ARRAYS}; in '{folder}' it cannot be read: {error}. Likely a "
            "damaged copy. Predict again and save."
        ) from error
