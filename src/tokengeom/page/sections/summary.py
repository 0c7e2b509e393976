"""The head of the page (result, confidence, key numbers), and the section on what does not fit."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tokengeom.geometry.agreement import Agreement
from tokengeom.page.contents import Contents
from tokengeom.page.diagnosis import CHECKS, Level, is_chance, is_finite, similarities
from tokengeom.page.formatting import DASH, count, fixed, listed, number, percent
from tokengeom.page.sections.base import Page, Section
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.features import FeaturePrediction

VERDICTS = {
    "fits": "agrees with the prediction",
    "in part": "agrees with the prediction in part",
    "does not fit": "does not agree with the prediction",
    "not judged": "could not be compared with a predicted geometry",
}
FAR_FROM_FLOOR = (
    " Its loss is still far above the entropy floor, whereas the prediction is for the limit, where the loss reaches "
    "the floor."
)
NO_RUN = {
    "run": "",
    "level": "not judged",
    "verdict": "No model was trained: this page shows the prediction alone.",
    "numbers": "",
}
MARKS = {"fits": "✓", "in part": "◐", "does not fit": "✗", "not judged": DASH}


def summary(page: Page) -> Section:
    """The head of the page."""
    contents = page.contents
    view = {
        "text": _text(contents),
        "answers": [_answer(page, name) for name in contents.runs] or [NO_RUN],
        "confidence": _confidence(contents),
        "misfits": len(page.diagnosis.misfits),
        "tiles": _tiles(contents),
        "missing": list(contents.missing),
    }
    return Section("summary", "Summary", view)


def _text(contents: Contents) -> str:
    stats = contents.stats
    windows = f"{count(stats.n, 'window')}{_share(stats)}, " if stats.has_counts else ""
    sliding = stats.windows is not None and stats.windows.kind == "sliding"
    length = f" of {count(stats.windows.context, 'token')}" if sliding and stats.windows else ""
    return (
        f"{windows}{count(stats.m, 'distinct context')}{length} and {count(stats.V, 'possible next token')}. From "
        "which tokens may follow which contexts, and nothing else, theory predicts the directions of the context and "
        "token embeddings of a model that learns to predict the next token."
    )


def _share(stats: NextTokenStatistics) -> str:
    """Share of the text's windows that the cuts kept, in brackets; empty where there was no text."""
    if stats.effects:
        return f" ({percent(stats.n / stats.effects[0].before.n)} of the text's)"
    return " (all of the text's)" if stats.windows is not None else ""


def _answer(page: Page, name: str) -> dict[str, str]:
    contents = page.contents
    if not is_finite(contents.runs[name]):
        verdict = f"The model '{name}' has no geometry to compare: its run has numbers that are not finite"
        return {"run": name, "level": "does not fit", "verdict": verdict, "numbers": ""}
    level, found = page.diagnosis.level(name), similarities(contents, name)
    numbers = listed([f"{_with_interval(one)} for {items}" for items, one in found.items()] or [""])
    far = page.diagnosis.level(name, "loss") == "does not fit"
    return {
        "run": name,
        "level": level,
        "verdict": f"The geometry of the model '{name}' {_verdict(level, found)}",
        "numbers": f"Structural similarity {numbers}; 1 is equal geometry.{FAR_FROM_FLOOR if far else ''}"
        if numbers
        else "",
    }


def _verdict(level: Level, found: Mapping[str, Agreement]) -> str:
    if level == "not judged" and found:
        return "is close to the prediction, but no closer than chance: nothing can be concluded"
    by_chance = [items for items, one in found.items() if is_chance(one)]
    if level in ("fits", "in part") and by_chance:
        judged = listed(items for items in found if items not in by_chance)
        return f"{VERDICTS[level]} for {judged}; for {listed(by_chance)} it is no closer than chance"
    return VERDICTS[level]


def _with_interval(one: Agreement) -> str:
    inside = []
    if math.isfinite(one.low):
        inside.append(f"95% interval {fixed(one.low)} to {fixed(one.high)}")
    if math.isfinite(one.null):
        inside.append(f"95th percentile under permutation {fixed(one.null)}")
    return f"{fixed(one.value)} ({'; '.join(inside)})" if inside else fixed(one.value)


def _confidence(contents: Contents) -> list[str]:
    """How certain the prediction is."""
    prediction = contents.prediction
    if not isinstance(prediction, FeaturePrediction):
        return [
            "The prediction here is the proxy S~, which has a closed form and approximates L_mm; its "
            f"{count(prediction.singular_values.size, 'leading concept')} hold {percent(prediction.captured)} of its "
            "squared norm. It is not claimed to be optimal."
        ]
    if prediction.rank == 0:
        return ["The supports leave no geometry to predict: see What theory predicts."]
    gap = prediction.certificate.relative_gap
    found = [f"The prediction is certified: its nuclear norm is within {gap:.1e} of the smallest possible one."]
    if prediction.spread is None:
        found.append("Whether another prediction is equally good was not measured.")
    elif prediction.spread.looks_unique:
        found.append(f"It appears to be unique: {prediction.spread.sentence}")
    else:
        found.append(prediction.spread.sentence)
    return found


def _tiles(contents: Contents) -> list[dict[str, str]]:
    stats, prediction = contents.stats, contents.prediction
    mean_support = number(float(stats.support_sizes.mean()))
    tiles = [
        _tile(f"{stats.m:,}", "distinct contexts", f"with {count(stats.groups.count, 'distinct support')}"),
        _tile(f"{stats.V:,}", "next tokens", f"{mean_support} per context on average"),
        _tile(f"{stats.entropy:.3f}", "nats: entropy floor", f"uniform guess: {math.log(stats.V):.3f}"),
    ]
    if isinstance(prediction, FeaturePrediction) and prediction.rank:
        gap = f"{prediction.certificate.relative_gap:.0e}"
        tiles.append(_tile(gap, "certified relative gap", f"of L_mm, which has rank {prediction.rank:,}"))
    for name in contents.runs:
        for items, one in similarities(contents, name).items():
            chance = f"; chance {fixed(one.null, 2)}" if math.isfinite(one.null) else ""
            tiles.append(_tile(f"{one.value:.2f}", f"similarity of {items}", f"{name}{chance}"))
    return tiles


def _tile(value: str, label: str, note: str) -> dict[str, str]:
    return {"value": value, "label": label, "note": note}


def diagnosis(page: Page) -> Section:
    """Every check of every run, and for those that fail the likely causes and what to try."""
    found, runs = page.diagnosis, list(page.contents.runs)
    view = {
        "runs": runs,
        "checks": CHECKS,
        "levels": {name: {check: found.level(name, check) for check in CHECKS} for name in runs},
        "marks": MARKS,
        "misfits": found.misfits,
        "fits": [one for one in found.findings if one.check.level == "fits"],
        "not_judged": [one for one in found.findings if one.check.level == "not judged"],
    }
    return Section("diagnosis", "Does everything fit?", view)
