"""Commands that are ended at every file operation and at random times, by SIGKILL, SIGTERM and SIGINT.

After each: the target is the old result or the new one, whole; nothing of the user's is lost; the same command
succeeds with the result of an undisturbed run; and then nothing is left over beside the target, inside it or in the
temporary folder.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from pathlib import Path

import numpy as np

from campaign.file_operations import RECORD, FileOperations, When
from campaign.forks import Ended, Fork, Limits, Place
from campaign.material import COMMANDS, CUT, REPORT, TRAIN, Material
from campaign.saved import MANIFEST, fingerprint, listing
from campaign.tries import Try, chosen, even_shares, excerpt, generator, wrong_end

MATERIAL = tuple(name for name in COMMANDS if name not in ("findings", "linear", "rivals", "texts", "proxy"))
QUICK = ("predict over, without exchange of names", "train --resume")
QUICK_MATERIAL = ("stats", "other-stats", "other-prediction")
INTERRUPTED = 130
PROBE = re.compile("[a-z0-9_]{8}")
_NOTE = "This is mine.\n"


@dataclass(frozen=True)
class Scenario:
    """A command that is ended early.

    where
        inputs      names of the material that it reads
        target      what it writes, in the current folder
        old         name of the material that is there before, None for none
        foreign     names of files of the user's inside the target
        resumes     whether the command after it gets --resume
        exchanges   False where the system is made to have no exchange of names
    """

    name: str
    command: str
    inputs: tuple[str, ...]
    target: str
    old: str | None = None
    foreign: tuple[str, ...] = ()
    resumes: bool = False
    exchanges: bool = True

    @property
    def next_command(self) -> str:
        """The command that is run after the one that was ended."""
        return f"{self.command} --resume" if self.resumes and "--resume" not in self.command else self.command

    @property
    def is_report(self) -> bool:
        """Whether the target is the results of a report, which are written stage by stage."""
        return self.command.startswith("report")


_COMPARED = ("prediction", "run", "run-2", "stats")
SCENARIOS = (
    Scenario("count", f"count text.txt {CUT} --out stats -q", ("text.txt",), "stats"),
    Scenario("count over", f"count text.txt {CUT} --out stats -q", ("text.txt",), "stats", "other-stats"),
    Scenario("pairs", "count text.txt --context 1 --pairs pairs -q", ("text.txt",), "pairs"),
    Scenario("pairs over", "count text.txt --context 1 --pairs pairs -q", ("text.txt",), "pairs", "other-pairs"),
    Scenario("predict over", "predict stats --out prediction -q", ("stats",), "prediction", "other-prediction"),
    Scenario(
        "predict over, without exchange of names",
        "predict stats --out prediction -q",
        ("stats",),
        "prediction",
        "other-prediction",
        exchanges=False,
    ),
    Scenario("train", f"train stats {TRAIN} --out run -q", ("stats",), "run", resumes=True),
    Scenario(
        "train --resume",
        f"train stats {TRAIN} --out run -q --resume",
        ("stats",),
        "run",
        "unfinished-run",
        ("step-mine/notes.txt", "step-000000000001/notes.txt", ".mine/notes.txt"),
        resumes=True,
    ),
    Scenario(
        "compare over",
        "compare prediction run run-2 --permutations 20 --out comparison -q",
        _COMPARED,
        "comparison",
        "other-comparison",
    ),
    Scenario(
        "export over",
        "export prediction --stats stats --out exported -q",
        ("prediction", "stats"),
        "exported",
        "other-exported",
    ),
    Scenario("report", f"report text.txt --out page.html {REPORT} -q", ("text.txt",), "page-results"),
    Scenario(
        "report over an unfinished one",
        f"report text.txt --out page.html {REPORT} -q",
        ("text.txt",),
        "page-results",
        "unfinished-results",
        (".mine/notes.txt", "notes.txt"),
    ),
)
BESIDE = ("keep.txt", ".mine/notes.txt", "mine/notes.txt")
"""Files of the user's beside the target; a link points to the first."""
IN_TEMPORARY = ("mine.txt", "tokengeom-mine/notes.txt", ".tokengeom-mine/notes.txt")
"""Files of the user's in the temporary folder, some of them with names like ours."""


