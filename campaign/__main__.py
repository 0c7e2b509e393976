"""``python -m campaign``: tries kills, two writers, full disks, bad inputs and forgeries.

It exits with 1 where a defect is found. The same seed tries the same things. A defect is printed with the command that
tries it again.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

# Before any library is imported: several children share the cores, and a process that forks must not have threads.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
os.environ["TOKENIZERS_PARALLELISM"] = "false"

if TYPE_CHECKING:
    from types import ModuleType

    from campaign.material import Material
    from campaign.tries import Figures

PARTS = {"kills": 1000, "writers": 200, "disks": 200, "inputs": 5000, "forgeries": 1000}
"""Parts of the campaign, and how much each tries at most."""
QUICK = {"kills": 5, "writers": 4, "inputs": 60, "forgeries": 2}
"""The same for the small part that the tests run."""


def main(arguments: list[str] | None = None) -> int:
    """Run the campaign; returns the exit code."""
    given = _parser().parse_args(arguments)
    began = time.monotonic()
    scratch = Path(tempfile.mkdtemp(prefix="campaign-"))
    try:
        figures = _run(given, scratch)
    finally:
        if given.keep:
            _say(f"kept: {scratch}")
        else:
            shutil.rmtree(scratch, ignore_errors=True)
    for found in figures:
        _print_figures(found, given)
    _say(f"seed {given.seed}, {given.jobs} at a time, {time.monotonic() - began:.0f} s in all")
    if given.json is not None:
        made = {found.part: {"seed": given.seed, **found.to_dict()} for found in figures}
        given.json.write_text(json.dumps(made, indent=2) + "\n")
    return int(any(found.defects for found in figures))


def _run(given: argparse.Namespace, scratch: Path) -> list[Figures]:
    from campaign.material import make_material

    modules = {part: import_module(f"campaign.{part}") for part in given.part or (QUICK if given.quick else PARTS)}
    _say("preparing genuine inputs and results")
    wanted = [module.QUICK_MATERIAL if given.quick else module.MATERIAL for module in modules.values()]
    material = make_material(scratch / "material", (name for names in wanted for name in names))
    return [_run_part(part, module, material, given, scratch / part) for part, module in modules.items()]


def _run_part(part: str, module: ModuleType, material: Material, given: argparse.Namespace, scratch: Path) -> Figures:
    from campaign.tries import run_tries

    _say(f"{part}: planning")
    number = given.tries or (QUICK.get(part, 0) if given.quick else PARTS[part])
    tries = module.tries(material, given.seed, number, scratch / "plan", quick=given.quick)
    if given.only is not None:
        tries = [one for one in tries if given.only in one.name]
    (scratch / "tries").mkdir(parents=True)
    found = run_tries(part, tries, scratch / "tries", given.jobs, _say, keep=given.keep)
    found.skipped = list(getattr(module, "skipped", list)())
    return found


def _print_figures(found: Figures, given: argparse.Namespace) -> None:
    _say(found.line())
    for sentence in found.skipped:
        _say(f"  not tried: {sentence}")
    for name, wrong in found.defects.items():
        chosen = f"--seed {given.seed}" + ("" if given.tries is None else f" --tries {given.tries}")
        again = f"python -m campaign {chosen} --part {found.part} --only {shlex.quote(name)}"
        _say(f"  {name}: {wrong}\n    again: {again}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m campaign", description=__doc__)
    parser.add_argument("--part", action="append", choices=list(PARTS), help="run only this part; may be repeated")
    parser.add_argument("--seed", type=int, default=0, help="the same seed tries the same things (default: 0)")
    parser.add_argument("--tries", type=int, help=f"tries per part (default: {PARTS}, at most what there is)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="tries at a time (default: all cores)")
    parser.add_argument("--only", metavar="NAME", help="run only tries with this in their names")
    parser.add_argument("--quick", action="store_true", help="the small part that the tests run")
    parser.add_argument("--keep", action="store_true", help="keep the folders of the tries")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
