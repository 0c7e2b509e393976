"""``python -m benchmarks [NAME...]``: run benchmarks by name; by default all that need no GPU.

``python -m benchmarks.NAME --help`` lists the options of a benchmark that has some. Where tokengeom is not installed,
set ``PYTHONPATH=src``.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

HELPERS = {"__init__", "__main__", "harness"}


def main() -> None:
    """Run the named benchmarks."""
    known = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in HELPERS)
    names = sys.argv[1:] or [name for name in known if not name.endswith("_gpu")]
    if {"-h", "--help"} & set(names):
        print(f"{__doc__}\nBenchmarks: {', '.join(known)}.")
        return
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"There is no benchmark '{unknown[0]}'; there are: {', '.join(known)}.")
    for name in names:
        print(f"== {name}", flush=True)
        # Each benchmark parses the command line itself; here it runs with its defaults.
        sys.argv = [name]
        import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
