"""`Target`: what a run is compared with, the names of its numbers, and which target the verdict is about.

A run is compared with predictions at the loss that it has reached, one per norm of the logits, and with the prediction
in the limit of training, or with the proxy. The verdict is about the norm that goes with the run's optimizer, where
that is known. In a saved comparison the name of a number is the key of its target and the number, as in
``limit_context_agreement``; here alone these names are made and taken apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from scipy.sparse import csc_array

from tokengeom.comparison.agreement import BY_FREQUENCY, Agreement, Name
from tokengeom.comparison.explanations.base import ExplanationInfo
from tokengeom.comparison.similarity_numbers import SimilarityNumbers
from tokengeom.core.errors import ProblemError, ResourceError
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import Float, Int, rounded_percent
from tokengeom.core.progress import AbstractProgress
from tokengeom.core.settings import is_several
from tokengeom.models.factored import FACTORED
from tokengeom.problems.regularised_logits import Merging
from tokengeom.results.convert import Matches
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.at_loss import NORMS, LossPrediction, LossSettings
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.loss_path import FITTED_FROM, LossPath
from tokengeom.theory.tied import TiedPrediction
from tokengeom.training.optimizers.base import optimizer_named, optimizer_names

if TYPE_CHECKING:
    from tokengeom.comparison.explained import Lead, RivalRow

NormName = Annotated[str, Matches("|".join(NORMS), f"one of {', '.join(NORMS)}")]
NORM_OF_OPTIMIZER = {"gd": "nuclear", "ngd": "nuclear", "adam": "gamma2", "adamw": "gamma2", "signgd": "gamma2"}
"""Norm of the logits that each optimizer keeps small: proven for none; measured for unconstrained features with gd,
adam, adamw and signgd, and for networks with adam and signgd (docs/results/optimizer_norms.md)."""
NOT_IN_NETWORKS = ("gd", "ngd")
"""Optimizers with which networks do not keep the norm small that unconstrained features do: measured in 2 of 7."""
AT_LOSS_ENTRIES = {"nuclear": 1_000_000, "gamma2": 400_000}
"""Merged tokens times merged contexts up to which predictions at a loss are made by default: about half a minute."""
AT_HIGH_LOSS_ENTRIES = {"nuclear": 20_000_000, "gamma2": 400_000}
"""The same at a loss gap that is so high that factors are fitted to it."""
FEWEST_GROUPS = 10
"""Support groups or tokens below which their arrangement is not judged."""
SAME_LOSS = 0.02
"""Loss gaps with a relative difference below this are the same."""
MEANINGS = {
    "support_agreement": "correlation of context cosines, each pair of different supports counted once, 1 is best",
    "context_agreement": "correlation of context cosines over pairs with different supports, 1 is best",
    "frequent_context_agreement": "the same over pairs of frequent contexts, 1 is best",
    "rare_context_agreement": "the same over pairs of rare contexts, drawn at random, 1 is best",
    "token_agreement": "correlation of token cosines over pairs of different tokens, 1 is best",
    # Comparisons of version 0.1.0 alone have these two.
    "context_cka": "centred kernel alignment of contexts with different supports (norms matter), 1 is best",
    "token_cka": "centred kernel alignment of different tokens (norms matter), 1 is best",
    "logit_cosine": "cosine of the centred logits, 1 is best",
    "support_similarity": "the papers' SIM of context cosines, each pair of supports counted once, 1 is best",
    "context_similarity": "the papers' SIM of context cosines, 1 is best",
    "frequent_context_similarity": "the papers' SIM of cosines of frequent contexts, 1 is best",
    "rare_context_similarity": "the papers' SIM of cosines of rare contexts, 1 is best",
    "token_similarity": "the papers' SIM of token cosines, 1 is best",
    "finite_distance": "||P_F(L) - L_in||, 0 is best",
    "collapse": "ratio of the scatter of context directions within support groups to that between them, 0 is best",
    "cosine": "cos(W, W_mm), 1 is best",
    "cosine_without_finite": "cos(W - W_star, W_mm), 1 is best",
    "finite_error": "||P_F(W) - W_star|| / ||W_star||, 0 is best",
    "margin_frobenius": "smallest margin per unit of Frobenius norm, larger is better",
    "margin_max": "smallest margin per unit of the largest entry, larger is better",
    "margin_spectral": "smallest margin per unit of spectral norm, larger is better",
    "margin_nuclear": "smallest margin per unit of nuclear norm, larger is better",
    "margin_sum": "smallest margin per unit of the sum of absolute entries, larger is better",
}
"""What each number is, in the order of tables."""


@dataclass(frozen=True)
class Target:
    """What a run is compared with.

    ``key``
        Beginning of the names of its numbers in saved files.
    ``info``
        What it is among the explanations of a table.
    ``phrase``
        Where the run is compared, as in "in the limit of training".
    ``subject``
        What the run is compared with, as the subject of a sentence.
    ``norm``
        Norm of a prediction at the loss; None for the others.
    """

    key: str
    info: ExplanationInfo
    phrase: str
    subject: str
    norm: str | None = None

    def named(self, number: str) -> str:
        """Name of one of its numbers in saved files."""
        return f"{self.key}_{number}"


AT_LOSS = {
    norm: Target(
        norm,
        ExplanationInfo(
            f"at loss, {shown}", f"prediction at the loss, {shown} norm", "probabilities and the loss", ours=True
        ),
        f"at the loss reached, {shown} norm",
        f"prediction at the loss reached ({shown} norm)",
        norm,
    )
    for norm, shown in (("nuclear", "nuclear"), ("gamma2", "gamma_2"))
}
"""Norm -> prediction at the loss that the run has reached."""
LIMIT = Target(
    "limit",
    ExplanationInfo("L_mm", "prediction in the limit of training", "supports", ours=True),
    "in the limit of training",
    "prediction in the limit of training",
)
PROXY = Target(
    "proxy", ExplanationInfo("S~", "proxy: centred supports", "supports", ours=True), "with the proxy", "proxy"
)
TIED = Target(
    "tied",
    ExplanationInfo("tied, at loss", "prediction with tied contexts", "tokens, probabilities and the loss", ours=True),
    "with tied contexts",
    "prediction with tied contexts",
)
SIMULATED = Target(
    "simulated",
    ExplanationInfo("simulated", "tied features trained alike", "tokens, probabilities, loss and optimizer", ours=True),
    "simulated at the loss reached",
    "simulated training",
)
COUNTS = Target(
    "counts",
    ExplanationInfo("together", "all explanations by counts together, fitted on other items", "counts"),
    "all explanations by counts together",
    "sum of all explanations by counts",
)
"""What all explanations say together (`tokengeom.comparison.explained`): at least this much comes from counts."""
TARGETS = {target.key: target for target in (TIED, *AT_LOSS.values(), SIMULATED, LIMIT, PROXY, COUNTS)}
"""Every target by its key, in the order of tables. Without a norm, the first that there is has the verdict."""

Tables = Mapping[str, Mapping[str, Agreement]]
"""Key of each target -> its numbers by name; the numbers of the run alone are under the empty key."""


def flat_names(numbers: Mapping[Name, Agreement]) -> dict[str, Agreement]:
    """Numbers by their names in saved files: at the loss first, then in the limit, each in the order of `MEANINGS`."""
    order = [(key, number) for key in (*TARGETS, "") for number in MEANINGS if (key, number) in numbers]
    return {TARGETS[key].named(number) if key else number: numbers[key, number] for key, number in order}


def tables_of(agreements: Mapping[str, Agreement]) -> dict[str, dict[str, Agreement]]:
    """The numbers of each target, from numbers by their names in saved files."""
    tables: dict[str, dict[str, Agreement]] = {}
    for flat, agreement in agreements.items():
        key, number = split_name(flat)
        tables.setdefault(key, {})[number] = agreement
    return tables


def split_name(flat: str) -> Name:
    """Key of the target (empty where there is none) and number, from a name in saved files."""
    target = next((target for target in TARGETS.values() if flat.startswith(target.named(""))), None)
    return ("", flat) if target is None else (target.key, flat.removeprefix(target.named("")))


def meaning(flat: str) -> str:
    """What a number is, in a phrase, from its name in saved files."""
    key, number = split_name(flat)
    return f"{TARGETS[key].phrase}: {MEANINGS[number]}" if key else MEANINGS[number]


def norms_at_loss(P: csc_array, asked: bool | None, share: float = 0.0) -> tuple[str, ...]:
    """Norms in which to predict at a loss for these probabilities: all or none as asked, or where that is fast.

    ``share``
        The loss gap as a share of that of a uniform guess, where it is known: high ones are fast.
    """
    if asked is not None:
        return tuple(AT_LOSS_ENTRIES) if asked else ()
    entries, most = Merging.of(P).entries, AT_HIGH_LOSS_ENTRIES if share >= FITTED_FROM else AT_LOSS_ENTRIES
    return tuple(norm for norm in most if entries <= most[norm])


def too_large(P: csc_array) -> str:
    """Why `norms_at_loss` leaves out a norm that was not asked for."""
    merged = Merging.of(P)
    return (
        f"{merged.a.size:,} distinct tokens x {merged.n.size:,} distinct contexts would take minutes. Ask for it with "
        "at_loss=True (--at-loss)."
    )


def predictions_at(
    gap: float | None,
    prediction: FeaturePrediction | NextTokenStatistics | TiedPrediction,
    asked: bool | None,
    tolerance: float,
    progress: AbstractProgress,
) -> tuple[tuple[LossPrediction, ...], list[str]]:
    """Predictions at a loss gap in each norm, and why one is missing; ``asked`` as in `norms_at_loss`.

    Statistics stand for a prediction in the limit that was not made, since it would take too long. Beside a prediction
    with ties it is the one without them, at the same loss and in the same norm.
    """
    if asked is False or (gap is None and isinstance(prediction, NextTokenStatistics)):
        return (), []
    wanted, untied, unknown = tuple(AT_LOSS), "", ""
    largest = math.log(prediction.P.shape[0]) - prediction.entropy
    if isinstance(prediction, TiedPrediction):
        if prediction.in_limit:
            return (), []
        gap, wanted = prediction.loss_gap, (prediction.norm,)
        untied, unknown = "without ties ", "What ties change is not known. "
    elif gap is not None and not gap < largest:
        return (), [
            f"Nothing is predicted at the loss reached: the run's loss gap, {gap:.3g} nats, is at least that of a "
            f"uniform guess, {largest:.3g}."
        ]
    assert gap is not None, "a prediction in the limit has all probabilities"
    norms = [norm for norm in norms_at_loss(prediction.P, asked, gap / largest) if norm in wanted]
    if not norms:
        return (), [f"{unknown}No prediction was made {untied}at the loss reached: {too_large(prediction.P)}"]
    left_out = [NORMS[norm] for norm in wanted if norm not in norms]
    why = too_large(prediction.P) if left_out else ""
    notes = [f"No prediction was made at the loss reached in the {norm}: {why}" for norm in left_out]
    predictions = []
    for norm in norms:
        try:
            path = LossPath.beside(prediction, LossSettings(norm=norm, tolerance=tolerance))
            predictions.append(path.at(gap, progress))
        except (ProblemError, ResourceError) as problem:
            said = f"The prediction {untied}at the loss reached failed in the {NORMS[norm]}: {problem}"
            notes.append(f"{unknown}{said}")
    return tuple(predictions), notes


def ties_sentences(rows: Iterable[RivalRow]) -> list[str]:
    """What ties changed, for the better or worse: frequent contexts, rare ones, and tokens; empty where not known."""
    untied = {row.items: row for row in rows if row.rival in [target.info.name for target in AT_LOSS.values()]}
    sentences = []
    for items in (*BY_FREQUENCY, "tokens"):
        row = untied.get(items)
        if row is None or not math.isfinite(row.ahead.value):
            continue
        change, without = row.ahead.turned, row.agreement.fair
        sentences.append(
            f"{items.capitalize()}: agreement {without + change.value:.2f} with ties and {without:.2f} without them: "
            f"{ties_change(change)}."
        )
    return sentences if len(sentences) > 1 else []


def ties_change(change: Lead) -> str:
    """What ties change, in a phrase; ``change`` is the agreement with ties minus the one without."""
    clear = change.is_clear or change.turned.is_clear
    how = f"clearly {'better' if change.value > 0 else 'worse'} with ties" if clear else "no clear difference"
    return f"{how} ({change})"


def loss_predictions(at: object) -> tuple[LossPrediction, ...]:
    """The predictions at a loss that a user gave: None, one or several."""
    given: tuple[Any, ...] = () if at is None else tuple(at) if is_several(at) else (at,)
    for item in given:
        if not isinstance(item, LossPrediction):
            raise ProblemError(
                "at must be a prediction at a loss or a list of them, from predict(stats, loss_gap=...); got "
                f"{type(item).__name__}. To give only the loss gap of the run, pass loss_gap."
            )
    return given


def proven(at: Iterable[LossPrediction], within: float) -> tuple[tuple[LossPrediction, ...], list[str]]:
    """Predictions that are proven well enough to be compared with, and a sentence for each of the others."""
    kept, notes = [], []
    for prediction in at:
        if prediction.relative_gap > within:
            notes.append(
                f"The prediction at the loss reached in the {NORMS[prediction.norm]} is not used: its norm is proven "
                f"only to a relative gap of {prediction.relative_gap:.1e}."
            )
        elif prediction.rank > 0:
            kept.append(prediction)
    return tuple(kept), notes


def optimizer_of(run: object) -> str | None:
    """Name of the optimizer that trained a run, where the run knows it."""
    optimizer = _setting(run, "optimizer")
    name = optimizer.get("name") if isinstance(optimizer, dict) else optimizer
    return name if isinstance(name, str) else None


def decays_in_gradient(run: object) -> bool:
    """Whether a run was trained with weight decay in the gradient, which some optimizers apply separately."""
    decay, name = _setting(run, "weight_decay"), optimizer_of(run)
    if name is None or not isinstance(decay, int | float) or decay <= 0:
        return False
    return name not in optimizer_names() or not optimizer_named(name).decoupled


def _setting(run: object, name: str) -> object:
    settings = getattr(run, "settings", None)
    return settings.get(name) if isinstance(settings, dict) else None


def norm_of(run: object) -> str | None:
    """The norm that goes with a run's training, where that is known.

    What unconstrained features do under gradient descent, networks do not. With weight decay in the gradient, training
    ends at a stationary point of the loss and the decay, whatever the optimizer: in the nuclear norm. Before that it is
    on the way from its optimizer's own norm, so neither is known.
    """
    optimizer = optimizer_of(run) or ""
    norm, model = NORM_OF_OPTIMIZER.get(optimizer), _setting(run, "model")
    if model is not None and model not in FACTORED and optimizer in NOT_IN_NETWORKS:
        return None
    return None if norm != "nuclear" and decays_in_gradient(run) else norm


def choose_norm(
    wanted: str | None, predicted: Mapping[str, Float], run: Float, groups: Int, kept: Int
) -> tuple[str | None, Int, list[str]]:
    """The norm of the prediction at the loss, the contexts that it is judged on, and a sentence where it was chosen.

    Where the wanted norm is not known, the one counts in which half of the supports agree better, and only the other
    half is judged. With fewer than twice `FEWEST_GROUPS` supports it is the nuclear norm, the papers'.

    ``predicted``, ``run``
        Norm -> predicted contexts, r x m; and those of the run, d x m.
    ``groups``, ``kept``
        Support group of each context, m, and the contexts that are compared.
    """
    if wanted in predicted or len(predicted) < 2:
        return wanted if wanted in predicted else next(iter(predicted), None), kept, []
    supports = np.unique(groups[kept])
    if supports.size < 2 * FEWEST_GROUPS:
        few = f"With {supports.size} supports the norm was not chosen by agreement: it is the nuclear norm."
        return "nuclear", kept, [few]
    first = np.random.default_rng(0).permutation(supports)[: supports.size // 2]
    is_first = np.isin(groups[kept], first)
    half = kept[is_first]
    targets = {norm: H[:, half] for norm, H in predicted.items()}
    values = SimilarityNumbers.of("supports", run[:, half], targets, groups[half]).values()
    norm = max(predicted, key=lambda norm: np.nan_to_num(values[norm, "support_agreement"], nan=-2.0))
    said = f"The norm was chosen on {first.size} of {supports.size} supports; contexts with the others are judged."
    return norm, kept[~is_first], [said]


def norm_sentence(norm: str | None, run: object, targets: Tables) -> list[str]:
    """Why this norm, and what the other one gives; nothing where there is one norm alone, or no number."""
    others = [other for other, target in AT_LOSS.items() if other != norm and target.key in targets]
    if norm is None or not others:
        return []
    tables = [targets[AT_LOSS[each].key] for each in (norm, others[0])]
    judged = "support" if "support_agreement" in tables[0] else "context"
    values = [table[f"{item}_agreement"].fair for table in tables for item in (judged, "token")]
    if not np.isfinite(values).all():
        return []
    mine, theirs = (f"{a:.2f} for contexts and {b:.2f} for tokens" for a, b in (values[:2], values[2:]))
    optimizer, decay = optimizer_of(run), " with weight decay" if decays_in_gradient(run) else ""
    known = {
        None: "The optimizer is not known",
        "spectral": "Spectral descent was measured to keep the spectral norm of unconstrained features small, in which "
        "nothing is predicted here",
    }
    why = f"The {NORMS[norm]} goes with the optimizer {optimizer}, as measured in unconstrained features"
    if norm_of(run) != norm:
        said = known.get(optimizer, f"No norm is known to go with the optimizer {optimizer}{decay}")
        why = f"{said}; the verdict is about the {NORMS[norm]}"
    return [f"{why} ({mine}); the {NORMS[others[0]]} gives {theirs}."]


def loss_limitations(prediction: LossPrediction | TiedPrediction, gap: float | None) -> list[str]:
    """Whether prediction and run are at the same loss."""
    if gap is None:
        return [f"The prediction is at a loss gap of {prediction.loss_gap:.3g} nats; that of the run is not known."]
    if abs(gap - prediction.loss_gap) <= SAME_LOSS * prediction.loss_gap:
        return [
            f"The loss gaps of the run ({gap:.3g} nats) and of the prediction ({prediction.loss_gap:.3g} nats) agree "
            f"within {SAME_LOSS:.0%}."
        ]
    return [
        f"The prediction is at a loss gap of {prediction.loss_gap:.3g} nats and the run at {gap:.3g}: predict at the "
        "run's own loss gap to compare like with like."
    ]


def feature_limitations(prediction: FeaturePrediction, run: Factors) -> list[str]:
    """Proof and uniqueness of L_mm, too few dimensions, and contexts without or with shared supports."""
    d, proof = run.H.shape[0], prediction.certificate
    sentences = list(prediction.warnings)
    if prediction.rank == 0:
        return sentences
    unique = "Whether L_mm is unique was not measured (predict(stats, spread_solves=2) measures it)."
    if (spread := prediction.spread) is not None:
        below = "" if spread.looks_unique else " Differences in agreement below this spread have no meaning."
        unique = f"{spread.sentence}{below}"
    share = prediction.solution_bounds.tight_share()
    sentences.append(
        f"The certificate determines {rounded_percent(share)} of the margins of L_mm: they are equal in every optimal "
        f"solution. {unique}"
    )
    if proof.relative_gap > 1e-4:
        sentences.append(f"L_mm is proven only to a relative gap of {proof.relative_gap:.1e}.")
    if not prediction.suffices(d):
        sentences.append(
            f"The run has d={d} < rank L_mm = {prediction.rank}: it cannot have the geometry predicted in the limit, "
            "so disagreement with that is expected and is not evidence against it."
        )
    if prediction.proxy_is_exact:
        sentences.append("The proxy is exact here: its numbers equal those of L_mm as far as L_mm is unique.")
    return [*sentences, *_group_limitations(prediction)]


def _group_limitations(prediction: FeaturePrediction) -> list[str]:
    n, m = prediction.reduction.n, prediction.reduction.m
    with_direction, sentences = int(n.sum()), list[str]()
    if with_direction < m:
        sentences.append(
            f"{m - with_direction} of {m} contexts have full support: they have no predicted direction and are left "
            "out."
        )
    if n.size and n.max() > 1:
        share = float((n * (n - 1)).sum() / (with_direction * (with_direction - 1)))
        sentences.append(
            f"{with_direction} contexts share {n.size} supports, and {rounded_percent(share, 1)} of the pairs of "
            "contexts have the same support: these pairs count for collapse, and not for agreement."
        )
    elif n.size:
        sentences.append("No two contexts share a support: collapse is not defined on these data.")
    return sentences
