"""Learned features predicted from statistics alone: the geometry that training gives to tokens and contexts.

``L ~ L_in + R L_mm``, ``R -> inf``;   ``W W^T ~ (L_mm L_mm^T)^{1/2}``,  ``H^T H ~ (L_mm^T L_mm)^{1/2}``

where

``L_in``   finite part, V x m: centred log-probabilities on support
``L_mm``   diverging direction, V x m: the answer of NTP-SVM*, with its certificate
``W, H``   token and context embeddings ``U Sigma^{1/2}`` (V x r) and ``Sigma^{1/2} V^T`` (r x m) of
           ``L_mm = U Sigma V^T``, free up to a rotation [zhao2024]

A feature prediction on disk: arrays in safetensors, a JSON manifest, and a check that needs no solver.

The folder holds what proves the prediction (merged pattern, logits, dual, probabilities). ``verify_features``
recomputes every proven number from these arrays alone and compares with the manifest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tokengeom.errors import ProblemError
from tokengeom.folders import read_manifest, write_manifest, written_beside
from tokengeom.html_table import html_table
from tokengeom.memory import require_memory
from tokengeom.numerics import Int, cosines
from tokengeom.problems.arrays import Arrays
from tokengeom.problems.base import Certificate
from tokengeom.problems.nuclear_svm import NuclearSVM
from tokengeom.problems.supports import SupportReduction, reduce_support
from tokengeom.solvers.nuclear_admm import NuclearADMM
from tokengeom.theory.closed_forms import finite_part, proxy_exactness
from tokengeom.theory.solution_spread import PinnedDown, Spread, measure_spread, pinned_down
from tokengeom.theory.verification import AGREEMENT, Verification, close, files_unchanged

if TYPE_CHECKING:
    from tokengeom.numerics import Float
    from tokengeom.problems.base import Certificate


ARRAYS_HELD = 24
"""V' x g arrays that the solver holds at its peak, acceleration included."""
SPREAD_ENTRIES = 100_000
"""Merged entries up to which uniqueness is measured unasked: it costs two more solves of about 0.1 s."""
RANK_GAPS = 100.0
"""Singular values below this many relative gaps, as a share of the largest, are the solver's noise."""


class FeatureStatistics(Protocol):
    """The part of ``NextTokenStatistics`` that learned features are predicted from."""

    @property
    def P(self) -> Any:
        """Next-token probabilities, V x m scipy sparse."""

    @property
    def S(self) -> Any:
        """Support, V x m scipy sparse."""

    @property
    def entropy(self) -> float:
        """Entropy floor in nats."""


