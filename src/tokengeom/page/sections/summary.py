"""The head of the page (verdict on its scale, what, why, how sure), and the section on what does not fit."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Any

import numpy as np

from tokengeom.ask.item_search import quoted
from tokengeom.comparison.agreement import Agreement
from tokengeom.comparison.comparison import Comparison
from tokengeom.comparison.target import norm_sentence
from tokengeom.comparison.verdict import JUDGED
from tokengeom.core.numerics import seen_tokens
from tokengeom.page.formatting import DASH, count, explained_share, fixed, listed, percent
from tokengeom.page.report_contents import ReportContents
from tokengeom.page.sections.base import Page, Section
from tokengeom.page.sections.fit_checks import CHECKS, ITEMS, OF_OUTCOME, agreements_of, is_finite, together_of
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.features import FeaturePrediction

FAR_FROM_FLOOR = (
    "The loss is far above the entropy floor, whereas the prediction is for the limit, where the loss reaches the "
    "floor."
)
NO_MODEL = "No model was trained: this page shows the prediction alone."
MARKS = {"fits": "✓", "in part": "◐", "does not fit": "✗", "not judged": DASH}
MARKUP, MUCH_MARKUP = re.compile(r"[<>@\\]|</?[^\s<>]+>|\[UNK\]|@[^\w\s]@|&#?\w+;"), 0.1
"""Tokens that usually belong to markup, and the share of the windows from which on they are named."""
PLACEHOLDER = re.compile(r"<unk>|\[unk\]", re.IGNORECASE)
"""Tokens that stand for rare words, which nothing brings back."""
TICKS = tuple((20 * k, f"{k / 5:g}") for k in range(6))
"""Axis of the figure of the verdict: place in percent, and label."""


def summary(page: Page) -> Section:
    """The head of the page."""
    contents = page.contents
    view = {
        "text": _text(contents),
        "answers": [_answer(page, name) for name in reversed(list(contents.runs))]
        or [_unjudged("", "not judged", "no model", NO_MODEL)],
        "marks": MARKS,
        "ticks": TICKS,
        "confidence": [*_trainings(contents), *_confidence(contents)],
        "misfits": len(page.diagnosis.misfits),
        "missing": [*_markup(contents.stats), *contents.missing],
    }
    return Section("summary", "Summary", view)


def _text(contents: ReportContents) -> str:
    stats = contents.stats
    seen = seen_tokens(stats.P).size
    tokens = count(seen - (stats.other is not None), "possible next token")
    if stats.other is not None:
        tokens += " and one token that stands for all others"
    if seen < stats.V:
        tokens += f", out of {stats.V:,} in the model's vocabulary"
    covered = "all" if stats.coverage == 1 else percent(stats.coverage or 0.0)
    ends = f"; {percent(stats.merged_share)} of them end in a token that was merged with others"
    merged = ends if stats.merged_share else ""
    share = "" if stats.coverage is None else f" ({covered} of the text's{merged})"
    windows = f"{count(stats.n, 'window')}{share}, " if stats.has_counts else ""
    sliding = stats.windows is not None and stats.windows.kind == "sliding"
    length = f" of {count(stats.windows.context, 'token')}" if sliding and stats.windows else ""
    return (
        f"{windows}{count(stats.m, 'distinct context')}{length} and {tokens}. From "
        "the probabilities of the next tokens and the loss that a model has reached, theory predicts the directions of "
        "its context and token embeddings; in the limit of training, from which tokens may follow which contexts alone."
    )


def _markup(stats: NextTokenStatistics) -> list[str]:
    """A warning where tokens that usually belong to markup take part in many windows; the tokens of code are not."""
    contexts, tokenizer = stats.contexts, stats.tokenizer
    if contexts is None or tokenizer is None or tokenizer.kind == "code" or not stats.has_counts:
        return []
    known = {int(one): tokenizer.token(int(one)).strip() for one in np.unique(contexts) if 0 <= one < tokenizer.size}
    inside = {one: name for one, name in known.items() if MARKUP.fullmatch(name)}
    after = np.array([bool(MARKUP.fullmatch(token.strip())) for token in stats.vocabulary])
    table, before = stats.counts.tocsr(), np.isin(contexts, list(inside)).any(axis=1)
    share = 1.0 - int(table[np.flatnonzero(~after)][:, np.flatnonzero(~before)].sum()) / stats.n
    if share < MUCH_MARKUP:
        return []
    often = Counter({stats.vocabulary[z].strip(): int(table[[z]].sum()) for z in np.flatnonzero(after)})
    often.update({name: int(stats.context_counts[(contexts == one).any(axis=1)].sum()) for one, name in inside.items()})
    named = [name for name, _ in often.most_common(3)]
    most = listed(map(quoted, named))
    if PLACEHOLDER.fullmatch(named[0]):
        return [
            f"{percent(share)} of the windows kept have a token that stands for rare words or belongs to markup (most "
            f"often {most}): much of this page is about these tokens. {quoted(named[0])} may be another word each "
            "time, so that what is said of it is true of no single word."
        ]
    parts = " or, where it was split into parts, count with --tokenizer whitespace" if tokenizer.kind == "word" else ""
    return [
        f"{percent(share)} of the windows kept have a token that usually belongs to markup (most often {most}): much "
        f"of this page is about markup. To see the language alone, remove it from the text{parts}."
    ]


def _answer(page: Page, name: str) -> dict[str, Any]:
    """The verdict on one model, its agreement on the scale from chance to what is attainable, and the other reasons."""
    contents = page.contents
    comparison = contents.comparisons.get(name)
    if comparison is None:
        why = "" if is_finite(contents.runs[name]) else ": its run has numbers that are not finite"
        level = "not judged" if is_finite(contents.runs[name]) else "does not fit"
        return _unjudged(name, level, "not compared", f"It was not compared{why}.")
    far = comparison.norm is None and page.diagnosis.level(name, "loss") == "does not fit"
    # The summary is about one norm; what the other one gives is said beside its numbers.
    norms = norm_sentence(comparison.norm, contents.runs[name], comparison.targets)
    reasons = [reason for reason in contents.reasons(name) if reason not in norms]
    return {
        "run": name,
        "level": OF_OUTCOME[comparison.verdict],
        "outcome": comparison.verdict,
        "verdict": reasons[0],
        "scales": [_scale(items, agreement, comparison) for items, agreement in agreements_of(comparison).items()],
        "notes": [*reasons[1:], *_other_best(contents, name), *([FAR_FROM_FLOOR] if far else [])],
    }


def _unjudged(run: str, level: str, outcome: str, verdict: str) -> dict[str, Any]:
    return {"run": run, "level": level, "outcome": outcome, "verdict": verdict, "scales": [], "notes": []}


def _other_best(contents: ReportContents, name: str) -> list[str]:
    """Explanations that are best in the table of rivals, and that the comparison, which trains nothing, does not have.

    Of the predictions, only the judged one counts; further trainings of the same model are no explanation of it.
    """
    table, comparison = contents.rivals.get(name), contents.comparisons[name]
    known, judged = {row.rival for row in comparison.rows}, table and table.prediction
    run = contents.trained.get(name)
    own = {"UFM"} if run is not None and run.settings.get("model") == "ufm" else set()
    found: dict[str, list[str]] = {}
    for items, called in zip(JUDGED, ITEMS, strict=True):
        rows = () if table is None else table.of(items)
        others = (row for row in rows if row.rival not in own and (not row.ours or row.rival == judged))
        best = next(others, None)
        if best is None or best.rival in known or best.agreement.is_hardly_reproducible:
            continue
        if best.agreement.above_floor:
            said = f"{explained_share(best.agreement)} of {called}"
            found.setdefault(f"{best.rival} ({best.meaning})", []).append(said)
    which = (
        "Apart from further trainings of this model itself" if own else "Among all explanations, trained ones included"
    )
    most = "{}, {} explains most of the reproducible geometry: {}."
    return [most.format(which, rival, listed(shares)) for rival, shares in found.items()]


def _scale(items: str, agreement: Agreement, comparison: Comparison) -> dict[str, Any]:
    """One number between its floor and what is attainable; places are percentages of an axis from 0 to 1.

    With several trainings it is their mean; the interval is that of the first one.
    """

    def place(value: float) -> float | None:
        return round(100 * min(max(value, 0.0), 1.0), 2) if math.isfinite(value) else None

    value, share = agreement.fair, f"explains {explained_share(agreement)}"
    interval = f"95% interval {fixed(agreement.low, 2)} to {fixed(agreement.high, 2)}"
    floor, attainable = (
        f"{label} {fixed(at, 2)}" if math.isfinite(at) else ""
        for label, at in (("floor: chance", agreement.floor), ("attainable", agreement.attainable))
    )
    parts = [f"agreement {fixed(value, 2)}", interval if math.isfinite(agreement.low) else "", floor, attainable, share]
    return {
        "name": items,
        "value": fixed(value, 2),
        "share": share,
        "at": place(value),
        "below_axis": value < 0,
        "low": place(agreement.low),
        "high": place(agreement.high),
        "floor": place(agreement.floor),
        "floor_label": floor,
        "attainable": place(agreement.attainable),
        "attainable_label": attainable,
        "sentence": _sentence(items, agreement, comparison),
        "description": f"{items}: {'; '.join(filter(None, parts))}, on an axis from 0 to 1",
    }


def _sentence(items: str, agreement: Agreement, comparison: Comparison) -> str:
    """What is above chance, attainable, and explained by all explanations together and in the other weighting."""
    above = f"{'above' if agreement.above_floor else 'not clearly above'} chance ({fixed(agreement.floor, 2)})"
    parts, together = [above if agreement.has_floor else "chance was not measured"], together_of(comparison).get(items)
    if math.isfinite(agreement.reproducible):
        little, enough = "which is too little to explain", f"so that {fixed(agreement.attainable, 2)} is attainable"
        follows = little if agreement.is_hardly_reproducible else enough
        parts.append(f"two trainings agree {fixed(agreement.reproducible, 2)} on average, {follows}")
    # Fitted on other items, the combination can explain less than one of its parts: then it says nothing.
    if together is not None and not together.fair < agreement.fair:
        parts.append(f"all explanations by counts together explain {explained_share(together)}")
    if agreement.items == "supports":
        share = explained_share(comparison.context_agreement)
        parts.append(f"with each pair of contexts counted once, the prediction explains {share}")
    return "; ".join(parts)


def _trainings(contents: ReportContents) -> list[str]:
    """How often each compared model was trained, or in how many trainings a model was read."""
    sentences, read = [], bool(contents.models)
    times: dict[int, list[str]] = {}
    for name in contents.compared_models:
        times.setdefault(contents.comparisons[name].runs, []).append(f"'{name}'")
    for runs, names in times.items():
        often = f"read in {runs} trainings" if read else "trained twice" if runs == 2 else f"trained {runs} times"
        how = f"{often}, with different seeds"
        if runs < 2:
            once = "read, not trained here" if read else "trained once"
            how = f"{once}: how much of the geometry is reproducible is not known"
        sentences.append(f"{listed(names)} {'was' if len(names) == 1 else 'were each'} {how}.")
    return sentences


def _confidence(contents: ReportContents) -> list[str]:
    """How certain the predictions are."""
    prediction = contents.prediction
    if not isinstance(prediction, FeaturePrediction):
        return [
            "The prediction here is the proxy S~, which has a closed form and approximates L_mm; its "
            f"{count(prediction.singular_values.size, 'leading concept')} hold {percent(prediction.captured)} of its "
            "squared norm. It is not claimed to be optimal."
        ]
    if prediction.rank == 0:
        return ["The supports leave no geometry to predict: see What theory predicts."]
    gaps = [at.relative_gap for several in contents.at_loss.values() for at in several]
    at_loss = (
        f"The predictions at the loss are certified: their norms are proven within {max(gaps, default=0.0):.1e} of the "
        "smallest that logits with this loss can have."
    )
    in_limit = (
        "The prediction in the limit is certified: its nuclear norm is proven within "
        f"{prediction.certificate.relative_gap:.1e} of the smallest possible one."
    )
    not_measured = "Whether another prediction in the limit is equally good was not measured."
    unique = not_measured if prediction.spread is None else prediction.spread.sentence
    return [*([at_loss] if gaps else []), in_limit, unique]


def diagnosis(page: Page) -> Section:
    """Every check of every run, likely causes and what to try, where a disagreement comes from, what is unexplained."""
    checks, contents = page.diagnosis, page.contents
    runs = list(reversed(list(contents.runs)))
    view = {
        "runs": runs,
        "checks": CHECKS,
        "levels": {name: {check: checks.level(name, check) for check in CHECKS} for name in runs},
        "marks": MARKS,
        "misfits": checks.misfits,
        "fits": checks.at_level("fits"),
        "not_judged": checks.at_level("not judged"),
        "sources": [source for name in contents.compared_models if (source := _sources(contents, name))["sentences"]],
        "unexplained": [
            (name, kind, found)
            for name in contents.compared_models
            for kind in ITEMS
            if (found := [one for one in contents.comparisons[name].unexplained if one.items == kind])
        ],
    }
    return Section("diagnosis", "Does everything fit?", view)


def _sources(contents: ReportContents, name: str) -> dict[str, Any]:
    """Efficiency, split and cosine of the logits, as sentences, and what to change in training where that was here."""
    comparison, trained = contents.comparisons[name], name in contents.trained
    disagreement = comparison.disagreement
    sentences = [] if disagreement is None else disagreement.sentences(contents.noun)
    cosine = comparison.judged_numbers.get("logit_cosine")
    if cosine is not None and math.isfinite(cosine.value):
        sentences.append(
            f"The cosine of the {contents.noun}'s centred logits with the predicted ones is {cosine.value:.3f}."
        )
    low = [] if disagreement is None else disagreement.remedies()
    return {"name": name, "sentences": sentences, "remedies": low if trained else [], "none_low": not low}
