"""Values of options and arguments: all of every command, with values of the wrong kind, size or shape."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import Any

from campaign.forks import Fork, Place
from campaign.inputs import judged
from campaign.material import REPORT, Material
from campaign.tries import Try, generator

COMMANDS = {
    "count": "count text.txt --context 1 --top-contexts 12 --vocabulary 10",
    "predict": "predict stats",
    "train": "train stats --dim 3 --steps 3",
    "compare": "compare prediction run --permutations 20",
    "rivals": "rivals stats run --explanations proxy",
    "compare-texts": "compare-texts stats other-stats --permutations 20",
    "cite": "cite",
    "explain": "explain prediction the --run run",
    "export": "export prediction --stats stats --out new",
    "neighbours": "neighbours prediction the",
    "place": "place tied 'the ball' --stats deep-stats",
    "report": f"report text.txt --out new.html {REPORT}",
    "simulate": "simulate stats --like run --replicates 1 --steps 5",
    "stories": "stories new.txt --words 50",
    "verify": "verify stats",
    "study": "study linear-2d --set steps=20 --no-save",
}
"""A command line that works for every command."""
INPUTS = ("text.txt", "stats", "other-stats", "deep-stats", "prediction", "tied", "run", "words.txt", "model", "H.npy")
# fmt: off
_SMALL = (
    "-1", "0", "1", "2", "nan", "inf", "-inf", "", "x", "½", "1e-320", "-9223372036854775809", "\x1b[31m1", "0x10",
)
# fmt: on
# fmt: off
_TEXTS = (
    "", "x", "\x1b]0;t\x07", "../..", "/dev/zero", "a" * 5000, "{", "[1", "bpe:", "bpe:-1", "bpe:x", "top-p:2",
    "count:-1", "positions+", "nan*self", "-1*self+suffixes",
)
# fmt: on
# fmt: off
_PATHS = (
    "", "missing", "text.txt", "stats", "/dev/null", "/proc/self/mem", "a" * 300, "\x1b[31m", "model", "x/y",
    "text.txt/x", "s3://bucket/x.parquet", "https://example.org/x",
)
# fmt: on
_LARGE = "999999999999"
_MAY_BE_LARGE = {"dim", "vocabulary", "top-contexts", "components", "context", "min-count", "max-vocabulary", "batch"}
"""Options whose size is refused at once where it does not fit; others would rightly take for ever."""
# fmt: off
_NOT_TRIED = {
    "engine", "master", "compiled", "preset", "device", "help", "install-completion", "show-completion", "debug",
}
# fmt: on
"""Options that start other programs, compilers or hours of work, and those that print help."""


def _values(kind: str, name: str) -> tuple[str, ...]:
    if "int" in kind or "float" in kind:
        return (*_SMALL, _LARGE) if name in _MAY_BE_LARGE else _SMALL
    return _PATHS if "Path" in kind else _TEXTS


def option_values() -> list[list[str]]:
    """Every command line with one option set, or one argument replaced; flags are not set.

    Commands, options and arguments are those of the command line itself.
    """
    import typer

    from tokengeom.cli import app

    app.add_commands()
    known: Any = typer.main.get_command(app.app)
    found = []
    for name, command in known.commands.items():
        words = shlex.split(COMMANDS[name])
        given = command.make_context(name, words[1:], resilient_parsing=True).params
        for parameter in command.params:
            option = max((one for one in parameter.opts if one.startswith("-")), key=len, default="")
            if option.lstrip("-") in _NOT_TRIED or getattr(parameter, "is_flag", False):
                continue
            every = _values(str(parameter.type_descriptor.annotation), option.lstrip("-"))
            if option:
                found += [[*words, option, value] for value in every]
            elif typed := given[parameter.name]:
                first = str(typed[0] if isinstance(typed, list | tuple) else typed)
                place = words.index(first, 1)
                found += [[*words[:place], value, *words[place + 1 :]] for value in every]
    return found


def run_option(words: list[str], material: Material, folder: Path) -> str | None:
    """Run a command with one option or argument set; returns what is wrong."""
    place = Place.inside(folder)
    for one in INPUTS:
        if material.path(one).exists():
            material.put(one, place.work / one)
    ended = Fork()(words, place)
    return judged(ended, words[0], " ".join(ascii(one[:40]) for one in words))


def option_tries(material: Material, seed: int, number: int, *, quick: bool = False) -> list[Try]:
    """``number`` values of options, drawn from all of them; without reports where it must be quick."""
    slow = ("report", "compare", "rivals", "place", "simulate")
    every = [one for one in option_values() if not quick or not one[0].startswith(slow)]
    order = generator(seed, "inputs/options").permutation(len(every))[:number]
    return [Try(f"inputs/options of {every[k][0]}/{k}", partial(run_option, every[k], material)) for k in order]
