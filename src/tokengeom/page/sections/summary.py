"""The head of the page: the answer in plain words, how sure it is, and the key numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tokengeom.geometry.agreement import Agreement
from tokengeom.page.contents import Contents
from tokengeom.page.formatting import count, fixed, listed, number, percent
from tokengeom.page.geometry_figures import is_finite
from tokengeom.page.sections.base import Reading, Section
from tokengeom.page.signatures import Level, reached_by_chance, similarities
from tokengeom.theory.features import FeaturePrediction

VERDICTS = {
    "fits": "agrees with the prediction",
    "in part": "agrees with the prediction in part",
    "does not fit": "does not agree with the prediction",
    "not judged": "could not be held against a predicted geometry",
}
FAR = " Its loss is still far above the floor, and the prediction is for a run that reaches it."


def section(reading: Reading) -> Section:
    """Make the head of the page."""
    contents = reading.contents
    view = {
        "text": _text(contents),
        "answers": [_answer(reading, name) for name in contents.runs] or [_NO_RUN],
        "sure": _sure(contents),
        "misfits": len(reading.diagnosis.misfits),
        "tiles": _tiles(contents),
        "missing": list(contents.missing),
    }
    return Section("summary", "In short", view)


_NO_RUN = {
    "run": "",
    "level": "not judged",
    "verdict": "No model was trained: this page holds the prediction alone.",
    "told": "",
}


def _text(contents: Contents) -> str:
    stats = contents.stats
    windows = f"{count(stats.n, 'window')}, " if stats.has_counts else ""
    length = f" of {count(stats.windows.context, 'token')}" if _fixed_length(contents) and stats.windows else ""
    return (
        f"{windows}{count(stats.m, 'distinct context')}{length} and {count(stats.V, 'possible next token')}. From "
        "nothing but which token may follow which context, theory predicts how a model that learns to predict the next "
        "token arranges contexts and tokens in space."
    )


def _fixed_length(contents: Contents) -> bool:
    return contents.stats.windows is not None and contents.stats.windows.kind == "sliding"


def _answer(reading: Reading, name: str) -> dict[str, str]:
    contents = reading.contents
    if not is_finite(contents.runs[name]):
        verdict = f"The model '{name}' has no geometry to compare: its run ended without finite numbers"
        return {"run": name, "level": "does not fit", "verdict": verdict, "told": ""}
    level = reading.diagnosis.level(name)
    found = similarities(contents, name)
    told = listed([f"{_told(one)} for {items}" for items, one in found.items()] or [""])
    far = reading.diagnosis.level(name, "loss") == "does not fit"
    return {
        "run": name,
        "level": level,
        "verdict": f"What the model '{name}' learned {_verdict(level, found)}",
        "told": f"Structural similarity {told}; 1 is equal geometry.{FAR if far else ''}" if told else "",
    }


def _verdict(level: Level, found: Mapping[str, Agreement]) -> str:
    if level == "not judged" and found:
        return "is close to the prediction, but chance comes as close: nothing follows from that"
    by_chance = [items for items, one in found.items() if reached_by_chance(one)]
    if level in ("fits", "in part") and by_chance:
        judged = listed(items for items in found if items not in by_chance)
        return f"{VERDICTS[level]} for {judged}; for {listed(by_chance)} chance comes as close: nothing follows there"
    return VERDICTS[level]


def _told(one: Agreement) -> str:
    inside = []
    if math.isfinite(one.low):
        inside.append(f"95% interval {fixed(one.low)} to {fixed(one.high)}")
    if math.isfinite(one.null):
        inside.append(f"one shuffle in twenty reaches {fixed(one.null)}")
    return f"{fixed(one.value)} ({'; '.join(inside)})" if inside else fixed(one.value)


def _sure(contents: Contents) -> list[str]:
    prediction = contents.prediction
    if not isinstance(prediction, FeaturePrediction):
        return [
            "The prediction here is the proxy S~, which is known in closed form and stands for L_mm as far as the two "
            f"agree; its {count(prediction.singular_values.size, 'leading concept')} hold "
            f"{percent(prediction.captured)} of its energy. No optimality is claimed."
        ]
    if prediction.rank == 0:
        return ["The supports leave no geometry to predict: see what theory says below."]
    proof = prediction.certificate
    found = [f"The prediction comes with a proof: its nuclear norm is within {proof.relative_gap:.1e} of the smallest."]
    if prediction.spread is None:
        found.append("Whether it is the only optimal one was not measured.")
    elif prediction.spread.looks_unique:
        found.append(f"It looks unique: {prediction.spread.sentence}")
    else:
        found.append(prediction.spread.sentence)
    return found


def _tiles(contents: Contents) -> list[dict[str, str]]:
    stats, prediction = contents.stats, contents.prediction
    tiles = [
        _tile(f"{stats.m:,}", "distinct contexts", f"with {count(stats.groups.count, 'distinct support')}"),
        _tile(
            f"{stats.V:,}", "next tokens", f"{number(float(stats.support_sizes.mean()))} follow a context, on average"
        ),
        _tile(f"{stats.entropy:.3f}", "nats: entropy floor", f"a uniform guess: {math.log(stats.V):.3f}"),
    ]
    if isinstance(prediction, FeaturePrediction) and prediction.rank:
        gap = f"{prediction.certificate.relative_gap:.0e}"
        tiles.append(_tile(gap, "proven relative gap", f"of L_mm, which has rank {prediction.rank:,}"))
    for name in contents.runs:
        for items, one in similarities(contents, name).items():
            chance = f"chance {fixed(one.null, 2)}" if math.isfinite(one.null) else ""
            tiles.append(_tile(f"{one.value:.2f}", f"similarity of {items}", f"{name}{'; ' if chance else ''}{chance}"))
    return tiles


def _tile(value: str, label: str, note: str) -> dict[str, str]:
    return {"value": value, "label": label, "note": note}
