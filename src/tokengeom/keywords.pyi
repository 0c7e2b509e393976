"""Settings as typed dictionaries; written by docs/keyword_types.py, as that file explains."""

import pathlib
import typing
from typing import TypedDict

import tokengeom.ask.named_vectors
import tokengeom.ask.verbs
import tokengeom.corpus.files
import tokengeom.corpus.locate
import tokengeom.corpus.tokenizers
import tokengeom.models.factored
import tokengeom.page.settings
import tokengeom.statistics.context_features
import tokengeom.statistics.cuts
import tokengeom.statistics.engines
import tokengeom.statistics.windows
import tokengeom.training.optimizers.base
import tokengeom.training.settings

class CountKeywords(TypedDict, total=False):
    context: int
    tokenizer: str | pathlib.Path | tokengeom.corpus.tokenizers.AbstractTokenizer | typing.Any | None
    windows: tokengeom.statistics.windows.WindowKind
    pad: bool
    vocabulary_size: int | None
    separator: str
    format: tokengeom.corpus.locate.Format
    column: str
    errors: tokengeom.corpus.files.Errors
    dtype: str
    separator_id: int | None
    keep_separator: bool
    engine: tokengeom.statistics.engines.EngineName
    memory: str
    threads: int | None
    master: str | None
    temp: str | pathlib.Path | None
    min_count: int | None
    top_contexts: int | None
    vocabulary: int | None
    rest: tokengeom.statistics.cuts.Rest
    support: str

class PairKeywords(TypedDict, total=False):
    context: int
    tokenizer: str | pathlib.Path | tokengeom.corpus.tokenizers.AbstractTokenizer | typing.Any | None
    windows: tokengeom.statistics.windows.WindowKind
    pad: bool
    vocabulary_size: int | None
    separator: str
    format: tokengeom.corpus.locate.Format
    column: str
    errors: tokengeom.corpus.files.Errors
    dtype: str
    separator_id: int | None
    keep_separator: bool
    engine: tokengeom.statistics.engines.EngineName
    memory: str
    threads: int | None
    master: str | None
    temp: str | pathlib.Path | None

class CutKeywords(TypedDict, total=False):
    min_count: int | None
    top_contexts: int | None
    vocabulary: int | None
    rest: tokengeom.statistics.cuts.Rest
    support: str

class LossKeywords(TypedDict, total=False):
    norm: str
    tolerance: float
    max_iterations: int
    device: str
    memory_limit: int | None

class PredictKeywords(TypedDict, total=False):
    tolerance: float | None
    norm: str
    max_iterations: int
    device: str
    spread_solves: int | None
    memory_limit: int | None
    seed: int

class ProxyKeywords(TypedDict, total=False):
    components: int
    seed: int

class TrainKeywords(TypedDict, total=False):
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
    init: tokengeom.models.factored.Init
    compiled: bool
    optimizer: str | tokengeom.training.optimizers.base.AbstractOptimizer | None
    steps: int
    learning_rate: float | None
    weight_decay: float
    rate_schedule: tokengeom.training.optimizers.base.ScheduleLike | None
    decay_schedule: tokengeom.training.optimizers.base.ScheduleLike
    reduction: tokengeom.training.settings.Reduction | None
    batch: int | None
    seed: int
    precision: tokengeom.training.settings.Precision | None
    device: str
    records_per_decade: int

class SimulateKeywords(TypedDict, total=False):
    ties: str | tokengeom.statistics.context_features.ContextFeatures
    replicates: int
    loss_gap: float | None
    optimizer: str | tokengeom.training.optimizers.base.AbstractOptimizer | None
    learning_rate: float | None
    dim: int | None
    last_norm: bool | None
    head_start: float | None
    feature_start: float | None
    steps: int | None
    seed: int
    device: str

class CompareKeywords(TypedDict, total=False):
    permutations: int
    seed: int
    at_loss: bool | None
    tolerance: float

class RivalKeywords(TypedDict, total=False):
    permutations: int
    seed: int
    at_loss: bool | None
    tolerance: float
    explanations: tuple[str, ...] | str | None

class CompareTextsKeywords(TypedDict, total=False):
    top: int
    neighbours: int
    norm: str
    proxy: bool | None
    tolerance: float
    permutations: int
    seed: int
    halves: bool | None

class CompareModelsKeywords(TypedDict, total=False):
    context: int
    top_contexts: int
    support: str
    proxy: bool | None
    bos: bool | None
    device: str
    precision: str
    allow_pickle: bool
    separate_trainings: bool
    separator: str
    format: tokengeom.corpus.locate.Format
    column: str
    errors: tokengeom.corpus.files.Errors
    dtype: str
    separator_id: int | None
    keep_separator: bool
    ties: str | None
    tied_contexts: int | None
    permutations: int
    seed: int
    at_loss: bool | None
    tolerance: float

class ModelRivalsKeywords(TypedDict, total=False):
    context: int
    top_contexts: int
    support: str
    proxy: bool | None
    bos: bool | None
    device: str
    precision: str
    allow_pickle: bool
    separate_trainings: bool
    separator: str
    format: tokengeom.corpus.locate.Format
    column: str
    errors: tokengeom.corpus.files.Errors
    dtype: str
    separator_id: int | None
    keep_separator: bool
    permutations: int
    seed: int
    at_loss: bool | None
    tolerance: float
    explanations: tuple[str, ...] | str | None

class AskKeywords(TypedDict, total=False):
    k: int
    items: tokengeom.ask.named_vectors.Items | None
    other_supports: bool
    loss_gap: float | None
    norm: str | None
    tolerance: float

class ExportKeywords(TypedDict, total=False):
    format: tokengeom.ask.named_vectors.Format
    items: tokengeom.ask.verbs.Choice

class ReportKeywords(TypedDict, total=False):
    preset: tokengeom.page.settings.Preset
    tokenizer: str | pathlib.Path | None
    context: int | None
    top_contexts: int | None
    vocabulary: int | None
    rest: tokengeom.statistics.cuts.Rest
    support: str
    model: tuple[str, ...] | str | pathlib.Path | None
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
    separator: str
    format: tokengeom.corpus.locate.Format
    column: str
    errors: tokengeom.corpus.files.Errors
    dtype: str
    separator_id: int | None
    keep_separator: bool
