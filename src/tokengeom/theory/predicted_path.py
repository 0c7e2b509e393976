"""`PredictedPath`: predictions at many losses, from the first direction that is learned towards the limit.

Embeddings and duals are kept in single precision, and the certificate of each point is that of the numbers kept. The
probabilities are those of the statistics, which `checks` finds beside the result by their hash.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from tokengeom.core.checks import Entries
from tokengeom.core.errors import ProblemError
from tokengeom.core.numerics import Float
from tokengeom.problems.backend import Backend
from tokengeom.problems.base import LARGEST_GAP, Certificate
from tokengeom.problems.merging import Merging
from tokengeom.problems.regularised_logits import RegularisedLogits
from tokengeom.results.contract import ALONE, AbstractResult, NearbyResults, close, data_frame, under
from tokengeom.statistics.arrays_file import LARGEST_ENTRY, SavedArrays
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.at_loss import SMALLEST_LAM, LossPrediction, ProvenNorm
from tokengeom.theory.recomputed import against_statistics, read_certificate

if TYPE_CHECKING:
    from pandas import DataFrame

ARRAYS = "path.safetensors"


@dataclass(frozen=True, eq=False)
class PathPrediction(ProvenNorm):
    """The prediction at one loss gap.

    ``loss_gap``, ``lam``, ``certificate``
        ``CE - H`` of the logits in nats, the strength at which they are optimal, and the proof of
        ``CE - H + lam ||L||_*``.
    ``merging``, ``W_merged``, ``H_merged``, ``change_merged``
        Groups of equal tokens and contexts; embeddings (V' x r and r x m') and dual (V' x m') on them.
    """

    loss_gap: float
    lam: float
    certificate: Certificate
    merging: Merging
    W_merged: NDArray[np.float32]
    H_merged: NDArray[np.float32]
    change_merged: NDArray[np.float32]

    @property
    def nuclear_norm(self) -> float:
        """``||L||_*``, the smallest of all logits with this loss up to `relative_gap`."""
        return self.norm_value

    @property
    def rank(self) -> int:
        """Number of directions that have been learned."""
        return int(self.W_merged.shape[1])

    @cached_property
    def W(self) -> Float:
        """Token embeddings, V x r."""
        return np.asarray(self.W_merged[self.merging.row_of], dtype=np.float64)

    @cached_property
    def H(self) -> Float:
        """Context embeddings, r x m."""
        return np.asarray(self.H_merged[:, self.merging.column_of], dtype=np.float64)

    def recomputed(self, problem: RegularisedLogits) -> tuple[float, Certificate]:
        """Loss gap and certificate of the logits, computed from the arrays."""
        at = problem.at(self.lam)
        L = np.asarray(self.W_merged, np.float64) @ np.asarray(self.H_merged, np.float64)
        return at.loss_gap(L), at.certify(L, np.asarray(self.change_merged, np.float64))

    def to_dict(self) -> dict[str, Any]:
        """The numbers of the point as plain data."""
        return {
            "loss_gap": self.loss_gap,
            "lam": self.lam,
            "nuclear_norm": self.nuclear_norm,
            "lower_bound": self.lower_bound,
            "relative_gap": self.relative_gap,
            "rank": self.rank,
        }


@dataclass(frozen=True, eq=False, repr=False)
class PredictedPath(AbstractResult, Sequence[PathPrediction]):
    """Predictions at many losses, from the largest loss gap to the smallest.

    ``points``
        One prediction per loss gap.
    ``statistics_hash``
        Hash of the statistics that they are for.
    ``seconds``
        The time that solving took.
    ``stats``
        The statistics themselves, which name contexts and tokens; None in a path that was loaded.
    """

    kind: ClassVar[str] = "tokengeom-path"
    title: ClassVar[str] = "Predictions along the loss"

    points: tuple[PathPrediction, ...]
    statistics_hash: str | None
    seconds: float
    stats: NextTokenStatistics | None = None

    @staticmethod
    def of(points: Sequence[LossPrediction]) -> PredictedPath:
        """From predictions at different losses for the same statistics, in the nuclear norm."""
        if not points or any(one.norm != "nuclear" or one.merging is not points[0].merging for one in points):
            raise ProblemError("A path needs predictions in the nuclear norm that were made together, by path().")
        problem = points[0].problem()
        kept = sorted((_kept(one, problem) for one in points), key=lambda one: -one.loss_gap)
        return PredictedPath(tuple(kept), points[0].statistics_hash, sum(one.seconds for one in points))

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, k: Any) -> Any:
        return self.points[k]

    def __iter__(self) -> Iterator[PathPrediction]:
        return iter(self.points)

    def to_dict(self) -> dict[str, Any]:
        """The numbers of every point as plain data."""
        return {"points": [one.to_dict() for one in self.points], "statistics_hash": self.statistics_hash}

    def to_frame(self) -> DataFrame:
        """Data frame with one row per point: loss gap, lambda, nuclear norm with its proof, and rank."""
        return data_frame([one.to_dict() for one in self.points])

    def summary(self) -> str:
        """One sentence about the path, then one line per point."""
        lines = [
            f"loss gap {one.loss_gap:.4g}: rank {one.rank}, nuclear norm {one.nuclear_norm:.5g}, proven within "
            f"{one.relative_gap:.1e} of the smallest."
            for one in self.points
        ]
        return "\n".join([f"{len(self)} predictions, from the largest loss gap to the smallest.", *lines])

    def _facts(self) -> list[tuple[str, str]]:
        return [(f"loss gap {one.loss_gap:.4g}", f"rank {one.rank}") for one in self.points]

    def checks(self, beside: NearbyResults = ALONE) -> dict[str, bool | None]:
        """Loss and certificate of every point, computed again with the statistics."""
        return {
            "the loss gaps fall": all(a.loss_gap >= b.loss_gap for a, b in zip(self, self.points[1:], strict=False)),
            **against_statistics(self, beside, self._compare),
            "the time that solving took: only solving again would show it": None,
        }

    def _compare(self, stats: NextTokenStatistics) -> dict[str, bool | None]:
        merging = self.points[0].merging
        if (stats.V, stats.m) != (merging.row_of.size, merging.column_of.size):
            return {"there is one row per token and one column per context of the statistics": False}
        found = Merging.of(stats.P, stats.pi)
        same = np.array_equal(found.row_of, merging.row_of) and np.array_equal(found.column_of, merging.column_of)
        if not same:
            return {"equal tokens and contexts are those of the statistics": False}
        problem = found.problem(stats.P, stats.pi, 1.0, Backend.on(None))
        checks: dict[str, bool | None] = {"equal tokens and contexts are those of the statistics": True}
        for place, one in enumerate(self.points, start=1):
            checks |= under(f"point {place}", _check(one, problem))
        return checks

    def _write(self, folder: Path) -> dict[str, Any]:
        merging = self.points[0].merging
        arrays = {"row_of": merging.row_of, "column_of": merging.column_of}
        for k, one in enumerate(self.points):
            arrays |= {f"{k}.{name}": getattr(one, f"{name}_merged") for name in ("W", "H", "change")}
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, folder / ARRAYS)
        points = [
            {"loss_gap": one.loss_gap, "lam": one.lam, "certificate": one.certificate.to_dict()} for one in self.points
        ]
        return {"points": points, "statistics_hash": self.statistics_hash, "seconds": self.seconds}

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> PredictedPath:
        saved, arrays = Entries(manifest, folder), SavedArrays(folder / ARRAYS)
        stored = saved.several("points")
        if not stored:
            raise saved.damaged("it has no point")
        arrays.only_beginning("row_of", "column_of", *(f"{k}." for k in range(len(stored))))
        rows, columns = arrays.matrix("0.change", (None, None)).shape
        merging = Merging(
            arrays.wholes("row_of", (None,), 0, rows - 1), arrays.wholes("column_of", (None,), 0, columns - 1)
        )
        if (merging.a.size, merging.n.size) != (rows, columns) or 0 in merging.a or 0 in merging.n:
            raise saved.damaged("row_of and column_of must name every row and column of the embeddings")
        return cls(
            tuple(_read_point(one, k, arrays, merging) for k, one in enumerate(stored)),
            saved.digest("statistics_hash") if saved.has("statistics_hash") else None,
            saved.within("seconds", 0.0),
        )


def _kept(point: LossPrediction, problem: RegularisedLogits) -> PathPrediction:
    """A prediction in single precision, with the certificate of the rounded numbers."""
    W, H = (np.asarray(array, dtype=np.float32) for array in (point.merged_factors[0], point.merged_factors[2]))
    change = np.asarray(point.change_merged, dtype=np.float32)
    first = PathPrediction(point.loss_gap, point.lam, point.certificate, point.merging, W, H, change)
    loss_gap, certificate = first.recomputed(problem)
    return PathPrediction(loss_gap, point.lam, certificate, point.merging, W, H, change)


def _check(point: PathPrediction, problem: RegularisedLogits) -> dict[str, bool | None]:
    loss_gap, found = point.recomputed(problem)
    claimed = point.certificate
    return {
        "the loss gap is the one claimed": close(loss_gap, point.loss_gap),
        "the regularised objective is the one claimed": close(found.value, claimed.value),
        "the lower bound of the objective is the one claimed": close(found.bound, claimed.bound),
        f"the objective is proven to be within {LARGEST_GAP:.0%} of the smallest": found.relative_gap <= LARGEST_GAP,
    }


def _read_point(stored: Entries, k: int, arrays: SavedArrays, merging: Merging) -> PathPrediction:
    stored.only("loss_gap", "lam", "certificate")
    W = arrays.matrix(f"{k}.W", (merging.a.size, None))
    return PathPrediction(
        stored.within("loss_gap", 0.0, LARGEST_ENTRY),
        stored.within("lam", SMALLEST_LAM, LARGEST_ENTRY),
        read_certificate(stored.inside("certificate")),
        merging,
        W,
        arrays.matrix(f"{k}.H", (W.shape[1], merging.n.size)),
        arrays.matrix(f"{k}.change", (merging.a.size, merging.n.size)),
    )
