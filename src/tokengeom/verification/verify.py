"""The verb `verify`, which checks belong to which kind of saved result, and what these checks share.

A check is a sentence and whether it holds; None means that it was not checked, and the sentence then says what was not
checked, and why. The modules beside this one have one function per kind, ``check(result, nearby)``; results know
nothing of them. Other distributions add theirs by the entry points of `GROUP`.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from tokengeom.core.errors import InputError
from tokengeom.core.settings import takes
from tokengeom.results.contract import ALONE, SNAPSHOTS, AbstractResult, NearbyResults, saved_folder
from tokengeom.results.manifests import MANIFEST, changed_files, read_kind, read_seal
from tokengeom.results.registry import EXPORTED, registered, result_class
from tokengeom.statistics.next_token import NextTokenStatistics

Checks = dict[str, bool | None]
"""Sentence -> whether it holds; None where it was not checked."""

_CHECKED_IN = {
    "predictions": ("features", "at-loss", "tied", "path", "linear", "proxy"),
    "sources": ("statistics", "pairs", "run", "simulation"),
    "comparisons": ("comparison", "rivals", "checkpoints", "texts"),
    "reports": ("choice", "model"),
}
CHECKS = {
    f"tokengeom-{kind}": f"tokengeom.verification.{module}.check_{kind.replace('-', '_')}"
    for module, kinds in _CHECKED_IN.items()
    for kind in kinds
}
"""Kind of a result -> the function that checks such a result: ``check(result, nearby)``."""
REPORT = "tokengeom-report"
FOLDER_CHECKS = {
    "tokengeom-run": "tokengeom.verification.sources.check_runs",
    REPORT: "tokengeom.verification.reports.check_report",
}
"""The same for kinds whose folder is checked as a whole: ``check(folder, nearby)``."""
GROUP = "tokengeom.checks"
"""Group of entry points by which other distributions add checks of their kinds."""
AS_RECORDED = (
    "the command, the machine and the version of tokengeom in the manifest: they are as recorded when it was made"
)
"""What no kind of result can show."""
RECOMPUTED = 1e-6
"""Difference within which numbers are equal when they are computed again: sums in another order, on another machine."""
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
_ROUNDED = 0.02
"""Relative difference of numbers in sentences, which are rounded to few digits."""
_NOISE = 1e-7
"""Numbers in sentences below this are rounding, which differs from machine to machine."""


@dataclass(frozen=True)
class Verification:
    """What was checked, what failed and what was not checked, each in a sentence; true when nothing failed.

    ``checked``, ``failed``, ``not_checked``
        Sentences: what was checked, those of them that do not hold, and what was not checked, with the reason.
    ``hash``
        The seal of the result's manifest, which stands for every file.
    ``expected``
        Whether the hash was compared with one that was kept elsewhere.
    """

    checked: tuple[str, ...]
    failed: tuple[str, ...]
    not_checked: tuple[str, ...] = ()
    hash: str = ""
    expected: bool = False

    @staticmethod
    def of(checks: Mapping[str, bool | None], seal: str = "", *, expected: bool = False) -> Verification:
        """From sentences and whether each holds; None means not checked."""
        not_checked = tuple(sentence for sentence, holds in checks.items() if holds is None)
        checked = tuple(sentence for sentence in checks if sentence not in not_checked)
        # A truth value of NumPy is not the object False.
        return Verification(checked, tuple(one for one in checked if not checks[one]), not_checked, seal, expected)

    @property
    def ok(self) -> bool:
        """Whether every check passed."""
        return not self.failed

    def __bool__(self) -> bool:
        return self.ok

    def summary(self) -> str:
        """The outcome in one or two sentences."""
        made, left = len(self.checked), len(self.not_checked)
        counted = (
            f"{made} check{'' if made == 1 else 's'}, {len(self.failed)} failed; "
            f"{left} claim{'' if left == 1 else 's'} not checked."
        )
        consistent = (
            " The result is consistent. Consistent hashes can be forged: to know that it is the result that was made, "
            "give --expect HASH, the hash that was printed then."
        )
        untouched = " The result is untouched: its hash is the expected one."
        return counted + ((untouched if self.expected else consistent) if self.ok else "")


@takes()
def verify(folder: str | Path, *, expect: str | None = None, beside: Sequence[str | Path] = ()) -> Verification:
    """Check a saved result of any kind, or every result in a folder and in its folders, without training again.

    Every file is compared with its hash; then what the result claims is computed again, from its own arrays and from
    the saved results in the same folder. A comparison is made again: that takes as long as it took, without the
    predictions that were saved. What cannot be computed again is listed in ``not_checked``.

    Parameters
    ----------
    folder
        A saved result, or a folder that contains several, however deep. Links are not followed, and hidden folders are
        not looked into; they are listed in ``not_checked``.
    expect
        Hash that was printed when the result was made. Whoever changes a result can also write new hashes into it;
        only a hash that was kept elsewhere shows that.
    beside
        Folders of further saved results to compare with, such as the statistics of a prediction.
    """
    if isinstance(beside, str | bytes) or not isinstance(beside, Sequence):
        raise InputError(f"beside must be a list of folders, such as ['stats']; got {beside!r}.")
    path = saved_folder(folder)
    if not (path / MANIFEST).is_file():
        if os.path.lexists(path / MANIFEST):
            raise InputError(
                f"{path / MANIFEST} must be a plain file; it is something else, such as a pipe or a folder."
            )
        return _verify_each(Path(folder), expect, beside)
    checks: dict[str, bool | None] = {}
    if expect is not None:
        checks["the result's hash is the expected one"] = read_seal(path) == expect.strip().lower()
    checks |= check_folder(path, NearbyResults(Path(folder), beside))
    return Verification.of(checks, read_seal(path), expected=expect is not None)


def _verify_each(folder: Path, expect: str | None, beside: Sequence[str | Path]) -> Verification:
    """Verify every result in a folder that is not a result itself, however deep."""
    if not folder.exists():
        raise InputError(f"{folder} does not exist. Check the path.")
    inside, checks = _results_in(folder)
    if not inside:
        left = f" Not looked into: {'; '.join(checks)}." if checks else ""
        raise InputError(f"{folder} contains no saved result: neither it nor a folder in it has a {MANIFEST}.{left}")
    if expect is not None:
        raise InputError(f"A hash belongs to one result; {folder} holds {len(inside)}. Verify one of them.")
    for place, saved in sorted(inside.items()):
        checks |= under(place.relative_to(folder).as_posix(), check_folder(saved, NearbyResults(place, beside)))
    return Verification.of(checks)


def _results_in(folder: Path) -> tuple[dict[Path, Path], Checks]:
    """Every result in a folder, with the folder that holds its files; and what was not looked into.

    What lies in a result belongs to it, except in the folder of a run, where only snapshots do.
    """
    inside: dict[Path, Path] = {}
    checks: Checks = {}
    waiting = [folder]
    while waiting:
        place = waiting.pop()
        try:
            saved = saved_folder(place)
            if os.path.lexists(saved / MANIFEST):
                inside[place] = saved
            below, left = ([], {}) if inside.get(place) == place else _folders_in(place)
        except OSError as error:
            below, left = [], {"": f"it cannot be read ({error.strerror})"}
        waiting += below
        checks |= {f"{(place / name).relative_to(folder).as_posix()}: {why}": None for name, why in left.items()}
    return inside, checks


def _folders_in(place: Path) -> tuple[list[Path], dict[str, str]]:
    """The folders in a folder that may hold results, and those that are not looked into, with the reason."""
    found = [one for one in os.scandir(place) if one.is_dir() and not fnmatch(one.name, SNAPSHOTS)]
    left = {one.name: "links are not followed" for one in found if one.is_symlink()}
    left |= {one.name: "hidden folders are not looked into" for one in found if one.name.startswith(".")}
    return [place / one.name for one in found if one.name not in left], left


def check_folder(folder: Path, nearby: NearbyResults) -> Checks:
    """Check a saved folder of any kind: files against their hashes, then what the result claims."""
    kind = read_kind(folder)
    # The files of a report are those of its stages.
    checks = {} if kind == REPORT else check_hashes(folder)
    if not all(checks.values()):
        return checks
    try:
        if kind == EXPORTED:
            checks["the exported numbers: compare them with the result they were made from"] = None
        elif kind in FOLDER_CHECKS:
            checks |= registered(kind, FOLDER_CHECKS, GROUP)(folder, nearby)
        else:
            checks |= check_result(result_class(kind).load(folder), nearby)
    except InputError as error:
        return {**checks, f"the result can be read ({error})": False}
    return checks if kind == REPORT else {**checks, AS_RECORDED: None}


def check_result(result: AbstractResult, nearby: NearbyResults = ALONE) -> Checks:
    """What can be recomputed from a result, and from the saved results that lie beside it."""
    check = registered(result.kind, CHECKS, GROUP)
    return {} if check is None else check(result, nearby)


def check_hashes(folder: Path) -> Checks:
    """Whether every file has the hash in the manifest, and the manifest its own; otherwise the first that has not."""
    changed = changed_files(folder)
    said = f" ({changed[0]} is missing, changed or added)" if changed else ""
    return {f"every file has the hash in the manifest{said}": not changed}


def under(name: str, checks: Mapping[str, bool | None]) -> Checks:
    """The same checks with the name of what they are about before each sentence."""
    return {f"{name}: {sentence}": holds for sentence, holds in checks.items()}


def not_computed(what: str, why: str) -> Checks:
    """What was not computed again, and why."""
    return {f"{what} were not computed again: {why}": None}


def not_beside(name: str, seal: str) -> str:
    """That the result with this hash is missing, as the end of a sentence."""
    is_not, whose = ("are not", "their") if name == "statistics" else ("is not", "its")
    return f"the {name} with the hash {seal[:8]} {is_not} beside it (give {whose} folder: --with FOLDER)"


def with_statistics(
    seal: str,
    nearby: NearbyResults,
    what: str,
    compare: Callable[[NextTokenStatistics], Checks],
    sizes: tuple[int, int] | None = None,
    at_hand: NextTokenStatistics | None = None,
) -> Checks:
    """The checks of a result with its statistics; where these do not lie beside it, ``what`` was not checked.

    ``sizes``
        V and m of the result, which those of the statistics must be.
    ``at_hand``
        The statistics, where they are known.
    """
    stats = at_hand or nearby.find(NextTokenStatistics, hash=seal)
    if stats is None:
        return {f"{what}: {not_beside('statistics', seal)}": None}
    if sizes not in (None, (stats.V, stats.m)):
        return {"it has the tokens and contexts of its statistics": False}
    return {"the statistics have the hash that it names": stats.hash == seal, **compare(stats)}


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
