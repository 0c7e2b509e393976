"""`compare_models`: trained models from local folders, compared with the prediction for a text.

The text is counted with the models' own tokenizer, and the whole vocabulary takes part: the prediction is for as many
tokens as the model's head has rows, those that never occur are merged into one exactly, and the loss is that of the
model as it is. `model_rivals` compares other explanations on the same contexts. Several models are checkpoints of one
training, or separate trainings that differ in their seed, which say what is reproducible.

Contexts are the most frequent ones. Long contexts hardly ever repeat: where fewer repeat than are asked for, all of
these are taken, and the others are drawn at random from those that occur once. A single token follows each of them, so
the theory predicts one direction per next token; the summary says how many there are.

Models are read one after the other, and only W and H are kept of each: 4 (V + m) d bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from tokengeom.comparison.checkpoints import CheckpointComparison, CheckpointCurve
from tokengeom.comparison.compare import compare
from tokengeom.comparison.comparison import Comparison
from tokengeom.comparison.inputs import CompareSettings
from tokengeom.comparison.model_states import ModelStates, read_model
from tokengeom.comparison.rival_table import Rivals
from tokengeom.comparison.rivals import RivalSettings, rivals
from tokengeom.comparison.target import norms_at_loss
from tokengeom.core.errors import CheckpointError, ProblemError, StatisticsError
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import rounded_percent, seen_tokens
from tokengeom.core.progress import AbstractProgress, SilentProgress
from tokengeom.core.resources import free_memory
from tokengeom.core.settings import is_several, share, takes
from tokengeom.corpus.locate import Corpus, ReadingSettings
from tokengeom.models.checkpoint import checkpoint_folders, load_checkpoint
from tokengeom.models.language_model import ModuleModel
from tokengeom.page.settings import ModelTextSettings, SeveralModelsSettings, TiesSettings
from tokengeom.problems.regularised_logits import Merging
from tokengeom.statistics.context_features import ContextFeatures
from tokengeom.statistics.count import count
from tokengeom.statistics.cuts import MostFrequentContexts, PairArrays, support_policy
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.predict import predict
from tokengeom.theory.proxy import LIMIT_ENTRIES, ProxyPrediction, predict_leading_proxy
from tokengeom.theory.tied import TiedPrediction
from tokengeom.theory.tied_path import CONTEXT_ARRAYS, FEATURE_ARRAYS
from tokengeom.training.objective import SoftLabels

if TYPE_CHECKING:
    from tokengeom.corpus.tokenizers import AbstractTokenizer
    from tokengeom.keywords import CompareModelsKeywords, ModelRivalsKeywords

NO_TIES = TiesSettings()
TIED_SIZES = (160_000, 80_000, 40_000, 20_000, 10_000, 5_000)
"""Contexts of a prediction with ties, where not all of a text can be used."""
MOST_WORK = {"cpu": 4e7, "cuda": 4e10}
"""Entries that one step of the solver touches, at most: some hundred steps of this size take minutes."""
LIMIT_TOLERANCE = 1e-4
"""Proven relative gap of L_mm for a model. Agreement differs from that at 1e-6 by less than 0.001."""


@takes(SeveralModelsSettings, TiesSettings, ReadingSettings, CompareSettings)
def compare_models(
    models: str | Path | Sequence[str | Path],
    text: Corpus,
    *,
    progress: AbstractProgress | None = None,
    **settings: Unpack[CompareModelsKeywords],
) -> CheckpointCurve:
    """Compare trained models in local folders with the prediction for a text.

    Parameters
    ----------
    models
        A folder, several, or one that holds ``checkpoint-*`` folders; all must have the same tokenizer.
    text
        What `tokengeom.count` takes.
    """
    chosen, tying, reading, comparing = share(
        settings, SeveralModelsSettings, TiesSettings, ReadingSettings, CompareSettings, verb="compare_models"
    )
    shown = progress or SilentProgress()
    prepared, read = _read_models(models, text, chosen, reading, shown, tying)
    at = _predictions_at(prepared, read, comparing, chosen.device, shown)
    points: list[CheckpointComparison] = []
    prediction: FeaturePrediction | ProxyPrediction | TiedPrediction | None = prepared.prediction
    for states, given in zip(read, at, strict=True):
        others = [other.compared for other in read if other is not states] if chosen.separate_trainings else []
        if tying.ties is not None:
            solving = {"at_loss": comparing.at_loss, "tolerance": comparing.tolerance, "progress": shown}
            prediction, given = tied_and_untied(prepared.stats, states.compared, tying.ties, chosen.device, **solving)
        assert prediction is not None, "without ties it is made from the text"
        comparison = compare(prediction, [states.compared, *others], at=given, progress=shown, **vars(comparing))
        points.append(prepared.checkpoint(states, comparison))
    if not chosen.separate_trainings and all(point.step is not None for point in points):
        points.sort(key=lambda point: point.step or 0)
    return CheckpointCurve(tuple(points), prediction, prepared.stats)


@takes(SeveralModelsSettings, ReadingSettings, RivalSettings)
def model_rivals(
    models: str | Path | Sequence[str | Path],
    text: Corpus,
    *,
    progress: AbstractProgress | None = None,
    **settings: Unpack[ModelRivalsKeywords],
) -> Rivals:
    """Compare explanations of a trained model's geometry on a text.

    Of several checkpoints it is the last; several trainings are compared as several runs are by `tokengeom.rivals`.

    Parameters
    ----------
    models, text
        As in `compare_models`.
    """
    chosen, reading, comparing = share(
        settings, SeveralModelsSettings, ReadingSettings, RivalSettings, verb="model_rivals"
    )
    shown = progress or SilentProgress()
    given = models if chosen.separate_trainings else _folders(models)[-1]
    prepared, read = _read_models(given, text, chosen, reading, shown)
    (at,) = _predictions_at(prepared, read[:1], comparing, chosen.device, shown)
    stats, states = prepared.stats, [one.compared for one in read]
    return rivals(stats, states, prepared.prediction, at=at or (), progress=shown, **vars(comparing))


def _folders(models: str | Path | Sequence[str | Path]) -> list[Path]:
    named: list[Any] = list(models) if is_several(models) else [models]
    if not all(isinstance(folder, str | Path) for folder in named):
        raise CheckpointError("Models are given as the path of a folder, or several; got something else.")
    folders = [inside for folder in named for inside in checkpoint_folders(Path(folder))]
    if not folders:
        raise CheckpointError("At least one model is needed; got none. Give the path of a model's folder.")
    return folders


def _read_models(
    models: str | Path | Sequence[str | Path],
    text: Corpus,
    chosen: SeveralModelsSettings,
    reading: ReadingSettings,
    progress: AbstractProgress,
    tying: TiesSettings = NO_TIES,
) -> tuple[ModelText, list[TextStates]]:
    """The text with its prediction, and every model on it; the last model decides about tokenizer and BOS."""
    folders = _folders(models)
    if chosen.separate_trainings and len(folders) < 2:
        raise CheckpointError(
            f"Separate trainings must be two models or more; got {folders[0].name} alone. Give the folders of the "
            "others, or leave out separate_trainings (--separate-trainings)."
        )
    model = load_model(folders[-1], chosen, progress)
    name, tokenizer = model.name, model.tokenizer
    prepared = prepare_text(text, model, chosen, reading, progress, tying)
    states = [prepared.states(model, chosen.bos, progress)]
    for folder in reversed(folders[:-1]):
        # Without this the model before would be held until the next one is loaded.
        del model
        model = load_model(folder, chosen, progress)
        _require_same_tokenizer(model, name, tokenizer)
        states.insert(0, prepared.states(model, states[0].on_text.bos, progress))
    return prepared, states


def load_model(folder: Path, chosen: ModelTextSettings, progress: AbstractProgress) -> ModuleModel:
    """The model in a folder."""
    with progress.stage(f"Loading {folder.name}", None):
        return load_checkpoint(
            folder, device=chosen.device, allow_pickle=chosen.allow_pickle, precision=chosen.precision
        )


@dataclass(frozen=True, eq=False)
class ModelText:
    """A text as a model's tokenizer reads it, and its prediction.

    ``counted``     Statistics of the chosen contexts; row z is row z of the model's head.
    ``stats``       The same after the support policy.
    ``prediction``  From ``stats``: L_mm with its proof, or the proxy. None with ties, where it depends on the model's
                    loss.
    """

    counted: NextTokenStatistics
    stats: NextTokenStatistics
    prediction: FeaturePrediction | ProxyPrediction | None

    def states(self, model: ModuleModel, bos: bool | None, progress: AbstractProgress) -> TextStates:
        """A model on the contexts of the text, as they are and after the support policy."""
        states = read_model(model, self.counted, bos=bos, progress=progress)
        if self.stats is self.counted:
            return TextStates(states, states)
        place = {tuple(row): j for j, row in enumerate(np.asarray(self.counted.contexts).tolist())}
        kept = np.array([place[tuple(row)] for row in np.asarray(self.stats.contexts).tolist()], np.int64)
        factors = Factors(states.W, states.H[:, kept], states.bias)
        gap = SoftLabels.from_statistics(self.stats).loss_gap_of(factors, model.head.capped)
        return TextStates(states, replace(states, factors=factors, loss_gap=gap, statistics_hash=self.stats.hash))

    def checkpoint(self, states: TextStates, comparison: Comparison) -> CheckpointComparison:
        """A model and its comparison as one point of a curve over checkpoints."""
        read, counted = states.on_text, self.counted
        return CheckpointComparison(
            model=read.name,
            step=read.step,
            convention=read.convention,
            factors=states.compared.factors,
            loss_gap=read.loss_gap,
            entropy=counted.entropy,
            bos=read.bos,
            other_gap=read.other_gap,
            windows=counted.n if counted.has_counts else 0,
            context=0 if counted.contexts is None else int(counted.contexts.shape[1]),
            is_proxy=isinstance(self.prediction, ProxyPrediction),
            occur_once=occur_once(self.stats) if self.stats.has_counts else None,
            comparison=comparison,
        )


@dataclass(frozen=True)
class TextStates:
    """A model on the contexts of a text: all of them, and those that are compared, after the support policy."""

    on_text: ModelStates
    compared: ModelStates


def prepare_text(
    text: Corpus,
    model: ModuleModel,
    chosen: ModelTextSettings,
    reading: ReadingSettings,
    progress: AbstractProgress,
    tying: TiesSettings = NO_TIES,
) -> ModelText:
    """Count a text with a model's own tokenizer and predict its geometry."""
    counted = count_for_model(text, model, chosen, reading, progress, tying)
    stats = supports_for_model(counted, chosen)
    if tying.ties is not None:
        return ModelText(counted, stats, None)
    return ModelText(counted, stats, predict_or_proxy(stats, chosen.proxy, progress, chosen.device))


