"""`compare_models`: trained models from local folders, compared with the prediction for a text.

The text is counted with the models' own tokenizer. The loss is that of the model as it is, over all its rows and all
next tokens of the text. The geometry is compared on the next tokens that occur in the text (or the most frequent of
them): the other rows of W have no counterpart in the prediction. The prediction at the loss is for the loss of W and H
on these tokens alone. `model_rivals` compares other explanations on the same tokens and contexts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tokengeom.corpus.locate import ReadingSettings
from tokengeom.errors import CheckpointError, ProblemError, StatisticsError
from tokengeom.factors import Factors
from tokengeom.geometry.checkpoints import CheckpointComparison, CheckpointCurve
from tokengeom.geometry.compare import compare
from tokengeom.geometry.comparison import NORM_PREFIX, Comparison
from tokengeom.geometry.inputs import CompareSettings, predicts_at_loss
from tokengeom.geometry.rival_table import Rivals
from tokengeom.geometry.rivals import RivalSettings, rivals
from tokengeom.models.checkpoint import Checkpoint, load_checkpoint
from tokengeom.models.checkpoint_folder import checkpoint_folders
from tokengeom.progress import SilentProgress
from tokengeom.settings import option, share, takes
from tokengeom.statistics.count import count
from tokengeom.statistics.cuts import CommonestTokens, cut_table, support_policy
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.predict import predict
from tokengeom.theory.proxy import ProxyPrediction, predict_proxy
from tokengeom.training.objective import SoftLabels

if TYPE_CHECKING:
    from tokengeom.corpus.locate import Corpus
    from tokengeom.corpus.tokenizers import AbstractTokenizer
    from tokengeom.models.checkpoint_head import Head
    from tokengeom.numerics import Int
    from tokengeom.progress import AbstractProgress

PANEL = "Model and text"
EXACT_ENTRIES = 2_000_000
"""Largest V x m for which L_mm is solved by default: 989 x 2000 took 100 s on one busy core."""
PROXY_COMPONENTS = 128
"""Leading singular vectors of the proxy."""
_BLOCK_ENTRIES = 2**24
"""Logits of one block of contexts in the loss: 128 MB in float64."""


@dataclass(frozen=True)
class ModelTextSettings:
    """How a text is counted for a model, what is predicted from it, and how the model is read."""

    context: int = option(4, "Number of tokens in a context.", panel=PANEL, short="c")
    top_contexts: int = option(400, "Keep this many of the most frequent contexts.", panel=PANEL)
    vocabulary: int | None = option(
        None, "Compare this many of the most frequent next tokens; by default all that occur.", panel=PANEL
    )
    support: str = option(
        "raw",
        "Support policy of the prediction: raw, count:TAU or top-p:P. The loss is that of all windows.",
        panel=PANEL,
        suggestions=lambda: ["raw", "count:2", "top-p:0.9"],
    )
    proxy: bool | None = option(
        None, "Compare with the proxy S~ instead of L_mm; by default only where L_mm would take minutes.", panel=PANEL
    )
    bos: bool | None = option(
        None,
        "Whether the model reads its BOS token before each context; by default whichever gives the lower loss (of the "
        "last model, for all).",
        panel=PANEL,
    )
    device: str = option("cpu", "Device that the model runs on: cpu or cuda.", panel=PANEL)
    allow_pickle: bool = option(
        False, "Also read weights from pytorch_model.bin, a format that can run code.", panel=PANEL
    )


@takes(ModelTextSettings, ReadingSettings, CompareSettings)
def compare_models(
    models: str | Path | Sequence[str | Path],
    text: Corpus,
    *,
    progress: AbstractProgress | None = None,
    **settings: object,
) -> CheckpointCurve:
    """Compare trained models in local folders with the prediction for a text.

    Parameters
    ----------
    models
        A folder, several, or one that holds ``checkpoint-*`` folders; all must have the same tokenizer.
    text
        What `tokengeom.count` takes.
    """
    chosen, reading, comparing = share(
        settings, ModelTextSettings, ReadingSettings, CompareSettings, verb="compare_models"
    )
    shown = progress or SilentProgress()
    prepared, read = _read_models(models, text, chosen, reading, shown)
    at = _predictions_at(prepared, [one.factors for one in read], comparing, shown)
    points = [
        _point(one, prepared, compare(prepared.prediction, one.factors, at=given, progress=shown, **vars(comparing)))
        for one, given in zip(read, at, strict=True)
    ]
    if all(point.step is not None for point in points):
        points.sort(key=lambda point: point.step or 0)
    return CheckpointCurve(tuple(points), prepared.prediction, prepared.stats)


@takes(ModelTextSettings, ReadingSettings, RivalSettings)
def model_rivals(
    models: str | Path | Sequence[str | Path],
    text: Corpus,
    *,
    progress: AbstractProgress | None = None,
    **settings: object,
) -> Rivals:
    """Compare explanations of a trained model's geometry on a text; the last of several checkpoints.

    Parameters
    ----------
    models, text
        As in `compare_models`.
    """
    chosen, reading, comparing = share(settings, ModelTextSettings, ReadingSettings, RivalSettings, verb="model_rivals")
    shown = progress or SilentProgress()
    prepared, read = _read_models(_folders(models)[-1], text, chosen, reading, shown)
    return rivals(prepared.stats, read[-1].factors, prepared.prediction, progress=shown, **vars(comparing))


def _folders(models: str | Path | Sequence[str | Path]) -> list[Path]:
    named = [models] if isinstance(models, str | Path) else list(models)
    found = [inside for folder in named for inside in checkpoint_folders(Path(folder))]
    if not found:
        raise CheckpointError("At least one model is needed; got none. Give the path of a model's folder.")
    return found


def _read_models(
    models: str | Path | Sequence[str | Path],
    text: Corpus,
    chosen: ModelTextSettings,
    reading: ReadingSettings,
    progress: AbstractProgress,
) -> tuple[CheckpointText, list[ReadModel]]:
    """The text with its prediction, and every model on it; the last model decides about tokenizer and BOS."""
    folders = _folders(models)

    def load(folder: Path) -> Checkpoint:
        with progress.stage(f"Loading {folder.name}", None):
            return load_checkpoint(folder, device=chosen.device, allow_pickle=chosen.allow_pickle)

    last = load(folders[-1])
    prepared = prepare_text(text, last.tokenizer, chosen, reading, progress)
    found = [read_model(last, prepared, chosen.bos, progress)]
    for folder in reversed(folders[:-1]):
        checkpoint = load(folder)
        _require_same_tokenizer(checkpoint, last)
        found.insert(0, read_model(checkpoint, prepared, found[0].bos, progress))
    return prepared, found


@dataclass(frozen=True, eq=False)
class CheckpointText:
    """A text as a model's tokenizer reads it, and its prediction.

    ``counted``     statistics of the chosen contexts with every token of the tokenizer: row z is token z
    ``stats``       the same with the compared tokens only
    ``tokens``      id of each of these tokens, V
    ``prediction``  from ``stats``: L_mm with its proof, or the proxy
    """

    counted: NextTokenStatistics
    stats: NextTokenStatistics
    tokens: Int
    prediction: FeaturePrediction | ProxyPrediction

    @property
    def contexts(self) -> np.ndarray[tuple[int, int], np.dtype[np.int32]]:
        """Token ids of all counted contexts, which the model reads, m x L."""
        if self.counted.contexts is None:
            raise StatisticsError("A model must read the tokens of the contexts, which these statistics do not have.")
        return self.counted.contexts

    @property
    def places(self) -> Int:
        """Place of each compared context among the counted ones: a cut of the tokens can drop contexts."""
        place = {tuple(row): j for j, row in enumerate(self.contexts.tolist())}
        return np.array([place[tuple(row)] for row in np.asarray(self.stats.contexts).tolist()], np.int64)

    @property
    def is_proxy(self) -> bool:
        """Whether the prediction is the proxy instead of L_mm."""
        return isinstance(self.prediction, ProxyPrediction)

    def compared(self, read: Factors) -> Factors:
        """The compared tokens and contexts among all rows of a model and all counted contexts."""
        bias = None if read.bias is None else read.bias[self.tokens]
        return Factors(read.W[self.tokens], read.H[:, self.places], bias)

    def loss_gap(self, read: Factors, head: Head) -> float:
        """``CE - H`` in nats over all rows of the model and all next tokens; ``read`` is on ``contexts``."""
        P, pi, rows = self.counted.P, self.counted.pi, head.rows
        most = max(1, _BLOCK_ENTRIES // rows)
        total = 0.0
        for first in range(0, self.counted.m, most):
            last = min(first + most, self.counted.m)
            pairs = slice(P.indptr[first], P.indptr[last])
            start = (P.indptr[first : last + 1] - P.indptr[first]).astype(np.int64)
            block = SoftLabels(
                rows, start, P.indices[pairs].astype(np.int64), P.data[pairs], pi[first:last], last - first
            )
            L = Factors(read.W, read.H[:, first:last], read.bias).logits
            total += block.loss_gap(head.capped(L))
        return total


def prepare_text(
    text: Corpus,
    tokenizer: AbstractTokenizer,
    chosen: ModelTextSettings,
    reading: ReadingSettings,
    progress: AbstractProgress,
) -> CheckpointText:
    """Count a text with a model's own tokenizer and predict its geometry."""
    policy = support_policy(chosen.support)
    counted = count(
        text,
        context=chosen.context,
        tokenizer=tokenizer,
        top_contexts=chosen.top_contexts,
        progress=progress,
        **vars(reading),
    )
    seen = int(np.count_nonzero(np.diff(counted.counts.tocsr().indptr)))
    cut = CommonestTokens(seen if chosen.vocabulary is None else min(chosen.vocabulary, seen))
    stats = counted.cut(cut, *([] if policy is None else [policy]))
    if stats.V < 2:
        raise StatisticsError(
            f"A geometry needs at least two tokens; only {stats.V} token follows the {stats.m} chosen contexts. Use a "
            "longer text, more contexts or shorter ones."
        )
    tokens = cut_table(counted.counts, cut)[2]
    return CheckpointText(counted, stats, tokens, _predict(stats, chosen.proxy, progress))