@dataclass(frozen=True)
class FeaturePrediction:
    """What training is predicted to find, with proof. Large matrices are views, made when first asked for.

    ``certificate``
        Proof of ``L_mm``: residuals, ``value`` (= ``nuclear_norm``), ``bound`` (= ``lower_bound``) and their
        ``relative_gap``.
    ``proxy_is_exact``
        Whether ``S~`` is itself a solution, by the sign test or, where that cannot decide, within the gap.
    ``pinned``, ``spread``
        What every optimal answer shares, and how far apart answers were found to be (None: not measured).
    ``warnings``
        Plain sentences about degenerate supports.
    ``stats``
        The statistics themselves, which name contexts and tokens; None in a prediction that was loaded.
    """

    reduction: SupportReduction
    L_merged: Float
    dual_merged: Float
    certificate: Certificate
    P: Any
    entropy: float
    proxy_nuclear_norm: float
    proxy_is_exact: bool
    proxy_sentence: str
    pinned: PinnedDown
    spread: Spread | None
    warnings: tuple[str, ...]
    status: str
    seconds: float
    stats: Any = field(default=None, repr=False, compare=False)

    @property
    def nuclear_norm(self) -> float:
        """``||L_mm||_*``, of a feasible answer."""
        return self.certificate.value

    @property
    def lower_bound(self) -> float:
        """Proven bound on the smallest nuclear norm."""
        return self.certificate.bound

    @cached_property
    def _svd(self) -> tuple[Float, Float, Float]:
        """Singular triplets of the scaled merged logits, noise cut off."""
        red = self.reduction
        X = self.L_merged * np.sqrt(red.a)[:, None] * np.sqrt(red.n)
        U, s, Vt = np.linalg.svd(X, full_matrices=False)
        gap = max(self.certificate.relative_gap, 1e-13)
        r = int((s > RANK_GAPS * gap * s[0]).sum()) if s.size else 0
        return U[:, :r], s[:r], Vt[:r]

    @property
    def singular_values(self) -> Float:
        """Nonzero singular values of L_mm, falling, r."""
        return self._svd[1]

    @property
    def rank(self) -> int:
        """Rank r of L_mm, noise below the gap left out."""
        return int(self.singular_values.size)

    @property
    def smallest_dim(self) -> int:
        """Smallest embedding dimension expected to lose nothing: the rank (conjectured), at least 1."""
        return max(self.rank, 1)

    def suffices(self, d: int) -> bool:
        """Whether embeddings of dimension d are expected to lose nothing: d >= rank (conjectured)."""
        if d < 1:
            raise ProblemError(f"An embedding needs at least one dimension; got d={d}. Take d >= 1.")
        return d >= self.smallest_dim

    @cached_property
    def W(self) -> Float:
        """Token embeddings, V x r."""
        U, s, _ = self._svd
        return np.asarray((U / np.sqrt(self.reduction.a)[:, None] * np.sqrt(s))[self.reduction.row_of])

    @cached_property
    def H(self) -> Float:
        """Context embeddings, r x m; 0 for a context whose support is the whole vocabulary."""
        _, s, Vt = self._svd
        scaled = np.sqrt(s)[:, None] * Vt / np.sqrt(self.reduction.n)
        padded = np.concatenate([scaled, np.zeros((s.size, 1))], axis=1)
        return np.asarray(padded[:, self.reduction.column_of])

    @cached_property
    def L_mm(self) -> Float:
        """Diverging direction of the logits, V x m."""
        self._require_dense("L_mm")
        return self.reduction.expand(self.L_merged)

    @cached_property
    def L_in(self) -> Float:
        """Finite part of the logits, V x m."""
        self._require_dense("L_in")
        return finite_part(self.P)

    @property
    def token_gram(self) -> Float:
        """``W W^T = (L_mm L_mm^T)^{1/2}``, V x V."""
        return self.W @ self.W.T

    @property
    def context_gram(self) -> Float:
        """``H^T H = (L_mm^T L_mm)^{1/2}``, m x m."""
        require_memory(8 * self.reduction.m**2, "The context Gram (m x m)", "Take columns of H instead.")
        return self.H.T @ self.H

    @property
    def token_cosines(self) -> Float:
        """Cosines between words, V x V; 0 where a token has no direction."""
        return cosines(self.W.T)

    @property
    def context_cosines(self) -> Float:
        """Cosines between contexts, m x m; 0 where a context has no direction."""
        require_memory(8 * self.reduction.m**2, "The context cosines (m x m)", "Take columns of H instead.")
        return cosines(self.H)

    @property
    def context_groups(self) -> Int:
        """Support group of each context, m: equal numbers collapse to one direction; -1 is a full support."""
        return self.reduction.column_of

    @property
    def token_groups(self) -> Int:
        """Group of each token, V: tokens of one group occur in the same supports and share a row of L_mm."""
        return self.reduction.row_of

    def summary(self) -> str:
        """Put the prediction in plain words."""
        rows, columns = self.reduction.S_red.shape
        lines = [
            f"{self.reduction.m} contexts in {columns} support groups, {self.reduction.V} tokens in {rows}.",
            f"Entropy floor {self.entropy:.4f} nats.",
            f"Direction L_mm: nuclear norm {self.nuclear_norm:.6g}, proven within "
            f"{self.certificate.relative_gap:.1e} of the smallest ({self.status}).",
            f"Rank {self.rank}: embeddings of dimension {self.smallest_dim} are expected to suffice.",
            f"Proxy: nuclear norm {self.proxy_nuclear_norm:.6g}. {self.proxy_sentence}",
        ]
        if self.spread is not None:
            lines.append(self.spread.sentence)
        return "\n".join([*lines, *self.warnings])

    def to_dict(self) -> dict[str, Any]:
        """The numbers of the prediction as plain data."""
        return {
            "nuclear_norm": self.nuclear_norm,
            "lower_bound": self.lower_bound,
            "relative_gap": self.certificate.relative_gap,
            "rank": self.rank,
            "proxy_nuclear_norm": self.proxy_nuclear_norm,
            "proxy_is_exact": self.proxy_is_exact,
            "entropy_nats": self.entropy,
            "support_groups": int(self.reduction.S_red.shape[1]),
            "warnings": list(self.warnings),
        }

    def _repr_html_(self) -> str:
        rows = [
            ("nuclear norm of L_mm", f"{self.nuclear_norm:.6g}"),
            ("proven lower bound", f"{self.lower_bound:.6g}"),
            *self.certificate.rows(),
            ("rank", f"{self.rank}"),
            ("nuclear norm of the proxy", f"{self.proxy_nuclear_norm:.6g}"),
        ]
        return html_table("Prediction for learned features", rows, self.summary().splitlines())

    def save(self, folder: str | Path) -> None:
        """Write the prediction with its proof; `tokengeom verify` checks it without solving."""
        save_features(self, folder)

    def _require_dense(self, name: str) -> None:
        red = self.reduction
        require_memory(
            2 * 8 * red.V * red.m,
            f"{name} ({red.V} x {red.m})",
            "Use W and H, or reduction and L_merged, which are small.",
        )


