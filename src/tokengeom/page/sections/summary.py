"""The head of the page (verdict on its scale, what, why, how sure), and the section on what does not fit."""

from __future__ import annotations

import math
from typing import Any

from tokengeom.comparison.agreement import Agreement
from tokengeom.comparison.comparison import Comparison
from tokengeom.comparison.inputs import seen_tokens
from tokengeom.page.formatting import DASH, count, fixed, listed, percent
from tokengeom.page.report_contents import ReportContents
from tokengeom.page.sections.base import Page, Section
from tokengeom.page.sections.figures import disagreement_picture
from tokengeom.page.sections.fit_checks import CHECKS, OF_OUTCOME, agreements_of, is_finite
from tokengeom.theory.features import FeaturePrediction

FAR_FROM_FLOOR = (
    "The loss is far above the entropy floor, whereas the prediction is for the limit, where the loss reaches the "
    "floor."
)
NO_MODEL = "No model was trained: this page shows the prediction alone."
MARKS = {"fits": "✓", "in part": "◐", "does not fit": "✗", "not judged": DASH}
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
        "confidence": [*_measured(contents), *_trainings(contents), *_confidence(contents)],
        "misfits": len(page.diagnosis.misfits),
        "missing": list(contents.missing),
    }
    return Section("summary", "Summary", view)


def _text(contents: ReportContents) -> str:
    stats = contents.stats
    seen = seen_tokens(stats.P).size
    tokens = count(seen, "possible next token")
    if seen < stats.V:
        tokens += f", out of {stats.V:,} in the model's vocabulary"
    covered = "all" if stats.coverage == 1 else percent(stats.coverage or 0.0)
    share = "" if stats.coverage is None else f" ({covered} of the text's)"
    windows = f"{count(stats.n, 'window')}{share}, " if stats.has_counts else ""
    sliding = stats.windows is not None and stats.windows.kind == "sliding"
    length = f" of {count(stats.windows.context, 'token')}" if sliding and stats.windows else ""
    return (
        f"{windows}{count(stats.m, 'distinct context')}{length} and {tokens}. From "
        "the probabilities of the next tokens and the loss that a model has reached, theory predicts the directions of "
        "its context and token embeddings; in the limit of training, from which tokens may follow which contexts alone."
    )


def _answer(page: Page, name: str) -> dict[str, Any]:
    """The verdict on one model, its agreement on the scale from chance to a second training, and the other reasons."""
    contents = page.contents
    comparison = contents.comparisons.get(name)
    if comparison is None:
        why = "" if is_finite(contents.runs[name]) else ": its run has numbers that are not finite"
        level = "not judged" if is_finite(contents.runs[name]) else "does not fit"
        return _unjudged(name, level, "not compared", f"It was not compared{why}.")
    far = comparison.norm is None and page.diagnosis.level(name, "loss") == "does not fit"
    return {
        "run": name,
        "level": OF_OUTCOME[comparison.verdict],
        "outcome": comparison.verdict,
        "verdict": contents.reasons(name)[0],
        "scales": [_scale(items, agreement, comparison) for items, agreement in agreements_of(comparison).items()],
        "notes": [*contents.reasons(name)[1:], *_other_best(contents, name), *([FAR_FROM_FLOOR] if far else [])],
    }


def _unjudged(run: str, level: str, outcome: str, verdict: str) -> dict[str, Any]:
    return {"run": run, "level": level, "outcome": outcome, "verdict": verdict, "scales": [], "notes": []}


def _other_best(contents: ReportContents, name: str) -> list[str]:
    """What the table of rivals, which has more explanations than the comparison, finds best where that differs."""
    table, rows = contents.rivals.get(name), contents.comparisons[name].rows
    if table is None:
        return []
    first = {row.items: row.rival for row in reversed(rows)}
    verdicts = zip(table.items, table.verdicts, strict=True)
    return [said for items, said in verdicts if items in first and table.best[items].rival != first[items]]


