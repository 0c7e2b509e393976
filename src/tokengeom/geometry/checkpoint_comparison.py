"""Trained models from anywhere against the prediction for a text: one checkpoint, or several over training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokengeom.errors import CheckpointError
from tokengeom.geometry.agreement import Agreement
from tokengeom.geometry.checkpoint_text import CheckpointText, prepare_text
from tokengeom.geometry.compare import compare
from tokengeom.geometry.comparison import Comparison
from tokengeom.models.checkpoint import Checkpoint, load_checkpoint
from tokengeom.models.checkpoint_folder import checkpoint_folders
from tokengeom.progress import SilentProgress

if TYPE_CHECKING:
    from tokengeom.numerics import Float
    from tokengeom.progress import AbstractProgress
    from tokengeom.statistics.count import Corpus


@dataclass(frozen=True, eq=False, repr=False)
class CheckpointComparison:
    """A trained model against the prediction for a text.

    ``model``, ``step``
        Name of its folder, and the training step at which it was saved, where known.
    ``convention``
        What W and H are for this model.
    ``W``, ``H``, ``bias``
        Rows of the compared words (V x d), states of the compared contexts (d x m), bias of these words or None.
    ``loss_gap``, ``entropy``
        ``CE - H`` of the model on these contexts, softmax over all its rows, and the text's floor H; nats.
    ``bos``
        Whether the model read its BOS token before every context.
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
    windows: int
    context: int
    is_proxy: bool
    comparison: Comparison

    @property
    def V(self) -> int:
        """Number of compared words."""
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
        names = ("model", "step", "loss_gap", "entropy", "bos", "windows", "context", "is_proxy", "convention")
        sizes = {"contexts": self.m, "vocabulary": self.V, "dimension": self.d}
        similar = {name: self.agreement(name).to_dict() for name in ("context_similarity", "word_similarity")}
        return self.comparison.to_dict() | similar | {name: getattr(self, name) for name in names} | sizes

    def summary(self) -> str:
        """Put the comparison in plain words."""
        start = (
            "its BOS token before every context" if self.bos else "the contexts alone, without a BOS token before them"
        )
        saved = "" if self.step is None else f", step {self.step:,}"
        return "\n".join(
            [
                f"{self.model}{saved}: {self.m:,} contexts of {self.context} tokens ({self.windows:,} windows), "
                f"{self.V:,} words, d={self.d}.",
                self.convention,
                f"The model read {start}.",
                f"On these contexts its loss is {self.entropy + self.loss_gap:.4f} nats: {self.loss_gap:.4f} above the "
                f"text's entropy floor {self.entropy:.4f}.",
                self.comparison.summary(),
            ]
        )


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
            f"words SIM {point.agreement('word_similarity')}"
            for point in self.points
        ]
        return "\n".join([*lines, "", "The last one:", self.points[-1].summary()])


def compare_checkpoint(
    checkpoint: Checkpoint,
    text: CheckpointText,
    *,
    bos: bool = False,
    resamples: int = 200,
    permutations: int = 200,
    seed: int = 0,
    progress: AbstractProgress | None = None,
) -> CheckpointComparison:
    """Hold one loaded model against a text that `prepare_text` counted with the model's own tokenizer."""
    everything = checkpoint.readout(text.contexts, bos=bos, progress=progress)
    gap = text.loss_gap(everything, checkpoint.head)
    H = everything.H[:, text.places]
    bias = None if everything.bias is None else everything.bias[text.tokens]
    seen = _Observed(everything.W[text.tokens], H, bias, gap)
    found = compare(text.prediction, seen, resamples=resamples, permutations=permutations, seed=seed)
    return CheckpointComparison(
        model=checkpoint.folder.resolve().name,
        step=checkpoint.step,
        convention=checkpoint.convention,
        W=seen.W,
        H=H,
        bias=bias,
        loss_gap=gap,
        entropy=text.counted.entropy,
        bos=bos,
        windows=text.counted.n,
        context=int(text.contexts.shape[1]),
        is_proxy=text.is_proxy,
        comparison=found,
    )


def compare_models(
    models: str | Path | Sequence[str | Path],
    text: Corpus,
    *,
    bos: bool = False,
    device: str = "cpu",
    allow_pickle: bool = False,
    resamples: int = 200,
    permutations: int = 200,
    seed: int = 0,
    progress: AbstractProgress | None = None,
    **counting: Any,
) -> CheckpointCurve:
    """Load models from local folders and hold each against the prediction for a text.

    Parameters
    ----------
    models
        A folder, several, or one that holds ``checkpoint-*`` folders; all must have the same tokenizer.
    text
        What `tokengeom.count` takes.
    bos
        Whether the model reads its BOS token before every context. Most contexts come from inside documents, so that
        it does not by default.
    **counting
        Of `prepare_text`: ``context``, ``contexts``, ``vocabulary``, ``proxy``, ``reading``.
    """
    shown = progress or SilentProgress()
    named = [models] if isinstance(models, str | Path) else list(models)
    folders = [inside for folder in named for inside in checkpoint_folders(Path(folder))]
    if not folders:
        raise CheckpointError("At least one model is needed; got none. Give the path of a model's folder.")

    def load(folder: Path) -> Checkpoint:
        with shown.stage(f"Loading {folder.name}", None):
            return load_checkpoint(folder, device=device, allow_pickle=allow_pickle)

    first = load(folders[0])
    prepared = prepare_text(text, first.tokenizer, progress=shown, **counting)
    points = []
    for folder in folders:
        checkpoint = first if folder == folders[0] else load(folder)
        _require_one_tokenizer(checkpoint, first)
        options: dict[str, Any] = {"bos": bos, "resamples": resamples, "permutations": permutations, "seed": seed}
        points.append(compare_checkpoint(checkpoint, prepared, progress=shown, **options))
    if all(point.step is not None for point in points):
        points.sort(key=lambda point: point.step or 0)
    return CheckpointCurve(tuple(points), prepared)


@dataclass(frozen=True, eq=False)
class _Observed:
    """What `compare` reads of a run."""

    W: Float
    H: Float
    bias: Float | None
    loss_gap: float


def _require_one_tokenizer(checkpoint: Checkpoint, first: Checkpoint) -> None:
    if checkpoint.tokenizer.to_json() != first.tokenizer.to_json():
        raise CheckpointError(
            f"Checkpoints of one model must have one tokenizer; that of {checkpoint.folder} differs from that of "
            f"{first.folder}. Compare models with other tokenizers one by one: their words and contexts are not the "
            "same."
        )
