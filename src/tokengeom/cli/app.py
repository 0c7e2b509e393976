"""The one way in which commands fail: a paragraph on the standard error and an exit code, never a traceback.

The root command, and what every command shares: its options, its failures, its settings in what it saves.

Exit codes: 0 done, 1 the answer is no, 2 the input or the command line is wrong, 130 interrupted.
"""

from __future__ import annotations

import errno
import functools
import inspect
import io
import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Annotated, Any, ParamSpec, TypeVar

import typer
from rich.console import Console

from tokengeom.cli.options import expanded, gathered, option_names, read_settings
from tokengeom.cli.output import kept_for_the_result
from tokengeom.errors import TokengeomError
from tokengeom.folders import written_by

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


__all__ = ["EXIT_INTERRUPTED", "EXIT_NO", "Json", "Quiet", "app", "guarded", "main", "run_command"]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

EXIT_CODES = "Exit codes: 0 done, 1 the answer is no, 2 the input or the command line is wrong, 130 interrupted."
HELP = f"""Predict, from the sparsity of a text, the geometry that next-token training gives to words and contexts.

For example:

* `tokengeom count stories.txt --out stats`
* `tokengeom predict stats --out prediction`
* `tokengeom --settings settings.toml train stats --out run`

A settings file is TOML with one table a command, such as `[train]` with `steps = 3000`; the command line wins.

`tokengeom --install-completion` makes the Tab key complete commands, options and names in your shell.

{EXIT_CODES}
"""

app = typer.Typer(
    name="tokengeom",
    help=HELP,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.", rich_help_panel="Output")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no summary.", rich_help_panel="Output")]
_NOT_ECHOED = {"json", "quiet"}


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"tokengeom {version('tokengeom')}")
        raise typer.Exit


def _set_debug(wanted: bool) -> None:
    Debug.wanted |= wanted


def _use_settings(context: typer.Context, path: Path | None) -> None:
    """Take an option's default from the file, before the other options are looked at."""
    if path is not None:
        found = read_settings(path, context.find_root().command.commands)  # type: ignore[attr-defined]
        mine = found if context.parent is None else found.get(str(context.info_name), {})
        context.default_map = {**(context.default_map or {}), **mine}


SettingsFile = Annotated[
    Path | None,
    typer.Option(
        "--settings",
        metavar="FILE",
        is_eager=True,
        callback=_use_settings,
        help="TOML file with a table a command; options given here win.",
        rich_help_panel="Output",
        show_default=False,
    ),
]
DebugWanted = Annotated[
    bool,
    typer.Option(
        "--debug", is_eager=True, callback=_set_debug, help="On an error, show the traceback.", rich_help_panel="Output"
    ),
]


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    settings_file: SettingsFile = None,
    debug: DebugWanted = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def guarded(command: Callable[Arguments, Result]) -> Callable[..., Result]:
    """Give a command what all share.

    Groups of options spread out (see `option_groups`); ``--settings`` and ``--debug``; errors in words; its settings
    in the manifest of all that it saves; nothing but the result on the standard output with ``--json``; no warnings
    with ``--quiet``.
    """

    @functools.wraps(command)
    def run(typer_context: typer.Context, settings_file: Path | None, debug: bool, **kwargs: Any) -> Result:
        alone = kept_for_the_result() if kwargs.get("as_json", False) else nullcontext()
        with in_words(), written_by(_asked(typer_context)), warnings.catch_warnings():
            warnings.showwarning = _note  # type: ignore[assignment]
            if kwargs.get("quiet", False):
                warnings.simplefilter("ignore")
            with alone:
                return command(**gathered(kwargs, groups))  # type: ignore[call-arg]

    own = inspect.signature(command, eval_str=True).parameters.values()
    parameters, groups = expanded((*own, *_SHARED))
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__doc__ = f"{inspect.cleandoc(command.__doc__ or '')}\n\n{EXIT_CODES}"
    return run


def _shared(typer_context: typer.Context, settings_file: SettingsFile = None, debug: DebugWanted = False) -> None:
    """What Typer hands to every command beside its own parameters."""


_SHARED = inspect.signature(_shared, eval_str=True).parameters.values()


def _asked(context: typer.Context) -> dict[str, Any]:
    """The command with its arguments and settings as they were typed, from the command line or the settings file."""
    values = context.params
    options = {name: parameter for name, parameter in option_names(context.command).items() if name not in _NOT_ECHOED}
    arguments = [parameter.name for parameter in context.command.params if parameter.param_type_name == "argument"]
    return {
        "name": str(context.info_name),
        "arguments": {str(name): _typed(values[name]) for name in arguments if name in values},
        "settings": {name: _typed(values[own]) for name, own in options.items() if values.get(own) is not None},
    }


def _typed(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_typed(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _note(message: Warning | str, *where: Any) -> None:
    """A warning is a note to the user, without the line of code that it came from."""
    sys.stderr.write(f"Note: {message}\n")


def main() -> None:
    """Run the command line, and end the process with its exit code."""
    # A terminal that cannot show a character shows a question mark.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    # A polite termination cleans up as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(run_command())


def run_command(arguments: list[str] | None = None) -> int:
    """Run one command line, by default the process's own, and return its exit code."""
    Debug.wanted = False
    try:
        with in_words():
            add_commands()
            return app(arguments, prog_name="tokengeom", standalone_mode=False) or 0
    except typer.Exit as ended:
        return ended.exit_code


def add_commands() -> None:
    """Import every file of this room: a file with a command adds it."""
    for module in iter_modules([str(Path(__file__).parent)]):
        import_module(f"tokengeom.cli.{module.name}")