@dataclass(frozen=True, eq=False)
class ReadModel:
    """A model on a text: its checkpoint, the compared rows and states, whether it read BOS, and its loss gaps."""

    checkpoint: Checkpoint
    factors: Factors
    bos: bool
    loss_gap: float
    other_gap: float | None


def read_model(checkpoint: Checkpoint, text: CheckpointText, bos: bool | None, progress: AbstractProgress) -> ReadModel:
    """Read one loaded model on a text that `prepare_text` counted with the model's own tokenizer.

    ``bos``
        Whether the model reads its BOS token before every context; None chooses what gives the lower loss.
    """
    choices = [bos] if bos is not None else [False] if checkpoint.bos is None else [False, True]
    read = {one: checkpoint.readout(text.contexts, bos=one, progress=progress) for one in choices}
    gaps = {one: text.loss_gap(factors, checkpoint.head) for one, factors in read.items()}
    chosen = min(gaps, key=gaps.__getitem__)
    return ReadModel(checkpoint, text.compared(read[chosen]), chosen, gaps[chosen], gaps.get(not chosen))


def _predictions_at(
    text: CheckpointText, models: Sequence[Factors], settings: CompareSettings, progress: AbstractProgress
) -> list[list[LossPrediction] | None]:
    """Predictions at the losses of several models, each solve started at the nearest one; None leaves it to compare."""
    prediction = text.prediction
    nothing: list[list[LossPrediction] | None] = [None] * len(models)
    if len(models) < 2 or not isinstance(prediction, FeaturePrediction):
        return nothing
    if not predicts_at_loss(text.stats.P, settings.at_loss):
        return nothing
    labels = SoftLabels.from_statistics(text.stats)
    gaps = [labels.loss_gap(model.logits) for model in models]
    inside = [0.0 < gap < prediction.largest_gap for gap in gaps]
    wanted = [gap for gap, known in zip(gaps, inside, strict=True) if known]
    try:
        with progress.stage("Predicting at the losses", None):
            paths = [prediction.path(wanted, norm=norm, tolerance=settings.tolerance) for norm in NORM_PREFIX]
    except ProblemError:
        return nothing
    found = iter(zip(*paths, strict=True))
    return [[one for one in next(found) if one.rank > 0] or None if known else None for known in inside]


