"""What theory predicts for these statistics, as questions and answers, and the concepts in the prediction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tokengeom.comparison.logit_numbers import FiniteLogits
from tokengeom.core.numerics import Float, Int
from tokengeom.figures.base import LinePanel
from tokengeom.figures.training_curves import concepts as concepts_figure
from tokengeom.page.formatting import listed, number, percent, texts
from tokengeom.page.report_contents import ReportContents
from tokengeom.page.sections.base import Page, Section
from tokengeom.page.sections.figures import Picture, picture, supports_figure
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.at_loss import NORMS
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.proxy import ProxyPrediction

CONCEPTS, FIRST_CONCEPTS = 8, 4
"""Concepts on the page, and those shown without unfolding."""
TYPICAL_TOKENS, TYPICAL_CONTEXTS = 5, 4
CURVES = 6
EQUAL = 1e-3
"""Relative difference of strengths below which the contrasts of two concepts can be mixed."""
CURVES_CAPTION = (
    "Left: the strength of each concept, its singular value. Right: the order in which concepts are learned, as theory "
    "predicts for a square-loss surrogate from a small initialisation: stronger concepts come earlier. The time axis "
    "is that of the surrogate, not steps of a run."
)


@dataclass(frozen=True)
class Answer:
    """A question, a short answer, and the reason."""

    question: str
    answer: str
    reason: str


def prediction(page: Page) -> Section:
    """What theory predicts, and whether it applies."""
    contents, predicted = page.contents, page.contents.prediction
    view = {
        "answers": _answers(contents, predicted),
        "warnings": list(predicted.warnings) if isinstance(predicted, FeaturePrediction) else [],
        "diverges": predicted.W.shape[1] > 0,
        "certified": isinstance(predicted, FeaturePrediction),
        "supports": picture(supports_figure(contents, page.order)),
    }
    return Section("prediction", "What theory predicts", view)


def _answer(name: str, **values: object) -> Answer:
    """An answer whose words are in ``templates/answers.json``."""
    return Answer(**{part: words.format(**values) for part, words in texts("answers.json")[name].items()})


def _answers(contents: ReportContents, predicted: FeaturePrediction | ProxyPrediction) -> list[Answer]:
    one_hot = " Here every support is a single token, which is ordinary classification."
    separable = _answer("separable", one_hot=one_hot if contents.stats.one_hot_share == 1 else "")
    finite = _finite_part(contents)
    if isinstance(predicted, ProxyPrediction):
        return [separable, _answer("approximate_direction", summary=predicted.summary()), finite, _applies(contents)]
    if predicted.rank == 0:
        return [_answer("nothing"), finite]
    return [
        *_at_loss(contents),
        separable,
        _direction(predicted),
        finite,
        _dimensions(contents, predicted),
        _proxy(predicted),
        _unique(predicted),
        _applies(contents),
    ]


def _at_loss(contents: ReportContents) -> list[Answer]:
    """The predictions at the losses that the models reached, with their proofs; nothing where there are none."""
    said = []
    for name in reversed(list(contents.runs)):
        norms = [
            f"{NORMS[at.norm]} {number(at.norm_value, 4)}, proven within {at.relative_gap:.1e} of the smallest, "
            f"rank {at.rank:,}"
            for at in contents.at_loss.get(name, ())
        ]
        if norms:
            gap = number(contents.at_loss[name][0].loss_gap)
            said.append(f"For '{name}', {gap} nats above the entropy floor: {'; '.join(norms)}.")
    return [_answer("at_loss", said=" ".join(said))] if said else []


def _direction(predicted: FeaturePrediction) -> Answer:
    proof = predicted.certificate
    return _answer(
        "direction",
        margin=number(1.0 / predicted.nuclear_norm, 6),
        norm=number(predicted.nuclear_norm, 6),
        bound=number(predicted.lower_bound, 6),
        gap=proof.relative_gap,
        residual=proof.primal_residual,
        excess=max(proof.relative_gap, 0.0),
    )


def _finite_part(contents: ReportContents) -> Answer:
    size = float(np.linalg.norm(FiniteLogits.of(contents.stats.P).value))
    nothing = "the tokens of every support are equally frequent, so the finite part is 0"
    return _answer("compatible", norm=f"||L_in|| = {number(size, 5)}" if size else nothing)


def _dimensions(contents: ReportContents, predicted: FeaturePrediction) -> Answer:
    dims = {name: run.H.shape[0] for name, run in contents.runs.items()}
    short = [f"'{name}' (d = {d})" for name, d in dims.items() if not predicted.suffices(d)]
    runs = " Every model on this page has at least as many." if dims else ""
    if short:
        runs = f" Too small for it, so that disagreement is not evidence against the prediction: {listed(short)}."
    return _answer("dimensions", dim=predicted.smallest_dim, V=predicted.reduction.V, runs=runs)


def _proxy(predicted: FeaturePrediction) -> Answer:
    norm, exact = number(predicted.proxy_nuclear_norm, 6), "yes" if predicted.proxy_is_exact else "no"
    return _answer("proxy", exact=exact, why=predicted.proxy_reason, norm=norm)


def _unique(predicted: FeaturePrediction) -> Answer:
    share, found, said = percent(predicted.solution_bounds.tight_share()), "not measured", ""
    if predicted.spread is not None:
        found, said = "apparently yes" if predicted.spread.looks_unique else "no", f"{predicted.spread.sentence} "
    return _answer("unique", share=share, found=found, said=said)


def _applies(contents: ReportContents) -> Answer:
    ufm = [name for name, run in contents.trained.items() if run.settings.get("model") == "ufm"]
    networks = [name for name in contents.runs if name not in ufm]
    free = f" It is about the model {_quoted(ufm)}, in which every context has a free embedding." if ufm else ""
    other = (
        f" For {_quoted(networks)} it is a hypothesis that this page tests: embeddings are the output of a network, "
        "and the theory applies as far as the network can place every context freely."
        if networks
        else ""
    )
    return _answer("applies", free=free, other=other)


def _quoted(names: list[str]) -> str:
    return listed(f"'{name}'" for name in names)


def concepts(page: Page) -> Section:
    """Contrasts between tokens and between contexts in the predicted geometry, the strongest first."""
    contents = page.contents
    all_concepts = contents.concepts
    count = min(CONCEPTS, len(all_concepts))
    energy = float((all_concepts.singular_values**2).sum())
    view = {
        "concepts": [_concept(contents, k, energy) for k in range(count)],
        "first": FIRST_CONCEPTS,
        "total": len(all_concepts),
        "typical": (TYPICAL_TOKENS, TYPICAL_CONTEXTS),
        "often": "how many windows it has"
        if contents.stats.has_counts
        else "the token's probability after the context",
        "equal": equally_strong(all_concepts.singular_values, count),
        "curves": _curves(contents, count) if count else None,
    }
    return Section("concepts", "Concepts", view)


def equally_strong(strengths: Float, count: int) -> str:
    """A sentence about the shown concepts that are as strong as another one; empty where there are none."""
    near = np.isclose(strengths[1:], strengths[:-1], rtol=EQUAL)
    tied = [k + 1 for k in range(count) if (k and near[k - 1]) or (k < near.size and near[k])]
    if not tied:
        return ""
    which = f"Concept {tied[0]} is" if len(tied) == 1 else f"Concepts {listed(map(str, tied))} are"
    return f"{which} as strong as another one: only the subspace that such concepts span is determined."


def _curves(contents: ReportContents, count: int) -> Picture:
    figure = concepts_figure(contents.concepts, contents.stats, count=min(count, CURVES))
    panels = [panel for panel in figure.panels if isinstance(panel, LinePanel)]
    return picture(replace(figure, panels=panels, title="Strength and order of learning"), caption=CURVES_CAPTION)


def _concept(contents: ReportContents, k: int, energy: float) -> dict[str, Any]:
    stats, concept = contents.stats, contents.concepts.concept(k, typical=max(TYPICAL_TOKENS, TYPICAL_CONTEXTS))
    sides = zip(concept.tokens, concept.contexts, strict=True)
    return {
        "number": k + 1,
        "strength": concept.importance,
        "share": concept.importance**2 / energy if energy > 0 else 0.0,
        "sides": [_pairs(stats, tokens[:TYPICAL_TOKENS], contexts[:TYPICAL_CONTEXTS]) for tokens, contexts in sides],
    }


def _pairs(stats: NextTokenStatistics, tokens: Int, contexts: Int) -> list[tuple[str, list[tuple[str, str]]]]:
    """Of these contexts those that some of the tokens follow, each with these tokens and how often they do."""
    shown = "{:,}".format if stats.has_counts else percent
    pairs = []
    for j in contexts:
        column = slice(stats.table.indptr[j], stats.table.indptr[j + 1])
        followed = dict(zip(stats.table.indices[column].tolist(), stats.table.data[column].tolist(), strict=True))
        pairs.append(
            (stats.context_text(j), [(stats.vocabulary[z], shown(followed[z])) for z in tokens if z in followed])
        )
    return [pair for pair in pairs if pair[1]]
