"""Learned features at the loss that a model has reached: the point of the regularisation path with that loss.

``L_g = L(lambda)`` with ``CE(L(lambda)) - H = g``,   ``L(lambda) = argmin CE(L) + lambda ||L||_*``

``L_g`` has the smallest nuclear norm of all logits whose loss gap is at most g, and its balanced factors ``W, H`` are
the predicted token and context embeddings. There is no free parameter: g is measured on the model. ``g -> 0`` gives the
direction ``L_mm``; at the largest gap, that of logits 0, the direction is that of the leading singular vectors of
``(P - 1/V) diag(pi)``.

The dual proves that no logits with loss gap at most g have a nuclear norm below ``lower_bound``.

Finding lambda: g grows with lambda, and nearly in proportion to it where both are small. The search is a secant in
logarithms; a point far from the wanted gap is solved only roughly, and each solve starts where the last one ended.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from safetensors.numpy import load_file, save_file
from scipy.sparse import csc_array

from tokengeom.errors import ProblemError
from tokengeom.memory import require_memory
from tokengeom.numerics import Float, Int, cosines
from tokengeom.problems.backend import Backend
from tokengeom.problems.base import Certificate
from tokengeom.problems.regularised_logits import RegularisedLogits
from tokengeom.progress import AbstractProgress, SilentProgress
from tokengeom.results import SAME, AbstractResult, close
from tokengeom.settings import option
from tokengeom.solvers.logit_admm import LogitADMM, WarmStart

ARRAYS = "at-loss.safetensors"
ARRAYS_HELD = 30
"""Merged V' x m' arrays that a solve holds at its peak."""
GAP_ACCURACY = 0.01
"""Relative difference between the loss gap asked for and the one reached."""
ROUGH = 1e-2
"""Relative duality gap of points that only guide the search."""
NEAR = 0.15
"""Distance in log g from which on points are solved to the tolerance."""
MOST_POINTS = 25
_PLAIN = ("lam", "loss_gap", "entropy", "status", "seconds", "statistics_hash")
RANK_TOLERANCE = 1e-7


@dataclass(frozen=True)
class LossSettings:
    """Settings of a prediction at a loss."""

    tolerance: float = option(1e-4, "Proven relative gap to reach.")
    max_iterations: int = option(3000, "Largest number of iterations of one solve.")
    device: str = option("cpu", "Where to solve: cpu, or cuda for a GPU.")
    memory_limit: int | None = option(None, "Bytes that the solver may use. By default what is free.")


@dataclass(frozen=True, eq=False)
class Merging:
    """Which tokens and contexts are one row and one column: equal rows of P; equal columns of P with equal shares."""

    row_of: Int
    column_of: Int

    @staticmethod
    def of(P: csc_array, pi: Float) -> Merging:
        """Merge equal rows, and equal columns with equal shares, of sparse probabilities."""
        P = P.sorted_indices()
        ends = P.indptr
        columns = [
            (P.indices[i:j].tobytes(), P.data[i:j].tobytes(), float(share))
            for i, j, share in zip(ends[:-1], ends[1:], pi, strict=True)
        ]
        column_of = _groups(columns)
        first = np.unique(column_of, return_index=True)[1]
        # Rows are compared on distinct columns: equal columns have equal entries in every row.
        rows = P[:, first].tocsr().sorted_indices()
        starts, ends = rows.indptr[:-1], rows.indptr[1:]
        keys = [(rows.indices[i:j].tobytes(), rows.data[i:j].tobytes()) for i, j in zip(starts, ends, strict=True)]
        return Merging(_groups(keys), column_of)

    @cached_property
    def a(self) -> Float:
        """Tokens per row, V'."""
        return np.bincount(self.row_of).astype(np.float64)

    @cached_property
    def n(self) -> Float:
        """Contexts per column, m'."""
        return np.bincount(self.column_of).astype(np.float64)

    def problem(self, P: csc_array, pi: Float, lam: float, backend: Backend) -> RegularisedLogits:
        """The regularised loss on merged tokens and contexts."""
        rows = np.unique(self.row_of, return_index=True)[1]
        columns = np.unique(self.column_of, return_index=True)[1]
        merged = P.tocsr()[rows].tocsc()[:, columns].toarray()
        shares = np.bincount(self.column_of, weights=pi)
        return RegularisedLogits.from_probabilities(
            merged, shares / shares.sum(), lam, a=self.a, n=self.n, backend=backend
        )


