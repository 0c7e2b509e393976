"""`Monitor`: a model in training compared with a prediction, as often as wanted, as numbers for a log.

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
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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
    seen_tokens,
    support_groups,
)
from tokengeom.comparison.model_states import ModelStates, read_model
from tokengeom.comparison.probes import PredictionsAtLoss
from tokengeom.comparison.similarity import subspace_collapse
from tokengeom.comparison.similarity_numbers import SimilarityNumbers
from tokengeom.comparison.target import AT_LOSS, LIMIT, choose_norm, norm_of, norms_at_loss, too_large
from tokengeom.core.errors import InputError, ProblemError
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import Int, blas_threads_for
from tokengeom.core.settings import whole_number
from tokengeom.models.checkpoint_head import is_finite, undisturbed, unwrapped
from tokengeom.models.language_model import AbstractLanguageModel, language_model
from tokengeom.problems.base import LARGEST_GAP
from tokengeom.theory.at_loss import LossPrediction, require_norm
from tokengeom.theory.features import FeaturePrediction
from tokengeom.training.objective import SoftLabels

NAMES = (
    "loss_gap",
    "context_agreement",
    "token_agreement",
    "limit_context_agreement",
    "limit_token_agreement",
    "efficiency",
    "collapse",
)
"""Every number, in the order in which a monitor returns them."""
PER_DECADE = 100
"""Losses per decade at which predictions are made: each loss is within 1.2% of one of them."""
TOLERANCE = 1e-3
"""Proven relative gap of these predictions, as in `compare`."""
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
        self._paths = {
            name: PredictionsAtLoss(limit, name, per_decade=PER_DECADE, tolerance=TOLERANCE) for name in AT_LOSS
        }

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
        directed = [target.H.any(axis=0) for target in targets.values()]
        kept = np.flatnonzero(np.logical_and.reduce(directed)) if directed else np.zeros(0, dtype=np.int64)
        by_norm = {norm: prediction.H for norm, prediction in at.items()}
        norm, kept, _ = choose_norm(wanted, by_norm, factors.H, self._groups, kept)
        values = self._agreements(factors, targets, kept)
        numbers = {LIMIT.named(number): value for (key, number), value in values.items() if key == LIMIT.key}
        if norm is not None:
            key = AT_LOSS[norm].key
            numbers |= {number: values[key, number] for number in ("context_agreement", "token_agreement")}
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
