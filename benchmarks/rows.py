"""Rows of benchmarks: what was measured, when, on which machine, with which versions.

One line of JSON per measured side, in ``benchmarks/results/NAME.jsonl``. A row is appended as soon as it is measured,
so an interruption loses nothing that was printed.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

KEPT = Path(__file__).parent / "results"
OURS = "tokengeom"


@dataclass(frozen=True)
class Row:
    """One side of one job.

    ``date``
        When it was measured, in UTC; sides with the same date and job were measured in the same run.
    ``benchmark``, ``job``, ``side``
        Module of the benchmark, the job with its sizes, and the program: "tokengeom" or a peer.
    ``seconds``, ``gigabytes``
        Time, and peak memory where it was measured; None where it was not kept. The time is that of the whole job, or
        per step where the job says so.
    ``ratio``
        Time of a peer over the time of tokengeom in the same run; None for tokengeom itself.
    ``accuracy``
        What was reached, such as a proven gap.
    ``repeats``
        How many runs there were, and which is shown.
    ``machine``, ``load``, ``versions``, ``commit``
        The machine, its load average before the job, versions of packages, and the commit of the code; None or empty
        where they are not known.
    ``reference``, ``busy``
        Seconds of a fixed computation around the measurement, the largest; and why the machine was too busy to trust
        the row, empty where it was quiet or where nothing is known.
    ``note``
        Anything else that one has to know to read the numbers.
    """

    date: str
    benchmark: str
    job: str
    side: str
    seconds: float | None
    gigabytes: float | None = None
    ratio: float | None = None
    accuracy: str = ""
    repeats: str = ""
    machine: str = ""
    load: float | None = None
    versions: dict[str, str] = field(default_factory=dict)
    commit: str | None = None
    reference: float | None = None
    busy: str = ""
    note: str = ""


def results_folder() -> Path:
    """Folder of the rows: that of the repository, unless TOKENGEOM_BENCHMARK_RESULTS names another."""
    return Path(os.environ.get("TOKENGEOM_BENCHMARK_RESULTS") or KEPT)


def append(row: Row) -> None:
    """Add a row to the file of its benchmark."""
    folder = results_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{row.benchmark}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(row), ensure_ascii=False) + "\n")


def read(folder: Path | None = None) -> list[Row]:
    """All rows of a folder, the oldest first."""
    paths = sorted((folder or results_folder()).glob("*.jsonl"))
    lines = [line for path in paths for line in path.read_text(encoding="utf-8").splitlines()]
    return sorted((Row(**json.loads(line)) for line in lines), key=lambda row: row.date)


def now() -> str:
    """The present time in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def machine(device: str = "cpu") -> str:
    """Processor, cores, memory, system and Python of this machine, and its GPU where one is used."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = f"{platform.system()}, Python {platform.python_version()}"
    found = f"{_processor()}, {os.cpu_count()} cores, {memory:.0f} GiB, {system}"
    if device == "cpu":
        return found
    import torch

    return f"{torch.cuda.get_device_name()}, {found}"


def _processor() -> str:
    """Model of the processor, as Linux names it; elsewhere its kind."""
    listed = Path("/proc/cpuinfo")
    named = re.search(r"model name\s*: (.+)", listed.read_text()) if listed.exists() else None
    return named[1] if named else platform.processor() or platform.machine()


def references(machine: str) -> list[float]:
    """Seconds of the fixed computation around the rows that were measured on such a machine while it was quiet.

    Rows of November 18 do not name the processor, so a machine matches that is named by the end of the name.
    """
    known = [row for row in read() if row.reference is not None and not row.busy]
    return [row.reference for row in known if row.reference is not None and f", {machine}".endswith(f", {row.machine}")]


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Versions of packages by name; those that are not installed are left out."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def commit() -> str | None:
    """Commit of the code, with a plus sign where files of the package differ from it; None outside a repository."""
    root = Path(__file__).parents[1]
    try:
        head = subprocess.run(["git", "-C", root, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
        changed = subprocess.run(["git", "-C", root, "diff", "--quiet", "HEAD", "--", "src", "benchmarks"])
    except OSError:
        return None
    return head.stdout.strip() + ("+" if changed.returncode else "") if head.returncode == 0 else None
