"""Checks of comparisons, tables of explanations, comparisons of texts, and checkpoints.

Each is made again from the saved results behind it, where these lie beside it, with the same draws from the same seed,
and every entry of the two must be the same (`_made_again`). Predictions that were saved are used as they are; those
that were not saved are solved for again. Results of earlier versions were measured differently and are not made again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tokengeom.comparison.checkpoints import CheckpointCurve
from tokengeom.comparison.compare import compare
from tokengeom.comparison.compare_texts import compare_texts
from tokengeom.comparison.comparison import Comparison
from tokengeom.comparison.explained import RivalRow
from tokengeom.comparison.inputs import NOT_SAVED, MadeFrom
from tokengeom.comparison.rival_table import Rivals
from tokengeom.comparison.rivals import rivals
from tokengeom.comparison.target import AT_LOSS, norm_sentence, ties_sentences
from tokengeom.comparison.text_comparison import TextComparison
from tokengeom.core.errors import TokengeomError
from tokengeom.results.contract import NearbyResults
from tokengeom.results.convert import to_plain
from tokengeom.results.registry import result_class
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.verification.predictions import ACCEPTED
from tokengeom.verification.sources import check_statistics
from tokengeom.verification.verify import RECOMPUTED, Checks, not_beside, not_computed, same, under

SOLVED_AGAIN = 2e-3
"""Difference within which numbers are equal where predictions had to be solved for again, exact to their proven gap."""
NOT_RECORDED = "what it was made from is not recorded"
EARLIER = "it was saved by an earlier version, which measured floors and the verdict differently"
SOURCES = ("features", "at-loss", "proxy", "simulation", "tied", "linear", "run", "model")
"""Kinds of results that are compared."""
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
    sources = find_sources(claimed.made_from, nearby, "prediction")
    if isinstance(sources, str):
        return not_computed("agreements, intervals, floors, what is explained, and other explanations", sources)
    settings: dict[str, Any] = {**sources.settings, **_draws(claimed)}
    settings["proven_within"] = min(settings.get("proven_within", ACCEPTED), ACCEPTED)
    again = partial(compare, sources.prediction, sources.runs, stats=sources.stats, at=sources.at or None, **settings)
    given = bool(sources.at) or isinstance(sources.prediction, LossPrediction)
    solved = not given and any(key in AT_LOSS for key in claimed.targets)
    names = "agreements rows unexplained disagreement loss_gap norm runs prediction_kind circumstances limitations"
    on_norm, on_ties = norm_sentence(claimed.norm, sources.runs[0], claimed.targets), ties_sentences(claimed.rows)
    same_sentences = list(said) == [*on_norm, *on_ties]
    checks: Checks = {"computed again, the sentences on norm and ties are the same": same_sentences}
    return _made_again(claimed, again, names, SOLVED_AGAIN if solved else RECOMPUTED) | checks


def _draws(claimed: Comparison | Rivals) -> dict[str, Any]:
    return {"permutations": claimed.permutations, "seed": claimed.seed}


def _made_again(claimed: object, make: Callable[[], object], names: str, tolerance: float = SOLVED_AGAIN) -> Checks:
    """Whether a result, made again, has the same entries; rows of explanations by name, as near ones may swap."""
    try:
        again = make()
    except TokengeomError as error:
        return {f"it can be made again from the results beside it ({error})": False}

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
    sources = find_sources(claimed.made_from, nearby, "statistics")
    if isinstance(sources, str):
        return not_computed("agreements, intervals, floors and differences", sources)
    assert sources.stats is not None, "asked for"
    settings = {name: value for name, value in sources.settings.items() if name != "held_out"} | _draws(claimed)
    again = partial(rivals, sources.stats, sources.runs, sources.prediction, at=sources.at, **settings)
    return _made_again(claimed, again, "rows held_out prediction runs loss_gap limitations")


def check_checkpoints(claimed: CheckpointCurve, nearby: NearbyResults) -> Checks:
    """The checks of statistics and of each comparison; neither the models nor the prediction are saved with them."""
    checks = {} if claimed.stats is None else under("statistics", check_statistics(claimed.stats, nearby))
    for place, point in enumerate(claimed.points, start=1):
        checks |= under(f"checkpoint {place}", check_comparison(point.comparison, nearby))
    return checks | {
        "W, H and losses of the checkpoints: only reading the models again would show them": None,
        "names, steps, windows and contexts: models and text, which they come from, are not saved": None,
    }


def check_texts(claimed: TextComparison, nearby: NearbyResults) -> Checks:
    """Whether intervals fit the numbers, and all is the same when the statistics beside it are compared again."""
    checks: Checks = {INSIDE: all(number.is_inside for number in claimed.agreements.values())}
    hashes = [text.statistics_hash for text in (claimed.first, claimed.second)]
    given = [nearby.find(NextTokenStatistics, hash=wanted) for wanted in hashes]
    missing = [wanted for wanted, stats in zip(hashes, given, strict=True) if stats is None]
    if missing:
        return checks | not_computed("shares, agreements and movements", not_beside("statistics", missing[0]))
    again = partial(compare_texts, *given, **claimed.keywords)  # type: ignore[arg-type]
    names = "first second is_proxy loss_gap agreements halves tokens contexts limitations"
    return checks | _made_again(claimed, again, names)


@dataclass(frozen=True, eq=False)
class Sources:
    """The results that a comparison was made from: ``prediction`` is None where none was given, ``at`` at the loss."""

    prediction: Any
    runs: list[Any]
    at: list[Any]
    stats: NextTokenStatistics | None
    settings: Mapping[str, Any]


def find_sources(origin: MadeFrom | None, nearby: NearbyResults, needed: str) -> Sources | str:
    """The results that a comparison was made from; where one is not there, a sentence that says which.

    ``needed``
        What must be recorded beside the runs: "prediction" or "statistics".
    """
    if origin is None or not origin.runs:
        return NOT_RECORDED
    if getattr(origin, needed) is None:
        return f"its {needed} {'are' if needed == 'statistics' else 'is'} not recorded"
    named = [("statistics", origin.statistics), ("prediction", origin.prediction)]
    named += [("run", seal) for seal in origin.runs] + [("prediction at the loss", seal) for seal in origin.at]
    stats = nearby.find(NextTokenStatistics, hash=origin.statistics)
    found = {seal: stats if name == "statistics" else _saved(nearby, seal) for name, seal in named if seal is not None}
    missing = [(name, seal) for name, seal in named if seal is not None and found[seal] is None]
    # Where it was not saved, no folder helps.
    for name in (name for name, seal in missing if seal == NOT_SAVED):
        return f"the {name} was not a saved result"
    if missing:
        return not_beside(*missing[0])
    runs, at = [found[seal] for seal in origin.runs], [found[seal] for seal in origin.at]
    return Sources(None if origin.prediction is None else found[origin.prediction], runs, at, stats, origin.settings)


def _saved(nearby: NearbyResults, seal: str) -> Any:
    """A prediction or a run; of a model that was read its states, which are what is compared; None if not beside."""
    kinds = (result_class(f"tokengeom-{name}") for name in SOURCES)
    found: Any = next((one for kind in kinds if (one := nearby.find(kind, seal=seal)) is not None), None)
    is_model = isinstance(found, result_class("tokengeom-model"))
    return found.states if is_model else found