def count_for_model(
    text: Corpus | None,
    model: ModuleModel,
    chosen: ModelTextSettings,
    reading: ReadingSettings,
    progress: AbstractProgress,
    tying: TiesSettings = NO_TIES,
) -> NextTokenStatistics:
    """Statistics of the most frequent contexts with a model's tokenizer; those that occur once are drawn at random.

    With ties, as many contexts as can be used.
    """
    model.require_length(chosen.context)
    settings = {
        "context": chosen.context,
        "tokenizer": model.tokenizer,
        "vocabulary_size": model.head.rows,
        "progress": progress,
        **vars(reading),
    }
    if tying.ties is not None:
        return contexts_for_ties(count(text, **settings), tying, chosen.device, progress)
    # An iterator can be read only once.
    if not isinstance(text, Iterator):
        frequent = count(text, top_contexts=chosen.top_contexts, **settings)
        if frequent.m < chosen.top_contexts or frequent.context_counts.min() > 1:
            return frequent
    # Among contexts that occur equally often, a count keeps those that sort first: they all begin with the same tokens.
    return count(text, **settings).cut(FrequentOrDrawn(chosen.top_contexts))


@dataclass(frozen=True)
class FrequentOrDrawn(MostFrequentContexts):
    """Keep the ``k`` contexts with the most windows, and ``others`` of the rest; both at random, with a fixed seed.

    Among contexts with equally many windows it is chance which of them are kept.
    """

    others: int = 0

    def describe(self) -> str:
        """The rule, as a phrase."""
        if self.others:
            return f"the {self.k:,} most frequent contexts and {self.others:,} of the others, drawn at random"
        return f"the {self.k:,} most frequent contexts, ties decided at random"

    def in_memory(self, pairs: PairArrays) -> PairArrays:
        """The pairs that are kept."""
        totals = pairs.context_totals()
        order = np.random.default_rng(0).permutation(totals.size)
        kept = np.zeros(totals.size, np.bool_)
        order = order[np.argsort(-totals[order], kind="stable")]
        kept[order[: self.k]] = True
        kept[np.random.default_rng(1).permutation(order[self.k :])[: self.others]] = True
        return pairs.keep(kept[pairs.context])


