"""`CheckpointCurve`: checkpoints or trainings of a model compared with the prediction for a text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np

from tokengeom.comparison.agreement import BY_FREQUENCY, Agreement
from tokengeom.comparison.comparison import Comparison
from tokengeom.comparison.target import AT_LOSS, PROXY, TIED
from tokengeom.core.factors import Factors, FactorsInside
from tokengeom.core.numerics import Float
from tokengeom.results.contract import AbstractResult, data_frame, html_table
from tokengeom.results.convert import Skipped, Within, damaged, read_json_as, write_json
from tokengeom.statistics.arrays_file import SavedArrays
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.statistics.saved_statistics import read_statistics, write_statistics
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.proxy import ProxyPrediction
from tokengeom.theory.storage import write_arrays
from tokengeom.theory.tied import TiedPrediction

if TYPE_CHECKING:
    from pandas import DataFrame

FILE, ARRAYS, STATISTICS = "checkpoints.json", "checkpoints.safetensors", "statistics"
_NOT_READ = Factors(np.zeros((0, 0)), np.zeros((0, 0)))
"""In place of the factors of a checkpoint until its arrays are read."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CheckpointComparison(FactorsInside):
    """A trained model compared with the prediction for a text.

    ``model``, ``step``
        Name of its folder, and the training step at which it was saved, where known.
    ``convention``
        What W and H are for this model.
    ``factors``
        Rows of the compared tokens (V x d), states of the compared contexts (d x m), bias of these tokens or None.
    ``loss_gap``, ``entropy``
        ``CE - H`` of the model on these contexts, softmax over all its rows, and the text's floor H; nats. After a
        support policy the loss gap is another one, ``comparison.loss_gap``, which the prediction at the loss is for.
    ``bos``
        Whether the model read its BOS token before every context.
    ``other_gap``
        ``CE - H`` with the opposite choice of ``bos``, where both were measured.
    ``windows``, ``context``
        Windows of the text with these contexts, and tokens per context.
    ``is_proxy``
        Whether the prediction is the proxy instead of L_mm.
    ``comparison``
        Agreement at the loss reached and in the limit, with its verdict.
    ``occur_once``
        Number of contexts that occur once in the text; None where that is not known.
    """

    # In the order of the saved file.
    model: str
    step: Annotated[int, Within(0)] | None
    convention: str
    loss_gap: float
    entropy: float
    bos: bool
    other_gap: float | None
    windows: Annotated[int, Within(0)]
    context: Annotated[int, Within(0)]
    is_proxy: bool
    occur_once: Annotated[int, Within(0)] | None = None
    comparison: Comparison
    factors: Annotated[Factors, Skipped] = _NOT_READ

    @property
    def V(self) -> int:
        """Number of compared tokens."""
        return int(self.W.shape[0])

    @property
    def m(self) -> int:
        """Number of compared contexts."""
        return int(self.H.shape[1])

    @property
    def d(self) -> int:
        """Dimension of the model's embeddings."""
        return int(self.W.shape[1])

    @property
    def with_proxy(self) -> dict[str, Agreement]:
        """Numbers with the proxy; empty where the prediction is not the proxy."""
        return self.comparison.targets.get(PROXY.key, {})

    @property
    def with_ties(self) -> dict[str, Agreement]:
        """Numbers with the prediction in which contexts are tied; empty where there is none."""
        return self.comparison.targets.get(TIED.key, {})

    def headline(self) -> dict[str, Agreement]:
        """Agreement of contexts and tokens with each prediction, by a phrase such as "contexts, at the loss".

        Each pair of supports counts once, as in the verdict, where that is known.
        """
        tables = {
            "at the loss": self.comparison.at_loss,
            "in the limit": self.comparison.in_limit,
            "with the proxy": self.with_proxy,
            "with ties": self.with_ties,
        }
        judged = {"contexts": ("support_agreement", "context_agreement"), "tokens": ("token_agreement",)}
        if "frequent_context_agreement" in self.with_ties:
            judged = {items: (f"{items.replace(' ', '_')[:-1]}_agreement",) for items in (*BY_FREQUENCY, "tokens")}
            untied = {target.info.name: self.comparison.targets.get(target.key, {}) for target in AT_LOSS.values()}
            tables = {"with ties": self.with_ties, **{f"without ties ({k})": v for k, v in untied.items()}}
        return {
            f"{items}, {place}": next(table[name] for name in names if name in table)
            for items, names in judged.items()
            for place, table in tables.items()
            if table
        }

    def to_dict(self) -> dict[str, Any]:
        """The numbers of the comparison by name, then what was compared."""
        about = {field.name: getattr(self, field.name) for field in fields(self)}
        del about["comparison"], about["factors"]
        sizes = {"contexts": self.m, "vocabulary": self.V, "dimension": self.d}
        return self.comparison.to_dict() | about | {"compared_loss_gap": self.comparison.loss_gap} | sizes

    def summary(self) -> str:
        """What was compared, the loss, and the comparison, one sentence per line."""
        saved = "" if self.step is None else f", step {self.step:,}"
        lines = [
            f"{self.model}{saved}: {self.m:,} contexts of {self.context} tokens ({self.windows:,} windows), "
            f"{self.V:,} tokens, d={self.d}."
        ]
        if self.occur_once and not self.with_ties:
            lines.append(
                f"{self.occur_once:,} of these contexts occur once in the text, and {self.m - self.occur_once:,} "
                "repeat. A single token follows a context that occurs once: the theory then predicts one direction per "
                "next token, and the loss above the floor counts everything that the model leaves open. Shorter "
                "contexts repeat more."
            )
        lines += [
            self.convention,
            self._bos_sentence(),
            f"On these contexts its loss is {self.entropy + self.loss_gap:.4f} nats: {self.loss_gap:.4f} above the "
            f"text's entropy floor {self.entropy:.4f}.",
        ]
        gap = self.comparison.loss_gap
        if gap is not None and gap != self.loss_gap:
            lines.append(
                f"After the support policy it is {gap:.4f} nats above the floor: the prediction at the loss is for "
                "this gap."
            )
        return "\n".join([*lines, self.comparison.summary("model")])

    def _bos_sentence(self) -> str:
        read = "its BOS token before every context" if self.bos else "the contexts alone, without its BOS token"
        if self.other_gap is None:
            return f"The model read {read}."
        other = "without" if self.bos else "with"
        return f"The model read {read}, which gives the lower loss (CE - H is about {self.other_gap:.4f} {other} it)."

    def __repr__(self) -> str:
        step = "" if self.step is None else f", step={self.step}"
        return f"CheckpointComparison({self.model}{step}, loss_gap={self.loss_gap:.4g}, V={self.V}, m={self.m})"


