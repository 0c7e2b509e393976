"""`PredictedPath`: predictions at many losses, from the first direction that is learned towards the limit.

Embeddings and duals are kept in single precision, and the certificate of each point is that of the numbers kept. The
probabilities are those of the statistics, which `verify` finds beside the result by their hash.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, overload

import numpy as np
from numpy.typing import NDArray

from tokengeom.core.errors import ProblemError
from tokengeom.core.numerics import Float
from tokengeom.problems.base import Certificate
from tokengeom.problems.regularised_logits import Merging, RegularisedLogits
from tokengeom.results.contract import AbstractResult, data_frame
from tokengeom.results.convert import Digest, Skipped, from_manifest, to_plain
from tokengeom.statistics.arrays_file import SavedArrays
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.at_loss import LossPrediction, ProvenNorm
from tokengeom.theory.storage import NotNegative, Size, Strength, read_merging, require_finite, write_arrays

if TYPE_CHECKING:
    from pandas import DataFrame

ARRAYS = "path.safetensors"
_NOT_READ: Any = None
"""In place of arrays until they are read."""


@dataclass(frozen=True, eq=False)
class PathPrediction(ProvenNorm):
    """The prediction at one loss gap.

    ``loss_gap``, ``lam``, ``certificate``
        ``CE - H`` of the logits in nats, the strength at which they are optimal, and the proof of
        ``CE - H + lam ||L||_*``.
    ``merging``, ``W_merged``, ``H_merged``, ``change_merged``
        Groups of equal tokens and contexts; embeddings (V' x r and r x m') and dual (V' x m') on them.
    """

    loss_gap: Size
    lam: Strength
    certificate: Certificate
    merging: Annotated[Merging, Skipped] = _NOT_READ
    W_merged: Annotated[NDArray[np.float32], Skipped] = _NOT_READ
    H_merged: Annotated[NDArray[np.float32], Skipped] = _NOT_READ
    change_merged: Annotated[NDArray[np.float32], Skipped] = _NOT_READ

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
    ``statistics_hash``, ``seconds``, ``stats``
        As in `LossPrediction`.
    """

    kind: ClassVar[str] = "tokengeom-path"
    title: ClassVar[str] = "Predictions along the loss"

    points: tuple[PathPrediction, ...]
    statistics_hash: Digest | None
    seconds: NotNegative
    stats: Annotated[NextTokenStatistics | None, Skipped] = None

    @staticmethod
    def of(points: Sequence[LossPrediction]) -> PredictedPath:
        """From predictions at different losses for the same statistics, in the nuclear norm."""
        if not points or any(point.norm != "nuclear" or point.merging is not points[0].merging for point in points):
            raise ProblemError("A path needs predictions in the nuclear norm that were made together, by path().")
        problem = points[0].problem()
        kept = sorted((_kept(point, problem) for point in points), key=lambda point: -point.loss_gap)
        return PredictedPath(tuple(kept), points[0].statistics_hash, sum(point.seconds for point in points))

    def __len__(self) -> int:
        return len(self.points)

    @overload
    def __getitem__(self, k: int) -> PathPrediction: ...
    @overload
    def __getitem__(self, k: slice) -> tuple[PathPrediction, ...]: ...
    def __getitem__(self, k: int | slice) -> PathPrediction | tuple[PathPrediction, ...]:
        return self.points[k]

    def __iter__(self) -> Iterator[PathPrediction]:
        return iter(self.points)

    def to_dict(self) -> dict[str, Any]:
        return {"points": [point.to_dict() for point in self.points], "statistics_hash": self.statistics_hash}

    def to_frame(self) -> DataFrame:
        """Data frame with one row per point: loss gap, lambda, nuclear norm with its proof, and rank."""
        return data_frame([point.to_dict() for point in self.points])

    def summary(self) -> str:
        """One sentence about the path, then one line per point."""
        lines = [
            f"loss gap {point.loss_gap:.4g}: rank {point.rank}, nuclear norm {point.nuclear_norm:.5g}, proven within "
            f"{point.relative_gap:.1e} of the smallest."
            for point in self.points
        ]
        return "\n".join([f"{len(self)} predictions, from the largest loss gap to the smallest.", *lines])

    def _facts(self) -> list[tuple[str, str]]:
        return [(f"loss gap {point.loss_gap:.4g}", f"rank {point.rank}") for point in self.points]

    def _write(self, folder: Path) -> dict[str, Any]:
        merging = self.points[0].merging
        arrays = {"row_of": merging.row_of, "column_of": merging.column_of}
        for k, point in enumerate(self.points):
            arrays |= {f"{k}.{name}": getattr(point, f"{name}_merged") for name in ("W", "H", "change")}
        write_arrays(folder / ARRAYS, arrays)
        return dict(to_plain(self))

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> PredictedPath:
        saved, arrays = from_manifest(cls, manifest, folder), SavedArrays(folder / ARRAYS)
        if not saved.points:
            raise arrays.damaged("it has no point")
        arrays.only_beginning("row_of", "column_of", *(f"{k}." for k in range(len(saved.points))))
        rows, columns = arrays.matrix("0.change", (None, None)).shape
        merging = read_merging(arrays, rows, columns)
        points = []
        for k, point in enumerate(saved.points):
            require_finite(arrays, point.certificate)
            W = arrays.matrix(f"{k}.W", (rows, None))
            H, change = arrays.matrix(f"{k}.H", (W.shape[1], columns)), arrays.matrix(f"{k}.change", (rows, columns))
            points.append(replace(point, merging=merging, W_merged=W, H_merged=H, change_merged=change))
        return replace(saved, points=tuple(points))


def _kept(point: LossPrediction, problem: RegularisedLogits) -> PathPrediction:
    """A prediction in single precision, with the certificate of the rounded numbers."""
    W, H = (np.asarray(array, dtype=np.float32) for array in (point.merged_factors[0], point.merged_factors[2]))
    change = np.asarray(point.change_merged, dtype=np.float32)
    kept = PathPrediction(point.loss_gap, point.lam, point.certificate, point.merging, W, H, change)
    loss_gap, certificate = kept.recomputed(problem)
    return replace(kept, loss_gap=loss_gap, certificate=certificate)
