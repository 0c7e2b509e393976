"""What `compare` and `rivals` take: settings, a prediction, one or several runs, and whether they belong together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csc_array

from tokengeom.comparison.agreement import check_permutations
from tokengeom.comparison.model_states import states_of
from tokengeom.core.checks import check_seed, check_tolerance
from tokengeom.core.errors import ProblemError
from tokengeom.core.factors import HasFactors
from tokengeom.core.settings import option
from tokengeom.results.registry import load
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.linear import LinearPrediction
from tokengeom.theory.proxy import ProxyPrediction
from tokengeom.training.optimizers.base import optimizer_named, optimizer_names

if TYPE_CHECKING:
    from tokengeom.core.numerics import Int
    from tokengeom.core.progress import AbstractProgress
    from tokengeom.statistics.next_token import NextTokenStatistics

PANEL = "Floors and prediction at the loss"

Prediction = FeaturePrediction | LinearPrediction | LossPrediction | ProxyPrediction
Observed = HasFactors | tuple[object, object]
"""A run: any object with W (V x d) and H (d x m), or the pair (W, H)."""

NORM_OF_OPTIMIZER = {
    "gd": "nuclear",
    "ngd": "nuclear",
    "adam": "gamma2",
    "adamw": "gamma2",
    "signgd": "gamma2",
}
"""Norm of the logits that each optimizer keeps small: proven for none; measured for unconstrained features with gd,
adam, adamw and signgd, and for networks with adam and signgd (docs/results/optimizer_norms.md)."""


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

    @property
    def draws(self) -> dict[str, int]:
        """Permutations and seed by name."""
        return {"permutations": self.permutations, "seed": self.seed}


def prediction_of(given: object) -> Prediction:
    """A prediction from what a user passed: a prediction, or the path of a saved one."""
    found: object = load(given) if isinstance(given, str | Path) else given
    if not isinstance(found, Prediction):
        at = f" in {given}" if isinstance(given, str | Path) else ""
        raise ProblemError(
            f"A prediction must come from predict; got {type(found).__name__}{at}. Call compare(prediction, run), in "
            "this order."
        )
    return found


def statistics_behind(prediction: Prediction) -> NextTokenStatistics | None:
    """The statistics that a prediction was made from, where it has them."""
    if isinstance(prediction, FeaturePrediction):
        return prediction.statistics
    return prediction.stats if isinstance(prediction, ProxyPrediction) else None


def seen_tokens(P: csc_array) -> Int:
    """Tokens that follow some context, in order."""
    return np.unique(P.indices).astype(np.int64)


def on_seen_tokens(stats: NextTokenStatistics, seen: Int) -> NextTokenStatistics:
    """The same contexts with these tokens alone, which must be all that follow any of them."""
    if seen.size == stats.V:
        return stats
    table = csc_array(stats.table.tocsr()[seen])
    return replace(stats, table=table, vocabulary=tuple(stats.vocabulary[z] for z in seen), claimed=None)


def runs_of(
    given: object, stats: NextTokenStatistics | None, tokenizer: object, progress: AbstractProgress
) -> list[Observed]:
    """One or several runs from what a user passed: runs, arrays, models, or paths of saved results with W and H.

    ``stats``, ``tokenizer``
        Statistics whose contexts a model in memory reads, and its tokenizer, where one was given.
    """
    if isinstance(given, list):
        if not given:
            raise ProblemError("At least one run is needed; got an empty list.")
        return [states_of(one, stats, tokenizer, progress) or run_of(one) for one in given]
    return [states_of(given, stats, tokenizer, progress) or run_of(given)]  # type: ignore[arg-type]


def run_of(given: Observed | str | Path) -> Observed:
    """A run from what a user passed: a run, arrays, or the path of a saved result that has W and H."""
    found: object = load(given) if isinstance(given, str | Path) else given
    if isinstance(found, Prediction):
        raise ProblemError(
            f"A run must come from training or from a file of arrays; got a {type(found).__name__}. To compare two "
            "predictions, pass the W and H of one of them as the pair (prediction.W, prediction.H)."
        )
    if isinstance(given, str | Path) and not isinstance(found, HasFactors):
        raise ProblemError(
            f"A run must have W (V x d) and H (d x m); {given} holds a {type(found).__name__}, which does not. Pass "
            "the folder that `train` saved."
        )
    return found  # type: ignore[return-value]


def require_same_statistics(name: str, one: str | None, other_name: str, other: str | None, hint: str = "") -> None:
    """Refuse two results whose statistics have different hashes; a hash that is not known (None) is not compared."""
    if one is not None and other is not None and one != other:
        raise ProblemError(
            f"The {name} and the {other_name} come from different statistics (hashes {one[:8]} and {other[:8]}). "
            f"Make both from the same statistics.{hint}"
        )


def hash_of(result: object) -> str | None:
    """Hash of the statistics that a result was made from, where it knows it."""
    found = getattr(result, "statistics_hash", None)
    return found if isinstance(found, str) else None


def optimizer_of(run: object) -> str | None:
    """Name of the optimizer that trained a run, where the run knows it."""
    found = _setting(run, "optimizer")
    found = found.get("name") if isinstance(found, dict) else found
    return found if isinstance(found, str) else None


def decays_in_gradient(run: object) -> bool:
    """Whether a run was trained with weight decay in the gradient, which some optimizers apply separately."""
    decay, name = _setting(run, "weight_decay"), optimizer_of(run)
    if name is None or not isinstance(decay, int | float) or decay <= 0:
        return False
    return name not in optimizer_names() or not optimizer_named(name).decoupled


def _setting(run: object, name: str) -> object:
    settings = getattr(run, "settings", None)
    return settings.get(name) if isinstance(settings, dict) else None


def run_limitations(run: object, loss_gap: float | None = None, floor: float = 0.0) -> list[str]:
    """How far the run came; ``floor`` is what ``CE - H`` tends to: 0, unless the entropy is out of reach."""
    status = getattr(run, "status", None)
    gap = getattr(run, "loss_gap", None) if loss_gap is None else loss_gap
    found = []
    if isinstance(status, str) and status != "finished":
        found.append(f"The run is not complete: {status}.")
    if isinstance(gap, float):
        found.append(
            f"The run's loss is {gap - floor:.3g} nats above its floor; the prediction in the limit is for a run in "
            "which this is 0."
        )
    return found