def _groups(keys: Iterable[object]) -> Int:
    """Number of the group of equal keys that each key is in, in order of appearance."""
    seen: dict[object, int] = {}
    return np.array([seen.setdefault(key, len(seen)) for key in keys], dtype=np.int64)


@dataclass(frozen=True, eq=False, repr=False)
class LossPrediction(AbstractResult):
    """What learned features are predicted to be at a loss gap, with its certificate.

    ``loss_gap``, ``lam``
        ``CE - H`` of these logits in nats, and the strength at which they are optimal.
    ``certificate``
        Of ``CE(L) - H + lam ||L||_*`` at these logits.
    ``merging``, ``P_merged``, ``pi_merged``, ``L_merged``, ``change_merged``
        Groups of equal tokens and contexts; probabilities, shares, logits and dual on them.
    ``entropy``
        Entropy floor in nats.
    ``status``, ``seconds``
        How the solver ended, and the time that it took.
    ``statistics_hash``
        Hash of the statistics that the prediction is for.
    """

    kind: ClassVar[str] = "tokengeom-at-loss"
    title: ClassVar[str] = "Prediction at a loss"

    merging: Merging
    P_merged: Float
    pi_merged: Float
    L_merged: Float
    change_merged: Float
    lam: float
    loss_gap: float
    certificate: Certificate
    entropy: float
    status: str
    seconds: float
    statistics_hash: str | None = None

    @property
    def nuclear_norm(self) -> float:
        """``||L_g||_*``."""
        return (self.certificate.value - self.loss_gap) / self.lam

    @property
    def lower_bound(self) -> float:
        """Proven lower bound on the nuclear norm of all logits whose loss gap is at most `loss_gap`."""
        return (self.certificate.bound - self.loss_gap) / self.lam

    @property
    def relative_gap(self) -> float:
        """Relative distance of `nuclear_norm` from `lower_bound`."""
        return (self.nuclear_norm - self.lower_bound) / max(self.nuclear_norm, 1e-300)

    @cached_property
    def _svd(self) -> tuple[Float, Float, Float]:
        scaled = self.L_merged * np.sqrt(self.merging.a)[:, None] * np.sqrt(self.merging.n)
        U, s, Vt = np.linalg.svd(scaled, full_matrices=False)
        r = int((s > max(RANK_TOLERANCE, self.relative_gap) * s[0]).sum())
        return U[:, :r], s[:r], Vt[:r]

    @property
    def singular_values(self) -> Float:
        """Nonzero singular values of L_g, falling, r."""
        return self._svd[1]

    @property
    def rank(self) -> int:
        """Rank r of L_g, without singular values that are noise."""
        return int(self.singular_values.size)

    @cached_property
    def W(self) -> Float:
        """Token embeddings, V x r."""
        U, s, _ = self._svd
        return np.asarray((U / np.sqrt(self.merging.a)[:, None] * np.sqrt(s))[self.merging.row_of])

    @cached_property
    def H(self) -> Float:
        """Context embeddings, r x m."""
        _, s, Vt = self._svd
        return np.asarray((np.sqrt(s)[:, None] * Vt / np.sqrt(self.merging.n))[:, self.merging.column_of])

    @cached_property
    def L(self) -> Float:
        """Logits, V x m."""
        V, m = self.merging.row_of.size, self.merging.column_of.size
        require_memory(8 * V * m, f"L ({V} x {m})", "Use W and H, or merging and L_merged, which are small.")
        return np.asarray(self.L_merged[self.merging.row_of][:, self.merging.column_of])

    @property
    def token_cosines(self) -> Float:
        """Cosines between tokens, V x V; 0 where a token has no direction."""
        return cosines(self.W.T)

    @property
    def context_cosines(self) -> Float:
        """Cosines between contexts, m x m; 0 where a context has no direction."""
        require_memory(8 * self.H.shape[1] ** 2, "The context cosines (m x m)", "Use columns of H instead.")
        return cosines(self.H)

    def summary(self) -> str:
        """Loss gap, nuclear norm with its proof, and rank, one sentence per line."""
        rows, columns = self.L_merged.shape
        return "\n".join(
            [
                f"{self.merging.column_of.size} contexts in {columns} groups of equal next-token probabilities, "
                f"{self.merging.row_of.size} tokens in {rows}.",
                f"At a loss gap of {self.loss_gap:.4g} nats (entropy floor {self.entropy:.4f}): nuclear norm "
                f"{self.nuclear_norm:.6g}, proven within {self.relative_gap:.1e} of the smallest that logits with this "
                "loss can have.",
                f"Rank {self.rank}; lambda {self.lam:.4g}; {self.status}.",
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """The numbers of the prediction as plain data."""
        return {
            "loss_gap": self.loss_gap,
            "lam": self.lam,
            "nuclear_norm": self.nuclear_norm,
            "lower_bound": self.lower_bound,
            "relative_gap": self.relative_gap,
            "rank": self.rank,
            "entropy_nats": self.entropy,
            "statistics_hash": self.statistics_hash,
        }

    def checks(self) -> Mapping[str, bool]:
        """Everything that logits and dual prove without solving."""
        problem = self._problem()
        found = problem.certify(self.L_merged, self.change_merged)
        limit = self.certificate.relative_gap * (1 + 1e-6) + SAME
        return {
            "the loss gap is the one claimed": close(problem.loss_gap(self.L_merged), self.loss_gap),
            "the regularised objective is the one claimed": close(found.value, self.certificate.value),
            "the lower bound of the objective is the one claimed": close(found.bound, self.certificate.bound),
            f"the proven gap of the objective is within {limit:.1e}": found.relative_gap <= limit,
        }

    def _problem(self) -> RegularisedLogits:
        return RegularisedLogits.from_probabilities(
            self.P_merged, self.pi_merged, self.lam, a=self.merging.a, n=self.merging.n
        )

    def _facts(self) -> list[tuple[str, str]]:
        return [
            ("loss gap", f"{self.loss_gap:.4g} nats"),
            ("nuclear norm", f"{self.nuclear_norm:.6g}"),
            ("rank", f"{self.rank}"),
            ("proven gap", f"{self.relative_gap:.1e}"),
            ("proven lower bound", f"{self.lower_bound:.6g}"),
            ("lambda", f"{self.lam:.4g}"),
        ]

    def _write(self, folder: Path) -> dict[str, Any]:
        names = ("P_merged", "pi_merged", "L_merged", "change_merged")
        arrays = {name: np.ascontiguousarray(getattr(self, name)) for name in names}
        groups = {"row_of": self.merging.row_of, "column_of": self.merging.column_of}
        save_file({**arrays, **groups}, folder / ARRAYS)
        return {name: getattr(self, name) for name in _PLAIN} | {"certificate": self.certificate.to_dict()}

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> LossPrediction:
        arrays = load_file(folder / ARRAYS)
        merging = Merging(arrays.pop("row_of"), arrays.pop("column_of"))
        if (merging.a.size, merging.n.size) != arrays["L_merged"].shape or min(merging.a.min(), merging.n.min()) < 1:
            raise ValueError("row_of and column_of must be rows and columns of the merged logits")
        plain = {name: manifest[name] for name in _PLAIN}
        return LossPrediction(
            merging=merging, certificate=Certificate.from_dict(manifest["certificate"]), **arrays, **plain
        )


class LossPath:
    """Predictions at many losses, each solve started at the nearest point that was solved before it.

    ``P``, ``pi``
        Next-token probabilities, V x m, and shares of the contexts, m.
    """

    def __init__(
        self,
        P: csc_array,
        pi: Float,
        *,
        entropy: float,
        statistics_hash: str | None = None,
        settings: LossSettings | None = None,
    ) -> None:
        self.settings = settings or LossSettings()
        self.entropy, self.statistics_hash = entropy, statistics_hash
        self.merging = Merging.of(P, pi)
        rows, columns = self.merging.a.size, self.merging.n.size
        backend = Backend.on(None if self.settings.device == "cpu" else self.settings.device)
        if not backend.on_gpu:
            require_memory(
                8 * ARRAYS_HELD * rows * columns,
                f"The path on {rows} merged tokens x {columns} merged contexts",
                "Keep fewer contexts.",
                self.settings.memory_limit,
            )
        self.problem = self.merging.problem(P, pi, 1.0, backend)
        self.largest_gap, self.largest_lam = self.problem.zero_gap, self.problem.largest_lam
        self._solved: dict[float, tuple[float, WarmStart]] = {}

    def at(self, loss_gap: float, progress: AbstractProgress | None = None) -> LossPrediction:
        """The point of the path whose loss gap is within 1% of the one asked for."""
        self._require(loss_gap)
        target = math.log(loss_gap)
        log_lam, slope = self._first_guess(target)
        # Two points that were solved before predict the next well enough to solve it at once.
        trusted = len(self._solved) > 1
        iterations, seconds = 0, 0.0
        points: list[tuple[float, float]] = []
        with (progress or SilentProgress()).stage(f"Predicting at a loss gap of {loss_gap:.3g}", None) as stage:
            for _ in range(MOST_POINTS):
                near = trusted or (bool(points) and min(abs(y - target) for _, y in points) < NEAR)
                problem = self.problem.at(min(math.exp(log_lam), self.largest_lam))
                wanted = self.settings.tolerance
                solver = LogitADMM(
                    tolerance=wanted if near else max(ROUGH, wanted), max_iterations=self.settings.max_iterations
                )
                solution, state = solver(problem, self._start(log_lam))
                found = problem.loss_gap(solution.x)
                iterations, seconds = iterations + solution.iterations, seconds + solution.seconds
                stage.advance(0.0, f"loss gap {found:.3g}, proven gap {solution.certificate.relative_gap:.1e}")
                self._solved[log_lam] = (math.log(found), state)
                if near and abs(found / loss_gap - 1.0) <= GAP_ACCURACY:
                    break
                points.append((log_lam, math.log(found)))
                slope = _slope(points, slope)
                log_lam = min(log_lam + (target - points[-1][1]) / slope, math.log(self.largest_lam) - 1e-9)
        status = f"{solution.status}, {iterations} iterations in total"
        if abs(found / loss_gap - 1.0) > GAP_ACCURACY:
            raise ProblemError(
                f"The search for a loss gap of {loss_gap:.4g} ended at {found:.4g}: {solution.status}. Likely the gap "
                "is at the end of its range, or the tolerance is too large. Lower the tolerance or choose another gap."
            )
        return self._prediction(problem, solution.x, solution.dual, found, solution.certificate, status, seconds)

    def _require(self, loss_gap: object) -> None:
        if not isinstance(loss_gap, int | float | np.integer | np.floating) or not 0.0 < loss_gap < self.largest_gap:
            raise ProblemError(
                f"A loss gap must lie strictly between 0 and {self.largest_gap:.4g} nats, the gap of a uniform guess "
                f"on these statistics; got {loss_gap!r}. For a gap near 0 use predict(stats), the prediction in the "
                "limit."
            )

    def _first_guess(self, target: float) -> tuple[float, float]:
        """Log lambda and slope from the nearest points that were solved before, or in proportion to the largest gap."""
        nearest = sorted(((x, y) for x, (y, _) in self._solved.items()), key=lambda point: abs(point[1] - target))[:2]
        if not nearest:
            return math.log(self.largest_lam) + 1.2 * (target - math.log(self.largest_gap)), 1.0
        slope = _slope(nearest[::-1], 1.0)
        return min(nearest[0][0] + (target - nearest[0][1]) / slope, math.log(self.largest_lam) - 1e-9), slope

    def _start(self, log_lam: float) -> WarmStart | None:
        if not self._solved:
            return None
        return self._solved[min(self._solved, key=lambda known: abs(known - log_lam))][1]

    def _prediction(
        self,
        problem: RegularisedLogits,
        L: Any,
        change: Any,
        gap: float,
        certificate: Certificate,
        status: str,
        seconds: float,
    ) -> LossPrediction:
        to_numpy = problem.backend.to_numpy
        return LossPrediction(
            merging=self.merging,
            P_merged=to_numpy(problem.P),
            pi_merged=to_numpy(problem.pi),
            L_merged=to_numpy(L),
            change_merged=to_numpy(change),
            lam=problem.lam,
            loss_gap=gap,
            certificate=certificate,
            entropy=self.entropy,
            status=status,
            seconds=seconds,
            statistics_hash=self.statistics_hash,
        )


def _slope(points: list[tuple[float, float]], last: float) -> float:
    """Slope of log g against log lambda through the last two points, kept in a range that the path can have."""
    if len(points) < 2 or points[-1][0] == points[-2][0]:
        return last
    slope = (points[-1][1] - points[-2][1]) / (points[-1][0] - points[-2][0])
    return min(max(slope, 0.7), 4.0)
