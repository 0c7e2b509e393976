"""Running the command line, as a process of its own or inside this one, and finding all commands."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from threading import Thread
from typing import Any

import pytest
import typer

from tokengeom.cli import app as cli

MAIN = "from tokengeom.cli import main; main()"
COMMAND = [sys.executable, "-c", MAIN]


def run(
    *arguments: object, stdin: str | None = None, code: str = MAIN, **options: object
) -> subprocess.CompletedProcess[str]:
    """Run a command line in a process of its own, by default through the program's entry point."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, input=stdin, **options)  # type: ignore[call-overload, no-any-return]


@dataclass(frozen=True)
class Done:
    """What a command left: exit code, standard output, standard error."""

    code: int
    out: str
    err: str


def say(capsys: pytest.CaptureFixture[str], *arguments: object) -> Done:
    """Run one command line."""
    capsys.readouterr()
    code = cli.run_command([str(argument) for argument in arguments])
    return Done(code, *capsys.readouterr())


def run_here(*arguments: object) -> Done:
    """Run one command line in this process, without pytest."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = cli.run_command([str(argument) for argument in arguments])
    return Done(code, out.getvalue(), err.getvalue())


def say_on_terminal(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> tuple[int, str]:
    """Run one command line whose standard output and error are a terminal; return its exit code and what was shown."""
    ours, theirs = pty.openpty()
    shown = bytearray()

    def read() -> None:
        # Reading a terminal that no one holds any more is an error on Linux.
        with suppress(OSError):
            while chunk := os.read(ours, 4096):
                shown.extend(chunk)

    reader = Thread(target=read)
    reader.start()
    try:
        with monkeypatch.context() as patch, os.fdopen(theirs, "w", encoding="utf-8", errors="replace") as terminal:
            patch.setenv("TERM", "xterm-256color")
            patch.delenv("NO_COLOR", raising=False)
            patch.setattr(sys, "stdout", terminal)
            patch.setattr(sys, "stderr", terminal)
            code = cli.run_command([str(argument) for argument in arguments])
    finally:
        reader.join(30)
        os.close(ours)
    return code, shown.decode()


def application() -> Any:
    """The program with every command that a module of the package adds."""
    cli.add_commands()
    return typer.main.get_command(cli.app)


def all_commands() -> list[str]:
    """Names of every command."""
    return sorted(application().commands)


def assert_one_paragraph(done: Done) -> None:
    """Exit code 2, one line that begins with "Error", nothing on the standard output."""
    assert done.code == 2, done
    assert done.out == ""
    assert done.err.startswith("Error: ")
    assert done.err.endswith("\n")
    assert len(done.err.splitlines()) == 1, done.err
    assert "Traceback" not in done.err