def _scale(items: str, agreement: Agreement, comparison: Comparison) -> dict[str, Any]:
    """One number between its floor and its ceiling; places are percentages of an axis from 0 to 1."""

    def place(value: float) -> float | None:
        return round(100 * min(max(value, 0.0), 1.0), 2) if math.isfinite(value) else None

    interval = f"{fixed(agreement.low, 2)} to {fixed(agreement.high, 2)}" if math.isfinite(agreement.low) else ""
    floor, ceiling = (
        f"{label} {fixed(value, 2)}" if math.isfinite(value) else ""
        for label, value in (("chance", agreement.floor), (_again(comparison.runs), agreement.ceiling))
    )
    return {
        "name": items,
        "value": fixed(agreement.value, 2),
        "interval": interval,
        "at": place(agreement.value),
        "below_axis": agreement.value < 0,
        "low": place(agreement.low),
        "high": place(agreement.high),
        "floor": place(agreement.floor),
        "floor_label": floor,
        "ceiling": place(agreement.ceiling),
        "ceiling_label": ceiling,
        "sentence": _position(agreement, comparison.runs),
        "description": _description(items, fixed(agreement.value, 2), interval, floor, ceiling),
    }


def _description(items: str, value: str, interval: str, floor: str, ceiling: str) -> str:
    """The figure of one number as a sentence, for readers who do not see it."""
    parts = [f"{items}: agreement {value}", *([f"95% interval {interval}"] if interval else [])]
    parts.append(f"floor: {floor}" if floor else "no floor")
    parts.append(f"ceiling: {ceiling}" if ceiling else "no ceiling")
    return f"{'; '.join(parts)}, on an axis from 0 to 1"


def _again(runs: int) -> str:
    return "second training" if runs <= 2 else "other trainings"


def _position(agreement: Agreement, runs: int) -> str:
    """Where a number is between chance and a second training, in a sentence."""
    if not agreement.has_floor:
        return "chance was not measured"
    chance = f"chance ({fixed(agreement.floor, 2)})"
    again = f"{'a ' if runs <= 2 else ''}{_again(runs)} ({fixed(agreement.ceiling, 2)})"
    if not agreement.above_floor:
        return f"not clearly above {chance}"
    if runs < 2 or not math.isfinite(agreement.ceiling):
        return f"above {chance}; there is no second training to compare with"
    if math.isnan(agreement.position):
        return f"above {chance}, although {again} {'is' if runs <= 2 else 'are'} not"
    if agreement.position >= 1:
        return f"above {chance}, and at least as close to the prediction as to {again}"
    return f"{percent(agreement.position)} of the way from {chance} to {again}"


def _measured(contents: ReportContents) -> list[str]:
    """How certain the agreements in the figure are: width of their intervals, and how chance was measured."""
    compared = [contents.comparisons[name] for name in contents.compared_models]
    numbers = [agreement for comparison in compared for agreement in agreements_of(comparison).values()]
    widths = [agreement.high - agreement.low for agreement in numbers if math.isfinite(agreement.high - agreement.low)]
    sentences = []
    if widths:
        interval = "The 95% interval" if len(widths) == 1 else "The widest of the 95% intervals"
        sentences.append(f"{interval} above is {fixed(max(widths), 2)} wide.")
    permutations = sorted({comparison.permutations for comparison in compared} - {0})
    if permutations:
        sentences.append(
            f"Chance was measured with {' and '.join(f'{count:,}' for count in permutations)} permutations."
        )
    return sentences


def _trainings(contents: ReportContents) -> list[str]:
    """How often each compared model was trained."""
    if contents.models:
        return ["The model was read, not trained here, so it has no second training to compare with."]
    times: dict[int, list[str]] = {}
    for name in contents.compared_models:
        times.setdefault(contents.comparisons[name].runs, []).append(f"'{name}'")
    sentences = []
    for runs, names in times.items():
        often = {1: "once, which gives no ceiling", 2: "twice, with different seeds"}
        how = often.get(runs, f"{runs} times, with different seeds")
        sentences.append(f"{listed(names)} {'was' if len(names) == 1 else 'were each'} trained {how}.")
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
    """Every check of every run, likely causes and what to try, and where a disagreement comes from."""
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
        "sources": [_sources(contents, name) for name in contents.compared_models],
        "sources_picture": disagreement_picture(contents),
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