@dataclass(frozen=True)
class Undisturbed:
    """What a scenario leaves when nothing ends it.

    where
        new, old      fingerprints of the target afterwards and before
        names         everything in the folder and in the temporary folder
        operations    names of the operations, by whether they are counted before or after they happen
        seconds       time that the command takes
    """

    new: dict[str, str]
    old: dict[str, str] | None
    names: list[str]
    operations: dict[When, list[str]]
    seconds: float


@dataclass(frozen=True)
class Stop:
    """How a command is ended: by a signal, at an operation or after a time."""

    signal: signal.Signals
    when: When | None = None
    at: int = 0
    after: float = 0.0

    @property
    def name(self) -> str:
        """The end of a try's name."""
        if self.when is None:
            return f"{self.signal.name} after {self.after:.4f} s"
        return f"{self.signal.name} {self.when} operation {self.at}"


def prepare(scenario: Scenario, material: Material, place: Place) -> None:
    """Inputs, the older result, and files of the user's beside and inside it."""
    for name in scenario.inputs:
        material.put(name, place.work / name)
    if scenario.old is not None:
        material.put(scenario.old, place.work / scenario.target)
        if scenario.is_report:
            material.put("unfinished.html", place.work / "page.html")
    inside = [place.work / scenario.target / name for name in scenario.foreign]
    for path in (*inside, *(place.work / one for one in BESIDE), *(place.temporary / one for one in IN_TEMPORARY)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_NOTE)
    (place.work / "link").symlink_to(BESIDE[0])


def lost(scenario: Scenario, place: Place) -> str | None:
    """The first file of the user's that is missing or was changed."""
    inside = [place.work / scenario.target / name for name in scenario.foreign]
    for path in (*inside, *(place.work / one for one in BESIDE), *(place.temporary / one for one in IN_TEMPORARY)):
        if not path.is_file() or path.read_text() != _NOTE:
            return f"{path.name} of the user's is lost: {path.relative_to(place.work.parent)}"
    if not (place.work / "link").is_symlink():
        return "a link of the user's is lost"
    return None


def in_child(scenario: Scenario, place: Place, stop: Stop | None = None, log: int | None = None) -> None:
    """What happens in the child before the command: snapshots at every record, and the operations are watched."""
    from tokengeom.results import folders
    from tokengeom.training import loop
    from tokengeom.training.run import Trajectory

    # Python itself writes and removes a file there once, to see whether it can; it would be counted as ours.
    tempfile.gettempdir()
    made: list[object] = []
    initialise = loop.TrainingHooks.__init__

    def saving_at_every_record(self: object, *arguments: object, **named: object) -> None:
        initialise(self, *arguments, **named)  # type: ignore[arg-type]
        # Of the trainings of a report only the first: the others would repeat its operations.
        if not made:
            object.__setattr__(self, "checkpoint_seconds", 0.0)
        made.append(self)

    loop.TrainingHooks.__init__ = saving_at_every_record  # type: ignore[method-assign]
    if not scenario.exchanges:
        folders.exchange = lambda *_: False
    if stop is not None and stop.when is None:
        return
    when = "before" if stop is None else stop.when
    assert when is not None
    struck = partial(os.kill, os.getpid(), signal.SIGKILL if stop is None else stop.signal)
    at = None if stop is None else stop.at
    watched = FileOperations([place.work, place.temporary], when, at, struck, log)
    watched.install()
    if when == "before":
        append = Trajectory.append

        def recorded(self: object, row: object) -> None:
            watched.reached(RECORD)
            append(self, row)  # type: ignore[arg-type]

        Trajectory.append = recorded  # type: ignore[method-assign]


