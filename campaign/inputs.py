"""Bad inputs: seeded mutations of every format that a command reads, and of the values of options.

Each try changes one input and runs one command that reads it. Clear are: exit code 0; 1 from `verify`; 2 with one
paragraph. A signal, a traceback, a hang, an error that blames tokengeom, control characters on the terminal, and a
changed answer where the change must be noticed are defects.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from campaign.forks import PATIENT, Ended, Fork, Place
from campaign.material import CHECKPOINT, COMMANDS, CUT, MODEL, NETWORK, REPORT, TRAIN, Material, inputs_of
from campaign.mutations import (
    ADDED,
    Generator,
    flipped_bit,
    mutated_arrays,
    mutated_bytes,
    mutated_folder,
    mutated_json,
    mutated_table,
    truncated,
)
from campaign.saved import MANIFEST, rehash
from campaign.tries import Try, excerpt, generator, weighted_shares, wrong_end

MATERIAL = (*(name for name in COMMANDS if name != "judged-results"), MODEL)
QUICK_MATERIAL = ("stats", "other-stats", "prediction", "run")
QUICK = {"text.jsonl", "text.txt.gz", "text.parquet", "text.arrow", "tokenizer.json", "settings.toml", "H.npy"}
"""What is changed where it must be quick, beside this material."""
Change = Callable[[Path, Generator], tuple[str, bool]]
"""Changes an input; returns what was done, and whether it must not change an answer without an error."""


@dataclass(frozen=True)
class Family:
    """An input that is changed in many ways, and the commands that read it.

    where
        inputs     names of the material that the commands need
        changed    the one that is changed
        weight     share of the tries
    """

    name: str
    changed: str
    change: Change
    commands: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    weight: int = 1


# Changes


def _rewrite(path: Path, change: Callable[[bytes, Generator], bytes], rng: Generator) -> None:
    before = path.read_bytes()
    after = change(before, rng)
    path.write_bytes(after if after != before else flipped_bit(before, rng))


def _special(path: Path, rng: Generator) -> str:
    """Something that is not a file under the name of an input."""
    path.unlink()
    choice = int(rng.integers(6))
    if choice == 0:
        os.mkfifo(path)
        return "a named pipe"
    if choice == 1:
        path.mkdir()
        return "an empty folder"
    if choice == 2:
        path.symlink_to("/dev/zero")
        return "a device"
    if choice == 3:
        path.symlink_to(path.name)
        return "a link to itself"
    if choice == 4:
        path.write_bytes(b"")
        return "an empty file"
    return "missing"


def bytes_of_file(path: Path, rng: Generator) -> tuple[str, bool]:
    """Any bytes of a file, which then holds other data or is damaged."""
    if rng.integers(25) == 0:
        return _special(path, rng), False
    _rewrite(path, mutated_bytes, rng)
    return "bytes", False


def checked_bytes(path: Path, rng: Generator) -> tuple[str, bool]:
    """Bytes of a compressed file that has checksums: the damage must be noticed."""
    _rewrite(path, truncated if rng.integers(3) == 0 else mutated_bytes, rng)
    return "bytes under a checksum", True


def bytes_without_checksum(path: Path, rng: Generator) -> tuple[str, bool]:
    """Bytes of a compressed file without checksums: only that it is incomplete must be noticed."""
    cut = rng.integers(3) == 0
    _rewrite(path, truncated if cut else mutated_bytes, rng)
    return "truncated" if cut else "bytes", bool(cut)


def json_line(path: Path, rng: Generator) -> tuple[str, bool]:
    """One line of JSON lines."""
    if rng.integers(3) == 0:
        return bytes_of_file(path, rng)
    lines = path.read_bytes().splitlines(keepends=True)
    k = int(rng.integers(len(lines)))
    lines[k] = mutated_json(lines[k], rng) + b"\n"
    path.write_bytes(b"".join(lines))
    return f"line {k + 1}", False


def json_file(path: Path, rng: Generator) -> tuple[str, bool]:
    """A JSON file: its structure or its bytes."""
    if rng.integers(4) == 0:
        return bytes_of_file(path, rng)
    _rewrite(path, mutated_json, rng)
    return "structure", False


def parquet_table(path: Path, rng: Generator) -> tuple[str, bool]:
    """The columns of a Parquet file, or its bytes."""
    import pyarrow.parquet as pq

    if rng.integers(3):
        return bytes_of_file(path, rng)
    pq.write_table(mutated_table(pq.read_table(path), rng), path)
    return "columns", False


def arrays_file(path: Path, rng: Generator) -> tuple[str, bool]:
    """The arrays of a safetensors file, or its bytes."""
    from safetensors.numpy import load_file, save_file

    if rng.integers(2):
        return bytes_of_file(path, rng)
    save_file(mutated_arrays(load_file(path), rng), path)
    return "arrays", False


def toml_file(path: Path, rng: Generator) -> tuple[str, bool]:
    """A settings file: one value replaced, or its bytes."""
    if rng.integers(3) == 0:
        return bytes_of_file(path, rng)
    lines = path.read_text().splitlines()
    k = int(rng.choice([k for k, line in enumerate(lines) if "=" in line]))
    values = (
        "-1",
        "0",
        "1e999",
        "nan",
        "true",
        '"x"',
        "[1, 2]",
        "{a = 1}",
        "2020-01-01",
        "[" * 5000,
        '"\\u001b[31m"',
        "",
    )
    name, value = lines[k].split(" = ")[0], values[int(rng.integers(len(values)))]
    lines[k] = f"{name} = {value}" if rng.integers(3) else f'"{name}\\u001b[2J" = {value or 1}'
    path.write_text("\n".join(lines))
    return lines[k][:60], False


def saved_folder(path: Path, rng: Generator) -> tuple[str, bool]:
    """A saved result: without new hashes the change must be noticed; with them nothing may crash."""
    done = mutated_folder(path, rng)
    if done == ADDED and not (path / MANIFEST).is_file():
        # The folder of a run holds its snapshots, and may hold files of the user's.
        return done, False
    if rng.integers(2) == 0 and _rehash_where_possible(path):
        return f"{done}, hashes made anew", False
    return done, True


def _rehash_where_possible(folder: Path) -> bool:
    if (folder / MANIFEST).is_symlink() or not (folder / MANIFEST).is_file():
        return False
    try:
        rehash(folder)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        # The manifest itself is damaged.
        return False
    return True


def model_folder(path: Path, rng: Generator) -> tuple[str, bool]:
    """A checkpoint in the Hugging Face format."""
    return mutated_folder(path, rng), False


# Families

_COUNT = f"{CUT} --memory 1GB"
_PLACE = "place {} 'the ball' 'the zebra'"
_COMPARE = "compare prediction run --permutations 20"
_RESULTS = {
    "stats": (
        "verify stats",
        "predict stats --proxy --components 2",
        "predict stats",
        "train stats --dim 3 --steps 3",
        "export prediction --stats stats --out new",
        f"report stats --out new.html {REPORT} --estimate",
        "compare-texts stats other-stats --permutations 20",
    ),
    "pairs": ("verify pairs", "count pairs", "count pairs --pairs new"),
    "prediction": ("verify prediction", _COMPARE, "export prediction --stats stats --out new"),
    "proxy": ("verify proxy", "compare proxy run --permutations 20", "export proxy --stats stats --out new"),
    "at-loss": ("verify at-loss", "export at-loss --stats stats --out new"),
    "at-loss-gamma2": ("verify at-loss-gamma2",),
    "linear": ("verify linear",),
    "tied": ("verify tied", _PLACE.format("tied"), "compare tied lstm-run --permutations 20", "explain tied ball"),
    "placing": ("verify placing", _PLACE.format("placing"), "compare placing lstm-run --permutations 20"),
    "simulation": ("verify simulation", "neighbours simulation ball", "export simulation --stats stats --out new"),
    "transformer-run": (
        "verify transformer-run",
        f"train deep-stats --model transformer --heads 2 {NETWORK} --resume --out transformer-run",
        "compare tied transformer-run --permutations 20",
        "simulate deep-stats --like transformer-run --ties positions+self --replicates 1 --steps 5",
    ),
    "lstm-run": ("verify lstm-run", "compare tied lstm-run --permutations 20", "neighbours lstm-run 'the ball'"),
    "tied-comparison": ("verify tied-comparison",),
    "checkpoint": ("verify checkpoint",),
    "run": ("verify run", _COMPARE, f"train stats {TRAIN} --resume --out run", "export run --stats stats --out new"),
    "comparison": ("verify comparison",),
    "rivals": ("verify rivals",),
    "texts": ("verify texts",),
    "exported": ("verify exported",),
    "vectors": ("verify vectors", "compare prediction --arrays vectors --permutations 20"),
    "arrays": ("verify arrays", "compare prediction --arrays arrays --permutations 20"),
    "findings": ("verify findings",),
    "checkpoint-results": ("verify checkpoint-results", f"report words.txt --out checkpoint.html {CHECKPOINT}"),
    "page-results": ("verify page-results", f"report text.txt --out page.html {REPORT}"),
}


def families() -> list[Family]:
    """Every input that is changed."""
    corpora = {
        "text.txt": (bytes_of_file, 6),
        "text.jsonl": (json_line, 6),
        "text.txt.gz": (checked_bytes, 4),
        "text.jsonl.bz2": (checked_bytes, 3),
        "text.txt.xz": (checked_bytes, 3),
        "text.txt.zst": (bytes_without_checksum, 3),
        "text.txt.lz4": (bytes_without_checksum, 3),
        "text.parquet": (parquet_table, 8),
        "text.arrow": (bytes_of_file, 8),
        "text.bin": (bytes_of_file, 2),
    }
    found = [
        Family(f"corpus {name}", name, change, _corpus_commands(name), (name,), weight)
        for name, (change, weight) in corpora.items()
    ]
    tokenizer = "count text.txt --context 1 --top-contexts 12 --vocabulary 10 --tokenizer tokenizer.json"
    ids = f"{tokenizer} --dtype uint16".replace("text.txt", "text.bin")
    linear = ("predict stats --embeddings {}", "train stats --model linear --embeddings {} --steps 3")
    arrays = ("compare prediction --arrays arrays.safetensors --permutations 20",)
    both = ("stats", "prediction")
    settings = ("--settings settings.toml count text.txt", "--settings settings.toml train stats")
    found += [
        Family("tokenizer", "tokenizer.json", json_file, (tokenizer, ids), ("text.txt", "text.bin"), 8),
        Family("settings file", "settings.toml", toml_file, settings, ("text.txt", "stats"), 4),
        Family("npy", "H.npy", bytes_of_file, tuple(one.format("H.npy") for one in linear), both, 3),
        Family("safetensors", "H.safetensors", arrays_file, tuple(x.format("H.safetensors") for x in linear), both, 3),
        Family("W and H", "arrays.safetensors", arrays_file, arrays, both, 3),
    ]
    of_model = (f"compare {CHECKPOINT} --text words.txt", f"report words.txt --out new.html {CHECKPOINT}")
    found.append(Family("checkpoint", MODEL, model_folder, of_model, ("words.txt",), 3))
    for name, commands in _RESULTS.items():
        weight = 9 if name in ("stats", "prediction", "run", "page-results") else 4
        read = dict.fromkeys(one for command in commands for one in inputs_of(command))
        beside = (*read, f"{name.removesuffix('-results')}.html")
        found.append(Family(f"saved {name}", name, saved_folder, commands, beside, weight))
    return found


def _corpus_commands(name: str) -> tuple[str, ...]:
    base = f"count {name} {_COUNT}"
    if name.endswith((".parquet", ".arrow")):
        return (base, f"count {name} --context 1 --column tokens")
    return (base, f"{base} --errors replace") if name in ("text.txt", "text.jsonl") else (base,)


# Tries


def answer(ended: Ended) -> Any:
    """What a command printed as JSON, without times and names of files."""
    try:
        return _lasting(json.loads(ended.out))
    except ValueError:
        return ended.out


_OF_ONE_RUN = {"seconds", "made", "out", "hash", "seal", "saved", "page", "results", "pairs"}


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _lasting(one) for name, one in value.items() if name not in _OF_ONE_RUN}
    return [_lasting(one) for one in value] if isinstance(value, list) else value


def run_family(
    family: Family, command: str, known: Any, seed: int, name: str, material: Material, folder: Path
) -> str | None:
    """Change the input and run the command; returns what is wrong."""
    rng = generator(seed, name)
    place = Place.inside(folder)
    for one in {*family.inputs, family.changed}:
        if material.path(one).exists():
            material.put(one, place.work / one)
    before = _contents(place.work / family.changed)
    done, strict = _changed(family, rng, place)
    # A number that is replaced by itself, such as NaN by NaN, leaves the file as it was.
    strict = strict and _contents(place.work / family.changed) != before
    as_json = strict or bool(rng.integers(2))
    ended = Fork()([*shlex.split(command), *(["--json"] if as_json else [])], place)
    return judged(ended, command, done, strict, known)


def _contents(path: Path) -> dict[str, bytes] | None:
    """The bytes of every plain file that a path stands for; None for something else, which is never the same."""
    files = [path] if path.is_file() else sorted(path.rglob("*")) if path.is_dir() else None
    return None if files is None else {str(one): one.read_bytes() for one in files if one.is_file()}


def _changed(family: Family, rng: Generator, place: Place) -> tuple[str, bool]:
    """Make the change in a child: libraries that write tables start threads, and a process that forks has none."""

    def action() -> int:
        sys.stdout.write(json.dumps(family.change(Path(family.changed), rng)))
        return 0

    ended = Fork().run(action, place)
    if ended.code:
        raise RuntimeError(f"the input could not be changed: {excerpt(ended.err)}")
    done, strict = json.loads(ended.out)
    return str(done), bool(strict)


def judged(ended: Ended, command: str, done: str, strict: bool = False, known: Any = None) -> str | None:
    """What is wrong with the end of a command; ``known`` is the only answer that it may give where ``strict``."""
    verifies = "verify" in command.split()
    # A training that diverges and a study whose numbers are not in their ranges end with 1, like a check that fails.
    wrong = wrong_end(ended, (0, 1, 2) if {"verify", "train", "study"} & set(command.split()) else (0, 2))
    if wrong is None and strict and ended.code == 0:
        if verifies:
            wrong = "verify passes"
        elif answer(ended) != known:
            wrong = f"another answer without an error: {excerpt(ended.out)}"
    return f"{done}; {command}: {wrong}" if wrong else None


def known_answers(found: list[Family], material: Material, folder: Path) -> tuple[dict[str, Any], list[Try]]:
    """The answer of every command to unchanged inputs; a try that fails for each command that does not give one."""
    commands = {command: family for family in found for command in family.commands if "verify" not in command}
    known: dict[str, Any] = {}
    failed = []
    for k, (command, family) in enumerate(commands.items()):
        place = Place.inside(folder / str(k))
        for one in {*family.inputs, family.changed}:
            if material.path(one).exists():
                material.put(one, place.work / one)
        ended = Fork(PATIENT)([*shlex.split(command), "--json"], place)
        known[command] = answer(ended)
        if ended.code:
            failed.append(Try(f"inputs/unchanged/{command}", partial(_always, wrong_end(ended, (0,)))))
        shutil.rmtree(folder / str(k))
    return known, failed


def _always(wrong: str | None, folder: Path) -> str | None:
    return wrong


def tries(material: Material, seed: int, number: int, folder: Path, *, quick: bool = False) -> list[Try]:
    """``number`` bad inputs, shared among the families by weight; a tenth are options, a fifth values from Python."""
    from campaign.conditions import condition_tries
    from campaign.foreign import foreign_tries
    from campaign.options import option_tries
    from campaign.python_values import python_tries

    wanted = {*QUICK, *QUICK_MATERIAL} if quick else {*MATERIAL, *(one.changed for one in families())}
    found = [one for one in families() if one.changed in wanted]
    known, tried = known_answers(found, material, folder)
    tried += option_tries(material, seed, round(number / 10), quick=quick)
    tried += python_tries(material, seed, round(number / (10 if quick else 5)), quick=quick)
    tried += condition_tries(material, seed, round(number / 50), quick=quick)
    tried += [] if quick else foreign_tries(material)
    each = weighted_shares(max(0, number - len(tried)), [one.weight for one in found])
    for family, some in zip(found, each, strict=True):
        for k in range(some):
            name = f"inputs/{family.name}/{k}"
            command = family.commands[k % len(family.commands)]
            tried.append(Try(name, partial(run_family, family, command, known.get(command), seed, name, material)))
    return tried
