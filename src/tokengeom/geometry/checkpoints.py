"""What holding trained models against a text says: one checkpoint, or several over training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokengeom.geometry.agreement import Agreement
from tokengeom.geometry.comparison import Comparison

if TYPE_CHECKING:
    from tokengeom.geometry.checkpoint_text import CheckpointText
    from tokengeom.numerics import Float


@dataclass(frozen=True, eq=False, repr=False)
class CheckpointComparison:
    """A trained model against the prediction for a text.

    ``model``, ``step``
        Name of its folder, and the training step at which it was saved, where known.
    ``convention``
        What W and H are for this model.
    ``W``, ``H``, ``bias``
        Rows of the compared tokens (V x d), states of the compared contexts (d x m), bias of these tokens or None.
    ``loss_gap``, ``entropy``
        ``CE - H`` of the model on these contexts, softmax over all its rows, and the text's floor H; nats.
    ``bos``
        Whether the model read its BOS token before every context.
    ``other_gap``
        ``CE - H`` when it reads them the other way, where that was measured to choose.
    ``windows``, ``context``
        Windows of the text with these contexts, and tokens in a context.
    ``is_proxy``
        Whether the proxy stands for L_mm.
    ``comparison``
        Agreement numbers with intervals and null.
    """

    model: str
    step: int | None
    convention: str
    W: Float
    H: Float
    bias: Float | None
    loss_gap: float
    entropy: float
    bos: bool
    other_gap: float | None
    windows: int
    context: int
    is_proxy: bool
    comparison: Comparison

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

    def agreement(self, name: str) -> Agreement:
        """A number against L_mm, or against the proxy where that alone was predicted."""
        return self.comparison[f"proxy_{name}" if self.is_proxy else name]

    def to_dict(self) -> dict[str, Any]:
        """The numbers of the comparison by name, then what was compared."""
        names = ("model", "step", "convention", "loss_gap", "entropy", "bos", "other_gap", "is_proxy")
        sizes = {
            "windows": self.windows,
            "context": self.context,
            "contexts": self.m,
            "vocabulary": self.V,
            "dimension": self.d,
        }
        similar = {name: self.agreement(name).to_dict() for name in ("context_similarity", "token_similarity")}
        return self.comparison.to_dict() | similar | {name: getattr(self, name) for name in names} | sizes

    def summary(self) -> str:
        """Put the comparison in plain words."""
        saved = "" if self.step is None else f", step {self.step:,}"
        return "\n".join(
            [
                f"{self.model}{saved}: {self.m:,} contexts of {self.context} tokens ({self.windows:,} windows), "
                f"{self.V:,} tokens, d={self.d}.",
                self.convention,
                self._reading(),
                f"On these contexts its loss is {self.entropy + self.loss_gap:.4f} nats: {self.loss_gap:.4f} above the "
                f"text's entropy floor {self.entropy:.4f}.",
                self.comparison.summary(),
            ]
        )

    def _reading(self) -> str:
        start = "its BOS token before every context" if self.bos else "the contexts alone, without its BOS token"
        if self.other_gap is None:
            return f"The model read {start}."
        other = "without" if self.bos else "with"
        return f"The model read {start}, since its loss is lower so ({other} it, CE - H is {self.other_gap:.4f})."


@dataclass(frozen=True, eq=False, repr=False)
class CheckpointCurve:
    """Checkpoints of one model, in the order of training, against one prediction."""

    points: tuple[CheckpointComparison, ...]
    text: CheckpointText

    def __iter__(self) -> Iterator[CheckpointComparison]:
        return iter(self.points)

    def __len__(self) -> int:
        return len(self.points)

    @property
    def steps(self) -> Float:
        """Training steps; 1, 2, 3, ... where a folder does not tell its own."""
        known = [point.step for point in self.points]
        if any(step is None for step in known):
            return np.arange(1.0, len(known) + 1)
        return np.array(known, dtype=np.float64)

    @property
    def steps_known(self) -> bool:
        """Whether every folder told its step."""
        return all(point.step is not None for point in self.points)

    def to_dict(self) -> dict[str, Any]:
        """The last checkpoint's numbers, and all of them under ``checkpoints``."""
        points = [point.to_dict() for point in self.points]
        return points[-1] | ({"checkpoints": points} if len(points) > 1 else {})

    def summary(self) -> str:
        """A line a checkpoint, then the last one in full."""
        if len(self.points) == 1:
            return self.points[0].summary()
        lines = [
            f"{point.model}: loss gap {point.loss_gap:.4f}, contexts SIM {point.agreement('context_similarity')}, "
            f"tokens SIM {point.agreement('token_similarity')}"
            for point in self.points
        ]
        return "\n".join([*lines, "", "The last one:", self.points[-1].summary()])