def undisturbed(scenario: Scenario, material: Material, folder: Path) -> Undisturbed:
    """Run a scenario to its end, once per way of counting."""
    operations: dict[When, list[str]] = {}
    for when in ("before", "after"):
        place = Place.inside(folder / when)
        prepare(scenario, material, place)
        target = place.work / scenario.target
        old = fingerprint(target) if scenario.old is not None else None
        with tempfile.TemporaryFile() as log:
            # A stop at an operation that is never reached.
            stop = Stop(signal.SIGKILL, when, at=-1)
            ended = Fork()(
                shlex.split(scenario.command),
                place,
                before=lambda: in_child(scenario, place, stop, log.fileno()),  # noqa: B023
            )
            if ended.code:
                raise RuntimeError(f"tokengeom {scenario.command} failed undisturbed:\n{ended.err}")
            log.seek(0)
            operations[when] = log.read().decode().split("\n")[:-1]
    return Undisturbed(fingerprint(target), old, listing(place.work, place.temporary), operations, ended.seconds)


def kill_points(known: Undisturbed) -> list[Stop]:
    """SIGKILL before and after every operation."""
    return [Stop(signal.SIGKILL, when, k) for when, found in known.operations.items() for k in range(len(found))]


def other_stops(known: Undisturbed, rng: np.random.Generator) -> Iterator[Stop]:
    """SIGKILL at random times; SIGTERM and SIGINT at random times and operations."""
    for k in count():
        which = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)[k % 3]
        if which != signal.SIGKILL and k % 2:
            yield Stop(which, "before", int(rng.integers(len(known.operations["before"]))))
        else:
            yield Stop(which, after=float(rng.uniform(0, 1.05 * known.seconds)))


def kill_once(scenario: Scenario, known: Undisturbed, stop: Stop, material: Material, folder: Path) -> str | None:
    """End a command early and judge what is left; returns what is wrong."""
    place = Place.inside(folder)
    prepare(scenario, material, place)
    limits = Limits(signal=stop.signal, after=stop.after) if stop.when is None else Limits()
    fork = Fork()
    ended = fork(shlex.split(scenario.command), place, limits, lambda: in_child(scenario, place, stop))
    return (
        _wrong_death(ended, stop)
        or _not_whole(scenario, known, place)
        or lost(scenario, place)
        or _not_saved(scenario, known, stop, ended, place)
        or _next_fails(scenario, known, place)
        or lost(scenario, place)
        or _left_over(scenario, known, place)
    )


def _wrong_death(ended: Ended, stop: Stop) -> str | None:
    if stop.signal == signal.SIGKILL and ended.code == -signal.SIGKILL and not ended.hung:
        return None
    return wrong_end(ended, (0, INTERRUPTED))


def _not_whole(scenario: Scenario, known: Undisturbed, place: Place) -> str | None:
    """Whether the target is neither the old result nor the new one; `verify` is its first use."""
    if scenario.is_report or scenario.resumes:
        return None
    target = place.work / scenario.target
    ended = Fork()(["verify", scenario.target, "-q"], place)
    if not target.exists():
        return f"the older result {scenario.target} is gone" if known.old is not None else None
    found = fingerprint(target)
    if found not in (known.new, known.old):
        return f"{scenario.target} is neither the old result nor the new one: {sorted(found)}"
    return None if ended.code == 0 else f"verify {scenario.target} failed: {excerpt(ended.err + ended.out)}"


def _not_saved(scenario: Scenario, known: Undisturbed, stop: Stop, ended: Ended, place: Place) -> str | None:
    """SIGTERM and SIGINT during training must save and say how to go on."""
    during = stop.when == "before" and known.operations["before"][stop.at] == RECORD
    if not during or stop.signal == signal.SIGKILL or not scenario.resumes:
        return None
    if not any((place.work / scenario.target).glob(f"step-*/{MANIFEST}")):
        return "what was trained before the signal is not saved"
    if ended.code != INTERRUPTED or "--resume" not in ended.err + ended.out:
        return f"exit code {ended.code}, and --resume is not named: {excerpt(ended.err + ended.out)}"
    return None


