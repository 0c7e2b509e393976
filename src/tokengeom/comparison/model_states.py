"""Models on the contexts of statistics: W and H of their tokens and contexts, and their loss.

Row z of the statistics is row z of the model's head: the text was counted with the model's own tokenizer, and its whole
vocabulary takes part. Rows that no text can contain (padding of the head) count in the loss.

Whether a model reads its BOS token before a context is decided on the `BOS_CONTEXTS` most frequent contexts, unless it
is set: they are read both ways, and all others in the way with the lower loss. Contexts as long as the model allows are
read without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tokengeom.ask.explain import AnswersQuestions
from tokengeom.core.errors import CheckpointError, InputError, StatisticsError
from tokengeom.core.factors import Factors, FactorsInside
from tokengeom.core.numerics import Int
from tokengeom.core.progress import AbstractProgress, SilentProgress
from tokengeom.models.language_model import AbstractLanguageModel, language_model
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.training.objective import SoftLabels

BOS_CONTEXTS = 128
"""Contexts that decide whether the model reads its BOS token."""

_Part = tuple[Int, Factors]
"""Some contexts, and W and H on them."""


@dataclass(frozen=True, eq=False, repr=False)
class ModelStates(AnswersQuestions, FactorsInside):
    """What a model makes of statistics.

    ``name``, ``step``, ``convention``
        The model's name, the training step at which it was saved (None where not known), and what W and H are.
    ``factors``
        Rows of the tokens (V x d), states of the contexts (d x m), bias of the tokens or None.
    ``loss_gap``
        ``CE - H`` in nats of the model as it is, softmax over all its rows.
    ``bos``, ``other_gap``
        Whether the model read its BOS token before every context; ``CE - H`` with the opposite choice, where both were
        tried. Of more than `BOS_CONTEXTS` contexts it is an estimate: ``loss_gap`` plus the difference on those.
    ``statistics_hash``
        Hash of the statistics.
    """

    name: str
    step: int | None
    convention: str
    factors: Factors
    loss_gap: float
    bos: bool
    other_gap: float | None
    statistics_hash: str

    @property
    def _source(self) -> str:
        return f"in {self.name}"


def read_model(
    model: AbstractLanguageModel,
    stats: NextTokenStatistics,
    *,
    bos: bool | None = None,
    progress: AbstractProgress | None = None,
) -> ModelStates:
    """Read a model on the contexts of statistics; ``bos`` None chooses what gives the lower loss."""
    if stats.contexts is None:
        raise StatisticsError(
            "A model must read the tokens of the contexts, and they are not known here. For a prediction that was "
            "saved and loaded, pass its statistics too: compare(prediction, model, stats=stats). They must be those of "
            "a text that was counted with the model's tokenizer."
        )
    _require_same_tokens(model, stats)
    labels = SoftLabels.from_statistics(stats)
    shown = progress or SilentProgress()
    chosen, excess = bool(bos), None
    parts: list[_Part] = []
    has_room = model.positions is None or stats.contexts.shape[1] < model.positions
    if bos is None and model.bos is not None and has_room:
        chosen, part, excess = _read_both(model, stats, labels, shown)
        parts.append(part)
    rest = np.setdiff1d(np.arange(stats.m), [j for contexts, _ in parts for j in contexts])
    if rest.size:
        parts.append((rest, model.readout(stats.contexts[rest], bos=chosen, progress=shown)))
    whole = _joined(parts, stats.m)
    gap = labels.loss_gap_of(whole, model.head.capped)
    factors = Factors(whole.W[: stats.V], whole.H, None if whole.bias is None else whole.bias[: stats.V])
    other = None if excess is None else gap + excess
    return ModelStates(model.name, model.step, model.convention, factors, gap, chosen, other, stats.hash)


def _read_both(
    model: AbstractLanguageModel, stats: NextTokenStatistics, labels: SoftLabels, progress: AbstractProgress
) -> tuple[bool, _Part, float]:
    """Whether to read BOS, the contexts read so far, and how much higher the loss is with the opposite choice."""
    assert stats.contexts is not None
    some = np.sort(np.argsort(-stats.pi, kind="stable")[:BOS_CONTEXTS])
    part = _labels_of(labels, some)
    read = {bos: model.readout(stats.contexts[some], bos=bos, progress=progress) for bos in (False, True)}
    gaps = {bos: part.loss_gap_of(state, model.head.capped) for bos, state in read.items()}
    chosen = min(gaps, key=gaps.__getitem__)
    return chosen, (some, read[chosen]), gaps[not chosen] - gaps[chosen]


def _joined(parts: Sequence[_Part], m: int) -> Factors:
    """W and H on all m contexts."""
    _, read = parts[-1]
    H = np.empty((read.H.shape[0], m), dtype=read.H.dtype)
    for contexts, state in parts:
        H[:, contexts] = state.H
    return Factors(read.W, H, read.bias)


def _labels_of(labels: SoftLabels, some: Int) -> SoftLabels:
    """The labels of some contexts, with their shares scaled to a sum of 1."""
    pairs = np.flatnonzero(np.isin(labels.context, some))
    sizes = np.diff(labels.start)[some]
    start = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    weight = labels.weight[some]
    return SoftLabels(labels.V, start, labels.token[pairs], labels.share[pairs], weight / weight.sum(), some.size)


def _require_same_tokens(model: AbstractLanguageModel, stats: NextTokenStatistics) -> None:
    """Refuse statistics whose rows are not those of the model's head."""
    count = (
        "Count the text with the model's tokenizer and its whole vocabulary: tg.count(text, tokenizer=tokenizer), "
        "without a cut of the next tokens."
    )
    theirs = stats.tokenizer
    if theirs is not None and model.tokenizer is not None and theirs.content_hash != model.tokenizer.content_hash:
        raise CheckpointError(f"The text was counted with another tokenizer than that of {model.name}. {count}")
    rows = model.head.rows
    least = 0 if theirs is None else min(theirs.size, rows)
    if not least <= stats.V <= rows:
        raise InputError(
            f"Each token of the statistics must be a row of the model's head; the statistics have {stats.V:,} tokens "
            f"and {model.name} has {rows:,} rows. {count}"
        )


def states_of(
    model: object, stats: NextTokenStatistics | None, tokenizer: object, progress: AbstractProgress
) -> ModelStates:
    """A model in memory on the contexts of statistics."""
    if stats is None:
        raise InputError(
            "A model is read on the contexts of the text, which this prediction does not have. Pass the prediction in "
            "the limit that predict(stats) returns."
        )
    return read_model(language_model(model, tokenizer=tokenizer), stats, progress=progress)
