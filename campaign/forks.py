"""Commands run in forked children: each try costs milliseconds, because the parent has imported everything.

The parent imports and computes nothing, so that no library has threads that a fork would lose.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import IO

SECONDS = 60.0
"""A command that takes longer hangs."""
MEMORY = 4 << 30
"""Bytes of address space that a command may take beyond those of the parent."""
HUNG: list[float] = []
"""Seconds after which commands of this process were ended because they hung; every try has a process of its own."""
_PAUSE = 0.001
_INTERRUPTIONS = (signal.SIGTERM, signal.SIGINT)
_PARENT_DIED = 1
"""The option of ``prctl`` that sets the signal of a child whose parent ends."""


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    where
        code      exit code; the negative number of the signal that ended it
        out, err  what it printed
        hung      whether it was ended because it took longer than it may
    """

    code: int
    out: str
    err: str
    seconds: float
    hung: bool = False


@dataclass(frozen=True)
class Place:
    """Folders of one try: ``work`` is the current folder of its commands, ``temporary`` their TMPDIR."""

    work: Path
    temporary: Path

    @staticmethod
    def inside(folder: Path) -> Place:
        """New folders inside ``folder``."""
        place = Place(folder / "work", folder / "temporary")
        place.work.mkdir(parents=True)
        place.temporary.mkdir()
        return place


@dataclass(frozen=True)
class Limits:
    """What ends a command from outside.

    where
        seconds     it is ended after so long, and counts as hanging
        memory      bytes of address space beyond those of the parent
        file_bytes  longest file that it may write; None for any
        signal      a signal that it gets ``after`` so many seconds
    """

    seconds: float = SECONDS
    memory: int = MEMORY
    file_bytes: int | None = None
    signal: int | None = None
    after: float = 0.0


PATIENT = Limits(seconds=600)
"""Limits where nothing is tried yet: whether a command hangs is for tries to say, which are made again."""


@dataclass
class Fork:
    """Runs command lines of tokengeom in forked children."""

    limits: Limits = field(default_factory=Limits)

    def __call__(
        self,
        arguments: Sequence[str],
        place: Place,
        limits: Limits | None = None,
        before: Callable[[], object] | None = None,
    ) -> Ended:
        """Run one command line; ``before`` is called in the child first."""

        def command() -> int:
            from tokengeom.cli import app

            sys.argv = ["tokengeom", *arguments]
            try:
                app.main()
            except KeyboardInterrupt as error:
                # The interpreter would end by the signal.
                raise RuntimeError("The interruption was not handled.") from error
            return 0

        return self.run(command, place, limits, before)

    def run(
        self,
        action: Callable[[], int],
        place: Place,
        limits: Limits | None = None,
        before: Callable[[], object] | None = None,
    ) -> Ended:
        """Run a function in a child; what it returns is the exit code."""
        limits = limits or self.limits
        if limits.file_bytes is not None:
            return _through_pipes(action, place, limits, before)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            began = time.monotonic()
            # A child that is not yet set up cannot clean up: signals wait until it is.
            signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTIONS)
            child = os.fork()
            if child != 0:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPTIONS)
            else:
                _in_child(action, place, limits, before, out.fileno(), err.fileno())
            code, hung = _wait(child, limits)
            return Ended(code, _text(out), _text(err), time.monotonic() - began, hung)


def _through_pipes(
    action: Callable[[], int], place: Place, limits: Limits, before: Callable[[], object] | None
) -> Ended:
    """A command that may write no long file prints into pipes; they hold more than it prints with -q."""
    out, err = os.pipe(), os.pipe()
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        _in_child(action, place, limits, before, out[1], err[1])
    os.close(out[1])
    os.close(err[1])
    code, hung = _wait(child, limits)
    with os.fdopen(out[0], "rb") as printed, os.fdopen(err[0], "rb") as said:
        return Ended(code, _decoded(printed.read()), _decoded(said.read()), time.monotonic() - began, hung)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return _decoded(file.read(1 << 20))


def _decoded(content: bytes) -> str:
    return content.decode("utf-8", "backslashreplace")


def _wait(child: int, limits: Limits) -> tuple[int, bool]:
    began, sent = time.monotonic(), limits.signal is None
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status), False
        passed = time.monotonic() - began
        if not sent and limits.signal is not None and passed >= limits.after:
            os.kill(child, limits.signal)
            sent = True
        if passed > limits.seconds:
            os.killpg(child, signal.SIGKILL)
            HUNG.append(passed)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), True
        time.sleep(_PAUSE)


def _in_child(
    action: Callable[[], int],
    place: Place,
    limits: Limits,
    before: Callable[[], object] | None,
    out: int,
    err: int,
) -> None:
    """Everything that happens in a child; it never returns."""
    code = 70
    try:
        os.setsid()
        end_with_parent()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
        os.chdir(place.work)
        os.environ["TMPDIR"] = str(place.temporary)
        tempfile.tempdir = None
        for number in _INTERRUPTIONS:
            signal.signal(number, signal.default_int_handler)
        # A process that ran into a limit on file sizes gets an error, as on a full disk, instead of a signal.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        _limit(resource.RLIMIT_AS, _address_space() + limits.memory)
        _limit(resource.RLIMIT_CORE, 0)
        if limits.file_bytes is not None:
            _limit(resource.RLIMIT_FSIZE, limits.file_bytes)
        if before is not None:
            before()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPTIONS)
        code = action()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        traceback.print_exc()
    with suppress(BaseException):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _address_space() -> int:
    """Bytes of address space that this process has; a generous guess where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return 16 << 30
    return pages * os.sysconf("SC_PAGE_SIZE")


def end_with_parent() -> None:
    """End this process when its parent ends, where the system offers it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DIED, signal.SIGKILL)


def import_what_runs_import(runs: Callable[[], object], place: Place) -> None:
    """Import every module that ``runs`` imports; it is called in a child, so nothing is computed here."""
    names = place.temporary / "modules"

    def listed() -> int:
        runs()
        names.write_text("\n".join(name for name in sys.modules if name != "__main__"))
        return 0

    ended = Fork().run(listed, place, replace(PATIENT, memory=16 << 30))
    if ended.code:
        raise RuntimeError(f"The campaign's own material could not be made:\n{ended.out}\n{ended.err}")
    for name in names.read_text().splitlines():
        # Some names are aliases that cannot be imported by themselves.
        with suppress(Exception):
            import_module(name)
    names.unlink()
