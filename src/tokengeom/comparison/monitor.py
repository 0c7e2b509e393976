"""Training compared with a prediction while it goes on: `Monitor` for any model, and probes for runs of ``train``.

`Monitor` measures a model as often as wanted and returns numbers for a log:

==============================================  =====  ================================================================
number                                          best   what it is
==============================================  =====  ================================================================
``loss_gap``                                    0      ``CE - H`` in nats on the contexts of the text, over the whole
                                                       vocabulary
``context_agreement``, ``token_agreement``      1      correlation of cosines with those of the prediction at this loss
``limit_context_agreement``, ``limit_token_...``  1    the same with the prediction in the limit of training
``efficiency``                                  1      smallest norm of logits with this loss over the norm of the
                                                       model's: a proven lower bound
``collapse``                                    0      scatter of contexts within support groups over that between them
==============================================  =====  ================================================================

The agreements are those of `compare`. A prediction at a loss starts from the one before it, so it costs less the nearer
the losses are. A number that is not defined is left out: near the loss gap of a uniform guess (above 90% of it)
nothing is predicted at the loss, and a model that has diverged has no number at all.

``train(stats, ..., probes=linear_probes(prediction))`` or ``probes=feature_probes(prediction)`` adds columns to the
trajectory instead, at every record. What a probe needs of the prediction is computed once, when the probes are made. A
number that is not defined (nothing diverges, so there is no direction to compare with; a state that is not finite) is
NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from tokengeom.comparison.agreement import Name
from tokengeom.comparison.inputs import (
    OTHER_TEXT,
    Observed,
    hash_of,
    is_model,
    prediction_of,
    require_same_statistics,
    run_of,
    support_groups,
)
from tokengeom.comparison.linear_numbers import DecoderNumbers
from tokengeom.comparison.logit_numbers import FiniteLogits
from tokengeom.comparison.model_states import ModelStates, read_model
from tokengeom.comparison.similarity import (
    directed_in_all,
    directional_agreement,
    directional_similarity,
    subspace_collapse,
)
from tokengeom.comparison.similarity_numbers import SimilarityNumbers
from tokengeom.comparison.target import AT_LOSS, LIMIT, PROXY, choose_norm, norm_of, norms_at_loss, too_large
from tokengeom.core.errors import InputError, ProblemError
from tokengeom.core.factors import Factors, factored_logit_distance
from tokengeom.core.numerics import Int, blas_threads_for, seen_tokens
from tokengeom.core.settings import takes, whole_number
from tokengeom.models.checkpoint_head import is_finite, undisturbed, unwrapped
from tokengeom.models.language_model import AbstractLanguageModel, language_model
from tokengeom.problems.base import LARGEST_GAP
from tokengeom.problems.regularised_logits import Merging
from tokengeom.theory.at_loss import LossPrediction, LossSettings, require_norm
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.linear import LinearPrediction
from tokengeom.theory.loss_path import LossPath
from tokengeom.theory.proxy import proxy_factors
from tokengeom.training.loop import Probe, State
from tokengeom.training.objective import SoftLabels

AGREEMENTS = ("context_agreement", "token_agreement")
NAMES = ("loss_gap", *AGREEMENTS, *map(LIMIT.named, AGREEMENTS), "efficiency", "collapse")
"""Every number, in the order in which a monitor returns them."""
NEARLY_UNIFORM = 0.9
"""Share of the loss gap of a uniform guess above which nothing is predicted at the loss: there logits are nearly 0, and
the search for the loss is slow."""
_OPTIMIZERS = {"sgd": "gd"}
"""PyTorch's names of optimizers, in lower case, where ours differ."""


