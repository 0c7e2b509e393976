"""The one way in which commands fail: a paragraph on the standard error and an exit code, never a traceback."""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from tokengeom.errors import TokengeomError

EXIT_NO, EXIT_WRONG_INPUT, EXIT_INTERRUPTED = 1, 2, 130

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_INTACT = "Results that were saved before are intact."


class Debug:
    """Whether a failure shows where in the code it happened."""

    wanted = False


@contextmanager
def in_words() -> Iterator[None]:
    """Say in one paragraph what went wrong; with ``--debug``, show where."""
    try:
        yield
        # What is still in the buffer can meet a full disk or a closed pipe too.
        sys.stdout.flush()
    except (typer.Exit, SystemExit):
        raise
    except (KeyboardInterrupt, typer.Abort):
        _console().print("Interrupted. Nothing half-written was left behind.", style="yellow")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except BrokenPipeError:
        # The reader has seen enough, as `head` does; what is left to write goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(EXIT_WRONG_INPUT) from None
    except Exception as error:
        _drop_unwritten(error)
        if Debug.wanted and not _is_usage(error):
            traceback.print_exc()
        else:
            say(paragraph(error))
        raise typer.Exit(EXIT_WRONG_INPUT) from None


def say(text: str) -> None:
    """Print an error; the text is never taken for markup."""
    console = _console()
    console.print("[bold red]Error:[/] ", end="")
    console.print(text, markup=False)


def paragraph(error: Exception) -> str:
    """What went wrong, the likely cause and what to do, on one line."""
    return re.sub(r"\s*[\r\n]\s*", " ", _text(error)).strip()


def _text(error: Exception) -> str:
    if isinstance(error, TokengeomError):
        return str(error)
    if _is_usage(error):
        return _usage(error)
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        detail = f" ({error})" if str(error) else ""
        return f"Memory ran out{detail}. Take fewer contexts or tokens, or a machine with more memory. {_INTACT}"
    if isinstance(error, OSError) and error.errno is not None:
        return _system(error)
    return (
        f"This is a defect of tokengeom, not of your input: {type(error).__name__}: {error}. "
        f"Put --debug on the command to see where it happened, and please report that. {_INTACT}"
    )


def _system(error: OSError) -> str:
    place = f"{error.filename}" if error.filename is not None else "The output"
    if error.errno in _FULL:
        return f"{place} could not be written: {error.strerror}. Free some space or choose another disk. {_INTACT}"
    return f"{place} cannot be used: {error.strerror}. Check the name and the permissions. {_INTACT}"


def _is_usage(error: Exception) -> bool:
    """Whether the command line itself is wrong; Typer's errors are known by how they tell their message."""
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def _usage(error: Exception) -> str:
    message = str(error.format_message()).rstrip(" .")  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    command = "tokengeom" if context is None else context.command_path
    return f"{message}. See: {command} --help"


def _drop_unwritten(error: Exception) -> None:
    """Forget what a full disk did not take, or the interpreter would try again when it ends."""
    if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _console() -> Console:
    return Console(stderr=True, soft_wrap=True, highlight=False)
