"""Trained models from anywhere held against the prediction for a text: from folders and a text to the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokengeom.errors import CheckpointError
from tokengeom.geometry.checkpoint_text import CheckpointText, prepare_text
from tokengeom.geometry.checkpoints import CheckpointComparison, CheckpointCurve
from tokengeom.geometry.compare import compare
from tokengeom.models.checkpoint import Checkpoint, load_checkpoint
from tokengeom.models.checkpoint_folder import checkpoint_folders
from tokengeom.progress import SilentProgress

if TYPE_CHECKING:
    from tokengeom.numerics import Float
    from tokengeom.progress import AbstractProgress
    from tokengeom.statistics.count import Corpus


def compare_checkpoint(
    checkpoint: Checkpoint,
    text: CheckpointText,
    *,
    bos: bool | None = None,
    resamples: int = 200,
    permutations: int = 200,
    seed: int = 0,
    progress: AbstractProgress | None = None,
) -> CheckpointComparison:
    """Hold one loaded model against a text that `prepare_text` counted with the model's own tokenizer.

    ``bos`` says whether the model reads its BOS token before every context; None takes what gives the lower loss.
    """
    ways = [bos] if bos is not None else [False] if checkpoint.bos is None else [False, True]
    read = {way: checkpoint.readout(text.contexts, bos=way, progress=progress) for way in ways}
    gaps = {way: text.loss_gap(readout, checkpoint.head) for way, readout in read.items()}
    chosen = min(gaps, key=gaps.__getitem__)
    whole = read[chosen]
    bias = None if whole.bias is None else whole.bias[text.tokens]
    seen = _Observed(whole.W[text.tokens], whole.H[:, text.places], bias, gaps[chosen])
    found = compare(text.prediction, seen, resamples=resamples, permutations=permutations, seed=seed)
    return CheckpointComparison(
        model=checkpoint.folder.resolve().name,
        step=checkpoint.step,
        convention=checkpoint.convention,
        W=seen.W,
        H=seen.H,
        bias=bias,
        loss_gap=seen.loss_gap,
        entropy=text.counted.entropy,
        bos=chosen,
        other_gap=gaps.get(not chosen),
        windows=text.counted.n,
        context=int(text.contexts.shape[1]),
        is_proxy=text.is_proxy,
        comparison=found,
    )


def compare_models(
    models: str | Path | Sequence[str | Path],
    text: Corpus,
    *,
    bos: bool | None = None,
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
        Whether the models read their BOS token before every context. By default the last model decides, for all: the
        way that gives it the lower loss.
    **counting
        Of `prepare_text`: ``context``, ``contexts``, ``vocabulary``, ``support``, ``proxy``, ``reading``.
    """
    shown = progress or SilentProgress()
    named = [models] if isinstance(models, str | Path) else list(models)
    folders = [inside for folder in named for inside in checkpoint_folders(Path(folder))]
    if not folders:
        raise CheckpointError("At least one model is needed; got none. Give the path of a model's folder.")

    def load(folder: Path) -> Checkpoint:
        with shown.stage(f"Loading {folder.name}", None):
            return load_checkpoint(folder, device=device, allow_pickle=allow_pickle)

    options: dict[str, Any] = {"resamples": resamples, "permutations": permutations, "seed": seed, "progress": shown}
    last = load(folders[-1])
    prepared = prepare_text(text, last.tokenizer, progress=shown, **counting)
    points = [compare_checkpoint(last, prepared, bos=bos, **options)]
    for folder in reversed(folders[:-1]):
        checkpoint = load(folder)
        _require_one_tokenizer(checkpoint, last)
        points.insert(0, compare_checkpoint(checkpoint, prepared, bos=points[0].bos, **options))
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


def _require_one_tokenizer(checkpoint: Checkpoint, last: Checkpoint) -> None:
    if checkpoint.tokenizer.to_json() != last.tokenizer.to_json():
        raise CheckpointError(
            f"Checkpoints of one model must have one tokenizer; that of {checkpoint.folder} differs from that of "
            f"{last.folder}. Compare models with other tokenizers one by one: their tokens and contexts are not the "
            "same."
        )
