"""Checks of comparisons, tables of explanations, comparisons of texts, and checkpoints.

Each is computed again from the saved results behind it, where these lie beside it, with the same draws from the same
seed. Predictions that were saved are used as they are; those that were not saved are solved for again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from tokengeom.comparison.checkpoints import CheckpointCurve
from tokengeom.comparison.compare import compare
from tokengeom.comparison.compare_texts import compare_texts
from tokengeom.comparison.comparison import Comparison
from tokengeom.comparison.inputs import NOT_SAVED, MadeFrom, Observed, Prediction
from tokengeom.comparison.rival_table import Rivals
from tokengeom.comparison.rivals import rivals
from tokengeom.comparison.target import norm_sentence
from tokengeom.comparison.text_comparison import Movement, TextComparison
from tokengeom.core.errors import TokengeomError
from tokengeom.results.contract import NearbyResults, close, under
from tokengeom.results.convert import to_plain
from tokengeom.results.registry import result_class
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.linear import LinearPrediction
from tokengeom.theory.proxy import ProxyPrediction
from tokengeom.training.run import Run
from tokengeom.verification.checks import RECOMPUTED, Checks, same

SOLVED_AGAIN = 2e-3
"""Difference within which numbers are equal where predictions had to be solved for again, exact to their proven gap."""
ROUNDED = 1e-6
"""Difference below which numbers are equal where items are ordered by them."""
NOT_RECORDED = "what it was made from is not recorded"
_WITHIN = f"the same within {SOLVED_AGAIN:g}"


def check_comparison(claimed: Comparison, nearby: NearbyResults) -> Checks:
    """Whether intervals and verdict fit the numbers, and whether everything is the same when computed again."""
    numbers = [*claimed.agreements.values(), *(row.agreement for row in claimed.rows)]
    inside: Checks = {"every interval contains its value": all(number.is_inside for number in numbers)}
    return {**inside, **_check_verdict(claimed), **_compare_again(claimed, nearby)}


def _check_verdict(claimed: Comparison) -> Checks:
    verdict = claimed.judged()
    if verdict is None:
        return {"the verdict was not derived again: what it depends on is not recorded": None}
    stated = claimed.verdict, claimed.reasons[: len(verdict.reasons)], claimed.better_explanation
    follows = stated == (verdict.outcome, verdict.reasons, verdict.better)
    return {"the verdict and its reasons follow from the numbers": follows}


def _compare_again(claimed: Comparison, nearby: NearbyResults) -> Checks:
    """Whether a saved comparison is the one that the results beside it give, one sentence per group of numbers."""
    sources = NOT_RECORDED if claimed.made_from is None else find_sources(claimed.made_from, nearby)
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


def _differences(claimed: Comparison, again: Comparison, run: Observed, tolerance: float) -> Checks:
    """Whether two comparisons have the same numbers and sentences."""
    mine, theirs = to_plain(claimed), to_plain(again)

    def of_numbers(*names: str) -> bool:
        a, b = (
            {key: [number[name] for name in names] for key, number in content["agreements"].items()}
            for content in (mine, theirs)
        )
        return same(a, b, tolerance)

    def of_whole(*names: str) -> bool:
        return all(same(mine[name], theirs[name], tolerance) for name in names)

    verdict = claimed.judged()
    on_norm = claimed.reasons[0 if verdict is None else len(verdict.reasons) :]
    as_claimed = "the same" if tolerance == RECOMPUTED else _WITHIN
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
        "computed again, the limitations are the same": of_whole("limitations"),
        "computed again, the sentence on the norm is the same": list(on_norm)
        == norm_sentence(claimed.norm, run, claimed.targets),
    }


def check_rivals(claimed: Rivals, nearby: NearbyResults) -> Checks:
    """Order and differences, recomputed from the agreements; and every number, from the results beside it."""
    ordered, behind, ahead, inside = True, True, True, True
    for items in claimed.items:
        rows = claimed.of(items)
        values = [row.agreement.value for row in rows]
        ranked = [-math.inf if math.isnan(value) else value for value in values]
        ordered &= ranked == sorted(ranked, reverse=True)
        behind &= all(_equal(row.behind.value, values[0] - row.agreement.value) for row in rows)
        mine = next((row.agreement.value for row in rows if row.rival == claimed.prediction), math.nan)
        ahead &= all(_equal(row.ahead.value, row.agreement.value - mine) for row in rows)
        inside &= all(row.agreement.is_inside for row in rows)
    return {
        "explanations are in the order of their agreement": ordered,
        "differences to the best explanation are those of the agreements": behind,
        "differences to the prediction are those of the agreements": ahead,
        "every interval contains its value": inside,
        **rivals_again(claimed, nearby),
    }


def _equal(a: float, b: float) -> bool:
    return close(a, b) or (math.isnan(a) and math.isnan(b))


def rivals_again(claimed: Rivals, nearby: NearbyResults) -> Checks:
    """Whether a saved table of explanations is the one that the results beside it give; takes as long as `rivals`."""
    sources = NOT_RECORDED if claimed.made_from is None else find_sources(claimed.made_from, nearby)
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


def _different_rows(claimed: Rivals, again: Rivals) -> Checks:
    """Whether two tables have the same rows, numbers and sentences; most explanations had to be solved for again."""
    mine, theirs = ({(row.items, row.rival): to_plain(row) for row in table.rows} for table in (claimed, again))

    def equal(items: str | None, *names: str) -> bool:
        a, b = (
            {key: [row[name] for name in names] for key, row in rows.items() if items in (None, key[0])}
            for rows in (mine, theirs)
        )
        return same(a, b, SOLVED_AGAIN)

    names = ("held_out", "prediction", "runs", "loss_gap", "limitations")
    facts, facts_again = ([getattr(table, name) for name in names] for table in (claimed, again))
    checks: Checks = {}
    for items in claimed.items:
        numbers = equal(items, "agreement", "cka", "similarity", "without_direction")
        checks[f"computed again, agreements, intervals, floors and ceilings of {items} are {_WITHIN}"] = numbers
        checks[f"computed again, differences between explanations of {items} are {_WITHIN}"] = equal(
            items, "behind", "ahead"
        )
    same_rows = claimed.items == again.items and equal(None, "meaning", "uses", "parameters", "ours")
    same_facts = same(facts, facts_again, SOLVED_AGAIN)
    return {
        **checks,
        "computed again, the same explanations apply, with the same parameters": same_rows,
        "computed again, loss gap, held-out contexts and limitations are the same": same_facts,
    }


def check_checkpoints(claimed: CheckpointCurve, nearby: NearbyResults) -> Checks:
    """The checks of each comparison; neither the models nor the prediction are saved with them."""
    checks: Checks = {}
    for place, point in enumerate(claimed.points, start=1):
        checks |= under(f"checkpoint {place}", check_comparison(point.comparison, nearby))
    return checks | {
        "W, H and losses of the checkpoints: only reading the models again would show them": None,
        "names, steps, windows and contexts: models and text, which they come from, are not saved": None,
    }


def check_texts(claimed: TextComparison, nearby: NearbyResults) -> Checks:
    """Whether lists and intervals fit the numbers, and whether all is the same when computed again."""
    inside = all(number.is_inside for number in claimed.agreements.values())
    return {
        "every interval contains its value": inside,
        "the listed tokens and contexts are those that moved most": all(map(_is_sorted, claimed.movements)),
        **_compare_texts_again(claimed, nearby),
    }


def _is_sorted(movement: Movement) -> bool:
    """Whether the listed ones have their own numbers, are in order, and the one that moved most is the first."""
    place = dict(zip(movement.names, movement.moved.tolist(), strict=True))
    listed, largest = [item.moved for item in movement.listed], float(movement.moved.max(initial=0.0))
    own = all(close(place[item.name], item.moved) for item in movement.listed)
    falling = all(a >= b - ROUNDED for a, b in pairwise([largest, *listed]))
    return own and falling and (not listed or listed[0] >= largest - ROUNDED)


def _compare_texts_again(claimed: TextComparison, nearby: NearbyResults) -> Checks:
    """Whether a saved comparison of texts is the one that the statistics beside it give."""
    given = []
    for text in (claimed.first, claimed.second):
        stats = nearby.find(NextTokenStatistics, hash=text.statistics_hash)
        if stats is None or stats.hash != text.statistics_hash:
            return {
                "shares, agreements and movements were not computed again: the statistics with the hash "
                f"{text.statistics_hash[:8]} are not beside it (give their folder: --with FOLDER)": None
            }
        given.append(stats)
    try:
        again = compare_texts(given[0], given[1], **claimed.settings)
    except TokengeomError as error:
        return {f"the statistics beside it can be compared ({error})": False}
    mine, theirs = to_plain(claimed), to_plain(again)

    def equal(*names: str) -> bool:
        return all(same(mine[name], theirs[name], SOLVED_AGAIN) for name in names)

    return {
        "computed again, windows, tokens and contexts are the same": equal("first", "second", "is_proxy", "loss_gap"),
        f"computed again, agreements, intervals and floors are the same within {SOLVED_AGAIN:g}": equal("agreements"),
        f"computed again, tokens moved as far within {SOLVED_AGAIN:g}, for the same reasons": equal("tokens"),
        f"computed again, contexts moved as far within {SOLVED_AGAIN:g}, for the same reasons": equal("contexts"),
        "computed again, the limitations are the same": equal("limitations"),
    }


@dataclass(frozen=True, eq=False)
class Sources:
    """The results that a comparison was made from: ``prediction`` is None where none was given, ``at`` at the loss."""

    prediction: Prediction | None
    runs: list[Observed]
    at: list[LossPrediction]
    stats: NextTokenStatistics | None


def find_sources(origin: MadeFrom, nearby: NearbyResults) -> Sources | str:
    """The results that a comparison was made from; where one is not there, a sentence that says which."""
    stats = nearby.find(NextTokenStatistics, hash=origin.statistics)
    stats = stats if stats is not None and stats.hash == origin.statistics else None
    prediction = None if origin.prediction is None else _prediction(nearby, origin.prediction)
    runs = [_run(nearby, seal) for seal in origin.runs]
    at = [nearby.find(LossPrediction, seal=seal) for seal in origin.at]
    missing = [("statistics", origin.statistics)] if origin.statistics is not None and stats is None else []
    if origin.prediction is not None and prediction is None:
        missing.append(("prediction", origin.prediction))
    missing += [("run", seal) for seal, run in zip(origin.runs, runs, strict=True) if run is None]
    missing += [("prediction at the loss", seal) for seal, known in zip(origin.at, at, strict=True) if known is None]
    if missing or not runs:
        return _why_missing(missing)
    if stats is not None and isinstance(prediction, FeaturePrediction | ProxyPrediction):
        prediction = replace(prediction, stats=stats)
    return Sources(
        prediction, [run for run in runs if run is not None], [known for known in at if known is not None], stats
    )


def _prediction(nearby: NearbyResults, seal: str) -> Prediction | None:
    return (
        nearby.find(FeaturePrediction, seal=seal)
        or nearby.find(LossPrediction, seal=seal)
        or nearby.find(ProxyPrediction, seal=seal)
        or nearby.find(LinearPrediction, seal=seal)
    )


def _run(nearby: NearbyResults, seal: str) -> Observed | None:
    """A run, or the states of a model that was read, which are what is compared."""
    run = nearby.find(Run, seal=seal)
    if run is not None:
        return run
    model: Any = nearby.find(result_class("tokengeom-model"), seal=seal)
    states: Observed | None = None if model is None else model.states
    return states


def _why_missing(missing: Sequence[tuple[str, str]]) -> str:
    """Why nothing was computed again, as the end of a sentence."""
    if not missing:
        return NOT_RECORDED
    # With something that was not saved, no folder helps.
    for name, seal in missing:
        if seal == NOT_SAVED:
            return f"the {name} was not a saved result"
    name, seal = missing[0]
    if name == "statistics":
        return f"the statistics with the hash {seal[:8]} are not beside it (give their folder: --with FOLDER)"
    return f"the {name} with the hash {seal[:8]} is not beside it (give its folder: --with FOLDER)"
