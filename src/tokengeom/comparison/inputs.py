"""What `compare` and `rivals` take, checked once for both: settings, runs, predictions, and whether they fit together.

`Inputs` is what the numbers of both verbs are made from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TypedDict

import numpy as np
from scipy.sparse import csc_array

from tokengeom.comparison.agreement import BY_FREQUENCY, CONTEXTS_AND_TOKENS, ItemKind, check_permutations
from tokengeom.comparison.model_states import ModelStates, states_of
from tokengeom.comparison.similarity import numbered
from tokengeom.comparison.similarity_numbers import MOST_ITEMS, Geometry, drawn_items, equal_strata
from tokengeom.comparison.target import AT_LOSS, FEWEST_GROUPS, LIMIT, PROXY, SIMULATED, TIED
from tokengeom.core.errors import ProblemError
from tokengeom.core.factors import Factors, HasFactors
from tokengeom.core.numerics import Float, Int, rounded_percent, seen_tokens
from tokengeom.core.progress import AbstractProgress
from tokengeom.core.settings import check_seed, check_tolerance, option
from tokengeom.models.language_model import AbstractLanguageModel
from tokengeom.results.contract import AbstractResult, NearbyResults, carry_hash, saved_hash
from tokengeom.results.convert import Digest
from tokengeom.results.registry import load
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.linear import LinearPrediction
from tokengeom.theory.proxy import ProxyPrediction
from tokengeom.theory.tied import TiedPrediction
from tokengeom.training.objective import SoftLabels
from tokengeom.training.simulation import Simulation

PANEL = "Floors and prediction at the loss"
OTHER_TEXT = (
    " To compare the geometries of two texts on what they share, call compare_texts(stats, stats_of_run), or tokengeom "
    "compare-texts. To compare regardless, pass the pair (run.W, run.H)."
)
NOT_SAVED = "not saved"
"""In place of the hash of something that was not a saved result, such as a pair of arrays."""

FeaturesPredicted = FeaturePrediction | LossPrediction | ProxyPrediction | Simulation | TiedPrediction
"""A prediction of learned tokens and contexts, or a simulation of their training."""
Prediction = FeaturesPredicted | LinearPrediction
TARGET_OF = {Simulation: SIMULATED, TiedPrediction: TIED, ProxyPrediction: PROXY, FeaturePrediction: LIMIT}
"""What a run is compared with, for each kind of prediction but those at a loss."""
Observed = HasFactors | tuple[object, object]
"""A run: any object with W (V x d) and H (d x m), or the pair (W, H)."""


@dataclass(frozen=True)
class CompareSettings:
    """Settings of a comparison."""

    permutations: int = option(
        200, "Permutations behind the floors; at least 20, or 0 for no floors and no verdict.", panel=PANEL
    )
    seed: int = option(0, "Seed of permutations and Gaussian embeddings.", panel=PANEL)
    at_loss: bool | None = option(
        None,
        "Whether to predict at the loss that the run has reached, as well as in the limit of training. By default "
        "where that takes less than about a minute.",
        panel=PANEL,
    )
    tolerance: float = option(1e-3, "Proven relative gap of the predictions at the loss reached.", panel=PANEL)

    def __post_init__(self) -> None:
        check_permutations(self.permutations)
        check_seed(self.seed)
        check_tolerance(self.tolerance)


@dataclass(frozen=True, eq=False)
class Inputs:
    """What numbers of learned tokens and contexts are made from.

    ``observed``, ``runs``
        The runs as they were given, which know their settings, and their factors: trainings that differ in their seed.
        Most numbers are those of the first; all of them say what is reproducible.
    ``start``
        The first run before training; None where it is not known.
    ``prediction``, ``at``
        The prediction (None where `rivals` was given none, or one at a loss), and the predictions at the loss.
    ``targets``
        Key of a target -> factors of its prediction.
    ``stats``
        The statistics with all probabilities; None where the prediction does not know them.
    ``seen``
        Tokens that follow some context. The prediction gives all others the same embedding.
    ``groups``
        Support group of each context; one without a predicted direction has a group of its own.
    ``kept``
        Contexts that are compared.
    ``gap``
        Loss gap of the run in nats; None where not known.
    ``limitations``
        Sentences about what was left out, and about the predictions.
    """

    observed: list[Observed]
    runs: list[Factors]
    start: Factors | None
    prediction: FeaturesPredicted | None
    at: tuple[LossPrediction, ...]
    targets: dict[str, Factors]
    stats: NextTokenStatistics | None
    seen: Int
    groups: Int
    kept: Int
    gap: float | None
    limitations: tuple[str, ...] = ()

    @property
    def run(self) -> Factors:
        """The run that is compared."""
        return self.runs[0]

    @property
    def size(self) -> tuple[int, int]:
        """V and m."""
        return self.run.W.shape[0], self.run.H.shape[1]

    @cached_property
    def drawn(self) -> tuple[Int, Int]:
        """Contexts whose pairs are compared, and tokens by their place among those that occur; of very many, some."""
        return self.kept[drawn_items(self.kept.size)], drawn_items(self.seen.size)

    def seeds(self, key: str) -> int:
        """Number of replicates that stand below each other in the vectors of a target."""
        return self.prediction.replicates if key == SIMULATED.key and isinstance(self.prediction, Simulation) else 1

    def vectors(self, factors: Factors, items: ItemKind) -> Float:
        """Compared contexts, or tokens with their mean removed, as columns."""
        contexts, tokens = self.drawn
        return factors.rows(self.seen).tokens[:, tokens] if items == "tokens" else factors.H[:, contexts]

    def units(self, items: ItemKind) -> Int:
        """Unit of each compared item, numbered from 0: the support group of a context, or the token itself."""
        contexts, tokens = self.drawn
        if items == "tokens":
            return np.arange(tokens.size)
        return numbered(self.groups[contexts])

    def by_frequency(self) -> tuple[dict[ItemKind, Int], list[str]]:
        """The most frequent of the compared contexts, as many of the others, drawn at random, and what these are.

        Empty where the text's counts are not known, or are the same for all.
        """
        if self.stats is None or not self.stats.has_counts:
            return {}, []
        often, order = self.stats.context_counts, np.random.default_rng(0).permutation(self.kept)
        # Among contexts that occur equally often, it is chance which of them are frequent.
        order = order[np.argsort(-often[order], kind="stable")]
        k = min(MOST_ITEMS, order.size // 2)
        frequent, rest = order[:k], order[k:]
        rare = np.random.default_rng(1).choice(rest, k, replace=False)
        if k < FEWEST_GROUPS or often[frequent].max() == often[rest].min():
            return {}, []
        said = (
            f"Frequent contexts are the {k:,} with the most windows, at least {often[frequent].min():,} each. Rare "
            f"contexts are {k:,} of the other {rest.size:,}, drawn at random with a fixed seed: their mean number of "
            f"windows is {often[rare].mean():.3g}, and {rounded_percent((often[rare] == 1).mean())} of them have one."
        )
        return dict(zip(BY_FREQUENCY, (np.sort(frequent), np.sort(rare)), strict=True)), [said]

    @cached_property
    def strata(self) -> Int | None:
        """Compared tokens that follow about as many contexts, which permutations exchange; None where not known."""
        if self.stats is None:
            return None
        degree = np.asarray(self.stats.S.sum(axis=1)).ravel()[self.seen][self.drawn[1]]
        return equal_strata(degree)

    @cached_property
    def geometries(self) -> dict[ItemKind, tuple[Geometry, ...]]:
        """Contexts and tokens of every run."""
        return {
            items: tuple(Geometry.of(self.vectors(run, items)) for run in self.runs) for items in CONTEXTS_AND_TOKENS
        }


def gather(
    observed: list[Observed],
    prediction: FeaturesPredicted | None,
    at: Sequence[LossPrediction],
    loss_gap: float | None,
    stats: NextTokenStatistics | None = None,
) -> Inputs:
    """Runs and predictions of learned features, checked; every context is kept.

    ``stats``
        The statistics that all of them must be for; by default those of the prediction, as far as it knows them.
    """
    own: str | None
    if stats is not None:
        named, own, hint = "statistics", stats.hash, ""
        (V, m), groups = (stats.V, stats.m), np.asarray(stats.groups.label, dtype=np.int64)
    else:
        assert prediction is not None, "without statistics there is a prediction"
        named, own, hint = "prediction", hash_of(prediction), OTHER_TEXT
        (V, m), groups = (prediction.W.shape[0], prediction.H.shape[1]), support_groups(prediction)
        stats = statistics_behind(prediction)
    for run in observed:
        require_same_statistics(named, own, "run", hash_of(run), hint)
    for known in at:
        require_same_statistics(named, own, "prediction at a loss", hash_of(known))
    require_same_statistics(named, own, "prediction", hash_of(prediction))
    runs = [Factors.of(run) for run in observed]
    for factors in (*runs, *(Factors(known.W, known.H) for known in at)):
        factors.require_sizes(V, m)
    at = (prediction, *at) if isinstance(prediction, LossPrediction) else tuple(at)
    start = getattr(observed[0], "start", None)
    same_size = isinstance(start, Factors) and (start.W.shape[0], start.H.shape[1]) == (V, m)
    return Inputs(
        observed=observed,
        runs=runs,
        start=start if same_size else None,
        prediction=prediction,
        at=at,
        targets=targets_of(prediction, at),
        stats=stats,
        seen=np.arange(V) if stats is None else seen_tokens(stats.P),
        groups=groups,
        kept=np.arange(m, dtype=np.int64),
        gap=_loss_gap(observed[0], runs[0], loss_gap, None if isinstance(prediction, ProxyPrediction) else stats),
    )


def targets_of(prediction: FeaturesPredicted | None, at: Sequence[LossPrediction]) -> dict[str, Factors]:
    """Key of each target -> factors of its prediction: at the loss first."""
    targets = {AT_LOSS[known.norm].key: Factors(known.W, known.H) for known in at}
    for kind, target in TARGET_OF.items():
        # The prediction in the limit may have no geometry, where one at a loss has.
        if isinstance(prediction, kind) and (target is not LIMIT or prediction.rank > 0 or not at):
            targets[target.key] = Factors(prediction.W, prediction.H)
    return targets


def _loss_gap(run: Observed, factors: Factors, given: float | None, stats: NextTokenStatistics | None) -> float | None:
    """Loss gap of a run: the given one, that of a model which was read, or that of its logits, which must be finite.

    Without ``stats`` it is the one that the run knows.
    """
    if given is not None or stats is None or isinstance(run, ModelStates):
        known = getattr(run, "loss_gap", None) if given is None else given
        return float(known) if isinstance(known, int | float) else None
    with np.errstate(over="ignore"):
        size = np.linalg.norm(factors.W) * np.linalg.norm(factors.H)
    if not np.isfinite(size):
        raise ProblemError(
            "The logits W H of a run must be finite; entries of W and H are so large that they overflow. Likely a run "
            "that diverged: lower its learning rate. To compare directions alone, divide W and H by their norms."
        )
    return SoftLabels.from_statistics(stats).loss_gap_of(factors)


def support_groups(prediction: FeaturesPredicted) -> Int:
    """Support group of each context, numbered from 0; a context without a predicted direction is its own group."""
    labels = np.array(prediction.context_groups)
    alone = np.flatnonzero(labels < 0)
    labels[alone] = labels.max(initial=-1) + 1 + np.arange(alone.size)
    return numbered(labels)


def statistics_behind(prediction: Prediction) -> NextTokenStatistics | None:
    """The statistics that a prediction was made from, where it has them."""
    if isinstance(prediction, FeaturePrediction):
        return prediction.statistics
    return prediction.stats if isinstance(prediction, ProxyPrediction | Simulation | TiedPrediction) else None


def on_seen_tokens(stats: NextTokenStatistics, seen: Int) -> NextTokenStatistics:
    """The same contexts with these tokens alone, which must be all that follow any of them."""
    if seen.size == stats.V:
        return stats
    table = csc_array(stats.table.tocsr()[seen])
    return replace(stats, table=table, vocabulary=tuple(stats.vocabulary[z] for z in seen), claimed=None)


def prediction_of(given: object) -> Prediction:
    """A prediction from what a user passed: a prediction, or the path of a saved one."""
    prediction: object = load(given) if isinstance(given, str | Path) else given
    if isinstance(prediction, Simulation | TiedPrediction) and isinstance(given, str | Path):
        beside = NearbyResults(Path(given)).find(NextTokenStatistics, hash=prediction.statistics_hash)
        return carry_hash(replace(prediction, stats=beside), prediction)
    if not isinstance(prediction, Prediction):
        at = f" in {given}" if isinstance(given, str | Path) else ""
        raise ProblemError(
            f"A prediction must come from predict; got {type(prediction).__name__}{at}. Call compare(prediction, run), "
            "in this order."
        )
    return prediction


def runs_of(
    given: object, stats: NextTokenStatistics | None, tokenizer: object, progress: AbstractProgress
) -> list[Observed]:
    """One or several runs from what a user passed: runs, arrays, models, or paths of saved results with W and H."""
    if isinstance(given, list) and not given:
        raise ProblemError("At least one run is needed; got an empty list.")
    return [
        states_of(run, stats, tokenizer, progress) if is_model(run) else run_of(run)
        for run in (given if isinstance(given, list) else [given])
    ]


def is_model(given: object) -> bool:
    """Whether something is a model in memory: a PyTorch module, or what `language_model` returned."""
    return isinstance(given, AbstractLanguageModel) or hasattr(given, "register_forward_hook")


def run_of(given: object) -> Observed:
    """A run from what a user passed: a run, arrays, or the path of a saved result that has W and H."""
    run: object = load(given) if isinstance(given, str | Path) else given
    if isinstance(run, Prediction):
        raise ProblemError(
            f"A run must come from training or from a file of arrays; got a {type(run).__name__}. To compare two "
            "predictions, pass the W and H of one of them as the pair (prediction.W, prediction.H)."
        )
    if isinstance(given, str | Path) and not isinstance(run, HasFactors):
        raise ProblemError(
            f"A run must have W (V x d) and H (d x m); {given} holds a {type(run).__name__}, which does not. Pass "
            "the folder that `train` saved."
        )
    return run  # type: ignore[return-value]


def require_same_statistics(name: str, first: str | None, other: str, second: str | None, hint: str = "") -> None:
    """Refuse two results whose statistics have different hashes; a hash that is not known (None) is not compared."""
    if first is not None and second is not None and first != second:
        raise ProblemError(
            f"The {name} and the {other} come from different statistics (hashes {first[:8]} and {second[:8]}). "
            f"Make both from the same statistics.{hint}"
        )


def hash_of(result: object) -> str | None:
    """Hash of the statistics that a result was made from, where it knows it."""
    known = getattr(result, "statistics_hash", None)
    return known if isinstance(known, str) else None


def run_limitations(run: object, loss_gap: float | None = None, floor: float = 0.0) -> list[str]:
    """How far the run came; ``floor`` is what ``CE - H`` tends to: 0, unless the entropy is out of reach."""
    status = getattr(run, "status", None)
    gap = getattr(run, "loss_gap", None) if loss_gap is None else loss_gap
    sentences = []
    if isinstance(status, str) and status != "finished":
        sentences.append(f"The run is not complete: {status}.")
    if isinstance(gap, float):
        sentences.append(
            f"The run's loss is {gap - floor:.3g} nats above its floor; the prediction in the limit is for a run in "
            "which this is 0."
        )
    return sentences


def training_limitations(runs: list[Observed]) -> list[str]:
    """Why the runs do not say what is reproducible: other settings than the seed differ, or none does."""
    given = [getattr(run, "settings", None) for run in runs]
    known = [settings for settings in given if isinstance(settings, dict)]
    if len(runs) < 2 or len(known) < len(runs):
        return []
    names = {name for settings in known for name in settings if settings[name] != known[0].get(name)}
    differing = sorted(names - {"seed"})
    if differing:
        return [
            f"The runs differ in more than their seed ({', '.join(differing)}): what they share is not all that is "
            "reproducible."
        ]
    if len({settings.get("seed") for settings in known}) < len(known):
        return ["Some runs have the same seed: less is reproducible than it seems."]
    return []


class GivenSettings(TypedDict, total=False):
    """Settings and numbers that a comparison or a table of explanations remembers."""

    at_loss: bool | None
    explanations: list[str]
    tolerance: float
    proven_within: float
    loss_gap: float | None
    held_out: float


@dataclass(frozen=True)
class MadeFrom:
    """Which saved results a comparison or a table of explanations was made from, so that `verify` can make it again.

    ``prediction``, ``runs``, ``at``
        Hashes of the saved prediction, runs, and predictions at the loss; `NOT_SAVED` for what was not saved, None and
        empty for what was not given.
    ``statistics``
        Hash of the statistics, where their counts were used; None where the prediction's probabilities were.
    ``settings``
        Those that were given.
    """

    prediction: str | None = None
    runs: tuple[str, ...] = ()
    at: tuple[str, ...] = ()
    statistics: Digest | None = None
    settings: GivenSettings = field(default_factory=GivenSettings)

    @staticmethod
    def of(
        prediction: object,
        runs: Sequence[object],
        at: Sequence[LossPrediction],
        stats: NextTokenStatistics | None,
        settings: GivenSettings,
    ) -> MadeFrom:
        """The hashes of what was given."""

        def seal(result: object) -> str:
            return (saved_hash(result) if isinstance(result, AbstractResult | ModelStates) else None) or NOT_SAVED

        own, counted = None if prediction is None else seal(prediction), None if stats is None else stats.hash
        return MadeFrom(own, tuple(map(seal, runs)), tuple(map(seal, at)), counted, settings)

    def __post_init__(self) -> None:
        for name in self.settings.keys() - GivenSettings.__annotations__.keys():
            raise ValueError(f"{name!r} is not the name of a setting")

    @property
    def hashes(self) -> list[str]:
        """Hashes of every saved result but the statistics."""
        named = [*([] if self.prediction is None else [self.prediction]), *self.runs, *self.at]
        return [seal for seal in named if seal != NOT_SAVED]
