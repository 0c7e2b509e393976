"""Commands under awkward conditions: file modes, files that may not be read, little memory, and text that is not tame.

Clear are: modes that follow the umask; an error that speaks of permission, and not of damage;
a result or one paragraph where memory runs out; and exported cells and pages that no program computes or reverses.
"""

from __future__ import annotations

import ctypes
import os
import re
import shlex
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

from campaign.foreign import FOLDERS
from campaign.forks import Fork, Limits, Place
from campaign.material import CHECKPOINT, CUT, FAILING, REPORT, Material, command_to, inputs_of
from campaign.tries import CONTROL, Try, excerpt, generator, wrong_end

UMASKS = (0o000, 0o002, 0o022, 0o027, 0o077)
MEMORY = tuple(megabytes << 20 for megabytes in (128, 192, 256, 384, 512))
"""Bytes beyond those of a process that has imported everything; with less, OpenBLAS ends the process or hangs."""
LARGE = {
    "count": "count text.txt --context 30 --out target -q",
    "train": "train stats --dim 3000000 --steps 2 --out target -q",
    "transformer": "train stats --model transformer --dim 4096 --layers 2 --heads 2 --steps 1 --out target -q",
    "lstm": "train deep-stats --model lstm --dim 8192 --layers 2 --steps 1 --out target -q",
    "simulate": "simulate stats --like run --dim 2000000 --replicates 2 --steps 2 --out target -q",
    "compare": "compare prediction run --permutations 900000 --out target -q",
    "compare --model": f"compare {CHECKPOINT} --text words.txt --permutations 900000 --out target -q",
    "rivals": "rivals stats run --explanations pmi --permutations 900000 --out target -q",
    "compare-texts": "compare-texts stats other-stats --permutations 900000 --out target -q",
    "report": f"report text.txt --out target.html {REPORT} --dim 2000000 -q",
}
"""Commands that need more memory than they get."""
QUICK = ("prediction", "run")
_PERMISSION = re.compile("permission|may not be|not readable", re.IGNORECASE)
_BLAME = re.compile("damaged|not a saved|defect", re.IGNORECASE)
_CAPABILITIES = 0x20080522
"""Version of the system's call that sets what root may do."""


def _target(kind: str) -> str:
    return "target-results" if kind.endswith("-results") else "target"


def _prepared(kind: str, material: Material, folder: Path) -> tuple[list[str], Place]:
    place, command = Place.inside(folder), command_to(kind, _target(kind))
    for name in inputs_of(command):
        material.put(name, place.work / name)
    return shlex.split(command), place


def under_umask(kind: str, umask: int, material: Material, folder: Path) -> str | None:
    """Every file that a command writes has the mode that the umask gives; returns what is wrong."""
    command, place = _prepared(kind, material, folder)
    before = set(place.work.rglob("*"))
    wrong = wrong_end(Fork()(command, place, before=lambda: os.umask(umask)), (int(kind in FAILING),))
    for path in sorted(set(place.work.rglob("*")) - before):
        mode, wanted = stat.S_IMODE(path.stat().st_mode), (0o777 if path.is_dir() else 0o666) & ~umask
        if mode != wanted:
            wrong = wrong or f"{path.relative_to(place.work)} has the mode {mode:o} instead of {wanted:o}"
    return wrong


def lose_rights() -> None:
    """Let modes hold for root too."""
    if os.geteuid() == 0:
        header, none = (ctypes.c_uint32 * 2)(_CAPABILITIES, 0), (ctypes.c_uint32 * 6)()
        if ctypes.CDLL(None).capset(header, none):
            raise OSError("root keeps its rights")


def without_permission(kind: str, which: float, mode: int, material: Material, folder: Path) -> str | None:
    """Something that a command reads, or the folder that it writes to, has this mode; returns what is wrong."""
    command, place = _prepared(kind, material, folder)
    everything = [place.work, *sorted(place.work.rglob("*"))]
    path = everything[int(which * len(everything))]
    # Where the current folder may not be entered, nothing in it can be said to exist.
    mode = 0o555 if path == place.work else mode
    before = path.stat().st_mode
    path.chmod(mode)
    ended = Fork()(command, place, before=lose_rights)
    path.chmod(before)
    what = f"{path.relative_to(place.work)} with the mode {mode:o}"
    wrong = wrong_end(ended, (0, 2, int(kind in FAILING)))
    if wrong is None and ended.code == 2 and (not _PERMISSION.search(ended.err) or _BLAME.search(ended.err)):
        wrong = f"permission is not what the error is about: {excerpt(ended.err)}"
    return f"{what}: {wrong}" if wrong else None


def with_memory(command: str, memory: int, material: Material, folder: Path) -> str | None:
    """Run with little memory: a result, or one paragraph, and then no result."""
    place = Place.inside(folder)
    for name in inputs_of(command):
        material.put(name, place.work / name)
    ended = Fork()(shlex.split(command), place, Limits(memory=memory))
    # The stages of a report are kept for the next one.
    kept = ended.code == 0 or command.startswith("report")
    left = [] if kept else [path.name for path in place.work.glob("*target*")]
    return wrong_end(ended) or (f"left over: {', '.join(left)}" if left else None)


# Text that is not tame

