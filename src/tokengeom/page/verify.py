"""The verb `verify`: re-check a saved result, or every result behind a report, without solving or training again."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tokengeom.errors import InputError, TokengeomError
from tokengeom.folders import MANIFEST, as_json, file_hash, read_kind
from tokengeom.geometry.compare import compare
from tokengeom.geometry.comparison import load_comparison
from tokengeom.page.cache import FORMAT, UNFINISHED, key_of, read_record, sealed
from tokengeom.page.stages import PREDICTION, STATISTICS
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.features import load_features
from tokengeom.theory.verification import Verification, close
from tokengeom.theory.verify import verify as verify_one
from tokengeom.training.objective import SoftLabels
from tokengeom.training.run import Run

RECOMPUTED = 1e-6
"""Agreement numbers are recomputed to this: sums over pairs in another order, on another machine."""


def verify(folder: str | Path) -> Verification:
    """Check a saved result of any kind, the results behind a report, or a folder of saved results.

    Of a report, every file and certificate is checked; that each stage belongs to the ones that it names; that the
    prediction is about these statistics; and that losses and agreement numbers come out again.
    """
    path = Path(folder)
    if (path / MANIFEST).is_file():
        return verify_report(path) if read_kind(path) == FORMAT else verify_one(path)
    inside = sorted(found.parent for found in path.glob(f"*/{MANIFEST}")) if path.is_dir() else []
    if not inside:
        raise InputError(f"{folder} holds no saved result: there is no {MANIFEST} in it, nor in a folder inside it.")
    checks: dict[str, bool] = {}
    for one in inside:
        checks |= _named(one.name, verify(one))
    return Verification.of(checks)


def verify_report(folder: Path) -> Verification:
    """Check everything behind a report, and its page."""
    record = read_record(folder)
    stages = record["stages"]
    checks = {
        "the report's manifest is the one that was written": _is_as_written(folder, record),
        "the report is finished": bool(record["page"]) and not (folder / UNFINISHED).exists(),
        "nothing was added to the folder": not list(_strangers(folder, stages)),
    }
    whole = True
    for name, entry in stages.items():
        found = _stage(folder / name, entry)
        whole = whole and found.ok
        checks |= _named(name, found) | _links(name, entry, stages)
    checks |= _page(folder, record["page"], stages)
    # What does not match its hash is not worth comparing, and may not even load.
    return Verification.of(checks | (_across(folder, stages) if whole else {}))


def _is_as_written(folder: Path, record: Mapping[str, Any]) -> bool:
    """Byte for byte: the manifest is what its own content gives, with the seal that belongs to it."""
    return (folder / MANIFEST).read_bytes() == as_json(sealed(record))


def _named(name: str, found: Verification) -> dict[str, bool]:
    return {f"{name}: {sentence}": sentence not in found.failed for sentence in found.checked}


def _strangers(folder: Path, stages: Mapping[str, Any]) -> Iterator[Path]:
    """Files that belong to no stage; those added inside a stage are found by its own manifest."""
    known = {MANIFEST, UNFINISHED, *stages}
    return (path for path in folder.iterdir() if path.name not in known)


def _stage(folder: Path, entry: Mapping[str, Any]) -> Verification:
    if not (folder / MANIFEST).is_file():
        return Verification.of({"the result is there": False})
    same = {"the manifest is the one that was written": file_hash(folder / MANIFEST) == entry["manifest"]}
    try:
        found = verify_one(folder)
    except (TokengeomError, KeyError, TypeError, ValueError) as error:
        return Verification.of({**same, f"the result can be read ({error})": False})
    return Verification((*same, *found.checked), (*(s for s, ok in same.items() if not ok), *found.failed))


def _links(name: str, entry: Mapping[str, Any], stages: Mapping[str, Any]) -> dict[str, bool]:
    """A stage's key is that of its inputs, and the stages it was made from are the ones beside it."""
    before = entry["inputs"].get("stages", {})
    there = all(one in stages and stages[one]["key"] == key for one, key in before.items())
    return {
        f"{name}: its key is that of its inputs": entry["key"] == key_of(name, entry["inputs"]),
        f"{name}: it was made from the results beside it": there,
    }


def _page(folder: Path, page: Mapping[str, Any], stages: Mapping[str, Any]) -> dict[str, bool]:
    if not page:
        return {}
    named = str(page.get("name"))
    path = folder.parent / named
    # A name, not a path: a manifest must not make anyone read elsewhere.
    plain = re.fullmatch(r"[^/\\]+", named) is not None
    return {
        "page: it is the one that was written": plain and path.is_file() and file_hash(path) == page.get("sha256"),
        **_links("page", page, stages),
    }


def _across(folder: Path, stages: Mapping[str, Any]) -> dict[str, bool]:
    """Numbers that tie one stage to another, computed again."""
    checks: dict[str, bool] = {}
    if STATISTICS not in stages:
        return checks
    stats = NextTokenStatistics.load(folder / STATISTICS)
    labels = SoftLabels.from_statistics(stats)
    if PREDICTION not in stages:
        return checks
    prediction = load_features(folder / PREDICTION)
    about = prediction.P.shape == stats.P.shape and abs(prediction.P - stats.P).max() <= 1e-12
    checks["prediction: it is about these statistics"] = bool(about)
    for name in (name for name in stages if name.startswith("run-")):
        run = Run.load(folder / name)
        fits = run.W.shape[0] == stats.V and run.H.shape[1] == stats.m
        checks[f"{name}: its loss comes out again"] = fits and _same_loss(labels, run)
        comparison = name.replace("run-", "comparison-")
        if comparison in stages and fits:
            claimed = load_comparison(folder / comparison).agreements
            afresh = compare(prediction, run, resamples=0, permutations=0).agreements
            same = set(claimed) == set(afresh) and all(_same(claimed[n].value, afresh[n].value) for n in claimed)
            checks[f"{comparison}: its numbers come out again"] = same
    return checks


def _same_loss(labels: SoftLabels, run: Run) -> bool:
    if not np.isfinite(run.logits).all():
        return not math.isfinite(run.loss_gap)
    return close(labels.loss_gap(run.logits), run.loss_gap)


def _same(a: float, b: float) -> bool:
    if not (math.isfinite(a) and math.isfinite(b)):
        return math.isfinite(a) == math.isfinite(b)
    return abs(a - b) <= RECOMPUTED * max(abs(a), abs(b), 1.0)
