"""Comparisons and tables of explanations computed again from the saved results behind them, for `tokengeom.verify`.

The same draws are made with the same seed. Predictions that were saved are used as they are; those that were not saved
are solved for again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from tokengeom.comparison.compare import compare
from tokengeom.comparison.comparison import Comparison
from tokengeom.comparison.inputs import Observed
from tokengeom.comparison.norms import norm_sentence
from tokengeom.comparison.rival_table import Rivals
from tokengeom.comparison.rivals import rivals
from tokengeom.core.errors import TokengeomError
from tokengeom.results.contract import NearbyResults
from tokengeom.theory.at_loss import LossPrediction

RECOMPUTED = 1e-6
"""Difference within which numbers are equal when they are computed again: sums in another order, on another machine."""
SOLVED_AGAIN = 2e-3
"""The same where predictions had to be solved for again, which is exact to their proven gap."""
_WITHIN = f"the same within {SOLVED_AGAIN:g}"
NOT_RECORDED = "what it was made from is not recorded"


def compare_again(claimed: Comparison, beside: NearbyResults) -> dict[str, bool | None]:
    """Whether a saved comparison is the one that the results beside it give, one sentence per group of numbers."""
    sources = NOT_RECORDED if claimed.made_from is None else claimed.made_from.find(beside)
    if isinstance(sources, str) or sources.prediction is None:
        why = sources if isinstance(sources, str) else "its prediction is not recorded"
        return {f"agreements, intervals, floors, ceilings and explanations were not computed again: {why}": None}
    assert claimed.made_from is not None
    settings = claimed.made_from.settings
    try:
        again = compare(
            sources.prediction,
            sources.runs,
            at=sources.at or None,
            loss_gap=settings.get("loss_gap"),
            **{name: settings[name] for name in ("at_loss", "tolerance") if name in settings},
            permutations=claimed.permutations,
            seed=claimed.seed,
        )
    except TokengeomError as error:
        return {f"the results beside it can be compared ({error})": False}
    solved = bool(again.at) and not sources.at and not isinstance(sources.prediction, LossPrediction)
    return _differences(claimed, again, sources.runs[0], SOLVED_AGAIN if solved else RECOMPUTED)


def _differences(claimed: Comparison, again: Comparison, run: Observed, tolerance: float) -> dict[str, bool | None]:
    """Whether two comparisons have the same numbers and sentences."""
    mine, theirs, exactly = claimed.to_json(), again.to_json(), tolerance == RECOMPUTED

    def of_numbers(*names: str) -> bool:
        a, b = ({key: [one[name] for name in names] for key, one in x["agreements"].items()} for x in (mine, theirs))
        return same(a, b, tolerance)

    def of_whole(*names: str) -> bool:
        return all(same(mine[name], theirs[name], tolerance) for name in names)

    judged = claimed.judged()
    on_norm = claimed.reasons[0 if judged is None else len(judged.reasons) :]
    as_claimed = "the same" if exactly else _WITHIN
    return {
        f"computed again, the values of all agreements are {as_claimed}": of_numbers("value", "better", "items"),
        f"computed again, their intervals are {as_claimed}": of_numbers("low", "high"),
        f"computed again, their floors are {as_claimed}": of_numbers("null", "gaussian", "untrained", "floor"),
        f"computed again, their ceilings are {as_claimed}": of_numbers("ceiling"),
        f"computed again, the numbers of the other explanations are {as_claimed}": of_whole("rows"),
        f"computed again, efficiency and split are {as_claimed}": of_whole("disagreement"),
        f"computed again, loss gap, norm, number of runs and what the verdict depends on are {as_claimed}": of_whole(
            "loss_gap", "norm", "runs", "prediction_kind", "circumstances"
        ),
        "computed again, the limitations are the same": same_sentences(
            claimed.limitations, again.limitations, exactly=exactly
        ),
        "computed again, the sentence on the norm is the same": list(on_norm)
        == norm_sentence(claimed.norm, run, claimed.agreements),
    }


def rivals_again(claimed: Rivals, beside: NearbyResults) -> dict[str, bool | None]:
    """Whether a saved table of explanations is the one that the results beside it give; takes as long as `rivals`."""
    sources = NOT_RECORDED if claimed.made_from is None else claimed.made_from.find(beside)
    if isinstance(sources, str) or sources.stats is None:
        why = sources if isinstance(sources, str) else "its statistics are not recorded"
        return {f"agreements, intervals, floors and differences were not computed again: {why}": None}
    assert claimed.made_from is not None
    try:
        again = rivals(
            sources.stats,
            sources.runs,
            sources.prediction,  # type: ignore[arg-type]
            at=sources.at,
            **claimed.made_from.settings,
            permutations=claimed.permutations,
            seed=claimed.seed,
        )
    except TokengeomError as error:
        return {f"the results beside it can be explained ({error})": False}
    return _different_rows(claimed, again)


def _different_rows(claimed: Rivals, again: Rivals) -> dict[str, bool | None]:
    """Whether two tables have the same rows, numbers and sentences; most explanations had to be solved for again."""
    mine, theirs = ({(row.items, row.rival): row.to_dict() for row in one.rows} for one in (claimed, again))

    def equal(items: str | None, *names: str) -> bool:
        a, b = (
            {key: [row[name] for name in names] for key, row in rows.items() if items in (None, key[0])}
            for rows in (mine, theirs)
        )
        return same(a, b, SOLVED_AGAIN)

    names = ("held_out", "prediction", "runs", "loss_gap")
    facts = [[getattr(one, name) for name in names] for one in (claimed, again)]
    found: dict[str, bool | None] = {}
    for items in claimed.items:
        numbers = equal(items, "agreement", "cka", "similarity", "without_direction")
        found[f"computed again, agreements, intervals, floors and ceilings of {items} are {_WITHIN}"] = numbers
        found[f"computed again, differences between explanations of {items} are {_WITHIN}"] = equal(
            items, "behind", "ahead"
        )
    same_rows = claimed.items == again.items and equal(None, "meaning", "uses", "parameters", "ours")
    same_notes = same_sentences(claimed.limitations, again.limitations, exactly=False)
    same_facts = same(facts[0], facts[1], SOLVED_AGAIN)
    return {
        **found,
        "computed again, the same explanations apply, with the same parameters": same_rows,
        "computed again, loss gap, held-out contexts and limitations are the same": same_facts and same_notes,
    }


def same(claimed: object, again: object, tolerance: float = RECOMPUTED) -> bool:
    """Whether nested plain data are equal, numbers within a tolerance; NaN and null count as the same number."""
    if isinstance(claimed, Mapping) and isinstance(again, Mapping):
        return set(claimed) == set(again) and all(same(claimed[name], again[name], tolerance) for name in claimed)
    if isinstance(claimed, list | tuple) and isinstance(again, list | tuple):
        return len(claimed) == len(again) and all(map(lambda a, b: same(a, b, tolerance), claimed, again))
    if isinstance(claimed, float) or isinstance(again, float):
        a, b = (math.nan if one is None else one for one in (claimed, again))
        if not (isinstance(a, int | float) and isinstance(b, int | float)):
            return False
        if not (math.isfinite(a) and math.isfinite(b)):
            return math.isfinite(a) == math.isfinite(b)
        return abs(a - b) <= tolerance * max(abs(a), abs(b), 1.0)
    return claimed == again


def same_sentences(claimed: Sequence[str], again: Sequence[str], *, exactly: bool) -> bool:
    """Whether sentences are equal; with ``exactly=False`` their numbers may differ."""
    if exactly:
        return list(claimed) == list(again)
    return [re.sub(r"\d[\d.,e+-]*", "#", one) for one in claimed] == [
        re.sub(r"\d[\d.,e+-]*", "#", one) for one in again
    ]