class Monitor:
    """Measures models against one prediction: ``monitor(model)`` returns numbers by name.

    Parameters
    ----------
    prediction
        In the limit of training, from ``predict(stats)``, or the path of a saved one.
    tokenizer
        The model's tokenizer, to check that the text was counted with it.
    norm
        Norm of the predictions at the loss: nuclear, or gamma2. By default the one that goes with the optimizer where
        that is given; else both are made, half of the supports choose, and the others are compared, as in `compare`.
    at_loss
        Whether to predict at the loss; by default where one such prediction takes less than about a minute.
    bos
        Whether the model reads its BOS token before every context; by default what gives the lower loss, which is
        measured each time and doubles the time for reading the model.
    prefix
        Beginning of every number's name.
    """

    @takes()
    def __init__(
        self,
        prediction: FeaturePrediction | str | Path,
        *,
        tokenizer: object = None,
        norm: str | None = None,
        at_loss: bool | None = None,
        bos: bool | None = None,
        prefix: str = "tokengeom/",
    ) -> None:
        limit = prediction_of(prediction)
        if not isinstance(limit, FeaturePrediction):
            raise ProblemError(
                f"A monitor needs the prediction in the limit that predict(stats) returns; got {type(limit).__name__}."
            )
        if norm is not None:
            require_norm(norm)
        self.prediction, self.tokenizer, self.norm, self.bos, self.prefix = limit, tokenizer, norm, bos, prefix
        self.at_loss = len(norms_at_loss(limit.P, at_loss)) == len(AT_LOSS)
        self.limitations: tuple[str, ...] = ()
        if not self.at_loss and at_loss is None:
            self.limitations = (f"No prediction is made at the loss reached: {too_large(limit.P)}",)
        self._groups, self._seen = support_groups(limit), seen_tokens(limit.statistics.P)
        self._labels = SoftLabels.from_statistics(limit.statistics)
        # With 100 losses per decade each is within 1.2% of the model's; the gap is proven as in `compare`.
        self._paths = {name: PredictionsAtLoss(limit, name, per_decade=100, tolerance=1e-3) for name in AT_LOSS}

    def __repr__(self) -> str:
        sizes = f"V={self.prediction.W.shape[0]:,}, m={self.prediction.H.shape[1]:,}"
        return f"Monitor({sizes}, norm={self.norm or 'chosen'}, at_loss={self.at_loss})"

    def __call__(self, model: Any, optimizer: Any = None) -> dict[str, float]:
        """The numbers of a model; what is not defined is left out.

        Parameters
        ----------
        model
            A Hugging Face or PyTorch module, also inside DistributedDataParallel or torch.compile, whose training is
            not affected; what `language_model` returned; or anything with W and H.
        optimizer
            The PyTorch optimizer that trains the model: with Adam and AdamW the norm is gamma2; no norm is known to go
            with others, and half of the supports choose.
        """
        states = self._read(model)
        if states is None:
            return {}
        factors = Factors.of(states)
        factors.require_sizes(self.prediction.W.shape[0], self.prediction.H.shape[1])
        with blas_threads_for(factors.W.shape[0], factors.H.shape[1]):
            gap = states.loss_gap if isinstance(states, ModelStates) else self._labels.loss_gap_of(factors)
            numbers = self._numbers(factors, gap, self.norm or norm_of_optimizer(optimizer))
        return {f"{self.prefix}{name}": numbers[name] for name in NAMES if math.isfinite(numbers.get(name, math.nan))}

    def _read(self, model: Any) -> Observed | None:
        """W and H of a model on the contexts of the prediction; None where its parameters are not finite."""
        if not is_model(model):
            run = run_of(model)
            require_same_statistics("prediction", hash_of(self.prediction), "run", hash_of(run), OTHER_TEXT)
            return run
        if isinstance(model, AbstractLanguageModel):
            return read_model(model, self.prediction.statistics, bos=self.bos)
        module = unwrapped(model)
        if not is_finite(module):
            return None
        with undisturbed(module):
            readable = language_model(module, tokenizer=self.tokenizer)
            self.tokenizer = readable.tokenizer
            return read_model(readable, self.prediction.statistics, bos=self.bos)

    def _numbers(self, factors: Factors, gap: float, wanted: str | None) -> dict[str, float]:
        at = self._predictions(gap, wanted)
        targets = {AT_LOSS[norm].key: Factors(prediction.W, prediction.H) for norm, prediction in at.items()}
        if self.prediction.rank > 0:
            targets[LIMIT.key] = Factors(self.prediction.W, self.prediction.H)
        kept = directed_in_all(target.H for target in targets.values())
        by_norm = {norm: prediction.H for norm, prediction in at.items()}
        norm, kept, _ = choose_norm(wanted, by_norm, factors.H, self._groups, kept)
        values = self._agreements(factors, targets, kept)
        numbers = {LIMIT.named(number): value for (key, number), value in values.items() if key == LIMIT.key}
        if norm is not None:
            key = AT_LOSS[norm].key
            numbers |= {number: values[key, number] for number in AGREEMENTS}
            numbers["efficiency"] = at[norm].efficiency(factors.logits)[0]
        return numbers | {"loss_gap": gap, "collapse": subspace_collapse(factors.H, self.prediction.context_groups)}

    def _predictions(self, gap: float, wanted: str | None) -> dict[str, LossPrediction]:
        """Norm -> prediction at a loss gap, where there is one that is proven well enough."""
        if not self.at_loss or gap > NEARLY_UNIFORM * self.prediction.largest_gap:
            return {}
        at = {norm: self._paths[norm].at(gap) for norm in AT_LOSS if wanted in (None, norm)}
        return {
            norm: prediction
            for norm, prediction in at.items()
            if prediction is not None and prediction.rank > 0 and prediction.relative_gap <= LARGEST_GAP
        }

    def _agreements(self, run: Factors, targets: Mapping[str, Factors], kept: Int) -> dict[Name, float]:
        """Agreement of contexts and of tokens with each target, over the items that `compare` uses."""
        if not targets:
            return {}
        contexts = {key: target.H[:, kept] for key, target in targets.items()}
        tokens = {key: target.rows(self._seen).tokens for key, target in targets.items()}
        return {
            **SimilarityNumbers.of("contexts", run.H[:, kept], contexts, self._groups[kept]).values(),
            **SimilarityNumbers.of("tokens", run.rows(self._seen).tokens, tokens).values(),
        }