_TOKENS = (
    "=1+2",
    "+cmd|x",
    "-2+3",
    "@SUM(A1)",
    "\u202egpj.exe",
    "\u2066inner",
    "\u200fright",
    "a,b",
    '"q"',
    "<b>x",
    "=",
    "it",
)
_DIRECTION = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_FORMULA = re.compile(r"[=+\-@\t\r].")
EXPORTS = ("projector", "word2vec", "numpy")
_TEXT = "\u202egpj.=1+2.txt"


def awkward_text(place: Place) -> None:
    """A text whose tokens are formulas and controls of the writing direction; so is its name."""
    # Each token is followed by three others, so that contexts have different supports.
    rng, k, words = generator(0, "awkward text"), 0, []
    for step in rng.integers(3, size=1200):
        k = (2 * k + int(step)) % len(_TOKENS)
        words.append(_TOKENS[k])
    lines = [" ".join(words[begin : begin + 60]) for begin in range(0, len(words), 60)]
    (place.work / _TEXT).write_text("\n\n".join(lines), encoding="utf-8")


def exported(form: str, items: str, material: Material, folder: Path) -> str | None:
    """Export the awkward text in one format; returns the first cell or name that is not as it must be."""
    place = Place.inside(folder)
    awkward_text(place)
    for command in (
        f"count '{_TEXT}' --tokenizer whitespace {CUT} --out stats -q",
        "predict stats --proxy --components 2 --out result -q",
        f"export result --stats stats --format {form} --items {items} --out new -q",
    ):
        if wrong := wrong_end(Fork()(shlex.split(command), place), (0,)):
            return f"{command}: {wrong}"
    read, refused = READ[form]
    cells = {path.name: read(path) for path in sorted((place.work / "new").iterdir()) if path.suffix in _TABLES}
    if not any(cells.values()) or len(cells) % (2 if items == "both" else 1):
        return f"no names were found in {', '.join(path.name for path in (place.work / 'new').iterdir())}"
    for file, found in cells.items():
        for one in found:
            if refused(one):
                return f"{file} has the cell {one!a}"
    begins = {one[:1] for found in cells.values() for one in found}
    if form != "projector" and items != "contexts" and not begins >= set("=+-"):
        return f"words do not keep their first characters: {sorted(begins)!a}"
    return None


def _cells_of_table(path: Path) -> list[str]:
    return [cell for line in path.read_text(encoding="utf-8").splitlines() for cell in line.split("\t")]


def _words_of_vectors(path: Path) -> list[str]:
    """The words of a file of word2vec; a line that has more or less than one word and its numbers, as a whole."""
    first, *lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    number, size = map(int, first.split(" "))
    whole = len(lines) == number
    return [line.split(" ")[0] if whole and len(line.split(" ")) == size + 1 else f"\0{line}" for line in lines]


def _names_of_arrays(path: Path) -> list[str]:
    import numpy as np

    with np.load(path) as arrays:
        return [str(name) for name in arrays["names"]]


_TABLES = (".tsv", ".txt", ".npz")
READ: dict[str, tuple[Callable[[Path], list[str]], Callable[[str], object]]] = {
    "projector": (
        _cells_of_table,
        lambda one: _DIRECTION.search(one) or (_FORMULA.match(one) and not _is_number(one)),
    ),
    "word2vec": (_words_of_vectors, lambda one: _DIRECTION.search(one) or CONTROL.search(one)),
    "numpy": (_names_of_arrays, lambda one: CONTROL.search(one) or "\n" in one),
}
"""How the names in a file of each format are read, and what must not be among them."""


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def awkward_page(material: Material, folder: Path) -> str | None:
    """The page of the awkward text has no control of the writing direction in its title."""
    place = Place.inside(folder)
    awkward_text(place)
    ended = Fork()(shlex.split(f"report '{_TEXT}' --tokenizer whitespace --out page.html {REPORT} -q"), place)
    if wrong := wrong_end(ended, (0,)):
        return wrong
    page = (place.work / "page.html").read_text(encoding="utf-8")
    title = page[page.index("<title>") : page.index("</title>")]
    return f"the page's title is {title!a}" if _DIRECTION.search(title) else None


def condition_tries(material: Material, seed: int, number: int, *, quick: bool = False) -> list[Try]:
    """Every umask, limit of the memory and export, and ``number`` files without permission."""
    kinds = QUICK if quick else FOLDERS
    found = []
    for kind in kinds:
        for umask in (0o027,) if quick else UMASKS:
            found.append(Try(f"inputs/modes/{kind} under {umask:03o}", partial(under_umask, kind, umask, material)))
    for name, command in {"train": LARGE["train"]}.items() if quick else LARGE.items():
        for memory in MEMORY[:1] if quick else MEMORY:
            run = partial(with_memory, command, memory, material)
            found.append(Try(f"inputs/little memory/{name} in {memory >> 20} MB", run))
    rng = generator(seed, "inputs/permissions")
    for k in range(number):
        kind, mode = kinds[k % len(kinds)], (0o000, 0o555, 0o222)[k // len(kinds) % 3]
        run = partial(without_permission, kind, float(rng.random()), mode, material)
        found.append(Try(f"inputs/permissions/{k}: {kind}", run))
    for form in EXPORTS[:1] if quick else EXPORTS:
        for items in ("both",) if quick else ("tokens", "contexts", "both"):
            found.append(Try(f"inputs/exports/{form}, {items}", partial(exported, form, items, material)))
    return found if quick else [*found, Try("inputs/exports/page", partial(awkward_page, material))]
