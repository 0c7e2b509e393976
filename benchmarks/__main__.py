"""``python -m benchmarks [--quick] [--busy] [NAME...]``: run benchmarks by name; by default those with a peer, no GPU.

Each benchmark is a process of its own, and every number is added to ``benchmarks/results`` as soon as it is measured.
``--quick`` runs them at small sizes and keeps no rows. What was measured on a busy machine is not kept; with ``--busy``
it is, marked as such, and stays out of the README and of the plot. ``python -m benchmarks table`` writes the table and
the plot of docs/benchmarks.md and the table of the README from the rows. ``python -m benchmarks.NAME --help`` lists the
options of a benchmark that has some. Where tokengeom is not installed, set ``PYTHONPATH=src``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

HELPERS = {"__init__", "__main__", "harness", "quiet", "rows", "table"}
ON_REQUEST = {"estimates", "counting_at_scale"}
"""Benchmarks without a peer, which take long."""


def main() -> None:
    """Run the named benchmarks."""
    known = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in HELPERS)
    quick, names = "--quick" in sys.argv, [name for name in sys.argv[1:] if name not in ("--quick", "--busy")]
    if "--busy" in sys.argv:
        os.environ["TOKENGEOM_BENCHMARK_BUSY"] = "1"
    if {"-h", "--help"} & set(names):
        print(f"{__doc__}\nBenchmarks: {', '.join(known)}.")
        return
    if names == ["table"]:
        from benchmarks.table import write_all

        write_all()
        return
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"There is no benchmark '{unknown[0]}'; there are: {', '.join(known)}.")
    names = names or [name for name in known if not name.endswith("_gpu") and name not in ON_REQUEST]
    failed = [name for place, name in enumerate(names) if not run(name, quick, names[place:])]
    if failed:
        sys.exit(f"Failed: {', '.join(failed)}.")


def run(name: str, quick: bool, left: list[str]) -> bool:
    """Whether one benchmark ended well; ``left`` are those that an interruption leaves to be run."""
    print(f"== {name}", flush=True)
    began = time.monotonic()
    try:
        done = subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *(["--quick"] if quick else [])])
    except KeyboardInterrupt:
        sys.exit(f"Interrupted. What was measured is kept. To go on: python -m benchmarks {' '.join(left)}")
    print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    main()
