"""Checks of comparisons, tables of explanations, comparisons of texts, and checkpoints.

Each is computed again from the saved results behind it, where these lie beside it, with the same draws from the same
seed. Predictions that were saved are used as they are; those that were not saved are solved for again. Results of
version 0.1.0 were judged by other rules: of them, what is still computed in the same way is checked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from tokengeom.comparison.checkpoints import CheckpointCurve
from tokengeom.comparison.compare import compare
from tokengeom.comparison.compare_texts import compare_texts
from tokengeom.comparison.comparison import Comparison
from tokengeom.comparison.inputs import NOT_SAVED, MadeFrom, Observed, Prediction
from tokengeom.comparison.rival_table import Rivals
from tokengeom.comparison.rivals import rivals
from tokengeom.comparison.similarity_numbers import KINDS
from tokengeom.comparison.target import norm_of, norm_sentence, ties_sentences
from tokengeom.comparison.text_comparison import Movement, TextComparison
from tokengeom.core.errors import TokengeomError
from tokengeom.results.contract import SAME, NearbyResults, under
from tokengeom.results.convert import to_plain
from tokengeom.results.registry import result_class
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.linear import LinearPrediction
from tokengeom.theory.proxy import ProxyPrediction
from tokengeom.theory.tied import TiedPrediction
from tokengeom.training.run import Run
from tokengeom.training.simulation import Simulation
from tokengeom.verification.predictions import ACCEPTED
from tokengeom.verification.sources import find_statistics
from tokengeom.verification.verify import RECOMPUTED, Checks, not_beside, not_computed, same

SOLVED_AGAIN = 2e-3
"""Difference within which numbers are equal where predictions had to be solved for again, exact to their proven gap."""
SOLVED_IN_ANOTHER_WAY = 0.01
"""The same for results of 0.1.0, which solved in the gamma_2 norm in another way, for held-out contexts to 0.5%."""
ROUNDED = 1e-6
"""Difference below which numbers are equal where items are ordered by them."""
NOT_RECORDED = "what it was made from is not recorded"
EARLIER = "it was saved by an earlier version, which measured floors and the verdict differently"
_REPLACED = "floors, the agreement of trainings, differences, explanations with free parameters, and limitations"
_WITHIN = f"the same within {SOLVED_AGAIN:g}"


def check_comparison(claimed: Comparison, nearby: NearbyResults) -> Checks:
    """Whether intervals and verdict fit the numbers, and whether everything is the same when computed again."""
    numbers = [*claimed.agreements.values(), *(row.agreement for row in claimed.rows)]
    return {
        "every interval contains its value": all(number.is_inside for number in numbers),
        **_check_verdict(claimed),
        **_compare_again(claimed, nearby),
    }


def _check_verdict(claimed: Comparison) -> Checks:
    if claimed.measure < 2:
        return {f"the verdict was not derived again: {EARLIER}": None}
    verdict = claimed.judged()
    if verdict is None:
        return {"the verdict was not derived again: what it depends on is not recorded": None}
    stated = claimed.verdict, claimed.reasons[: len(verdict.reasons)], claimed.better_explanation
    follows = stated == (verdict.outcome, verdict.reasons, verdict.better)
    return {"the verdict and its reasons follow from the numbers": follows}


def _compare_again(claimed: Comparison, nearby: NearbyResults) -> Checks:
    """Whether a saved comparison is the one that the results beside it give, one sentence per group of numbers."""
    sources = find_sources(claimed.made_from, nearby)
    if isinstance(sources, str) or sources.prediction is None:
        why = sources if isinstance(sources, str) else "its prediction is not recorded"
        return not_computed("agreements, intervals, floors, what is explained, and other explanations", why)
    settings = sources.settings
    try:
        again = compare(
            sources.prediction,
            sources.runs,
            at=sources.at or None,
            loss_gap=settings.get("loss_gap"),
            # What 0.1.0 compared with was accepted, and it did not record this setting.
            proven_within=min(settings.get("proven_within", ACCEPTED), ACCEPTED),
            **{name: settings[name] for name in ("at_loss", "tolerance") if name in settings},
            permutations=claimed.permutations,
            seed=claimed.seed,
        )
    except TokengeomError as error:
        return {f"the results beside it can be compared ({error})": False}
    solved = bool(again.at) and not sources.at and not isinstance(sources.prediction, LossPrediction)
    tolerance = SOLVED_AGAIN if solved else RECOMPUTED
    if claimed.measure < 2 and claimed.prediction_kind == "features":
        if len(again.at) > 1 and norm_of(sources.runs[0]) is None:
            # Half of the supports are now put aside to choose the norm.
            return not_computed(f"agreements, intervals, {_REPLACED}", EARLIER)
        of_all = {"loss gap, norm, runs, efficiency and split are the same": "loss_gap norm runs disagreement"}
        return _differences_to_earlier(claimed, again, of_all, tolerance)
    return _differences(claimed, again, sources.runs[0], tolerance)


def _differences_to_earlier(
    claimed: Comparison | Rivals, again: Comparison | Rivals, of_all: Mapping[str, str], tolerance: float
) -> Checks:
    """Whether a result of 0.1.0 is like the one made again in what is computed in the same way.

    It gave items without a direction that of rounding errors: rows with other numbers of them are not compared.
    """

    def numbers(found: Comparison | Rivals) -> dict[Any, object]:
        rows = [row for row in found.rows if row.parameters == "none"]
        named = {
            (row.items, row.rival, row.without_direction, kind): getattr(row, kind) for row in rows for kind in KINDS
        }
        return {**getattr(found, "agreements", {}), **named}

    both = numbers(claimed), numbers(again)
    mine, theirs = ({name: x for name, x in one.items() if name in both[0] and name in both[1]} for one in both)
    of_numbers = {"values and intervals of all that has no free parameter are the same": "value low high"}
    if tolerance == SOLVED_AGAIN:
        tolerance = SOLVED_IN_ANOTHER_WAY
    return {
        **_computed_again(mine, theirs, of_numbers, tolerance),
        **_computed_again({"": claimed}, {"": again}, of_all, tolerance),
        **not_computed(_REPLACED, EARLIER),
    }


def _differences(claimed: Comparison, again: Comparison, run: Observed, tolerance: float) -> Checks:
    """Whether two comparisons have the same numbers and sentences."""
    verdict = claimed.judged()
    said = claimed.reasons[0 if verdict is None else len(verdict.reasons) :]
    as_claimed = "the same" if tolerance == RECOMPUTED else _WITHIN
    of_agreements = {
        f"the values of all agreements are {as_claimed}": "value better items",
        f"their intervals are {as_claimed}": "low high",
        f"their floors are {as_claimed}": "null gaussian untrained floor",
        f"what is reproducible and explained is {as_claimed}": (
            "reproducible reproducible_low reproducible_high mean reliability seed_error "
            "corrected corrected_low corrected_high"
        ),
    }
    of_all = {
        f"the numbers of the other explanations are {as_claimed}": "rows",
        f"what all explanations explain worst is {as_claimed}": "unexplained",
        f"efficiency and split are {as_claimed}": "disagreement",
        f"loss gap, norm, number of runs and what the verdict depends on are {as_claimed}": (
            "loss_gap norm runs prediction_kind circumstances"
        ),
        "the limitations are the same": "limitations",
    }
    on_norm_again, on_ties_again = norm_sentence(claimed.norm, run, claimed.targets), ties_sentences(claimed.rows)
    on_norm, on_ties = said[: len(said) - len(on_ties_again)], said[len(said) - len(on_ties_again) :]
    return {
        **_computed_again(claimed.agreements, again.agreements, of_agreements, tolerance),
        **_computed_again({"": claimed}, {"": again}, of_all, tolerance),
        "computed again, the sentence on the norm is the same": list(on_norm) == on_norm_again,
        **(
            {"computed again, the sentences on ties are the same": list(on_ties) == on_ties_again}
            if on_ties_again
            else {}
        ),
    }


def _computed_again(
    claimed: Mapping[Any, object], again: Mapping[Any, object], sentences: Mapping[str, str], tolerance: float
) -> Checks:
    """Whether objects of the same names are the same; each sentence is about the attributes that are named with it."""

    def plain(objects: Mapping[Any, object], names: str) -> dict[Any, list[Any]]:
        return {key: [to_plain(getattr(item, name)) for name in names.split()] for key, item in objects.items()}

    return {
        f"computed again, {sentence}": same(plain(claimed, names), plain(again, names), tolerance)
        for sentence, names in sentences.items()
    }


def check_rivals(claimed: Rivals, nearby: NearbyResults) -> Checks:
    """Order and differences, recomputed from the agreements; and every number, from the results beside it."""
    ordered, behind, ahead = True, True, True
    for rows in map(claimed.of, claimed.items):
        values = [row.agreement.fair for row in rows]
        ranked = [-math.inf if math.isnan(value) else value for value in values]
        ordered &= ranked == sorted(ranked, reverse=True)
        behind &= all(same(row.behind.value, values[0] - row.agreement.fair, SAME) for row in rows)
        mine = next((row.agreement.fair for row in rows if row.rival == claimed.prediction), math.nan)
        ahead &= all(same(row.ahead.value, row.agreement.fair - mine, SAME) for row in rows)
    return {
        "explanations are in the order of their agreement": ordered,
        "differences to the best explanation are those of the agreements": behind,
        "differences to the prediction are those of the agreements": ahead,
        "every interval contains its value": all(row.agreement.is_inside for row in claimed.rows),
        **rivals_again(claimed, nearby),
    }


def rivals_again(claimed: Rivals, nearby: NearbyResults) -> Checks:
    """Whether a saved table of explanations is the one that the results beside it give; takes as long as `rivals`."""
    sources = find_sources(claimed.made_from, nearby)
    if isinstance(sources, str) or sources.stats is None:
        why = sources if isinstance(sources, str) else "its statistics are not recorded"
        return not_computed("agreements, intervals, floors and differences", why)
    earlier = "supports" not in claimed.items
    if earlier and norm_of(sources.runs[0]) is None:
        return not_computed(f"agreements, intervals, {_REPLACED}", EARLIER)
    try:
        again = rivals(
            sources.stats,
            sources.runs,
            sources.prediction,  # type: ignore[arg-type]
            at=sources.at,
            **sources.settings,
            permutations=claimed.permutations,
            seed=claimed.seed,
        )
    except TokengeomError as error:
        return {f"the results beside it can be explained ({error})": False}
    if earlier:
        of_all = {"loss gap, number of runs and of held-out contexts are the same": "loss_gap runs held_out"}
        return _differences_to_earlier(claimed, again, of_all, SOLVED_AGAIN)
    return _different_rows(claimed, again)


def _different_rows(claimed: Rivals, again: Rivals) -> Checks:
    """Whether two tables have the same rows, numbers and sentences; most explanations had to be solved for again."""
    checks: Checks = {}
    for items in claimed.items:
        mine, theirs = ({row.rival: row for row in table.of(items)} for table in (claimed, again))
        of_items = {
            f"agreements, intervals, floors and what is explained of {items} are {_WITHIN}": (
                "agreement similarity without_direction"
            ),
            f"differences between explanations of {items} are {_WITHIN}": "behind ahead",
        }
        checks |= _computed_again(mine, theirs, of_items, SOLVED_AGAIN)
    every, every_again = ({(row.items, row.rival): row for row in table.rows} for table in (claimed, again))
    of_rows = {"the same explanations apply, with the same parameters": "meaning uses parameters ours"}
    of_all = {
        "loss gap, held-out contexts and limitations are the same": (
            "items held_out prediction runs loss_gap limitations"
        )
    }
    return {
        **checks,
        **_computed_again(every, every_again, of_rows, SOLVED_AGAIN),
        **_computed_again({"": claimed}, {"": again}, of_all, SOLVED_AGAIN),
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
    return {
        "every interval contains its value": all(number.is_inside for number in claimed.agreements.values()),
        "the listed tokens and contexts are those that moved most": all(map(_is_sorted, claimed.movements)),
        **_compare_texts_again(claimed, nearby),
    }


def _is_sorted(movement: Movement) -> bool:
    """Whether the listed ones have their own numbers, are in order, and the one that moved most is the first.

    Most, where the texts were split: beyond chance.
    """
    beyond = movement.beyond or [math.nan] * len(movement.names)
    place = dict(zip(movement.names, zip(movement.moved.tolist(), beyond, strict=True), strict=True))
    own = all(same(place[item.name], (item.moved, item.beyond), SAME) for item in movement.listed)
    listed = [item.beyond if movement.beyond else item.moved for item in movement.listed]
    largest = max([0.0, *movement.ranked_by[np.isfinite(movement.ranked_by)].tolist()])
    falling = all(a >= b - ROUNDED for a, b in pairwise([largest, *listed]))
    return own and falling and (listed or [0.0])[0] >= largest - ROUNDED


def _compare_texts_again(claimed: TextComparison, nearby: NearbyResults) -> Checks:
    """Whether a saved comparison of texts is the one that the statistics beside it give."""
    given = []
    for text in (claimed.first, claimed.second):
        stats = find_statistics(nearby, text.statistics_hash)
        if stats is None:
            return not_computed("shares, agreements and movements", not_beside("statistics", text.statistics_hash))
        given.append(stats)
    try:
        again = compare_texts(given[0], given[1], **claimed.keywords)
    except TokengeomError as error:
        return {f"the statistics beside it can be compared ({error})": False}
    sentences = {
        "windows, tokens and contexts are the same": "first second is_proxy loss_gap",
        f"agreements, intervals, floors and what halves say are {_WITHIN}": "agreements halves",
        f"tokens moved as far within {SOLVED_AGAIN:g}, for the same reasons": "tokens",
        f"contexts moved as far within {SOLVED_AGAIN:g}, for the same reasons": "contexts",
        "the limitations are the same": "limitations",
    }
    return _computed_again({"": claimed}, {"": again}, sentences, SOLVED_AGAIN)


@dataclass(frozen=True, eq=False)
class Sources:
    """The results that a comparison was made from: ``prediction`` is None where none was given, ``at`` at the loss."""

    prediction: Prediction | None
    runs: list[Observed]
    at: list[LossPrediction]
    stats: NextTokenStatistics | None
    settings: Mapping[str, Any]


def find_sources(origin: MadeFrom | None, nearby: NearbyResults) -> Sources | str:
    """The results that a comparison was made from; where one is not there, a sentence that says which."""
    if origin is None:
        return NOT_RECORDED
    stats = find_statistics(nearby, origin.statistics)
    prediction = None if origin.prediction is None else _prediction(nearby, origin.prediction)
    runs = [_run(nearby, seal) for seal in origin.runs]
    at = [nearby.find(LossPrediction, seal=seal) for seal in origin.at]
    wanted: list[tuple[str, str | None, object]] = [
        ("statistics", origin.statistics, stats),
        ("prediction", origin.prediction, prediction),
        *(("run", seal, run) for seal, run in zip(origin.runs, runs, strict=True)),
        *(("prediction at the loss", seal, known) for seal, known in zip(origin.at, at, strict=True)),
    ]
    missing = [(name, seal) for name, seal, result in wanted if seal is not None and result is None]
    for name, seal in missing:
        if seal == NOT_SAVED:
            # No folder helps.
            return f"the {name} was not a saved result"
    if missing or not runs:
        return not_beside(*missing[0]) if missing else NOT_RECORDED
    if stats is not None and isinstance(prediction, FeaturePrediction | ProxyPrediction | Simulation | TiedPrediction):
        prediction = replace(prediction, stats=stats)
    runs_there, at_there = [run for run in runs if run is not None], [known for known in at if known is not None]
    return Sources(prediction, runs_there, at_there, stats, origin.settings)


def _prediction(nearby: NearbyResults, seal: str) -> Prediction | None:
    kinds: tuple[type[Prediction], ...] = (
        FeaturePrediction,
        LossPrediction,
        ProxyPrediction,
        Simulation,
        TiedPrediction,
        LinearPrediction,
    )
    return next((found for kind in kinds if (found := nearby.find(kind, seal=seal)) is not None), None)


def _run(nearby: NearbyResults, seal: str) -> Observed | None:
    """A run, or the states of a model that was read, which are what is compared."""
    run = nearby.find(Run, seal=seal)
    if run is not None:
        return run
    model: Any = nearby.find(result_class("tokengeom-model"), seal=seal)
    states: Observed | None = None if model is None else model.states
    return states
