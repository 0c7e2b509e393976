"""The signs by which a run fits the theory or fails it, each judged by a named threshold.

The papers name four signatures of failure: the loss does not approach the entropy floor, the direction does not align,
contexts with equal supports do not collapse, frequencies inside the supports are wrong [thrampoulidis2024, zhao2024].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tokengeom.factors import Factors
from tokengeom.geometry.agreement import Agreement
from tokengeom.geometry.logit_numbers import FiniteLogits
from tokengeom.page.contents import Contents
from tokengeom.page.formatting import fixed, listed, number, percent
from tokengeom.page.geometry_figures import is_finite

Level = Literal["fits", "in part", "does not fit", "not judged"]

FLOOR_FITS, FLOOR_PART = 0.01, 0.1
"""Loss above the floor, as a share of what a uniform guess has. Geometry is read from which tokens a run has ruled out;
a run that keeps 10% of the avoidable loss has not ruled out much, one with less than 1% nearly all."""
ALIGN_FITS, ALIGN_PART = 0.7, 0.4
"""Structural similarity, a correlation of cosines: at 0.7 half of their variance is shared (0.7^2), at 0.4 a sixth.
Whatever its size, a similarity that one in twenty shuffles reaches is chance."""
COLLAPSE_FITS, COLLAPSE_PART = 0.1, 0.5
"""Scatter of directions inside support groups over the scatter between them: a tenth is collapse that the eye sees in
the heat-map, a half is not."""
FREQUENCY_FITS, FREQUENCY_PART = 0.1, 0.5
"""Typical (root mean square) error, in nats, of in-support log-probability ratios: at 0.1 ratios are wrong by about
10%, at 0.5 by about 65%."""

CHANCE_TIE = 1e-6
"""Relative difference below which a number equals what chance reaches: where items are alike, shuffling them changes
nothing but the rounding."""

ORDER: dict[Level, int] = {"does not fit": 0, "in part": 1, "not judged": 2, "fits": 3}


@dataclass(frozen=True)
class Sign:
    """One judgement of one run.

    ``name``
        "loss", "alignment", "collapse" or "frequencies".
    ``measured``
        A plain sentence with the number that was judged and the threshold it was held against.
    """

    run: str
    name: str
    level: Level
    measured: str


def signs(contents: Contents, name: str) -> list[Sign]:
    """The four signs of one run."""
    if not is_finite(contents.runs[name]):
        status = contents.runs[name].status
        return [Sign(name, "loss", "does not fit", f"The run ended without finite numbers ({status}).")]
    return [_loss(contents, name), _alignment(contents, name), _collapse(contents, name), _frequencies(contents, name)]


def graded(value: float, fits: float, part: float) -> Level:
    """Level of a number that is better when it is smaller."""
    if math.isnan(value):
        return "not judged"
    return "fits" if value <= fits else "in part" if value <= part else "does not fit"


def _loss(contents: Contents, name: str) -> Sign:
    gap = contents.runs[name].loss_gap
    avoidable = math.log(contents.stats.V) - contents.stats.entropy
    if avoidable <= 0:
        return Sign(name, "loss", "not judged", "A uniform guess is already at the entropy floor: no loss to avoid.")
    share = gap / avoidable
    sentence = (
        f"The loss ended {number(gap)} nats above its floor, {percent(share)} of what a uniform guess has "
        f"(at most {percent(FLOOR_FITS)} fits, above {percent(FLOOR_PART)} does not)."
    )
    return Sign(name, "loss", graded(share, FLOOR_FITS, FLOOR_PART), sentence)


def similarities(contents: Contents, name: str) -> dict[str, Agreement]:
    """Similarity of contexts and of tokens with L_mm, or with the proxy where no L_mm was solved for."""
    comparison = contents.comparisons.get(name)
    if comparison is None:
        return {}
    prefix = "" if "context_similarity" in comparison.agreements else "proxy_"
    found = {"contexts": f"{prefix}context_similarity", "tokens": f"{prefix}token_similarity"}
    return {
        items: comparison[key]
        for items, key in found.items()
        if key in comparison.agreements and math.isfinite(comparison[key].value)
    }


def against_chance(one: Agreement) -> Literal["better", "no better", "the same", "not measured"]:
    """A number against what one shuffle in twenty reaches."""
    if not (math.isfinite(one.value) and math.isfinite(one.null)):
        return "not measured"
    if math.isclose(one.value, one.null, rel_tol=CHANCE_TIE):
        return "the same"
    return "better" if one.beats_chance else "no better"


def _alignment(contents: Contents, name: str) -> Sign:
    found = similarities(contents, name)
    if not found:
        return Sign(name, "alignment", "not judged", "There is no predicted geometry that the run was held against.")
    levels = {items: _aligned(one) for items, one in found.items()}
    judged = [level for level, _ in levels.values() if level != "not judged"]
    level = min(judged, key=lambda one: ORDER[one]) if judged else "not judged"
    chance = "".join(f" For {items} that{said}" for items, (_, said) in levels.items() if said)
    told = listed(f"{fixed(one.value)} for {items}" for items, one in found.items())
    sentence = (
        f"Similarity with the prediction: {told} (from {ALIGN_FITS} fits; below {ALIGN_PART}, or low and no more than "
        f"chance, does not).{chance}"
    )
    return Sign(name, "alignment", level, sentence)


def _aligned(one: Agreement) -> tuple[Level, str]:
    level = graded(1 - one.value, 1 - ALIGN_FITS, 1 - ALIGN_PART)
    return _by_chance(level, " is no more than chance reaches") if reached_by_chance(one) else (level, "")


def reached_by_chance(one: Agreement) -> bool:
    """Whether a shuffle in twenty comes as close or closer."""
    return against_chance(one) in ("no better", "the same")


def _by_chance(level: Level, sentence: str) -> tuple[Level, str]:
    """A good number that chance reaches too says nothing; one that is not good speaks against the fit."""
    if level == "fits":
        return "not judged", f"{sentence}: the items are so few or so alike that shuffling them changes little."
    return "does not fit", f"{sentence}."


def _collapse(contents: Contents, name: str) -> Sign:
    comparison = contents.comparisons.get(name)
    one = comparison.agreements.get("collapse") if comparison is not None else None
    if one is None or math.isnan(one.value):
        why = "No two contexts share a support that leaves a token out, or all do: there is no collapse to measure."
        return Sign(name, "collapse", "not judged", why if one is not None else "Collapse was not measured.")
    level = graded(one.value, COLLAPSE_FITS, COLLAPSE_PART)
    chance = ""
    if reached_by_chance(one):
        level, chance = _by_chance(level, " That is no more than chance reaches")
    null = f"; groups dealt at random reach {number(one.null)}" if math.isfinite(one.null) else ""
    sentence = (
        f"Scatter of directions inside support groups over between: {number(one.value)}{null} (at most "
        f"{COLLAPSE_FITS} fits, above {COLLAPSE_PART} does not).{chance}"
    )
    return Sign(name, "collapse", level, sentence)


def frequency_error(contents: Contents, name: str) -> float:
    """Root mean square error of the in-support log-probabilities of a run, each support centred; NaN for one-hot."""
    several = contents.stats.support_sizes > 1
    if not several.any():
        return float("nan")
    finite = FiniteLogits.of(contents.stats.P)
    errors = finite.squared_errors(Factors.of(contents.runs[name]))
    return float(np.sqrt(errors[several].sum() / contents.stats.support_sizes[several].sum()))


def _frequencies(contents: Contents, name: str) -> Sign:
    error = frequency_error(contents, name)
    if math.isnan(error):
        why = "Every context has one next token alone: there are no frequencies inside a support."
        return Sign(name, "frequencies", "not judged", why)
    sentence = (
        f"In-support log-probabilities are off by {number(error)} nats (root mean square; at most {FREQUENCY_FITS} "
        f"fits, above {FREQUENCY_PART} does not)."
    )
    return Sign(name, "frequencies", graded(error, FREQUENCY_FITS, FREQUENCY_PART), sentence)