def _next_fails(scenario: Scenario, known: Undisturbed, place: Place) -> str | None:
    """Whether the next command fails, or gives another result than an undisturbed one."""
    ended = Fork()(shlex.split(scenario.next_command), place)
    wrong = wrong_end(ended, (0,))
    if wrong:
        return f"the next command: {wrong}"
    found = fingerprint(place.work / scenario.target)
    differing = sorted(name for name in {*found, *known.new} if found.get(name) != known.new.get(name))
    if differing:
        return f"the next command gives another result: {', '.join(differing[:4])}"
    if scenario.foreign:
        # Files of the user's inside the target are kept, and are no part of the result.
        return None
    checked = Fork()(["verify", scenario.target, "-q"], place)
    wrong = wrong_end(checked, (0,))
    return f"verify after the next command: {wrong}" if wrong else None


def _left_over(scenario: Scenario, known: Undisturbed, place: Place) -> str | None:
    more = sorted(set(listing(place.work, place.temporary)) - set(known.names))
    more = [name for name in more if not _is_probe(name, place)]
    return f"left over after the next command: {', '.join(more[:4])}" if more else None


def _is_probe(name: str, place: Place) -> bool:
    """Whether this is the file with which Python's `tempfile` tries out a folder; a kill can leave it behind."""
    path = place.temporary / Path(name).name
    return bool(PROBE.fullmatch(path.name)) and path.is_file() and path.read_bytes() in (b"", b"blat")


def prepared(material: Material, folder: Path, *, quick: bool) -> list[Scenario]:
    """The scenarios, with their older results made; a few of them where it must be quick."""
    scenarios = [one for one in SCENARIOS if not quick or one.name in QUICK]
    make_unfinished(material, folder / "unfinished", [one.old for one in scenarios])
    return scenarios


def make_unfinished(material: Material, folder: Path, wanted: Sequence[str | None]) -> None:
    """An interrupted run and an unfinished report, as older results."""
    for name, made, record in (("train", "unfinished-run", 3), ("report", "unfinished-results", 3)):
        if made not in wanted or material.path(made).exists():
            continue
        scenario = next(one for one in SCENARIOS if one.name == name)
        place = Place.inside(folder / name)
        for one in scenario.inputs:
            material.put(one, place.work / one)
        stop = Stop(signal.SIGINT, "before", _place_of_record(scenario, material, folder / f"{name}-whole", record))
        ended = Fork()(shlex.split(scenario.command), place, before=lambda: in_child(scenario, place, stop))  # noqa: B023
        if ended.code != INTERRUPTED:
            raise RuntimeError(f"{name} was not interrupted: {ended}")
        (place.work / scenario.target).rename(material.path(made))
    if "unfinished-results" in wanted:
        # The page of an earlier report, which the unfinished one would replace.
        material.put("other.html", material.path("unfinished.html"))


def _place_of_record(scenario: Scenario, material: Material, folder: Path, record: int) -> int:
    found = undisturbed(scenario, material, folder).operations["before"]
    return [k for k, name in enumerate(found) if name == RECORD][record]


def tries(material: Material, seed: int, number: int, folder: Path, *, quick: bool = False) -> list[Try]:
    """``number`` kills: two thirds at file operations, as evenly over the scenarios as they have operations."""
    scenarios = prepared(material, folder, quick=quick)
    known = [undisturbed(one, material, folder / f"undisturbed-{k}") for k, one in enumerate(scenarios)]
    points = [kill_points(one) for one in known]
    at_operations = even_shares(round(number * 2 / 3), [len(one) for one in points])
    elsewhere = even_shares(number - sum(at_operations), [number] * len(scenarios))
    found = []
    for scenario, one, every, some, more in zip(scenarios, known, points, at_operations, elsewhere, strict=True):
        rng = generator(seed, f"kills/{scenario.name}")
        stops = [every[k] for k in chosen(some, len(every), rng)] + list(islice(other_stops(one, rng), more))
        for k, stop in enumerate(stops):
            run = partial(kill_once, scenario, one, stop, material)
            found.append(Try(f"kills/{scenario.name}/{k}: {stop.name}", run))
    return found
