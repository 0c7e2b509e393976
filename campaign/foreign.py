"""Outputs over what is not ours: whatever lies under the name of an output is refused, or nothing of it is lost."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from campaign.forks import Fork, Place
from campaign.inputs import judged
from campaign.material import REPORT, Material, command_to, inputs_of
from campaign.tries import Try

NOTE = "This is mine.\n"
# fmt: off
FOLDERS = (
    "stats", "pairs", "prediction", "at-loss", "proxy", "linear", "tied", "run", "transformer-run", "lstm-run",
    "simulation", "placing", "comparison", "checkpoint", "rivals", "texts", "exported", "findings", "page-results",
    "checkpoint-results",
)
# fmt: on
"""Results whose command writes a folder."""
FILES = {
    "page": f"report text.txt --out {{}} {REPORT} -q",
    "stories": "stories {} --words 50 -q",
    "figure": "rivals stats run --explanations proxy --figure {} -q",
}
"""Commands that write a file."""


def _a_file(target: Path, older: Path) -> None:
    target.write_text(NOTE)


def _a_folder(target: Path, older: Path) -> None:
    target.mkdir()
    (target / "notes.txt").write_text(NOTE)


def _a_link(target: Path, older: Path) -> None:
    _a_folder(target.with_name("elsewhere"), older)
    target.symlink_to("elsewhere")


def _a_link_to_a_file(target: Path, older: Path) -> None:
    target.with_name("elsewhere.txt").write_text(NOTE)
    target.symlink_to("elsewhere.txt")


def _a_pipe(target: Path, older: Path) -> None:
    os.mkfifo(target)


def _added(add: Callable[[Path], object]) -> Callable[[Path, Path], None]:
    def plant(target: Path, older: Path) -> None:
        shutil.copytree(older, target, symlinks=True)
        add(target)

    return plant


PLANTS: dict[str, Callable[[Path, Path], None]] = {
    "a file": _a_file,
    "a folder": _a_folder,
    "a link to a folder": _a_link,
    "a link to a file": _a_link_to_a_file,
    "a pipe": _a_pipe,
    "an older result with a file added": _added(lambda target: (target / "notes.txt").write_text(NOTE)),
    "an older result with a folder added": _added(lambda target: (target / "mine").mkdir()),
    "an older result with a link added": _added(lambda target: (target / "link").symlink_to("/etc/hostname")),
    "a result of another kind": _added(lambda target: None),
}
ONLY_FOLDERS = [name for name in PLANTS if name.startswith("an older")]


def contents(folder: Path) -> dict[str, str]:
    """What is in a folder: the content of files, and what everything else is."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_file():
            found[name] = path.read_bytes().decode("latin-1")
        else:
            found[name] = "pipe" if path.is_fifo() else "folder"
    return found


def write_over(command: str, older: str, plant: str, target: str, material: Material, folder: Path) -> str | None:
    """Run a command whose output lies over something of the user's; returns what is wrong."""
    place = Place.inside(folder)
    for name in inputs_of(command):
        material.put(name, place.work / name)
    PLANTS[plant](place.work / target, material.path(older))
    before = contents(place.work)
    ended = Fork()(shlex.split(command), place)
    after = contents(place.work)
    gone = [name for name, content in before.items() if after.get(name) != content]
    if ended.code in (0, 1) and plant in ONLY_FOLDERS:
        # Files of the older result may be replaced; what was added to it may not.
        own = {f"{target}/{name}" for name in contents(material.path(older))}
        gone = [name for name in gone if name not in own]
    if gone:
        return f"exit code {ended.code}, and these were changed or removed: {', '.join(gone[:4])}"
    return judged(ended, command, plant)


def foreign_tries(material: Material) -> list[Try]:
    """Every command with an output, over everything that may lie there."""
    found = []
    for kind in FOLDERS:
        target = "target-results" if kind.endswith("-results") else "target"
        for plant in PLANTS:
            other = "prediction" if kind == "stats" else "stats"
            older = other if plant == "a result of another kind" else kind
            run = partial(write_over, command_to(kind, target), older, plant, target, material)
            found.append(Try(f"inputs/output over what is not ours/{kind}: {plant}", run))
    for kind, command in FILES.items():
        target = {"page": "target.html", "stories": "target.txt", "figure": "target.svg"}[kind]
        for plant in (name for name in PLANTS if name not in ONLY_FOLDERS and "another kind" not in name):
            run = partial(write_over, command.format(target), "stats", plant, target, material)
            found.append(Try(f"inputs/output over what is not ours/{kind}: {plant}", run))
    return found