def predict_features(
    stats: FeatureStatistics,
    *,
    tolerance: float = 1e-6,
    max_iterations: int = 5000,
    device: str | None = None,
    spread_solves: int | None = None,
    memory_limit: int | None = None,
    seed: int = 0,
) -> FeaturePrediction:
    """Predict finite part, direction and geometry of learned features, with a proven gap.

    ``spread_solves``
        Solves from random starts that measure uniqueness: 0 for none, None for 2 where that is cheap.
    ``memory_limit``
        Bytes that the solver may use; by default what is free. Beyond it, use ``predict_proxy``.
    """
    problem = NuclearSVM(reduce_support(stats.S, memory_limit=memory_limit), Arrays.on(device))
    rows, columns = problem.shape
    _require_solvable(problem, memory_limit)
    if spread_solves is None:
        spread_solves = 2 if rows * columns <= SPREAD_ENTRIES else 0
    solver = NuclearADMM(tolerance=tolerance, max_iterations=max_iterations)
    solution = solver(problem)
    exactness = proxy_exactness(problem)
    exact, sentence = _proxy_verdict(exactness.exact, exactness.nuclear_norm, solution.certificate, tolerance)
    return FeaturePrediction(
        reduction=problem.reduction,
        L_merged=problem.arrays.to_numpy(solution.x),
        dual_merged=problem.arrays.to_numpy(solution.dual),
        certificate=solution.certificate,
        P=stats.P,
        entropy=float(stats.entropy),
        proxy_nuclear_norm=exactness.nuclear_norm,
        proxy_is_exact=exact,
        proxy_sentence=sentence or exactness.sentence,
        pinned=pinned_down(problem, solution),
        spread=measure_spread(problem, solver, solves=spread_solves, seed=seed) if spread_solves else None,
        warnings=degeneracy_warnings(problem.reduction),
        status=solution.status,
        seconds=solution.seconds,
        stats=stats,
    )


def degeneracy_warnings(reduction: SupportReduction) -> tuple[str, ...]:
    """Plain sentences about supports that leave little or no geometry to predict."""
    S, m = reduction.S_red, reduction.m
    full = int((reduction.column_of < 0).sum())
    single = float(reduction.n[(reduction.a @ S) == 1].sum())
    found = []
    if full == m:
        found.append(
            "Every support is the whole vocabulary: logits stay finite, L_mm is 0 and there is no geometry "
            "to predict. Longer contexts or a larger vocabulary give sparser supports."
        )
    elif full:
        found.append(f"{full} of {m} contexts have the whole vocabulary as support: they get no direction.")
    if single == m:
        found.append(
            "Every context has a single next token: this is one-hot classification, the predicted geometry "
            "is neural collapse and says nothing about soft labels. Use shorter contexts or more text."
        )
    elif single > 0.9 * m:
        found.append(f"{single / m:.0%} of the contexts have a single next token: close to one-hot labels.")
    if S.shape[1] == 1 and full < m:
        found.append("All contexts share one support: there is one direction, of rank 1.")
    return tuple(found)


def _proxy_verdict(
    exact: bool | None, proxy_norm: float, proof: Certificate, tolerance: float
) -> tuple[bool, str | None]:
    """Where the sign test cannot decide, compare with the proven value."""
    if exact is not None:
        return exact, None
    excess = proxy_norm / max(proof.bound, 1e-300) - 1.0
    if excess <= 2.0 * tolerance:
        return True, f"The proxy is optimal within {max(excess, 0.0):.1e} (the sign test cannot decide)."
    if proxy_norm > proof.value:
        return False, f"The proxy is not exact: {proxy_norm / proof.value - 1:.1e} above a feasible answer."
    return False, "Whether the proxy is exact is not decided at this gap."


def _require_solvable(problem: NuclearSVM, limit: int | None) -> None:
    rows, columns = problem.shape
    if problem.reduction.V < 2:
        raise ProblemError(
            f"A vocabulary needs at least 2 tokens; got V={problem.reduction.V}. Likely a tokenizer that "
            "maps everything to one token. Choose another tokenizer."
        )
    if problem.arrays.device is None or not problem.arrays.device.startswith("cuda"):
        require_memory(
            8 * ARRAYS_HELD * rows * columns,
            f"Solving for L_mm on {rows} merged tokens x {columns} support groups",
            "Use predict_proxy(stats), which never makes a dense matrix, or keep fewer contexts.",
            limit,
        )


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
