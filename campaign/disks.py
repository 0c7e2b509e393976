"""Disks that fill up: a limit on the length of files, and small disks in memory where one may be mounted.

Clear are: an error of one paragraph, the older result intact, nothing left over, and the same command succeeds when
there is space again.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from campaign.forks import Ended, Fork, Limits, Place
from campaign.kills import MATERIAL as OF_KILLS
from campaign.kills import QUICK_MATERIAL as QUICK_OF_KILLS
from campaign.kills import Scenario, Undisturbed, lost, prepare, prepared, undisturbed
from campaign.material import Material
from campaign.saved import fingerprint, listing
from campaign.tries import Try, generator, wrong_end

MATERIAL, QUICK_MATERIAL = OF_KILLS, QUICK_OF_KILLS
_PAGE = 4096
_NOT_TRIED: list[str] = []


def skipped() -> list[str]:
    """What was not tried, and why."""
    return _NOT_TRIED


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[None]:
    """A disk in memory of this many bytes, mounted at a folder; needs root."""
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True, capture_output=True
    )
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, capture_output=True)


def can_mount(folder: Path) -> bool:
    """Whether small disks can be mounted here; otherwise says so in the figures."""
    folder.mkdir(parents=True)
    try:
        with small_disk(folder, _PAGE * 16):
            return True
    except (OSError, subprocess.CalledProcessError):
        _NOT_TRIED.append("small disks: this user may not mount one")
        return False


def bytes_below(folder: Path) -> int:
    """Space that a folder takes, in whole pages, one for each file and folder at least."""
    sizes = [path.lstat().st_size for path in folder.rglob("*")]
    return sum(max(_PAGE, -(-size // _PAGE) * _PAGE) for size in sizes)


def long_file(scenario: Scenario, known: Undisturbed, limit: int, material: Material, folder: Path) -> str | None:
    """Run a command that may write no file longer than ``limit``; returns what is wrong."""
    place = Place.inside(folder)
    prepare(scenario, material, place)
    names = listing(place.work, place.temporary)
    ended = Fork()(shlex.split(scenario.command), place, Limits(file_bytes=limit))
    return judged(scenario, known, ended, names, place)


def full_disk(scenario: Scenario, known: Undisturbed, free: int, material: Material, folder: Path) -> str | None:
    """Run a command on a disk with ``free`` bytes more than its inputs take; returns what is wrong."""
    full, roomy = folder / "full", folder / "roomy"
    full.mkdir()
    prepare(scenario, material, Place.inside(roomy))
    with small_disk(full, bytes_below(roomy) + 4 * _PAGE + free):
        place = Place.inside(full)
        prepare(scenario, material, place)
        names = listing(place.work, place.temporary)
        ended = Fork()(shlex.split(scenario.command), place)
        wrong = judged_at_once(scenario, known, ended, names, place)
        # What is left moves to a disk with space, where the same command must succeed.
        shutil.rmtree(roomy)
        shutil.copytree(full, roomy, symlinks=True)
    return wrong or succeeds(scenario, known, Place(roomy / "work", roomy / "temporary"))


def judged(scenario: Scenario, known: Undisturbed, ended: Ended, names: list[str], place: Place) -> str | None:
    """What is wrong after a command on a full disk, and after the same command with space."""
    return judged_at_once(scenario, known, ended, names, place) or succeeds(scenario, known, place)


def judged_at_once(scenario: Scenario, known: Undisturbed, ended: Ended, names: list[str], place: Place) -> str | None:
    """What is wrong right after a command on a full disk."""
    wrong = wrong_end(ended, (scenario.code, 2)) or lost(scenario, place)
    if wrong or scenario.is_report or scenario.resumes:
        return wrong
    target = place.work / scenario.target
    found = fingerprint(target) if target.exists() else None
    done = ended.code == scenario.code
    if found != (known.new if done else known.old):
        return f"exit code {ended.code}, and {scenario.target} is not the {'new' if done else 'old'} result"
    more = [] if done else sorted(set(listing(place.work, place.temporary)) - set(names))
    return f"left over after the error: {', '.join(more[:4])}" if more else None


def succeeds(scenario: Scenario, known: Undisturbed, place: Place) -> str | None:
    """What is wrong when the same command is run with space."""
    ended = Fork()(shlex.split(scenario.next_command), place)
    wrong = wrong_end(ended, (scenario.code,)) or lost(scenario, place)
    if wrong:
        return f"the same command with space: {wrong}"
    if fingerprint(place.work / scenario.target) != known.new:
        return "the same command with space gives another result"
    more = sorted(set(listing(place.work, place.temporary)) - set(known.names))
    return f"left over after the same command with space: {', '.join(more[:4])}" if more else None


def tries(material: Material, seed: int, number: int, folder: Path, *, quick: bool = False) -> list[Try]:
    """``number`` full disks: limits on the length of files, and small disks where they can be mounted."""
    scenarios = prepared(material, folder, quick=quick)
    known = [undisturbed(one, material, folder / f"undisturbed-{k}") for k, one in enumerate(scenarios)]
    mounts = can_mount(folder / "disk")
    found = []
    for k in range(number):
        scenario, one = scenarios[k % len(scenarios)], known[k % len(scenarios)]
        rng = generator(seed, f"disks/{k}")
        made = folder / f"undisturbed-{k % len(scenarios)}" / "after" / "work" / scenario.target
        largest = max(path.stat().st_size for path in made.rglob("*") if path.is_file())
        if mounts and (k // len(scenarios)) % 2:
            free = int(rng.uniform(0, 1.5 * bytes_below(made)))
            run = partial(full_disk, scenario, one, free, material)
            found.append(Try(f"disks/{scenario.name}/{k}: a disk with {free:,} bytes free", run))
        else:
            limit = 0 if k < len(scenarios) else int(largest ** rng.uniform(0, 1.05))
            run = partial(long_file, scenario, one, limit, material)
            found.append(Try(f"disks/{scenario.name}/{k}: files of at most {limit:,} bytes", run))
    return found
