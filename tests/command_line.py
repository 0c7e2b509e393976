"""Running the command line, as a process of its own or inside this one, and finding all commands."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

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


def all_commands() -> list[str]:
    """Every command that a module of the package adds."""
    cli.add_commands()
    return sorted(typer.main.get_command(cli.app).commands)  # type: ignore[attr-defined]


def assert_one_paragraph(done: Done) -> None:
    """Exit code 2, one line that begins with "Error", nothing on the standard output."""
    assert done.code == 2, done
    assert done.out == ""
    assert done.err.startswith("Error: ")
    assert done.err.endswith("\n")
    assert len(done.err.splitlines()) == 1, done.err
    assert "Traceback" not in done.err