def _point(read: ReadModel, text: CheckpointText, comparison: Comparison) -> CheckpointComparison:
    return CheckpointComparison(
        model=read.checkpoint.folder.resolve().name,
        step=read.checkpoint.step,
        convention=read.checkpoint.convention,
        factors=read.factors,
        loss_gap=read.loss_gap,
        entropy=text.counted.entropy,
        bos=read.bos,
        other_gap=read.other_gap,
        windows=text.counted.n,
        context=int(text.contexts.shape[1]),
        is_proxy=text.is_proxy,
        comparison=comparison,
    )


def _predict(
    stats: NextTokenStatistics, proxy: bool | None, progress: AbstractProgress
) -> FeaturePrediction | ProxyPrediction:
    large = stats.V * stats.m > EXACT_ENTRIES
    if not (large if proxy is None else proxy):
        return predict(stats, progress=progress)
    with progress.stage("Predicting the proxy", None):
        return predict_proxy(stats, components=min(PROXY_COMPONENTS, min(stats.V, stats.m) - 1))


def _require_same_tokenizer(checkpoint: Checkpoint, last: Checkpoint) -> None:
    if checkpoint.tokenizer.to_json() != last.tokenizer.to_json():
        raise CheckpointError(
            f"Checkpoints must have the same tokenizer; that of {checkpoint.folder} differs from that of "
            f"{last.folder}. Compare models with different tokenizers one by one: their tokens and contexts differ."
        )
