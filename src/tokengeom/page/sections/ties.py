"""Contexts tied by their tokens: a network compared with predictions with and without ties, and what ties change."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tokengeom.comparison.agreement import BY_FREQUENCY, Agreement, ItemKind
from tokengeom.comparison.comparison import Comparison
from tokengeom.comparison.explained import Lead, RivalRow
from tokengeom.comparison.explanations.ufm import SEEDS
from tokengeom.comparison.target import AT_LOSS, SIMULATED, TARGETS, TIED, ties_change
from tokengeom.models.networks.tied import TIES
from tokengeom.page.formatting import DASH, explained_share, listed, percent
from tokengeom.page.sections.base import Page, Section
from tokengeom.page.tied_stages import TiedContexts
from tokengeom.theory.at_loss import NORMS

UNTIED = tuple(target.key for target in AT_LOSS.values())
OUTCOMES = ("clearly better with ties", "clearly worse with ties", "not clearly different")


def ties(page: Page) -> Section | None:
    """The section; None where nothing with ties was compared."""
    known = page.contents.ties
    if known is None:
        return None
    first = known.compared[0]
    untied, tied = _rows(first, UNTIED), {} if known.comparison is None else _rows(known.comparison, (TIED.key,))
    simulated = {} if known.simulated is None else _rows(known.simulated, (SIMULATED.key,))
    found = {"without ties": untied, "with ties": tied, "trained alike": simulated}
    columns = {head: rows for head, rows in found.items() if rows}
    write = str if first.runs < 2 else explained_share
    named = items_of(tied or simulated)
    verdict = first.judged(page.contents.noun)
    view = {
        "what": _what(page, known),
        "about": "agreement of" if first.runs < 2 else "explained share of",
        "heads": list(columns),
        "changes": bool(tied),
        "rows": [
            {
                "about": items,
                "cells": {head: _written(rows.get(items), write) for head, rows in columns.items()},
                "change": ties_change(untied[items].ahead.turned) if items in untied else "not known",
            }
            for items in named
        ],
        "outcome": [said for said in (outcome(untied if tied else {}, named), alike(simulated, untied, named)) if said],
        "verdict": first.reasons[0] if verdict is None else verdict.reasons[0],
        "limitations": first.limitations,
    }
    return Section("ties", "Contexts tied by their tokens", view)


def _what(page: Page, known: TiedContexts) -> str:
    if known.tied is None:
        return (
            f"Contexts that share tokens are tied here: features ({TIES}) were trained as the model was, with its "
            f"optimizer and to its loss, or more quickly where that takes long: the mean of {SEEDS} random starts. "
            f"The proven prediction with ties does not reach this loss."
        )
    features, stats = known.tied.features, page.contents.stats
    size = f"{features.ties}: {features.F:,} features"
    what = f"Contexts that share tokens are tied here ({size}), at the loss of the model."
    if known.counted.hash != stats.hash:
        coverage = "" if known.counted.coverage is None else f", with {percent(known.counted.coverage)} of its windows"
        own = f"This section has its own {known.counted.m:,} contexts of the text{coverage}"
        return f"{what} {own}; the other sections are about {stats.m:,}."
    norm = f"{NORMS[known.tied.norm]}, as that without them"
    proven = f"The prediction with ties has the smallest {norm}, proven within {known.tied.relative_gap:.1e}."
    if known.simulated is None:
        return f"{what} {proven}"
    return (
        f"{what} {proven} Tied features were also trained as the model was, with its optimizer and to its loss, or "
        f"more quickly where that takes long: the mean of {SEEDS} random starts."
    )


def _rows(comparison: Comparison, keys: Sequence[str]) -> dict[ItemKind, RivalRow]:
    names = [TARGETS[key].info.name for key in keys]
    return {row.items: row for row in comparison.rows if row.rival in names}


def items_of(rows: Mapping[ItemKind, RivalRow]) -> list[ItemKind]:
    """What the table is about: frequent and rare contexts where they can be told apart, else all; and tokens."""
    wanted: tuple[ItemKind, ...] = (*BY_FREQUENCY, "tokens") if BY_FREQUENCY[0] in rows else ("contexts", "tokens")
    return [items for items in wanted if items in rows]


def _written(row: RivalRow | None, write: Any) -> str:
    agreement: Agreement | None = None if row is None else row.agreement
    return DASH if agreement is None else str(write(agreement))


def outcome(untied: Mapping[ItemKind, RivalRow], named: Sequence[ItemKind]) -> str:
    """What ties changed, for the better or worse, in one sentence; empty where it is not known."""
    found: dict[str, list[str]] = {}
    for items in named:
        if items in untied:
            found.setdefault(_change(untied[items].ahead.turned), []).append(items)
    said = [f"{how} for {listed(found[how])}" for how in OUTCOMES if how in found]
    return f"The prediction is {', '.join(said)}." if said else ""


def _change(change: Lead) -> str:
    """The outcome; ``change`` is the agreement with ties minus the one without."""
    return OUTCOMES[0] if change.is_clear else OUTCOMES[1] if change.turned.is_clear else OUTCOMES[2]


def alike(
    simulated: Mapping[ItemKind, RivalRow], untied: Mapping[ItemKind, RivalRow], named: Sequence[ItemKind]
) -> str:
    """Whether tied features trained alike explain more than the prediction without ties, in one sentence."""
    found: dict[str, list[str]] = {}
    for items in named:
        if items in simulated and items in untied:
            low, high = _interval(simulated[items].agreement)
            least, most = _interval(untied[items].agreement)
            how = "more" if low > most else "less" if high < least else "about as much"
            found.setdefault(how, []).append(items)
    said = [f"{how} of {listed(found[how])}" for how in ("more", "about as much", "less") if how in found]
    return f"Beside the prediction without ties, features trained alike explain {', '.join(said)}." if said else ""


def _interval(agreement: Agreement) -> tuple[float, float]:
    """95% interval of the agreement with what trainings share, where that is known."""
    if math.isfinite(agreement.corrected_low):
        return agreement.corrected_low, agreement.corrected_high
    return agreement.low, agreement.high
