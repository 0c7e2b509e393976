"""Two commands that write to one place: the second one runs while the first one waits at a file operation.

Clear is: each of them ends with its result or with one paragraph; the target is the whole result of one that ended with
0; a training or a report that was under way is not lost; nothing of the user's is, and nothing is left over.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
from dataclasses import asdict
from functools import partial
from pathlib import Path

from campaign.file_operations import RECORD
from campaign.forks import Ended, Fork, Place, end_with_parent
from campaign.kills import Scenario, Stop, Undisturbed, in_child, lost, prepare, undisturbed
from campaign.material import Material, command_to, inputs_of
from campaign.saved import fingerprint, listing
from campaign.tries import Try, chosen, even_shares, excerpt, generator, wrong_end

PAIRS = (
    ("stats", "other-stats"),
    ("pairs", "other-pairs"),
    ("prediction", "other-prediction"),
    ("run", "run-2"),
    ("simulation", "other-simulation"),
    ("comparison", "other-comparison"),
    ("rivals", "other-rivals"),
    ("texts", "other-texts"),
    ("at-loss", "other-at-loss"),
    ("tied", "other-tied"),
    ("linear", "other-linear"),
    ("findings", "other-findings"),
    ("transformer-run", "lstm-run"),
    ("checkpoint", "other-checkpoint"),
    ("checkpoint-results", "page-results"),
    ("exported", "other-exported"),
    ("page-results", "other-results"),
    ("proxy", "prediction"),
    ("prediction", "stats"),
    ("run", "stats"),
    ("comparison", "run"),
    ("exported", "run-2"),
)
"""Results of the two commands; both write to a folder with the name of the first."""
LATE = ("run", "transformer-run", "page-results", "checkpoint-results")
QUICK = (("prediction", "other-prediction"), ("run", "run-2"))
MATERIAL = tuple({name for pair in PAIRS for name in pair})
QUICK_MATERIAL = ("stats", "other-stats", "prediction", "other-prediction", "run", "run-2")


def write_both(first: str, second: str, at: int, known: Undisturbed, material: Material, folder: Path) -> str | None:
    """Run the second command at an operation of the first; returns what is wrong."""
    place, scenario = Place.inside(folder), Scenario(first, first)
    prepare(scenario, material, place)
    for name in inputs_of(command_to(second, first)):
        material.put(name, place.work / name)
    before = listing(place.work, place.temporary)
    ended = _run_both(scenario, command_to(second, first), at, place, folder)
    target = place.work / first
    results = {
        k: known.new if k == 0 else fingerprint(material.path(second)) for k in (0, 1) if ended[k].code == scenario.code
    }
    wrong = next(filter(None, (wrong_end(one, (scenario.code, 2)) for one in ended)), None) or lost(scenario, place)
    said = f"exit codes {ended[0].code} and {ended[1].code}"
    if wrong:
        return f"{said}: {wrong}"
    if not target.exists() or fingerprint(target) not in results.values():
        return f"{said}, and {first} is not the result of one that was saved: {excerpt(ended[0].err + ended[1].err)}"
    # A training or a report may be replaced until it has something to lose; others make and open their lock first.
    begun = RECORD in known.operations["before"][:at] if first in LATE else at > 1
    if len(results) == 2 and begun:
        return f"{said}: two results were saved, and one is lost: {excerpt(ended[0].err + ended[1].err)}"
    more = sorted(set(listing(place.work, place.temporary)) - set(before))
    more = [name for name in more if not name.startswith((f"work/{first}/", f"work/{scenario.page}"))]
    if more:
        return f"left over: {', '.join(more[:4])}"
    checked = Fork()(["verify", first, "-q"], place)
    return None if checked.code == 0 else f"verify {first} failed: {excerpt(checked.err + checked.out)}"


def _run_both(scenario: Scenario, second: str, at: int, place: Place, folder: Path) -> tuple[Ended, Ended]:
    """The first command waits at its operation until the second one has ended, or waits for a lock itself."""
    reached, goes_on = os.pipe(), os.pipe()

    def wait() -> None:
        os.write(reached[1], b".")
        os.read(goes_on[0], 1)

    def pass_locks() -> None:
        import fcntl

        lock = fcntl.flock

        def flock(file: int, how: int) -> None:
            try:
                lock(file, how | fcntl.LOCK_NB)
            except BlockingIOError:
                if how & fcntl.LOCK_NB:
                    raise
                os.write(goes_on[1], b".")
                lock(file, how)

        fcntl.flock = flock

    # A process of its own runs the first command: this one must have no threads, and runs the second.
    helper = os.fork()
    if helper == 0:
        end_with_parent()
        stop = Stop(signal.SIGKILL, "before", at)
        one = Fork()(shlex.split(scenario.command), place, before=lambda: in_child(scenario, place, stop, strike=wait))
        (folder / "first.json").write_text(json.dumps(asdict(one)))
        os._exit(0)
    os.close(reached[1])
    os.read(reached[0], 1)
    two = Fork()(shlex.split(second), place, before=pass_locks)
    os.write(goes_on[1], b".")
    os.waitpid(helper, 0)
    return Ended(**json.loads((folder / "first.json").read_bytes())), two


def tries(material: Material, seed: int, number: int, folder: Path, *, quick: bool = False) -> list[Try]:
    """``number`` pairs of commands, as evenly over the pairs as the first has operations."""
    pairs = QUICK if quick else PAIRS
    known = {
        one: undisturbed(Scenario(one, one), material, folder / one)
        for one in dict.fromkeys(first for first, _ in pairs)
    }
    # The last operation is the exit: from there on one command follows the other.
    places = [len(known[first].operations["before"]) - 1 for first, _ in pairs]
    found = []
    for (first, second), of, some in zip(pairs, places, even_shares(number, places), strict=True):
        name = f"writers/{first} and {second}"
        for at in chosen(some, of, generator(seed, name)):
            run = partial(write_both, first, second, at, known[first], material)
            found.append(Try(f"{name}/at operation {at}", run))
    return found