@dataclass(frozen=True, eq=False, repr=False)
class CheckpointCurve(AbstractResult):
    """Checkpoints of one model in the order of training, or trainings that differ in their seed, and one prediction.

    ``prediction``, ``stats``
        The prediction, for figures, which a curve that was loaded does not have; and the statistics that it was made
        from, which name tokens and contexts (0.1.0 did not save them).
    """

    kind: ClassVar[str] = "tokengeom-checkpoints"
    title: ClassVar[str] = "Checkpoints compared with the prediction"

    points: tuple[CheckpointComparison, ...]
    prediction: Annotated[FeaturePrediction | ProxyPrediction | TiedPrediction | None, Skipped] = None
    stats: Annotated[NextTokenStatistics | None, Skipped] = None

    def __iter__(self) -> Iterator[CheckpointComparison]:
        return iter(self.points)

    def __len__(self) -> int:
        return len(self.points)

    @property
    def steps(self) -> Float:
        """Training steps; 1, 2, 3, ... where the step of a checkpoint is not known."""
        if not self.steps_known:
            return np.arange(1.0, len(self) + 1)
        return np.array([point.step for point in self.points], dtype=np.float64)

    @property
    def steps_known(self) -> bool:
        """Whether the step of every checkpoint is known."""
        return all(point.step is not None for point in self.points)

    def to_dict(self) -> dict[str, Any]:
        """The last checkpoint's numbers, and all of them under ``checkpoints``."""
        points = [point.to_dict() for point in self.points]
        return points[-1] | ({"checkpoints": points} if len(points) > 1 else {})

    def to_frame(self) -> DataFrame:
        """Data frame with one row per checkpoint: step, loss gap, verdict, and every number with its interval."""
        return data_frame([_row(point) for point in self.points]).set_index("model")

    def summary(self) -> str:
        """One line per checkpoint, then the last one in full."""
        if len(self.points) == 1:
            return self.points[0].summary()
        lines = []
        for point in self.points:
            numbers = "; ".join(f"{name} {number.value:.3f}" for name, number in point.headline().items())
            lines.append(f"{point.model}: loss gap {point.loss_gap:.4f}; {point.comparison.verdict}; {numbers}")
        return "\n".join([*lines, "", "The last one:", self.points[-1].summary()])

    def _facts(self) -> list[tuple[str, str]]:
        last = self.points[-1]
        facts = [("checkpoints", str(len(self))), ("last", last.model), ("loss_gap", f"{last.loss_gap:.4g}")]
        return [*facts, ("verdict", last.comparison.verdict), *((n, str(x)) for n, x in last.headline().items())]

    def _repr_html_(self) -> str:
        names = list(dict.fromkeys(name for point in self.points for name in point.headline()))
        columns = ("checkpoint", "step", "loss gap, nats", *names, "verdict")
        rows = []
        for point in self.points:
            headline = point.headline()
            step = "" if point.step is None else f"{point.step:,}"
            numbers = (str(headline[name]) if name in headline else "" for name in names)
            rows.append((point.model, step, f"{point.loss_gap:.4f}", *numbers, point.comparison.verdict))
        return html_table(self.title, rows, self.points[-1].summary().splitlines(), columns)

    def _write(self, folder: Path) -> dict[str, Any]:
        arrays = {
            f"{place}.{name}": getattr(point, name)
            for place, point in enumerate(self.points)
            for name in ("W", "H", "bias")
            if getattr(point, name) is not None
        }
        write_arrays(folder / ARRAYS, arrays)
        write_json(folder / FILE, self)
        if self.stats is None:
            return {"checkpoints": len(self)}
        (folder / STATISTICS).mkdir()
        return {"checkpoints": len(self), STATISTICS: write_statistics(self.stats, folder / STATISTICS)}

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> Self:
        curve, arrays = read_json_as(cls, folder / FILE), SavedArrays(folder / ARRAYS)
        if not len(curve) or manifest.get("checkpoints") != len(curve):
            raise damaged(folder, f"its manifest must have the number of its checkpoints, {len(curve)}")
        arrays.only(*(f"{place}.{name}" for place in range(len(curve)) for name in ("W", "H", "bias")))
        factors = (read_factors(arrays, f"{place}.") for place in range(len(curve)))
        points = tuple(replace(point, factors=read) for point, read in zip(curve.points, factors, strict=True))
        stated = manifest.get(STATISTICS)
        stats = None if stated is None else read_statistics(NextTokenStatistics, folder / STATISTICS, stated)
        if stats is not None and any((point.V, point.m) != (stats.V, stats.m) for point in points):
            raise damaged(folder, "its statistics have other tokens or contexts than its checkpoints")
        return cls(points, stats=stats)


def _row(point: CheckpointComparison) -> dict[str, Any]:
    """A checkpoint's numbers by the name of a column."""
    cells: dict[str, Any] = {"model": point.model, "step": point.step, "loss_gap": point.loss_gap}
    cells |= {"verdict": point.comparison.verdict, "efficiency": point.comparison.efficiency}
    for name, number in point.comparison.agreements.items():
        cells |= {name: number.value, f"{name}_low": number.low, f"{name}_high": number.high}
    return cells


def read_factors(arrays: SavedArrays, prefix: str = "") -> Factors:
    """W, H and, where there is one, bias from a saved folder; finite, and of shapes that fit together."""
    W = arrays.matrix(f"{prefix}W", (None, None))
    H = arrays.matrix(f"{prefix}H", (W.shape[1], None))
    bias = f"{prefix}bias"
    return Factors(W, H, arrays.vector(bias, W.shape[0]) if arrays.has(bias) else None)
