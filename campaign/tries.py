"""Tries: what is tried, how it is judged, and the figures of a part of the campaign."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from campaign.forks import HUNG, Ended, end_with_parent

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters that would reach a terminal; the line feed and the tab are harmless."""
NOTICED, DECLARED, CLEAR = "noticed", "declared", "clear"
"""Judgements of a try that found no defect: a forged claim was found, or is listed as not checked; anything else."""
_EXCERPT = 400
_FOUND = "found.json"
_EVERY = 10.0
"""Seconds between two lines of progress."""


@dataclass(frozen=True)
class Try:
    """One thing that is tried.

    where
        name    unique within a seed, such as "kills/count over/before operation 7"
        run     called with an empty folder; returns `NOTICED`, `DECLARED`, None where it is clear, or what is wrong
    """

    name: str
    run: Callable[[Path], str | None]

    @property
    def group(self) -> str:
        """What the figures count this try under: the name without its last part."""
        return self.name.rpartition("/")[0]


@dataclass
class Figures:
    """What a part of the campaign found.

    where
        tried     number of tries by group
        judged    number of tries by judgement; defects are not among them
        defects   name of the try -> what is wrong
        skipped   what was not tried, and why
    """

    part: str
    tried: Counter[str] = field(default_factory=Counter)
    judged: Counter[str] = field(default_factory=Counter)
    defects: dict[str, str] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def total(self) -> int:
        """Number of tries."""
        return self.tried.total()

    def line(self) -> str:
        """One line for the terminal."""
        judged = "".join(f"{self.judged[one]:,} {one}, " for one in (CLEAR, NOTICED, DECLARED) if self.judged[one])
        return f"{self.part}: {self.total:,} tried, {judged}{len(self.defects)} defects ({self.seconds:.0f} s)"

    def to_dict(self) -> dict[str, object]:
        """The figures as plain data."""
        groups = {name: {"tried": number, "defects": 0} for name, number in sorted(self.tried.items())}
        for name in self.defects:
            groups[name.rpartition("/")[0]]["defects"] += 1
        return {
            "tried": self.total,
            **{one: self.judged[one] for one in (CLEAR, NOTICED, DECLARED)},
            "defects": self.defects,
            "skipped": self.skipped,
            "seconds": round(self.seconds, 1),
            "groups": groups,
        }


def generator(seed: int, name: str) -> np.random.Generator:
    """The generator of one try: the same seed and name give the same numbers."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def run_tries(
    part: str,
    tries: Sequence[Try],
    scratch: Path,
    jobs: int,
    say: Callable[[str], None],
    keep: bool = False,
) -> Figures:
    """Run all tries, several at a time, and count what was found; a line of progress every few seconds."""
    figures = Figures(part, Counter(one.group for one in tries))
    began = last = time.monotonic()
    for done, (index, wrong) in enumerate(_results(tries, scratch, jobs, keep), start=1):
        if wrong is None or wrong in (NOTICED, DECLARED):
            figures.judged[wrong or CLEAR] += 1
        else:
            figures.defects[tries[index].name] = wrong
            say(f"  DEFECT {tries[index].name}: {wrong}")
        now = time.monotonic()
        if now - last >= _EVERY:
            say(f"  {part}: {done:,} of {len(tries):,}, {len(figures.defects)} defects, {now - began:.0f} s")
            last = now
    figures.seconds = time.monotonic() - began
    return figures


def _results(tries: Sequence[Try], scratch: Path, jobs: int, keep: bool) -> Iterator[tuple[int, str | None]]:
    """Each try in a process of its own, so that nothing that happens in one reaches another."""
    running: dict[int, tuple[int, Path]] = {}
    for index, one in enumerate(tries):
        while len(running) >= jobs:
            yield _finished(running, keep)
        folder = Path(tempfile.mkdtemp(prefix=f"{index:05d}-", dir=scratch))
        process = os.fork()
        if process == 0:
            _run(one, folder)
        running[process] = index, folder
    while running:
        yield _finished(running, keep)


def _run(one: Try, folder: Path) -> None:
    """Run one try and write what is wrong; this process ends here."""
    end_with_parent()
    (folder / _FOUND).write_text(json.dumps(judged_again(one, folder)))
    os._exit(0)


def judged_again(one: Try, folder: Path) -> str | None:
    """What is wrong; where a command hung, on a machine that may have been busy, the try is made again and counts."""
    wrong = _judged(one, folder)
    if wrong is not None and HUNG:
        (folder / "again").mkdir()
        wrong = _judged(one, folder / "again")
    return wrong


def _judged(one: Try, folder: Path) -> str | None:
    try:
        return one.run(folder)
    except BaseException as error:
        return f"the try itself failed: {type(error).__name__}: {error}"


def _finished(running: dict[int, tuple[int, Path]], keep: bool) -> tuple[int, str | None]:
    process, status = os.wait()
    index, folder = running.pop(process)
    code = os.waitstatus_to_exitcode(status)
    wrong = json.loads((folder / _FOUND).read_text()) if code == 0 else f"the try itself ended with {code}"
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)
    return index, wrong


def wrong_end(ended: Ended, allowed: Sequence[int] = (0, 2)) -> str | None:
    """What is wrong with how a command ended: a signal, a traceback, a hang, an error that is not one paragraph."""
    if ended.hung:
        return f"it hangs: ended after {ended.seconds:.0f} s"
    said = f"{ended.err}{ended.out}"
    if ended.code < 0:
        return f"ended by {signal.Signals(-ended.code).name}: {excerpt(ended.err)}"
    for mark in ("Traceback (most recent call last)", "panicked at", "defect of tokengeom"):
        if mark in said:
            return f"{mark!r} is printed: {excerpt(said, mark)}"
    if ended.code not in allowed:
        return f"exit code {ended.code}: {excerpt(ended.err)}"
    found = CONTROL.search(said)
    if found:
        return f"the control character {found[0]!r} is printed: {excerpt(said, found[0])}"
    if ended.code == 2:
        lines = [line for line in ended.err.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("Error:")]
        if len(errors) != 1 or lines[-1] != errors[0]:
            return f"exit code 2 without one paragraph that begins with Error: {excerpt(ended.err)}"
    return None


def excerpt(text: str, mark: str | None = None) -> str:
    """A part of a text on one line, around ``mark`` or its end; control characters are escaped."""
    place = text.find(mark) if mark else -1
    part = text[max(0, place - 80) : place + _EXCERPT] if place >= 0 else text[-_EXCERPT:]
    return json.dumps(part, ensure_ascii=True)


def chosen(number: int, of: int, rng: np.random.Generator) -> list[int]:
    """``number`` different places out of ``of``, in order; all of them where there are no more."""
    return list(range(of)) if number >= of else sorted(int(k) for k in rng.choice(of, number, replace=False))


def even_shares(number: int, most: Sequence[int]) -> list[int]:
    """``number`` shared out as evenly as possible, with no more than ``most`` for each."""
    given = [0] * len(most)
    for _ in range(min(number, sum(most))):
        given[min((k for k in range(len(most)) if given[k] < most[k]), key=given.__getitem__)] += 1
    return given


def weighted_shares(number: int, weights: Sequence[int]) -> list[int]:
    """``number`` shared out in proportion to the weights."""
    ends = [round(number * sum(weights[: k + 1]) / sum(weights)) for k in range(len(weights))]
    return [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
