"""Running the command line as a process of its own."""

from __future__ import annotations

import subprocess
import sys

COMMAND = [sys.executable, "-c", "from tokengeom.cli import main; main()"]


def run(*arguments: object, stdin: str | None = None, **options: object) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, input=stdin, **options)  # type: ignore[call-overload]