def contexts_for_ties(
    counted: NextTokenStatistics, tying: TiesSettings, device: str, progress: AbstractProgress
) -> NextTokenStatistics:
    """All contexts, or as many as were asked for, or as are solved for in time: half frequent, half drawn at random."""
    assert tying.ties is not None, "the caller asks"
    kept = counted
    # The last size is taken in any case.
    for size in _tied_sizes(counted.m, tying):
        kept = counted if size >= counted.m else counted.cut(FrequentOrDrawn(size - size // 2, size // 2))
        assert kept.contexts is not None, "they were counted"
        features = ContextFeatures.of_contexts(kept.contexts, tying.ties).F
        if _fits(seen_tokens(kept.P).size, features, kept.m, device):
            break
    share = "" if kept.coverage is None else f", which have {rounded_percent(kept.coverage)} of its windows"
    progress.say(f"With ties, {kept.m:,} of the {counted.m:,} contexts of the text are used{share}.")
    return kept


def _tied_sizes(m: int, tying: TiesSettings) -> list[int]:
    """Numbers of contexts to try: the one that was asked for; or all, then fewer and fewer."""
    return [m, *(size for size in TIED_SIZES if size < m)] if tying.tied_contexts is None else [tying.tied_contexts]


def work_of_step(rows: int, features: int, contexts: int) -> float:
    """About how many entries one step of the solver touches."""
    return rows * (contexts + 2.0 * features) + rows**2 * features / 50


def _fits(rows: int, features: int, contexts: int, device: str) -> bool:
    """Whether a prediction with ties takes minutes at most, and half of the memory."""
    where, needed = solver_device(device), 8 * rows * (FEATURE_ARRAYS * features + CONTEXT_ARRAYS * contexts)
    return needed <= free_memory(where) / 2 and work_of_step(rows, features, contexts) <= MOST_WORK[where]


def expected_with_ties(stats: NextTokenStatistics, tying: TiesSettings, device: str) -> tuple[int, float]:
    """About how many contexts `contexts_for_ties` will use, and how much more work a step is on them than on a cut."""
    assert tying.ties is not None, "the caller asks"
    assert stats.contexts is not None, "they were counted"
    rows, features = seen_tokens(stats.P).size, ContextFeatures.of_contexts(stats.contexts, tying.ties).F
    in_text = stats.effects[0].before.m if stats.effects else stats.m
    sizes = [(m, round(features * m / stats.m)) for m in _tied_sizes(in_text, tying)]
    m, more = next((size for size in sizes if _fits(rows, size[1], size[0], device)), sizes[-1])
    return min(m, in_text), work_of_step(rows, more, m) / work_of_step(rows, features, stats.m)


def tied_and_untied(
    stats: NextTokenStatistics,
    states: ModelStates,
    ties: str,
    device: str,
    *,
    at_loss: bool | None,
    tolerance: float,
    progress: AbstractProgress,
) -> tuple[TiedPrediction, list[LossPrediction] | None]:
    """The prediction with ties at the loss of a model, and the one without them at the same loss."""
    where = solver_device(device)
    try:
        tied = predict(stats, loss_gap=states.loss_gap, ties=ties, device=where, progress=progress)
    except ProblemError as error:
        raise ProblemError(f"No prediction with ties was made at the loss of {states.name}. {error}") from error
    if at_loss is False:
        return tied, None
    return tied, [predict(stats, loss_gap=tied.loss_gap, tolerance=tolerance, device=where, progress=progress)]


def supports_for_model(counted: NextTokenStatistics, chosen: ModelTextSettings) -> NextTokenStatistics:
    """Statistics after the support policy; those in which fewer than two tokens follow the contexts are refused."""
    policy = support_policy(chosen.support)
    stats = counted if policy is None else counted.cut(policy)
    seen = seen_tokens(stats.P).size
    if seen < 2:
        raise StatisticsError(
            f"A geometry needs at least two tokens; only {seen} token follows the {stats.m} chosen contexts. Use a "
            "longer text, more contexts or shorter ones."
        )
    return stats


def _predictions_at(
    text: ModelText, models: Sequence[TextStates], settings: CompareSettings, device: str, progress: AbstractProgress
) -> list[list[LossPrediction] | None]:
    """Predictions at the losses of the models, each solve started at the nearest one; None leaves it to compare."""
    prediction = text.prediction
    nothing: list[list[LossPrediction] | None] = [None] * len(models)
    if (len(models) < 2 and device == "cpu") or not isinstance(prediction, FeaturePrediction):
        return nothing
    norms = norms_at_loss(text.stats.P, settings.at_loss)
    if not norms:
        return nothing
    gaps = [model.compared.loss_gap for model in models]
    inside = [0.0 < gap < prediction.largest_gap for gap in gaps]
    wanted = [gap for gap, known in zip(gaps, inside, strict=True) if known]
    tolerance, where = settings.tolerance, solver_device(device)
    try:
        with progress.stage("Predicting at the losses", None):
            paths = [prediction.path(wanted, norm=norm, tolerance=tolerance, device=where) for norm in norms]
    except ProblemError:
        return nothing
    by_model = iter(zip(*paths, strict=True))
    return [
        [prediction for prediction in next(by_model) if prediction.rank > 0] or None if known else None
        for known in inside
    ]


def solver_device(device: str) -> str:
    """Where predictions are solved for: on the GPU if the model runs on one."""
    return "cuda" if device.startswith("cuda") else "cpu"


def occur_once(stats: NextTokenStatistics) -> int:
    """Number of contexts that occur once in the text."""
    in_text = stats.context_counts if stats.text_counts is None else stats.text_counts
    return int((in_text == 1).sum())


def wants_proxy(stats: NextTokenStatistics, proxy: bool | None) -> bool:
    """Whether the proxy takes the place of L_mm: as asked, or where L_mm would take minutes."""
    return Merging.of(stats.S).entries > LIMIT_ENTRIES if proxy is None else proxy


def predict_or_proxy(
    stats: NextTokenStatistics, proxy: bool | None, progress: AbstractProgress, device: str = "cpu"
) -> FeaturePrediction | ProxyPrediction:
    """L_mm with its proof, or the proxy: as asked, or where L_mm would take minutes."""
    if not wants_proxy(stats, proxy):
        return predict(stats, tolerance=LIMIT_TOLERANCE, device=solver_device(device), progress=progress)
    return predict_leading_proxy(stats, progress)


def _require_same_tokenizer(model: ModuleModel, last: str, tokenizer: AbstractTokenizer | None) -> None:
    assert model.tokenizer is not None
    assert tokenizer is not None
    if model.tokenizer.content_hash != tokenizer.content_hash:
        raise CheckpointError(
            f"Checkpoints must have the same tokenizer; that of {model.name} differs from that of {last}. Compare "
            "models with different tokenizers one by one: their tokens and contexts differ."
        )