def norm_of_optimizer(optimizer: Any) -> str | None:
    """The norm that goes with a network's PyTorch optimizer, as `norm_of` says; None where it is not known.

    Optimizers that Accelerate or Lightning have wrapped are unwrapped.
    """
    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    if optimizer is None:
        return None
    name = type(optimizer).__name__.lower()
    decay = max((float(group.get("weight_decay", 0.0)) for group in optimizer.param_groups), default=0.0)
    settings = {"optimizer": _OPTIMIZERS.get(name, name), "weight_decay": decay, "model": "module"}
    return norm_of(SimpleNamespace(settings=settings))


def check_interval(every: object) -> int:
    """A number of steps between measurements, at least 1."""
    steps = whole_number("every", every)
    if steps < 1:
        raise InputError(f"every must be at least 1, the number of steps between measurements; got {steps}.")
    return steps


SMALLEST_GAP = 1e-10
"""Loss gap in nats below which there is only the prediction in the limit."""
AT_LOSS_ENTRIES = 50_000
"""Merged tokens times contexts up to which they are made by default: 3 s for a run on 104 tokens, 382 contexts."""
MOST_KEPT = 8
"""Predictions kept, so that a loss that rises and falls is not solved for again."""


def linear_probes(prediction: LinearPrediction) -> dict[str, Probe]:
    """Probes of a decoder W (V x d) with fixed embeddings, on its path towards ``W* + R W^mm``.

    ``cosine``, ``cosine_without_finite``
        ``cos(W, W^mm)`` and ``cos(W - W*, W^mm)``, in [-1, 1], rising to 1 like ``1 - O(1/log^2 k)``; NaN when nothing
        diverges (``W^mm = 0``).
    ``finite_error``
        ``||P_F(W) - W*|| / ||W*||`` >= 0, falling to 0; absolute when ``W* = 0``. F is that of the effective supports.
    ``margin_frobenius``, ``margin_max``, ``margin_spectral``, ``margin_nuclear``, ``margin_sum``
        Smallest margin of a context's (effective) support over its other tokens, in-support mean minus off-support
        logit, per unit of a norm of W. Positive once all contexts are separated; larger is better. The Frobenius margin
        tends to ``prediction.effective_margin``. NaN when there is no other token, or W = 0.
    """
    numbers = DecoderNumbers(Factors(prediction.W_mm, prediction.data.H), prediction)

    def measure(state: State) -> dict[str, float]:
        return {name: value for (_, name), value in replace(numbers, run=state.factors).values().items()}

    shape = prediction.W_mm.shape
    return _probes([name for _, name in numbers.values()], measure, lambda run: run.require_decoder(shape))


