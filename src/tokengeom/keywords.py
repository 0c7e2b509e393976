"""Keywords of the verbs, for editors and type checkers: the settings dataclasses as typed dictionaries.

A verb that takes settings says ``**settings: Unpack[CountKeywords]``: an editor completes them, and a type checker
refuses ``tg.count("text.txt", contxt=3)``. Defaults, documentation and checks are those of the dataclasses, and a test
compares the two. This module is imported for type checking alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

from tokengeom.ask.named_vectors import Format as ExportFormat
from tokengeom.ask.named_vectors import Items
from tokengeom.ask.verbs import Choice
from tokengeom.corpus.files import Errors
from tokengeom.corpus.locate import Format
from tokengeom.corpus.tokenizers import AbstractTokenizer
from tokengeom.models.factored import Init
from tokengeom.page.settings import Preset
from tokengeom.statistics.cuts import Rest
from tokengeom.statistics.engines import EngineName
from tokengeom.statistics.windows import WindowKind
from tokengeom.training.optimizers.base import AbstractOptimizer, ScheduleLike
from tokengeom.training.settings import Precision, Reduction


class ReadingKeywords(TypedDict, total=False):
    """Of `tokengeom.ReadingSettings`."""

    separator: str
    format: Format
    column: str
    errors: Errors
    dtype: str
    separator_id: int | None
    keep_separator: bool


class CutKeywords(TypedDict, total=False):
    """Of ``statistics.cuts.CutSettings``."""

    min_count: int | None
    top_contexts: int | None
    vocabulary: int | None
    rest: Rest
    support: str


class EngineKeywords(TypedDict, total=False):
    """Of ``statistics.engines.EngineSettings``."""

    engine: EngineName
    memory: str
    threads: int | None
    master: str | None
    temp: str | Path | None


class PairKeywords(ReadingKeywords, EngineKeywords, total=False):
    """Of ``statistics.count.CountSettings``, and what it takes to read and to count."""

    context: int
    tokenizer: str | Path | AbstractTokenizer | Any | None
    windows: WindowKind
    pad: bool
    vocabulary_size: int | None


class CountKeywords(PairKeywords, CutKeywords):
    """Of `tokengeom.count`."""


class LossKeywords(TypedDict, total=False):
    """Of ``theory.at_loss.LossSettings``."""

    norm: str
    tolerance: float
    max_iterations: int
    device: str
    memory_limit: int | None


class PredictKeywords(TypedDict, total=False):
    """Of `tokengeom.predict`."""

    tolerance: float | None
    norm: str
    max_iterations: int
    device: str
    spread_solves: int | None
    memory_limit: int | None
    seed: int


class ProxyKeywords(TypedDict, total=False):
    """Of `tokengeom.predict_proxy`."""

    components: int
    seed: int


class TrainKeywords(TypedDict, total=False):
    """Of `tokengeom.train`, which takes the model by position too."""

    dim: int | None
    layers: int | None
    heads: int | None
    positions: bool
    tied: bool
    attention_dropout: float
    ties: str | None
    last_norm: bool
    head_start: float
    feature_start: float
    learn_embeddings: bool
    init: Init
    compiled: bool
    optimizer: str | AbstractOptimizer | None
    steps: int
    learning_rate: float | None
    weight_decay: float
    rate_schedule: ScheduleLike | None
    decay_schedule: ScheduleLike
    reduction: Reduction | None
    batch: int | None
    seed: int
    precision: Precision | None
    device: str
    records_per_decade: int


class SimulateKeywords(TypedDict, total=False):
    """Of `tokengeom.simulate`."""

    ties: str
    replicates: int
    loss_gap: float | None
    optimizer: str | AbstractOptimizer | None
    learning_rate: float | None
    dim: int | None
    last_norm: bool | None
    head_start: float | None
    feature_start: float | None
    steps: int | None
    seed: int
    device: str


class CompareKeywords(TypedDict, total=False):
    """Of `tokengeom.compare`."""

    permutations: int
    seed: int
    at_loss: bool | None
    tolerance: float


class RivalKeywords(CompareKeywords, total=False):
    """Of `tokengeom.rivals`."""

    explanations: tuple[str, ...] | str | None


class CompareTextsKeywords(TypedDict, total=False):
    """Of `tokengeom.compare_texts`."""

    top: int
    neighbours: int
    norm: str
    proxy: bool | None
    tolerance: float
    permutations: int
    seed: int
    halves: bool | None


class ModelTextKeywords(ReadingKeywords, total=False):
    """Of ``page.compare_models.ModelTextSettings``, and what it takes to read a text."""

    context: int
    top_contexts: int
    support: str
    proxy: bool | None
    bos: bool | None
    device: str
    precision: str
    allow_pickle: bool


class SeveralModelsKeywords(ModelTextKeywords, total=False):
    """Of ``page.settings.SeveralModelsSettings``, and what it takes to read a text."""

    separate_trainings: bool


class TiesKeywords(TypedDict, total=False):
    """Of ``page.settings.TiesSettings``."""

    ties: str | None
    tied_contexts: int | None


class CompareModelsKeywords(SeveralModelsKeywords, TiesKeywords, CompareKeywords):
    """Of `tokengeom.compare_models`."""


class ModelRivalsKeywords(SeveralModelsKeywords, RivalKeywords):
    """Of ``page.compare_models.model_rivals``."""


class AskKeywords(TypedDict, total=False):
    """Of `tokengeom.neighbours` and `tokengeom.explain`."""

    k: int
    items: Items | None
    other_supports: bool
    loss_gap: float | None
    norm: str | None
    tolerance: float


class ExportKeywords(TypedDict, total=False):
    """Of `tokengeom.export`."""

    format: ExportFormat
    items: Choice


class ReportKeywords(ReadingKeywords, total=False):
    """Of `tokengeom.report`."""

    preset: Preset
    tokenizer: str | Path | None
    context: int | None
    top_contexts: int | None
    vocabulary: int | None
    rest: Rest
    support: str
    model: tuple[str, ...] | str | Path | None
    bos: bool | None
    proxy: bool | None
    precision: str
    allow_pickle: bool
    ties: str | None
    tied_contexts: int | None
    steps: int | None
    dim: int | None
    transformer: bool
    seeds: int | None
    device: str
    seed: int
    permutations: int
    unseen: bool
