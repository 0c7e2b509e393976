"""Learned features in the limit of vanishing regularisation: the geometry of both factors, predicted from supports.

``L ~ L_in + R L_mm``, ``R -> inf``;   ``W W^T ~ (L_mm L_mm^T)^{1/2}``,  ``H^T H ~ (L_mm^T L_mm)^{1/2}``

where

``L_in``   finite part, V x m: ``log p_{j,z} - mean_{z' in S_j} log p_{j,z'}`` on support, 0 elsewhere
``L_mm``   diverging direction, V x m: the solution of NTP-SVM*, with its certificate
``W, H``   token and context embeddings ``U Sigma^{1/2}`` (V x r) and ``Sigma^{1/2} V^T`` (r x m) of
           ``L_mm = U Sigma V^T``, determined up to a rotation [zhao2024]
``F``      span of ``(e_z - e_z') e_j^T``, z, z' in S_j: where logits stay finite. ``P_F(L)`` subtracts from the
           in-support entries of a column their mean, and is 0 elsewhere

One-hot supports give neural collapse only when all tokens have equally many contexts; otherwise the geometry is that
of SELI [thrampoulidis2022].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import numpy as np
from scipy.sparse import csc_array

from tokengeom.ask.explain import AnswersQuestions
from tokengeom.core.errors import ProblemError
from tokengeom.core.numerics import Float, Int, Matrix, dense
from tokengeom.core.resources import require_memory
from tokengeom.core.settings import is_several, make, takes
from tokengeom.problems.base import Certificate
from tokengeom.problems.supports import SupportReduction, as_support, centre_on
from tokengeom.results.contract import AbstractResult
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.at_loss import LossPrediction, LossSettings, PredictedCosines
from tokengeom.theory.loss_path import Gamma2Limit, LossPath, solve_gamma2_limit
from tokengeom.theory.pulls import Pulls, pulls_in_limit
from tokengeom.theory.storage import read_features, write_features
from tokengeom.theory.uniqueness import PATH_TOLERANCE, PathDirection, SolutionBounds, Spread, path_direction, path_gaps

if TYPE_CHECKING:
    from tokengeom.keywords import LossKeywords

RANK_GAPS = 100.0
"""Singular values below this many relative gaps, as a share of the largest, are noise of the solver."""


@dataclass(frozen=True, eq=False, repr=False)
class FeaturePrediction(PredictedCosines, AnswersQuestions, AbstractResult):
    """What training is predicted to find, with its certificate. Large matrices are computed when they are first used.

    ``certificate``
        Proof of ``L_mm``: residuals, ``value`` (= ``nuclear_norm``), ``bound`` (= ``lower_bound``) and their
        ``relative_gap``.
    ``P``, ``pi``, ``entropy``
        Next-token probabilities, V x m, shares of the contexts, m, and the entropy floor in nats.
    ``proxy_nuclear_norm``
        Nuclear norm of the proxy ``S~``.
    ``proxy_is_exact``, ``proxy_sentence``
        Whether ``S~`` is itself a solution, by the sign test or, where that cannot decide, within the gap; and a
        sentence about it.
    ``solution_bounds``, ``spread``
        What every solution has in common, and how far apart solutions were found to be (None: not measured).
    ``warnings``
        Sentences about degenerate supports.
    ``status``, ``seconds``, ``tolerance``
        How the solver ended, the time that it took, and the proven relative gap that it was asked for.
    ``statistics_hash``
        Hash of the statistics that the prediction is for.
    ``windows``, ``coverage``
        Number of windows behind the statistics, and the share of the text's windows that they are; None where not
        known.
    ``stats``
        The statistics themselves, which name contexts and tokens; None in a prediction that was loaded.
    ``reduction``, ``L_merged``, ``dual_merged``
        The merged pattern (V' x g), and logits and dual of NTP-SVM* on it.
    ``claimed``
        The manifest of a saved prediction, which `verify` compares with the arrays; None if it was not loaded.
    """

    kind: ClassVar[str] = "tokengeom-features"
    title: ClassVar[str] = "Prediction for learned features"

    reduction: SupportReduction
    L_merged: Float
    dual_merged: Float
    certificate: Certificate
    P: csc_array
    pi: Float
    entropy: float
    proxy_nuclear_norm: float
    proxy_is_exact: bool
    proxy_sentence: str
    solution_bounds: SolutionBounds
    spread: Spread | None
    warnings: tuple[str, ...]
    status: str
    seconds: float
    tolerance: float
    statistics_hash: str | None = None
    windows: int | None = None
    coverage: float | None = None
    stats: NextTokenStatistics | None = None
    claimed: Mapping[str, Any] | None = None

    @property
    def nuclear_norm(self) -> float:
        """``||L_mm||_*``, of feasible logits."""
        return self.certificate.value

    @property
    def lower_bound(self) -> float:
        """Proven lower bound on the smallest nuclear norm."""
        return self.certificate.bound

    @cached_property
    def _svd(self) -> tuple[Float, Float, Float]:
        """Singular triplets of the scaled merged logits, without those that are noise."""
        return self.reduction.svd(self.L_merged, RANK_GAPS * max(self.certificate.relative_gap, 1e-13))

    @property
    def singular_values(self) -> Float:
        """Nonzero singular values of L_mm, falling, r."""
        return self._svd[1]

    @property
    def rank(self) -> int:
        """Rank r of L_mm, without singular values that are noise."""
        return int(self.singular_values.size)

    @property
    def smallest_dim(self) -> int:
        """Smallest embedding dimension that is expected to lose nothing: the rank (conjectured), at least 1."""
        return max(self.rank, 1)

    @takes()
    def suffices(self, d: int) -> bool:
        """Whether embeddings of dimension d are expected to lose nothing: d >= rank (conjectured)."""
        if d < 1:
            raise ProblemError(f"An embedding needs at least one dimension; got d={d}. Use d >= 1.")
        return d >= self.smallest_dim

    @cached_property
    def W(self) -> Float:
        """Token embeddings, V x r."""
        U, s, _ = self._svd
        return self.reduction.token_factor(U, s)

    @cached_property
    def H(self) -> Float:
        """Context embeddings, r x m; 0 for a context whose support is the whole vocabulary."""
        _, s, Vt = self._svd
        return self.reduction.context_factor(s, Vt)

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

    @takes(LossSettings)
    def at(self, loss_gap: float, **settings: Unpack[LossKeywords]) -> LossPrediction:
        """The prediction at a loss gap in nats: the point of the regularisation path that has it."""
        return self.path([loss_gap], **settings)[0]

    @takes(LossSettings)
    def path(self, loss_gaps: Iterable[float], **settings: Unpack[LossKeywords]) -> list[LossPrediction]:
        """Predictions at many loss gaps, in the order given; each solve starts at the nearest point solved before."""
        if not is_several(loss_gaps):
            raise ProblemError(f"loss_gaps must be several loss gaps in nats, such as [1, 0.1]; got {loss_gaps!r}.")
        path = LossPath.beside(self, make(LossSettings, settings, "path"))
        return [replace(path.at(gap), stats=self.stats) for gap in loss_gaps]

    @takes()
    def gamma2_limit(self, *, tolerance: float = 3e-3, max_iterations: int = 3000, device: str = "cpu") -> Gamma2Limit:
        """The limit in the gamma_2 norm: `at` with ``norm="gamma2"`` converges to it in direction as the gap falls."""
        return solve_gamma2_limit(self.reduction, tolerance=tolerance, max_iterations=max_iterations, device=device)

    def limit_of_path(self) -> PathDirection:
        """The direction of the path at small losses; where L_mm is not unique, smaller losses can change it."""
        points = self.path(path_gaps(self.largest_gap), tolerance=PATH_TOLERANCE)
        return path_direction(points, self.L_mm, dense(self.P) > 0, self.lower_bound)

    @property
    def token_gram(self) -> Float:
        """``W W^T = (L_mm L_mm^T)^{1/2}``, V x V."""
        return self.W @ self.W.T

    @property
    def context_gram(self) -> Float:
        """``H^T H = (L_mm^T L_mm)^{1/2}``, m x m."""
        require_memory(8 * self.reduction.m**2, "The context Gram matrix (m x m)", "Use columns of H instead.")
        return self.H.T @ self.H

    @cached_property
    def statistics(self) -> NextTokenStatistics:
        """The statistics that the prediction is for; without names in a prediction that was loaded."""
        if self.stats is not None:
            return self.stats
        if self.windows is None:
            return NextTokenStatistics.from_probabilities(self.P, self.pi)
        counts = self.P.multiply(self.pi * self.windows).tocsc()
        counts.data = np.rint(counts.data)
        return NextTokenStatistics.from_counts(counts.astype(np.int64))

    @property
    def largest_gap(self) -> float:
        """Loss gap of a uniform guess, in nats: predictions at a loss exist below it."""
        return float(np.log(self.reduction.V)) - self.entropy

    @property
    def context_groups(self) -> Int:
        """Support group of each context, m: equal numbers have the same direction; -1 is a full support."""
        return self.reduction.column_of

    @property
    def token_groups(self) -> Int:
        """Group of each token, V: tokens of one group occur in the same supports and have the same row of L_mm."""
        return self.reduction.row_of

    @property
    def proxy_excess(self) -> float:
        """How far the proxy's nuclear norm is above that of L_mm, as a share; below 0 within the proven gap."""
        return self.proxy_nuclear_norm / self.nuclear_norm - 1.0 if self.nuclear_norm else 0.0

    @property
    def proxy_reason(self) -> str:
        """Whether the proxy is exact, and by how much it is not; where this is decided, its norm says more than why."""
        if self.proxy_is_exact or self.proxy_excess <= self.certificate.relative_gap:
            return self.proxy_sentence
        return f"The proxy is not exact: its nuclear norm is {100 * self.proxy_excess:.2g}% above that of L_mm."

    def summary(self) -> str:
        """Sizes, certificate, rank, proxy and uniqueness, one sentence per line; then warnings."""
        rows, columns = self.reduction.S_red.shape
        lines = [
            f"{self.reduction.m} contexts in {columns} support groups, {self.reduction.V} tokens in {rows}.",
            f"Entropy floor {self.entropy:.4f} nats.",
            f"Direction L_mm: nuclear norm {self.nuclear_norm:.6g}, proven within "
            f"{self.certificate.relative_gap:.1e} of the smallest ({self.status}).",
            f"Rank {self.rank}: a model needs embeddings of at least {self.smallest_dim} dimensions to reach this "
            "geometry, and that many are expected to suffice.",
            f"Proxy: nuclear norm {self.proxy_nuclear_norm:.6g}. {self.proxy_reason}",
        ]
        if self.spread is not None:
            lines.append(self.spread.sentence)
            if not self.spread.looks_unique:
                lines.append(self.solution_bounds.sentence)
        return "\n".join([*lines, *self.warnings])

    def to_dict(self) -> dict[str, Any]:
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
            "statistics_hash": self.statistics_hash,
        }

    def _facts(self) -> list[tuple[str, str]]:
        return [
            ("contexts", f"{self.reduction.m}"),
            ("tokens", f"{self.reduction.V}"),
            ("nuclear norm of L_mm", f"{self.nuclear_norm:.6g}"),
            ("rank", f"{self.rank}"),
            *self.certificate.rows(),
            ("proven lower bound", f"{self.lower_bound:.6g}"),
            ("nuclear norm of the proxy", f"{self.proxy_nuclear_norm:.6g}"),
        ]

    def _write(self, folder: Path) -> dict[str, Any]:
        return write_features(self, folder)

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> FeaturePrediction:
        return read_features(cls, folder, manifest)

    @property
    def _source(self) -> str:
        return "predicted in the limit"

    def _pulls(self) -> Pulls:
        return pulls_in_limit(self)

    def _logits_after(self, j: int) -> dict[str, Float]:
        """Finite part and direction of one column; all of them may not fit in memory."""
        column = self.reduction.column_of[j]
        direction = self.L_merged[self.reduction.row_of, column] if column >= 0 else np.zeros(self.reduction.V)
        return {"finite": finite_part(self.P[:, [j]])[:, 0], "direction": np.asarray(direction)}

    def _require_dense(self, name: str) -> None:
        red = self.reduction
        require_memory(
            2 * 8 * red.V * red.m,
            f"{name} ({red.V} x {red.m})",
            "Use W and H, or reduction and L_merged, which are small.",
        )


def finite_part(P: Matrix) -> Float:
    """``L_in``: the log-probabilities centred on the support, V x m, to which logits converge on F."""
    probabilities = dense(P)
    if not np.isfinite(probabilities).all() or (probabilities < 0).any():
        raise ProblemError(
            "Probabilities must be finite and >= 0; P holds NaN, infinity or a negative entry. "
            "Likely a division by an empty column of counts. Build P with NextTokenStatistics."
        )
    S = as_support(probabilities > 0)
    return centre_on(S, np.log(np.where(S, probabilities, 1.0)))


def project_on_F(L: Float, S: Matrix) -> Float:
    """``P_F(L)``, V x m: deviations from the in-support mean, 0 off support."""
    pattern = as_support(S)
    if L.shape != pattern.shape:
        raise ProblemError(
            f"Logits and support must have the same shape V x m; got L {L.shape} and S {pattern.shape}. "
            "Likely a transposed matrix: rows are tokens, columns are contexts."
        )
    return centre_on(pattern, L)
