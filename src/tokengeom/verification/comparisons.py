"""Checks of comparisons, tables of explanations, comparisons of texts, and checkpoints.

Each is made again from the saved results behind it, where these lie beside it, with the same draws from the same seed,
and every entry of the two must be the same (`_same_entries`). Predictions that were saved are used as they are; those
that were not saved are solved for again. Results of earlier versions were measured differently and are not made again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tokengeom.comparison.checkpoints import CheckpointCurve
from tokengeom.comparison.compare import compare
from tokengeom.comparison.compare_texts import compare_texts
from tokengeom.comparison.comparison import Comparison
from tokengeom.comparison.explained import RivalRow
from tokengeom.comparison.inputs import NOT_SAVED, MadeFrom, Observed, Prediction
from tokengeom.comparison.rival_table import Rivals
from tokengeom.comparison.rivals import rivals
from tokengeom.comparison.target import norm_sentence, ties_sentences
from tokengeom.comparison.text_comparison import TextComparison
from tokengeom.core.errors import TokengeomError
from tokengeom.results.contract import NearbyResults, under
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
NOT_RECORDED = "what it was made from is not recorded"
EARLIER = "it was saved by an earlier version, which measured floors and the verdict differently"
INSIDE = "every interval contains its value"


def check_comparison(claimed: Comparison, nearby: NearbyResults) -> Checks:
    """Whether intervals and verdict fit the numbers, and whether everything is the same when computed again."""
    numbers = [*claimed.agreements.values(), *(row.agreement for row in claimed.rows)]
    checks: Checks = {INSIDE: all(number.is_inside for number in numbers)}
    if claimed.measure < 2:
        return checks | not_computed("the verdict and all numbers", EARLIER)
    verdict, said = claimed.judged(), claimed.reasons
    if verdict is None:
        checks["the verdict was not derived again: what it depends on is not recorded"] = None
    else:
        said = claimed.reasons[len(verdict.reasons) :]
        stated = claimed.verdict, claimed.reasons[: len(verdict.reasons)], claimed.better_explanation
        follows = stated == (verdict.outcome, verdict.reasons, verdict.better)
        checks["the verdict and its reasons follow from the numbers"] = follows
    return checks | _compare_again(claimed, said, nearby)


def _compare_again(claimed: Comparison, said: Sequence[str], nearby: NearbyResults) -> Checks:
    """Whether a comparison is the one that the results beside it give; ``said`` are its sentences on norm and ties."""
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
            proven_within=min(settings.get("proven_within", ACCEPTED), ACCEPTED),
            **{name: settings[name] for name in ("at_loss", "tolerance") if name in settings},
            permutations=claimed.permutations,
            seed=claimed.seed,
        )
    except TokengeomError as error:
        return {f"the results beside it can be compared ({error})": False}
    solved = bool(again.at) and not sources.at and not isinstance(sources.prediction, LossPrediction)
    names = "agreements rows unexplained disagreement loss_gap norm runs prediction_kind circumstances limitations"
    on_norm, on_ties = norm_sentence(claimed.norm, sources.runs[0], claimed.targets), ties_sentences(claimed.rows)
    return {
        **_same_entries(claimed, again, names, SOLVED_AGAIN if solved else RECOMPUTED),
        "computed again, the sentences on norm and ties are the same": list(said) == [*on_norm, *on_ties],
    }


def _same_entries(claimed: object, again: object, names: str, tolerance: float) -> Checks:
    """Whether two results have the same entries; rows of explanations are compared by name, as near ones may swap."""

    def plain(result: object, name: str) -> Any:
        entry = getattr(result, name)
        if name != "rows":
            return to_plain(entry)
        rows: tuple[RivalRow, ...] = entry
        return {(row.items, row.rival): to_plain(row) for row in rows}

    within = "" if tolerance == RECOMPUTED else f", within {tolerance:g}"
    return {
        f"computed again, it has the same {name.replace('_', ' ')}{within}": same(
            plain(claimed, name), plain(again, name), tolerance
        )
        for name in names.split()
    }


def check_rivals(claimed: Rivals, nearby: NearbyResults) -> Checks:
    """The order of explanations; and every number, from the results beside it. Takes as long as `rivals`."""

    def is_ordered(rows: Sequence[RivalRow]) -> bool:
        ranked = [-math.inf if math.isnan(row.agreement.fair) else row.agreement.fair for row in rows]
        return ranked == sorted(ranked, reverse=True)

    return {
        "explanations are in the order of their agreement": all(map(is_ordered, map(claimed.of, claimed.items))),
        INSIDE: all(row.agreement.is_inside for row in claimed.rows),
        **rivals_again(claimed, nearby),
    }


def rivals_again(claimed: Rivals, nearby: NearbyResults) -> Checks:
    """Whether a saved table of explanations is the one that the results beside it give."""
    if "supports" not in claimed.items or "held-out contexts" in claimed.items:
        return not_computed("agreements, intervals, floors and differences", EARLIER)
    sources = find_sources(claimed.made_from, nearby)
    if isinstance(sources, str) or sources.stats is None:
        why = sources if isinstance(sources, str) else "its statistics are not recorded"
        return not_computed("agreements, intervals, floors and differences", why)
    try:
        again = rivals(
            sources.stats,
            sources.runs,
            sources.prediction,  # type: ignore[arg-type]
            at=sources.at,
            **{name: value for name, value in sources.settings.items() if name != "held_out"},
            permutations=claimed.permutations,
            seed=claimed.seed,
        )
    except TokengeomError as error:
        return {f"the results beside it can be explained ({error})": False}
    return _same_entries(claimed, again, "rows held_out prediction runs loss_gap limitations", SOLVED_AGAIN)


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
    """Whether intervals fit the numbers, and all is the same when the statistics beside it are compared again."""
    checks: Checks = {INSIDE: all(number.is_inside for number in claimed.agreements.values())}
    given = []
    for text in (claimed.first, claimed.second):
        stats = find_statistics(nearby, text.statistics_hash)
        if stats is None:
            missing = not_beside("statistics", text.statistics_hash)
            return checks | not_computed("shares, agreements and movements", missing)
        given.append(stats)
    try:
        again = compare_texts(given[0], given[1], **claimed.keywords)
    except TokengeomError as error:
        return checks | {f"the statistics beside it can be compared ({error})": False}
    names = "first second is_proxy loss_gap agreements halves tokens contexts limitations"
    return checks | _same_entries(claimed, again, names, SOLVED_AGAIN)


@dataclass(frozen=True, eq=False)
class Sources:
    """The results that a comparison was made from: ``prediction`` is None where none was given, ``at`` at the loss."""

    prediction: Prediction | None
    runs: list[Observed]
    at: list[LossPrediction]
    stats: NextTokenStatistics | None
    settings: dict[str, Any]


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
    return Sources(prediction, runs_there, at_there, stats, dict(origin.settings))


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
