"""Running the command line, as a process of its own or inside this one, and finding all commands."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import pytest
import typer

from tokengeom.cli import app as cli

COMMAND = [sys.executable, "-c", "from tokengeom.cli import main; main()"]


def run(*arguments: object, stdin: str | None = None, **options: object) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, input=stdin, **options)  # type: ignore[call-overload]


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
    """Every command that a file of the room adds."""
    cli.add_commands()
    return sorted(typer.main.get_command(cli.app).commands)  # type: ignore[attr-defined]


def assert_one_paragraph(done: Done) -> None:
    """Exit code 2, one line that begins with the word, nothing on the standard output."""
    assert done.code == 2, done
    assert done.out == ""
    assert done.err.startswith("Error: ")
    assert done.err.endswith("\n")
    assert len(done.err.splitlines()) == 1, done.err
    assert "Traceback" not in done.err
