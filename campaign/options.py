"""Values of options: every option of every command, with values of the wrong kind, size or shape."""

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
    "report": f"report text.txt --out new.html {REPORT}",
    "stories": "stories new.txt --words 50",
    "verify": "verify stats",
    "study": "study linear-2d --set steps=20 --no-save",
}
INPUTS = ("text.txt", "stats", "other-stats", "prediction", "run", "words.txt", "model", "H.npy")
# fmt: off
_SMALL = (
    "-1", "0", "1", "2", "nan", "inf", "-inf", "", "x", "½", "1e-320", "-9223372036854775809", "\x1b[31m1", "0x10",
)
# fmt: on
# fmt: off
_TEXTS = (
    "", "x", "\x1b]0;t\x07", "../..", "/dev/zero", "a" * 5000, "{", "[1", "bpe:", "bpe:-1", "bpe:x", "top-p:2",
    "count:-1",
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


def option_values() -> list[tuple[str, list[str]]]:
    """Every command with one option set to one value; flags are not set."""
    import typer

    from tokengeom.cli import app

    app.add_commands()
    known: Any = typer.main.get_command(app.app)
    found = []
    for name, base in COMMANDS.items():
        for parameter in known.commands[name].params:
            option = next((one for one in parameter.opts if one.startswith("--")), "")
            if not option or option[2:] in _NOT_TRIED or getattr(parameter, "is_flag", False):
                continue
            kind = str(parameter.type_descriptor.annotation)
            found += [(base, [option, value]) for value in _values(kind, option[2:])]
    return found


def run_option(base: str, option: list[str], material: Material, folder: Path) -> str | None:
    """Run a command with one option set; returns what is wrong."""
    place = Place.inside(folder)
    for one in INPUTS:
        if material.path(one).exists():
            material.put(one, place.work / one)
    ended = Fork()([*shlex.split(base), *option], place)
    command = "study verify" if base.startswith("study") else base
    return judged(ended, command, f"{option[0]} {option[1][:40]!r}")


def option_tries(material: Material, seed: int, number: int, *, quick: bool = False) -> list[Try]:
    """``number`` values of options, drawn from all of them; without reports where it must be quick."""
    every = [one for one in option_values() if not quick or not one[0].startswith(("report", "compare", "rivals"))]
    order = generator(seed, "inputs/options").permutation(len(every))[:number]
    found = []
    for k in order:
        base, option = every[k]
        found.append(Try(f"inputs/options of {base.split()[0]}/{k}", partial(run_option, base, option, material)))
    return found
