"""Learned features at the loss that a model has reached: the point of the regularisation path with that loss.

``L_g = L(lambda)`` with ``CE(L(lambda)) - H = g``,   ``L(lambda) = argmin CE(L) + lambda ||L||``

``L_g`` has the smallest norm of all logits whose loss gap is at most g, and its factors ``W, H`` that attain the norm
are the predicted token and context embeddings. Only g is taken from the model. The norm is

``nuclear``  ``||L||_* = min_{L = W H} (||W||^2 + ||H||^2) / 2``, which weight decay keeps small
``gamma2``   ``gamma_2(L) = min_{L = W H} max_i ||w_i|| max_j ||h_j||``, in which all embeddings that matter have equal
             norms, as they nearly have after training with Adam

For the nuclear norm, ``g -> 0`` gives the direction ``L_mm``; at the largest gap, that of logits 0, the direction is
that of the leading singular vectors of ``(P - 1/V) diag(pi)``. For gamma_2, ``g -> 0`` gives the smallest gamma_2 norm
with margins 1.

The dual proves that no logits with loss gap at most g have a norm below ``lower_bound``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from tokengeom.ask.explain import AnswersQuestions
from tokengeom.core.errors import InputError, ProblemError
from tokengeom.core.factors import HasFactors, finite_matrix
from tokengeom.core.numerics import Float, Int, centre_columns, cosines
from tokengeom.core.resources import require_memory
from tokengeom.core.settings import check_tolerance, nearest_hint, option
from tokengeom.problems.backend import SVD_SIDE, Backend
from tokengeom.problems.base import Certificate
from tokengeom.problems.gamma2 import MaxNormFactors
from tokengeom.problems.regularised_logits import Merging, RegularisedLogits
from tokengeom.results.contract import AbstractResult
from tokengeom.solvers.gamma2_factors import Triplets
from tokengeom.solvers.gamma2_norm import gamma2_norm
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.pulls import Pulls, pulls_at_loss
from tokengeom.theory.storage import read_at_loss, write_at_loss

NORMS = {"nuclear": "nuclear norm", "gamma2": "gamma_2 norm"}
"""Norms of logits, and their names in sentences."""
RANK_TOLERANCE = 1e-7
ROUNDING = 1e-10
"""Relative allowance for the rounding of a loss and of a nuclear norm in float64."""
BLOCK_ENTRIES = 10**7
SEARCH_ACCURACY = 1e-4
EFFICIENCY_TOLERANCE = 1e-3
"""Relative distance between the bounds of the gamma_2 norm of given logits."""
EFFICIENCY_ENTRIES = 100_000_000
"""Entries of logits times iterations after which the bounds of their gamma_2 norm are taken as they are: some 10 s."""


def _singular_triplets(M: Float) -> tuple[Float, Float, Float]:
    """Singular triplets of a matrix, falling; of a large one from its Gram matrix, without those that this loses."""
    if min(M.shape) <= SVD_SIDE:
        U, s, Vt = np.linalg.svd(M, full_matrices=False)
        return U, s, Vt
    found = Triplets.of(Backend.on(), M)
    return found.U[:, ::-1], found.s[::-1], found.Vt[::-1]


@dataclass(frozen=True)
class LossSettings:
    """Settings of a prediction at a loss."""

    norm: str = option(
        "nuclear",
        "Norm of the logits that is smallest at the loss: nuclear, which weight decay keeps "
        "small and gradient descent is nearest to, or gamma2, which Adam is nearest to.",
        choices=lambda: tuple(NORMS),
    )
    tolerance: float = option(1e-4, "Proven relative gap to reach.")
    max_iterations: int = option(3000, "Largest number of iterations of one solve.")
    device: str = option("cpu", "Where to solve: cpu, or cuda for a GPU.")
    memory_limit: int | None = option(None, "Bytes that the solver may use. By default what is free.")

    def __post_init__(self) -> None:
        require_norm(self.norm)
        check_tolerance(self.tolerance)


def require_norm(norm: str) -> None:
    """Refuse a norm that predictions are not made for."""
    if norm not in NORMS:
        raise InputError(f"norm must be one of {', '.join(NORMS)}; got {norm!r}.{nearest_hint(str(norm), NORMS)}")


class ProvenNorm:
    """The smallest norm of logits with a loss gap, proven by the certificate of ``CE - H + lam ||L||``."""

    lam: float
    loss_gap: float
    certificate: Certificate

    @property
    def norm_value(self) -> float:
        """The norm that is smallest at this loss, of these logits."""
        return (self.certificate.value - self.loss_gap) / self.lam

    @property
    def lower_bound(self) -> float:
        """Proven lower bound on this norm of all logits whose loss gap is at most `loss_gap`."""
        return (self.certificate.bound - self.loss_gap) / self.lam

    @property
    def relative_gap(self) -> float:
        """Relative distance of `norm_value` from `lower_bound`."""
        return (self.norm_value - self.lower_bound) / max(self.norm_value, 1e-300)


class PredictedCosines:
    """Cosines between all tokens and between all contexts of a prediction, from its W and H."""

    @property
    def token_cosines(self: HasFactors) -> Float:
        """Cosines between tokens, V x V; 0 where a token has no direction."""
        return cosines(self.W.T)

    @property
    def context_cosines(self: HasFactors) -> Float:
        """Cosines between contexts, m x m; 0 where a context has no direction."""
        require_memory(8 * self.H.shape[1] ** 2, "The context cosines (m x m)", "Use columns of H instead.")
        return cosines(self.H)


@dataclass(frozen=True, eq=False, repr=False)
class LossPrediction(ProvenNorm, PredictedCosines, AnswersQuestions, AbstractResult):
    """What learned features are predicted to be at a loss gap, with its certificate.

    ``loss_gap``, ``lam``
        ``CE - H`` of these logits in nats, and the strength at which they are optimal.
    ``certificate``
        Of ``CE(L) - H + lam ||L||`` at these logits: the bound is proven, the value evaluated.
    ``norm``
        The norm: "nuclear" or "gamma2".
    ``merging``, ``P_merged``, ``L_merged``, ``change_merged``
        Groups of equal tokens and contexts; probabilities, logits and dual on them.
    ``pi``
        Share of each context, m.
    ``factors``, ``weights``
        For gamma2, factors of ``L_merged`` that attain the norm, and the squares of the weights r and c of merged
        tokens and contexts with which the dual proves the bound; None for the nuclear norm.
    ``entropy``
        Entropy floor in nats.
    ``status``, ``seconds``
        How the solver ended, and the time that it took.
    ``statistics_hash``
        Hash of the statistics that the prediction is for.
    ``stats``
        The statistics themselves, which name contexts and tokens; None in a prediction that was loaded.
    """

    kind: ClassVar[str] = "tokengeom-at-loss"
    title: ClassVar[str] = "Prediction at a loss"

    merging: Merging
    P_merged: Float
    pi: Float
    L_merged: Float
    change_merged: Float
    lam: float
    loss_gap: float
    certificate: Certificate
    entropy: float
    status: str
    seconds: float
    norm: str = "nuclear"
    factors: MaxNormFactors | None = None
    weights: tuple[Float, Float] | None = None
    statistics_hash: str | None = None
    stats: NextTokenStatistics | None = None

    @cached_property
    def nuclear_norm(self) -> float:
        """``||L_g||_*``, whichever norm is smallest."""
        if self.norm == "nuclear":
            return self.norm_value
        scaled = self.L_merged * np.sqrt(self.merging.a)[:, None] * np.sqrt(self.merging.n)
        return float(np.linalg.svd(scaled, compute_uv=False).sum())

    @property
    def pi_merged(self) -> Float:
        """Share of the contexts of each merged column together, m'."""
        return self.merging.shares(self.pi)

    @cached_property
    def merged_factors(self) -> tuple[Float, Float, Float]:
        """W and H of merged tokens and contexts, and the singular values that belong to their columns, falling."""
        if self.factors is None or self.weights is None:
            r, c = np.sqrt(self.merging.a)[:, None], np.sqrt(self.merging.n)
            U, s, Vt = _singular_triplets(r * self.L_merged * c)
            W, H = U * np.sqrt(s) / r, np.sqrt(s)[:, None] * Vt / c
        else:
            (p, q), W, H = self.weights, self.factors.W, self.factors.H
            s = np.sqrt((p @ W**2) * (H**2 @ q))
            order = np.argsort(-s)
            W, s, H = W[:, order], s[order], H[order]
        rank = int((s > max(RANK_TOLERANCE, self.relative_gap) * s[0]).sum()) if s.size else 0
        return W[:, :rank], s[:rank], H[:rank]

    @property
    def singular_values(self) -> Float:
        """Nonzero singular values, falling, r: of L_g or, for gamma2, of ``diag(r) L_g diag(c)``."""
        return self.merged_factors[1]

    @property
    def rank(self) -> int:
        """Rank r of L_g, without singular values that are noise."""
        return int(self.singular_values.size)

    @cached_property
    def W(self) -> Float:
        """Token embeddings, V x r."""
        return np.asarray(self.merged_factors[0][self.merging.row_of])

    @cached_property
    def H(self) -> Float:
        """Context embeddings, r x m."""
        return np.asarray(self.merged_factors[2][:, self.merging.column_of])

    @cached_property
    def L(self) -> Float:
        """Logits, V x m."""
        V, m = self.merging.row_of.size, self.merging.column_of.size
        require_memory(8 * V * m, f"L ({V} x {m})", "Use W and H, or merging and L_merged, which are small.")
        return np.asarray(self.L_merged[self.merging.row_of][:, self.merging.column_of])

    @cached_property
    def context_groups(self) -> Int:
        """Support group of each context, m: equal numbers have the same support; -1 is a full support."""
        S = self.P_merged > 0
        group = np.unique(S, axis=1, return_inverse=True)[1].reshape(-1)
        return np.where(S.all(axis=0), -1, group)[self.merging.column_of].astype(np.int64)

    def efficiency(self, L: Float) -> tuple[float, float]:
        """Smallest norm of logits with the loss of L, as a share of the norm of L: bounds (low, high) in [0, 1].

        ``L`` are logits on all tokens and contexts, V x m. A constant added to a column changes no loss, so the norm of
        L is that of its best shift: for the nuclear norm each column's mean is removed, for gamma2 the shift is solved
        for. ``low`` follows from the lower bound at this prediction's lambda, which holds for every loss and is tight
        for losses near `loss_gap`. ``high`` follows from logits with the loss of L near these ones.
        """
        given = self._logits_of_all(L)
        shortest, longest = self._norm_of_all(given)
        if longest == 0.0:
            return 1.0, 1.0
        gap = self._loss_gap_of_all(given) * (1.0 + ROUNDING)
        low = (self.certificate.bound - gap) / self.lam / longest
        high = self._cheapest_known(gap, given, longest) / max(shortest, 1e-300)
        return min(max(low, 0.0), 1.0), min(high, 1.0)

    def _norm_of_all(self, L: Float) -> tuple[float, float]:
        """Bounds of the norm of the best shift of logits on all tokens and contexts."""
        if self.weights is not None:
            rows, columns = self.merging.row_of, self.merging.column_of
            p, q = self.weights[0] / self.merging.a, self.weights[1] / self.merging.n
            # Bounds that are proven after few iterations are wider, and still bounds.
            most = max(3, min(300, EFFICIENCY_ENTRIES // L.size))
            return gamma2_norm(L, EFFICIENCY_TOLERANCE, shift=True, start=(p[rows], q[columns]), max_iterations=most)
        norm = float(np.linalg.svd(L, compute_uv=False).sum())
        return norm * (1.0 - ROUNDING), norm * (1.0 + ROUNDING)

    def _logits_of_all(self, L: Float) -> Float:
        given, shape = finite_matrix("L", L), (self.merging.row_of.size, self.merging.column_of.size)
        if given.shape != shape:
            raise ProblemError(
                f"Logits must have one row per token and one column per context, {shape}; got an array of "
                f"shape {given.shape}. Pass run.logits, or W @ H of a model on the contexts of these statistics."
            )
        return centre_columns(given)

    def _loss_gap_of_all(self, L: Float) -> float:
        """``CE - H`` of logits on all tokens and contexts, in blocks of columns."""
        column_of = self.merging.column_of
        pi = self.pi
        gap, width = 0.0, max(1, BLOCK_ENTRIES // L.shape[0])
        for i in range(0, L.shape[1], width):
            share = float(pi[i : i + width].sum())
            P = self.P_merged[self.merging.row_of][:, column_of[i : i + width]]
            block = RegularisedLogits.from_probabilities(P, pi[i : i + width] / share, 1.0)
            gap += share * block.loss_gap(L[:, i : i + width])
        return gap

    def _cheapest_known(self, gap: float, L: Float, norm: float) -> float:
        """The norm of known logits with at most this loss gap, which is that of L: an upper bound of the smallest.

        They are the shortest that lie between 0 and L_g where L_g has this loss, else between L_g and L with equal rows
        and columns averaged, which has at most the loss and the norm of L.
        """
        problem, here, size = self.problem(), self.L_merged, self.norm_value
        if self.loss_gap <= gap:
            start, change, sizes = 0.0 * here, here, (0.0, size)
        else:
            start, change, sizes = here, self._averaged(L) - here, (size, norm)
        low, high = 0.0, 1.0
        while high - low > SEARCH_ACCURACY:
            middle = 0.5 * (low + high)
            low, high = (low, middle) if problem.loss_gap(start + middle * change) <= gap else (middle, high)
        return min(sizes[0] + high * (sizes[1] - sizes[0]), norm)

    def _averaged(self, L: Float) -> Float:
        """Logits on all tokens and contexts averaged over equal rows, and over equal columns by share, V' x m'."""
        rows = csr_array((1.0 / self.merging.a[self.merging.row_of], (self.merging.row_of, np.arange(L.shape[0]))))
        share = self.pi / np.bincount(self.merging.column_of, weights=self.pi)[self.merging.column_of]
        columns = csr_array((share, (np.arange(L.shape[1]), self.merging.column_of)))
        return np.asarray((rows @ L) @ columns)

    def summary(self) -> str:
        """Loss gap, norm with its proof, and rank, one sentence per line."""
        rows, columns = self.L_merged.shape
        return "\n".join(
            [
                f"{self.merging.column_of.size} contexts in {columns} groups of equal next-token probabilities, "
                f"{self.merging.row_of.size} tokens in {rows}.",
                f"At a loss gap of {self.loss_gap:.4g} nats (entropy floor {self.entropy:.4f}): "
                f"{NORMS[self.norm]} {self.norm_value:.6g}, proven within {self.relative_gap:.1e} of the smallest that "
                "logits with this loss can have.",
                f"Rank {self.rank}; lambda {self.lam:.4g}; {self.status}.",
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """The numbers of the prediction as plain data."""
        return {
            "loss_gap": self.loss_gap,
            "lam": self.lam,
            "norm": self.norm,
            "norm_value": self.norm_value,
            "nuclear_norm": self.nuclear_norm,
            "lower_bound": self.lower_bound,
            "relative_gap": self.relative_gap,
            "rank": self.rank,
            "entropy_nats": self.entropy,
            "statistics_hash": self.statistics_hash,
        }

    def problem(self) -> RegularisedLogits:
        """The regularised loss on merged tokens and contexts, which these logits minimise."""
        return RegularisedLogits.from_probabilities(
            self.P_merged, self.pi_merged, self.lam, a=self.merging.a, n=self.merging.n
        )

    @property
    def _source(self) -> str:
        return f"predicted at a loss gap of {self.loss_gap:.3g} nats ({NORMS[self.norm]})"

    def _pulls(self) -> Pulls:
        return pulls_at_loss(self)

    def _logits_after(self, j: int) -> dict[str, Float]:
        return {"logit": np.asarray(self.L_merged[self.merging.row_of, self.merging.column_of[j]])}

    def _facts(self) -> list[tuple[str, str]]:
        return [
            ("loss gap", f"{self.loss_gap:.4g} nats"),
            (NORMS[self.norm], f"{self.norm_value:.6g}"),
            ("rank", f"{self.rank}"),
            ("proven gap", f"{self.relative_gap:.1e}"),
            ("proven lower bound", f"{self.lower_bound:.6g}"),
            ("lambda", f"{self.lam:.4g}"),
        ]

    def _write(self, folder: Path) -> dict[str, Any]:
        return write_at_loss(self, folder)

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> LossPrediction:
        return read_at_loss(cls, folder, manifest)
