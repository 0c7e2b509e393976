"""What theory predicts, and whether it applies: plain answers, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tokengeom.geometry.logit_numbers import FiniteLogits
from tokengeom.page.contents import Contents
from tokengeom.page.formatting import listed, number, percent
from tokengeom.page.geometry_figures import supports_figure
from tokengeom.page.sections.base import Reading, Section, picture
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.proxy import ProxyPrediction


@dataclass(frozen=True)
class Answer:
    """A question that a reader has, the answer in a few words, and the reason."""

    question: str
    answer: str
    reason: str


def section(reading: Reading) -> Section:
    """Make the section."""
    contents, prediction = reading.contents, reading.contents.prediction
    if isinstance(prediction, FeaturePrediction):
        answers, warnings = _certified(contents, prediction), list(prediction.warnings)
    else:
        answers, warnings = _by_proxy(contents, prediction), []
    view: dict[str, Any] = {
        "answers": answers,
        "warnings": warnings,
        "diverges": not isinstance(prediction, FeaturePrediction) or prediction.rank > 0,
        "certified": isinstance(prediction, FeaturePrediction),
        "supports": picture(supports_figure(contents, reading.order)),
    }
    return Section("prediction", "What theory predicts", view)


def _certified(contents: Contents, prediction: FeaturePrediction) -> list[Answer]:
    if prediction.rank == 0:
        return [
            Answer(
                "Is there a geometry to predict?",
                "no",
                "Every token may follow every context, so nothing has to be told apart: logits stay finite and "
                "converge to the log-probabilities L_in, and no direction diverges.",
            ),
            _finite(contents),
        ]
    return [
        _separable(contents),
        _margin(prediction),
        _finite(contents),
        _rank(contents, prediction),
        _proxy(prediction),
        _unique(prediction),
        _applies(contents),
    ]


def _separable(contents: Contents) -> Answer:
    stats = contents.stats
    one_hot = " Here every support is one token, which is ordinary classification." if stats.one_hot_share == 1 else ""
    return Answer(
        "Separable: can the possible next tokens of every context be set apart from the impossible ones?",
        "yes, proven",
        "With learned embeddings the matrix of supports with its columns centred, S~, does it itself: in every context "
        f"each possible token stands exactly 1 above each impossible one.{one_hot}",
    )


def _margin(prediction: FeaturePrediction) -> Answer:
    proof = prediction.certificate
    return Answer(
        "Along which direction do the logits grow?",
        f"L_mm, with a margin of {number(1.0 / prediction.nuclear_norm, 6)} per unit of nuclear norm",
        f"L_mm is the matrix of smallest nuclear norm that separates with margin 1: ||L_mm||_* = "
        f"{number(prediction.nuclear_norm, 6)}, and no separating matrix is below {number(prediction.lower_bound, 6)} "
        f"(dual bound; relative gap {proof.relative_gap:.1e}, constraint residual {proof.primal_residual:.0e}). So no "
        f"matrix has a margin per unit of norm that is larger than 1/||L_mm||_* by more than a share of "
        f"{max(proof.relative_gap, 0.0):.1e}.",
    )


def _finite(contents: Contents) -> Answer:
    finite = FiniteLogits.of(contents.stats.P)
    size = float(np.linalg.norm(finite.value))
    if size == 0:
        told = "every support is used evenly or holds one token, so that the finite part is 0"
    else:
        told = f"||L_in|| = {number(size, 5)}"
    return Answer(
        "Compatible: can every context have its own frequencies as well?",
        "yes, in closed form",
        "Inside each support the logits converge to the log-probabilities, centred: the finite part L_in. With learned "
        f"embeddings each context has its own, so no two can be in conflict; {told}.",
    )


def _rank(contents: Contents, prediction: FeaturePrediction) -> Answer:
    dims = {name: run.H.shape[0] for name, run in contents.runs.items()}
    short = [f"'{name}' (d = {d})" for name, d in dims.items() if not prediction.suffices(d)]
    held = (
        f"Too small for it: {listed(short)}; disagreement of such a run does not speak against the prediction."
        if short
        else "Every run on this page has at least as many."
        if dims
        else ""
    )
    return Answer(
        "How many dimensions does the geometry need?",
        f"{prediction.smallest_dim:,}",
        f"That is the rank of L_mm (for V = {prediction.reduction.V:,} tokens). That embeddings of this dimension lose "
        f"nothing is conjectured, not proven. {held}",
    )


def _proxy(prediction: FeaturePrediction) -> Answer:
    above = prediction.proxy_nuclear_norm / prediction.nuclear_norm - 1.0
    how_far = "." if prediction.proxy_is_exact else f", {percent(max(above, 0.0))} above that of L_mm."
    return Answer(
        "Is the simple proxy S~ exact?",
        "yes" if prediction.proxy_is_exact else "no",
        f"{prediction.proxy_sentence} Its nuclear norm is {number(prediction.proxy_nuclear_norm, 6)}{how_far}",
    )


def _unique(prediction: FeaturePrediction) -> Answer:
    pinned = (
        f"The proof alone pins down {percent(prediction.pinned.tight_share())} of the margins of every optimal answer."
    )
    if prediction.spread is None:
        return Answer("Is L_mm the only optimal answer?", "not measured", pinned)
    answer = "it looks so" if prediction.spread.looks_unique else "no"
    return Answer("Is L_mm the only optimal answer?", answer, f"{prediction.spread.sentence} {pinned}")


def _applies(contents: Contents) -> Answer:
    free = [name for name, run in contents.runs.items() if run.settings.get("model") == "ufm"]
    other = [name for name in contents.runs if name not in free]
    told = ["The theory is a limit: training without end, with vanishing weight decay."]
    if free:
        told.append(f"Its model is that of {_quoted(free)}, where every context has a free embedding.")
    if other:
        told.append(
            f"For {_quoted(other)} it is a hypothesis, which this page tests: embeddings come out of a network, and "
            "theory holds as far as the network can place every context freely."
        )
    return Answer("When does this apply?", "as a limit", " ".join(told))


def _by_proxy(contents: Contents, prediction: ProxyPrediction) -> list[Answer]:
    return [
        _separable(contents),
        Answer(
            "Along which direction do the logits grow?",
            "the proxy S~ stands for it",
            f"L_mm was not solved for at this size. {prediction.summary()} How far S~ is from L_mm is not known here.",
        ),
        _finite(contents),
        _applies(contents),
    ]


def _quoted(names: list[str]) -> str:
    return listed(f"'{name}'" for name in names)
