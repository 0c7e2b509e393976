"""``python -m benchmarks [NAME...]``: run benchmarks by name; by default all that need no GPU."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

HELPERS = {"__init__", "__main__", "harness"}


def main() -> None:
    """Run what was named."""
    known = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in HELPERS)
    wanted = sys.argv[1:] or [name for name in known if not name.endswith("_gpu")]
    for name in wanted:
        if name not in known:
            sys.exit(f"There is no benchmark '{name}'; there are: {', '.join(known)}.")
        print(f"== {name}", flush=True)
        # A benchmark reads its own options from the command line when it is run alone.
        sys.argv = [name]
        import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