def feature_probes(
    prediction: FeaturePrediction, *, at_loss: bool | None = None, norm: str = "nuclear"
) -> dict[str, Probe]:
    """Probes of learned tokens W (V x d) and contexts H (d x m), on their path towards the predicted geometry.

    ``context_agreement``, ``token_agreement``
        Correlation of the run's cosines with those of the prediction at the record's own loss, over pairs of contexts
        with different supports and of different tokens, in [-1, 1]; NaN where the loss is not below that of a uniform
        guess. Predictions are made for four losses per decade, and the nearest one is used: it is within a factor of
        1.34 of the record's.
    ``limit_context_agreement``, ``limit_token_agreement``
        The same with L_mm, the prediction in the limit.
    ``finite_distance``
        ``||P_F(L) - L_in||_F`` >= 0, falling to 0.
    ``logit_distance``
        Distance of the centred, normalised logits from L_mm's, in [0, 2], falling to 0 (slowly, like 1/R).
    ``context_similarity``, ``token_similarity``
        SIM of the run's cosine matrix with L_mm's, in (-1, 1], rising to 1; ``proxy_...`` with the proxy's.
    ``collapse``
        ``subspace_collapse`` of the contexts by support group, >= 0, falling to 0.

    Parameters
    ----------
    at_loss
        Whether to compare with predictions at each record's loss; by default up to 50,000 pairs of distinct tokens
        and distinct contexts, where a whole run costs a few seconds.
    norm
        Norm of these predictions: nuclear, or gamma2, which goes with AdamW.
    """
    V, m = prediction.reduction.V, prediction.reduction.m
    limit, proxy = Factors(prediction.W, prediction.H), proxy_factors(prediction.reduction)
    finite, groups = FiniteLogits.of(prediction.P), support_groups(prediction)
    is_small = Merging.of(prediction.P).entries <= AT_LOSS_ENTRIES
    is_wanted = is_small if at_loss is None else at_loss
    predictions = PredictionsAtLoss(prediction, norm, per_decade=4, tolerance=2e-3) if is_wanted else None

    def measure(state: State) -> dict[str, float]:
        run, numbers = state.factors, dict[str, float]()
        at = None if predictions is None else predictions.at(state.labels.loss_gap(state.L))
        for named, target in ((str, None if at is None else Factors(at.W, at.H)), (LIMIT.named, limit)):
            if target is not None:
                contexts = directional_agreement(target.context_directions, run.context_directions, groups)
                tokens = directional_agreement(target.token_directions, run.token_directions)
                numbers |= {named("context_agreement"): contexts, named("token_agreement"): tokens}
        numbers["finite_distance"] = finite.distance(run)
        numbers["logit_distance"] = factored_logit_distance(limit, run)
        for named, target in ((str, limit), (PROXY.named, proxy)):
            contexts = directional_similarity(target.context_directions, run.context_directions)
            tokens = directional_similarity(target.token_directions, run.token_directions)
            numbers |= {named("context_similarity"): contexts, named("token_similarity"): tokens}
        return numbers | {"collapse": subspace_collapse(run.H, prediction.context_groups)}

    similarities = ("context_similarity", "token_similarity")
    names = [*(AGREEMENTS if is_wanted else ()), *map(LIMIT.named, AGREEMENTS), "finite_distance", "logit_distance"]
    names += [*similarities, *map(PROXY.named, similarities), "collapse"]
    return _probes(names, measure, lambda run: run.require_sizes(V, m))


class PredictionsAtLoss:
    """Predictions at the losses that a run passes, on a grid of losses, each solved from the nearest one before it."""

    def __init__(self, prediction: FeaturePrediction, norm: str, *, per_decade: int, tolerance: float) -> None:
        self.prediction, self.norm = prediction, norm
        self.per_decade, self.tolerance = per_decade, tolerance
        self._solved: dict[int, LossPrediction | None] = {}

    @cached_property
    def _path(self) -> LossPath:
        return LossPath.beside(self.prediction, LossSettings(norm=self.norm, tolerance=self.tolerance))

    def at(self, gap: float) -> LossPrediction | None:
        """The prediction at the loss of the grid nearest to this one; None where there is none."""
        largest = self.prediction.largest_gap
        if not SMALLEST_GAP < gap < largest:
            return None
        step = round(self.per_decade * math.log10(largest / gap))
        if step not in self._solved:
            if len(self._solved) >= MOST_KEPT:
                del self._solved[next(iter(self._solved))]
            try:
                # The path begins below the largest gap.
                self._solved[step] = self._path.at(largest * 10.0 ** (-max(step, 0.25) / self.per_decade))
            except ProblemError:
                self._solved[step] = None
        return self._solved[step]


def _probes(
    names: Sequence[str], measure: Callable[[State], Mapping[str, float]], require_shape: Callable[[Factors], None]
) -> dict[str, Probe]:
    """Probes by name. A state is checked and measured once; all are NaN where it is not finite: a run that diverged."""
    known: WeakKeyDictionary[State, Mapping[str, float]] = WeakKeyDictionary()

    def probe(name: str, state: State) -> float:
        if state not in known:
            require_shape(state.factors)
            is_finite = np.isfinite(state.W).all() and np.isfinite(state.H).all()
            known[state] = measure(state) if is_finite else {}
        return known[state].get(name, float("nan"))

    return {name: partial(probe, name) for name in names}
