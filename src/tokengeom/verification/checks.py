"""Which checks belong to which kind of saved result, and what these checks share.

A check is a sentence and whether it holds; None means that it was not checked, and the sentence then says what was not
checked, and why. The modules beside this one have one function per kind, ``check(result, nearby)``; results know
nothing of them. Other distributions add theirs by the entry points of `GROUP`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

from tokengeom.core.errors import InputError
from tokengeom.results.contract import ALONE, AbstractResult, NearbyResults, check_hashes
from tokengeom.results.manifests import read_kind
from tokengeom.results.registry import EXPORTED, registered, result_class

Checks = dict[str, bool | None]
"""Sentence -> whether it holds; None where it was not checked."""

CHECKS: dict[str, str] = {
    "tokengeom-features": "tokengeom.verification.predictions.check_features",
    "tokengeom-at-loss": "tokengeom.verification.predictions.check_at_loss",
    "tokengeom-path": "tokengeom.verification.predictions.check_path",
    "tokengeom-linear": "tokengeom.verification.predictions.check_linear",
    "tokengeom-proxy": "tokengeom.verification.predictions.check_proxy",
    "tokengeom-statistics": "tokengeom.verification.statistics.check_statistics",
    "tokengeom-pairs": "tokengeom.verification.statistics.check_pairs",
    "tokengeom-run": "tokengeom.verification.runs.check_run",
    "tokengeom-comparison": "tokengeom.verification.comparisons.check_comparison",
    "tokengeom-rivals": "tokengeom.verification.comparisons.check_rivals",
    "tokengeom-checkpoints": "tokengeom.verification.comparisons.check_checkpoints",
    "tokengeom-texts": "tokengeom.verification.comparisons.check_texts",
    "tokengeom-choice": "tokengeom.verification.reports.check_choice",
    "tokengeom-model": "tokengeom.verification.reports.check_model",
}
"""Kind of a result -> the function that checks such a result: ``check(result, nearby)``."""
FOLDER_CHECKS: dict[str, str] = {
    "tokengeom-run": "tokengeom.verification.runs.check_runs",
    "tokengeom-report": "tokengeom.verification.reports.check_report",
}
"""The same for kinds whose folder is checked as a whole: ``check(folder, nearby)``."""
GROUP = "tokengeom.checks"
"""Group of entry points by which other distributions add checks of their kinds."""
RECOMPUTED = 1e-6
"""Difference within which numbers are equal when they are computed again: sums in another order, on another machine."""
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
_ROUNDED = 0.02
"""Relative difference of numbers in sentences, which are rounded to few digits."""
_NOISE = 1e-7
"""Numbers in sentences below this are rounding, which differs from machine to machine."""


def check_folder(folder: Path, nearby: NearbyResults) -> Checks:
    """Check a saved folder of any kind: files against their hashes, then what the result claims."""
    kind = read_kind(folder)
    if kind == EXPORTED:
        return {**check_hashes(folder), "the exported numbers: compare them with the result they were made from": None}
    checks: Checks
    if kind in FOLDER_CHECKS:
        checks = registered(kind, FOLDER_CHECKS, GROUP)(folder, nearby)
        return checks
    checks = {**check_hashes(folder)}
    if not all(checks.values()):
        return checks
    try:
        result = result_class(kind).load(folder)
    except InputError as error:
        return {**checks, f"the result can be read ({error})": False}
    return {**checks, **check_result(result, nearby)}


def check_result(result: AbstractResult, nearby: NearbyResults = ALONE) -> Checks:
    """What can be recomputed from a result, and from the saved results that lie beside it."""
    check = registered(result.kind, CHECKS, GROUP)
    return {} if check is None else check(result, nearby)


def not_computed(what: str, why: str) -> Checks:
    """What was not computed again, and why."""
    return {f"{what} were not computed again: {why}": None}


def not_beside(name: str, seal: str) -> str:
    """That the result with this hash is missing, as the end of a sentence."""
    is_not, whose = ("are not", "their") if name == "statistics" else ("is not", "its")
    return f"the {name} with the hash {seal[:8]} {is_not} beside it (give {whose} folder: --with FOLDER)"


def same(claimed: object, again: object, tolerance: float = RECOMPUTED) -> bool:
    """Whether nested plain data are equal: numbers within a tolerance, sentences in their words and rounded numbers.

    NaN, infinities and null count as the same number.
    """
    if isinstance(claimed, Mapping) and isinstance(again, Mapping):
        return set(claimed) == set(again) and all(same(claimed[name], again[name], tolerance) for name in claimed)
    if isinstance(claimed, list | tuple) and isinstance(again, list | tuple):
        return len(claimed) == len(again) and all(map(lambda a, b: same(a, b, tolerance), claimed, again))
    if isinstance(claimed, str) and isinstance(again, str):
        return claimed == again or _same_sentence(claimed, again)
    if isinstance(claimed, bool) != isinstance(again, bool):
        return False
    if isinstance(claimed, float) or isinstance(again, float):
        a, b = (math.nan if number is None else number for number in (claimed, again))
        if not (isinstance(a, int | float) and isinstance(b, int | float)):
            return False
        if not (math.isfinite(a) and math.isfinite(b)):
            return math.isfinite(a) == math.isfinite(b)
        return abs(a - b) <= tolerance * max(abs(a), abs(b), 1.0)
    return claimed == again


def _same_sentence(claimed: str, again: str) -> bool:
    if _NUMBER.sub("#", claimed) != _NUMBER.sub("#", again):
        return False
    pairs = zip(map(float, _NUMBER.findall(claimed)), map(float, _NUMBER.findall(again)), strict=True)
    return all(a == b or abs(a - b) <= max(_NOISE, _ROUNDED * abs(a)) for a, b in pairs)
