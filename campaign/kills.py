"""Commands that are ended at every file operation and at random times, by SIGKILL, SIGTERM and SIGINT.

After each: the target is the old result or the new one, whole; nothing of the user's is lost; after SIGTERM and SIGINT
no work folder is left, and no folder is named that does not exist; the same command succeeds with the result of an
undisturbed run; and then nothing is left over beside the target, inside it or in the temporary folder.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, islice
from pathlib import Path

import numpy as np

from campaign.file_operations import RECORD, FileOperations, When
from campaign.forks import PATIENT, Ended, Fork, Limits, Place
from campaign.material import COMMANDS, FAILING, Material, inputs_of
from campaign.saved import MANIFEST, fingerprint, listing
from campaign.tries import Try, chosen, even_shares, excerpt, generator, wrong_end

QUICK = ("predict over, without exchange of names", "train --resume")
QUICK_MATERIAL = ("stats", "other-stats", "other-prediction")
INTERRUPTED = 130
PROBE = re.compile("[a-z0-9_]{8}")
_NOTE = "This is mine.\n"
_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
_EXIT = "exit"


@dataclass(frozen=True)
class Scenario:
    """A command that is ended early.

    where
        target      name of the result that it makes, in the current folder
        old         name of the material that is there before, None for none
        foreign     names of files of the user's inside the target
        resumes     whether the command after it gets --resume
        exchanges   False where the system is made to have no exchange of names
    """

    name: str
    target: str
    old: str | None = None
    foreign: tuple[str, ...] = ()
    resumes: bool = False
    exchanges: bool = True

    @property
    def command(self) -> str:
        """The command that is ended early."""
        return COMMANDS[self.target] + (" --resume" if self.resumes and self.old is not None else "")

    @property
    def next_command(self) -> str:
        """The command that is run after the one that was ended."""
        return f"{self.command} --resume" if self.resumes and "--resume" not in self.command else self.command

    @property
    def code(self) -> int:
        """The exit code of the command that nothing ends early."""
        return int(self.target in FAILING)

    @property
    def page(self) -> str:
        """Name of the page of a report."""
        return f"{self.target.removesuffix('-results')}.html"

    @property
    def is_report(self) -> bool:
        """Whether the target is the results of a report, which are written stage by stage."""
        return self.command.startswith("report")


SCENARIOS = (
    Scenario("count", "stats"),
    Scenario("count over", "stats", "other-stats"),
    Scenario("pairs", "pairs"),
    Scenario("pairs over", "pairs", "other-pairs"),
    Scenario("predict over", "prediction", "other-prediction"),
    Scenario("predict over, without exchange of names", "prediction", "other-prediction", exchanges=False),
    Scenario("train", "run", resumes=True),
    Scenario(
        "train --resume",
        "run",
        "unfinished-run",
        ("step-mine/notes.txt", "step-000000000001/notes.txt", ".mine/notes.txt"),
        resumes=True,
    ),
    Scenario("train transformer", "transformer-run", resumes=True),
    Scenario("train transformer --resume", "transformer-run", "unfinished-transformer", resumes=True),
    Scenario("train lstm --resume", "lstm-run", "unfinished-lstm", resumes=True),
    Scenario("simulate over", "simulation", "other-simulation"),
    Scenario("simulate with ties", "placing"),
    Scenario("predict --ties over", "tied", "other-tied"),
    Scenario("predict --loss-gap over", "at-loss", "other-at-loss"),
    Scenario("predict --proxy over", "proxy", "other-proxy"),
    Scenario("predict --embeddings over", "linear", "other-linear"),
    Scenario("rivals over", "rivals", "other-rivals"),
    Scenario("compare-texts over", "texts", "other-texts"),
    Scenario("study over", "findings", "other-findings"),
    Scenario("compare --model over", "checkpoint", "other-checkpoint"),
    Scenario("report --model", "checkpoint-results"),
    Scenario("compare over", "comparison", "other-comparison"),
    Scenario("export over", "exported", "other-exported"),
    Scenario("report", "page-results"),
    Scenario("report over an unfinished one", "page-results", "unfinished-results", (".mine/notes.txt", "notes.txt")),
)
UNFINISHED = {
    "unfinished-run": "train",
    "unfinished-transformer": "train transformer",
    "unfinished-lstm": "train lstm --resume",
    "unfinished-results": "report",
}
"""Older results that were interrupted, and the scenarios whose commands made them."""
MATERIAL = ("other-results", *{name for one in SCENARIOS for name in (one.target, one.old) if name in COMMANDS})
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
    for name in inputs_of(scenario.command):
        material.put(name, place.work / name)
    if scenario.old is not None:
        material.put(scenario.old, place.work / scenario.target)
        if scenario.is_report:
            material.put("unfinished.html", place.work / scenario.page)
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


def in_child(
    scenario: Scenario,
    place: Place,
    stop: Stop,
    log: int | None = None,
    strike: Callable[[], object] | None = None,
) -> None:
    """What happens in the child before the command: snapshots at every record, and the operations are watched.

    At the operation of ``stop`` its signal is sent, or ``strike`` is called.
    """
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
    if stop.when is None:
        return
    struck = strike or partial(os.kill, os.getpid(), stop.signal)
    watched = FileOperations([place.work, place.temporary], stop.when, stop.at, struck, log)
    watched.install()
    leave = sys.exit

    def leaving(code: str | int | None = None) -> None:
        # Nothing that a command does comes after this: a signal here finds it done.
        watched.reached(_EXIT)
        leave(code)

    sys.exit = leaving  # type: ignore[assignment]
    if stop.when == "before":
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
            ended = Fork(PATIENT)(
                shlex.split(scenario.command),
                place,
                before=lambda: in_child(scenario, place, stop, log.fileno()),  # noqa: B023
            )
            if ended.code != scenario.code:
                raise RuntimeError(f"tokengeom {scenario.command} failed undisturbed:\n{ended.err}")
            log.seek(0)
            operations[when] = log.read().decode().split("\n")[:-1]
    return Undisturbed(fingerprint(target), old, listing(place.work, place.temporary), operations, ended.seconds)


def kill_points(known: Undisturbed) -> list[Stop]:
    """Every signal before and after every operation."""
    return [
        Stop(which, when, k)
        for when, found in known.operations.items()
        for k in range(len(found))
        for which in _SIGNALS
    ]


def random_stops(known: Undisturbed, rng: np.random.Generator) -> Iterator[Stop]:
    """Signals at random times."""
    for k in count():
        yield Stop(_SIGNALS[k % len(_SIGNALS)], after=float(rng.uniform(0, 1.05 * known.seconds)))


def kill_once(scenario: Scenario, known: Undisturbed, stop: Stop, material: Material, folder: Path) -> str | None:
    """End a command early and judge what is left; returns what is wrong."""
    place = Place.inside(folder)
    prepare(scenario, material, place)
    before = listing(place.work, place.temporary)
    limits = Limits(signal=stop.signal, after=stop.after) if stop.when is None else Limits()
    fork = Fork()
    ended = fork(shlex.split(scenario.command), place, limits, lambda: in_child(scenario, place, stop))
    return (
        _wrong_death(scenario, ended, stop)
        or _not_whole(scenario, known, place)
        or lost(scenario, place)
        or _left_at_once(scenario, stop, ended, before, place)
        or _not_saved(scenario, known, stop, ended, place)
        or _next_fails(scenario, known, place)
        or lost(scenario, place)
        or _left_over(scenario, known, place)
    )


def _wrong_death(scenario: Scenario, ended: Ended, stop: Stop) -> str | None:
    if stop.signal == signal.SIGKILL and ended.code == -signal.SIGKILL and not ended.hung:
        return None
    return wrong_end(ended, (scenario.code, INTERRUPTED))


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


def _left_at_once(scenario: Scenario, stop: Stop, ended: Ended, before: list[str], place: Place) -> str | None:
    """Work folders that are left right after a signal that could be handled, and a message that names what is not."""
    if stop.signal == signal.SIGKILL:
        return None
    new = set(listing(place.work, place.temporary)) - set(before)
    more = sorted(name for name in new if "/.tokengeom-" in name or name.startswith("temporary/"))
    more = [name for name in more if not _is_probe(name, place)]
    if more:
        return f"left over right after {stop.signal.name}: {', '.join(more[:4])}"
    if scenario.target in ended.err and not (place.work / scenario.target).exists():
        return f"{scenario.target} does not exist, and is named: {excerpt(ended.err)}"
    return None


def _not_saved(scenario: Scenario, known: Undisturbed, stop: Stop, ended: Ended, place: Place) -> str | None:
    """SIGTERM and SIGINT during training must save and say how to go on; with the last record it has ended."""
    operations = known.operations["before"]
    during = stop.when == "before" and operations[stop.at] == RECORD and RECORD in operations[stop.at + 1 :]
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
    wrong = wrong_end(ended, (scenario.code,))
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
    """Interrupted runs and an unfinished report, as older results."""
    for made, name in UNFINISHED.items():
        if made not in wanted or material.path(made).exists():
            continue
        scenario = replace(next(one for one in SCENARIOS if one.name == name), old=None)
        place = Place.inside(folder / name)
        for one in inputs_of(scenario.command):
            material.put(one, place.work / one)
        stop = Stop(signal.SIGINT, "before", _place_of_record(scenario, material, folder / f"{name}-whole", 3))
        ended = Fork(PATIENT)(
            shlex.split(scenario.command),
            place,
            before=lambda: in_child(scenario, place, stop),  # noqa: B023
        )
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
    """``number`` kills and signals: two thirds at file operations, as evenly as scenarios have them."""
    scenarios = prepared(material, folder, quick=quick)
    known = [undisturbed(one, material, folder / f"undisturbed-{k}") for k, one in enumerate(scenarios)]
    points = [kill_points(one) for one in known]
    at_operations = even_shares(round(number * 2 / 3), [len(one) for one in points])
    elsewhere = even_shares(number - sum(at_operations), [number] * len(scenarios))
    found = []
    for scenario, one, every, some, more in zip(scenarios, known, points, at_operations, elsewhere, strict=True):
        rng = generator(seed, f"kills/{scenario.name}")
        stops = [every[k] for k in chosen(some, len(every), rng)] + list(islice(random_stops(one, rng), more))
        for k, stop in enumerate(stops):
            run = partial(kill_once, scenario, one, stop, material)
            found.append(Try(f"kills/{scenario.name}/{k}: {stop.name}", run))
    return found
