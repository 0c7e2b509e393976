"""The root command, and what every command shares: options, error messages, and settings kept with what it saves.

A command that fails prints one paragraph on the standard error, never a traceback, and ends with an exit code:
0 done, 1 a check failed, 2 the input or the command line is wrong, 130 interrupted.
"""

from __future__ import annotations

import atexit
import errno
import functools
import inspect
import io
import os
import re
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Annotated, Any, NoReturn, ParamSpec, TypeVar

import typer

from tokengeom.cli.options import expanded, gathered, option_names, read_settings
from tokengeom.cli.output import TerminalConsole, chosen_output, escaped_streams
from tokengeom.core.errors import TokengeomError, out_of_memory
from tokengeom.core.progress import is_main_process
from tokengeom.core.system import Interruption, handle_signals
from tokengeom.results.folders import only_writer, remove_work_folders
from tokengeom.results.manifests import recording_command

EXIT_CHECK_FAILED, EXIT_WRONG_INPUT, EXIT_INTERRUPTED = 1, 2, 130
EXIT_CLOSED_PIPE = 141
"""What shells show for programs that a closed pipe ends. It is not 0: whether checks failed is not known then."""

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_SOON = 0.05
_INTACT = "Results that were saved before are intact."


class Debug:
    """Whether an error shows its traceback."""

    enabled = False


@contextmanager
def errors_as_paragraphs() -> Iterator[None]:
    """Print an error as one paragraph; with ``--debug``, print its traceback."""
    try:
        yield
        # Writing out what is still buffered can fail too, on a full disk or a closed pipe.
        sys.stdout.flush()
    except (typer.Exit, SystemExit):
        raise
    except (KeyboardInterrupt, typer.Abort):
        _end_interrupted()
    except BrokenPipeError:
        # The reader closed the pipe, as `head` does; what is left to write is dropped.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(EXIT_CLOSED_PIPE) from None
    except BaseException as error:
        # A library written in Rust may panic; such an error is not an `Exception`.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        # Some libraries replace the interruption by an error of their own, such as "Query interrupted".
        if Interruption.arrived:
            _end_interrupted()
        _drop_unwritten(error)
        if Debug.enabled and not _is_usage(error):
            traceback.print_exc()
        else:
            console = TerminalConsole(stderr=True)
            console.print("Error:", style="bold red", end=" ")
            console.print(paragraph(error))
        raise typer.Exit(EXIT_WRONG_INPUT) from None


def _end_interrupted() -> NoReturn:
    Interruption.too_late = True
    remove_work_folders()
    TerminalConsole(stderr=True).print("Interrupted. Nothing half-written was left behind.", style="yellow")
    raise typer.Exit(EXIT_INTERRUPTED) from None


def paragraph(error: BaseException) -> str:
    """An error message on one line: what went wrong, the likely cause and what to do."""
    return _on_one_line(_text(error))


def _on_one_line(text: str) -> str:
    return re.sub(r"\s*[\r\n]\s*", " ", text).strip()


def _text(error: BaseException) -> str:
    if isinstance(error, TokengeomError):
        return str(error)
    if _is_usage(error):
        return _usage(error)
    if said := out_of_memory(error):
        return f"{said} {_INTACT}"
    if isinstance(error, OSError) and error.errno is not None:
        return _system(error)
    if isinstance(error, UnicodeEncodeError):
        near = error.object[max(0, error.start - 30) : error.end + 30]
        return f"A name or a text must be valid Unicode; got '{near}'. Rename the file or correct the text. {_INTACT}"
    if _is_about_input(error):
        return (
            f"{_who_failed(error)} failed on the input or on a setting: {type(error).__name__}: {error}. Check "
            f"that the files are whole and that numbers and names are sensible; --debug shows where. {_INTACT}"
        )
    return (
        f"This is a defect of tokengeom, not of your input: {type(error).__name__}: {error}. "
        f"Run the command again with --debug to see where it happened, and please report that. {_INTACT}"
    )


def _system(error: OSError) -> str:
    place = f"{error.filename}" if error.filename is not None else "The output"
    if error.errno in _FULL:
        return f"{place} could not be written: {error.strerror}. Free some space or choose another disk. {_INTACT}"
    return f"{place} cannot be used: {error.strerror}. Check the name and the permissions. {_INTACT}"


def _is_about_input(error: BaseException) -> bool:
    """Whether input caused this rather than a defect: a library's own error, deep nesting, a huge number, bad text."""
    ours = type(error).__module__.split(".")[0] in ("builtins", "tokengeom")
    return not ours or isinstance(error, RecursionError | OverflowError | UnicodeError)


def _who_failed(error: BaseException) -> str:
    """The library whose error this is, where its type says so."""
    library = type(error).__module__.split(".")[0].removesuffix("_rust").strip("_")
    return "A library" if library in ("builtins", "pyo3_runtime") else f"The library {library}"


def _is_usage(error: BaseException) -> bool:
    """Whether the command line itself is wrong: Typer's errors have these two attributes."""
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def _usage(error: BaseException) -> str:
    message = str(error.format_message()).rstrip(" .")  # type: ignore[attr-defined]
    message += "" if message.endswith("?") else "."
    context = getattr(error, "ctx", None)
    command = "tokengeom" if context is None else context.command_path
    return f"{message} See: {command} --help"


def _drop_unwritten(error: BaseException) -> None:
    """Drop what a full disk did not take; otherwise the interpreter would try to write it again at exit."""
    if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

EXIT_CODES = (
    "Exit codes: 0 done, 1 a check failed, 2 the input or the command line is wrong, 130 interrupted, "
    "141 output not read."
)
HELP = f"""Predict, from the next-token statistics of a text, the geometry that training gives to tokens and contexts.

For example:

* `tokengeom count stories.txt --out stats`
* `tokengeom predict stats --out prediction`
* `tokengeom --settings settings.toml train stats --out run`

A settings file is TOML with one table per command, such as `[train]` with `steps = 3000`; options on the command line
override it.

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
EstimateOnly = Annotated[
    bool, typer.Option("--estimate", help="Print the expected time and memory, and stop.", rich_help_panel="Output")
]
_NOT_ECHOED = {"json", "quiet", "estimate"}
_SHARED_MODULES = {"app", "options", "output"}


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"tokengeom {version('tokengeom')}")
        raise typer.Exit


def _set_debug(wanted: bool) -> None:
    Debug.enabled |= wanted


def _use_settings(context: typer.Context, path: Path | None) -> None:
    """Take defaults from the file before the other options are parsed."""
    if path is not None:
        tables = read_settings(path, command_names(), _command)
        mine = tables if context.parent is None else tables.get(str(context.info_name), {})
        context.default_map = {**(context.default_map or {}), **mine}


SettingsFile = Annotated[
    Path | None,
    typer.Option(
        "--settings",
        metavar="FILE",
        is_eager=True,
        callback=_use_settings,
        help="TOML file with one table per command; options on the command line override it.",
        rich_help_panel="Output",
        show_default=False,
    ),
]
DebugFlag = Annotated[
    bool,
    typer.Option(
        "--debug", is_eager=True, callback=_set_debug, help="On an error, show the traceback.", rich_help_panel="Output"
    ),
]


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    settings_file: SettingsFile = None,
    debug: DebugFlag = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


_HOLD_THEIR_OWN = ("train", "report", "stories", "study")
"""Commands that lock where they write themselves, or whose --out is a file."""


def guarded(command: Callable[Arguments, Result]) -> Callable[..., Result]:
    """Give a command what all commands share.

    Its settings become options (see `options`); it gets ``--settings`` and ``--debug``; its errors are paragraphs; its
    settings go into the manifest of everything that it saves; with ``--json`` nothing but the result reaches the
    standard output; with ``--quiet`` there are no warnings. What it prints through `output` obeys these two.
    """

    @functools.wraps(command)
    def run(
        typer_context: typer.Context, as_json: bool, quiet: bool, settings_file: Path | None, debug: bool, **kwargs: Any
    ) -> Result:
        with errors_as_paragraphs(), recording_command(_as_typed(typer_context)), warnings.catch_warnings():
            warnings.showwarning = _print_warning  # type: ignore[assignment]
            if quiet:
                warnings.simplefilter("ignore")
            with chosen_output(as_json=as_json, quiet=quiet), _only_command(typer_context, kwargs):
                return command(**gathered(kwargs, groups))  # type: ignore[call-arg]

    own = inspect.signature(command, eval_str=True).parameters.values()
    parameters, groups = expanded((*own, *_SHARED))
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__doc__ = f"{inspect.cleandoc(command.__doc__ or '')}\n\n{EXIT_CODES}"
    return run


@contextmanager
def _only_command(context: typer.Context, given: Mapping[str, Any]) -> Iterator[None]:
    """Refuse a command that would save where another one is about to: one of the two results would be lost."""
    with ExitStack() as held:
        writes = context.info_name not in _HOLD_THEIR_OWN and is_main_process()
        for folder in map(given.get, ("out", "pairs")) if writes else ():
            if isinstance(folder, Path):
                held.enter_context(only_writer(folder))
        yield


def _shared(
    typer_context: typer.Context,
    as_json: Json = False,
    quiet: Quiet = False,
    settings_file: SettingsFile = None,
    debug: DebugFlag = False,
) -> None:
    """Parameters that every command has besides its own."""


_SHARED = inspect.signature(_shared, eval_str=True).parameters.values()


def _as_typed(context: typer.Context) -> dict[str, Any]:
    """The command with its arguments and settings as they were typed, from the command line or the settings file."""
    values = context.params
    # Of an option with two names, the first.
    first = {parameter: name for name, parameter in reversed(option_names(context.command).items())}
    options = {name: parameter for parameter, name in reversed(first.items()) if name not in _NOT_ECHOED}
    arguments = [parameter.name for parameter in context.command.params if parameter.param_type_name == "argument"]
    return {
        "name": str(context.info_name),
        "arguments": {str(name): _plain(values[name]) for name in arguments if name in values},
        "settings": {name: _plain(values[own]) for name, own in options.items() if values.get(own) is not None},
    }


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _print_warning(message: Warning | str, *where: Any) -> None:
    """Print a warning as a note, without the line of code that it came from."""
    sys.stderr.write(f"Note: {_on_one_line(str(message))}\n")


def main() -> None:
    """Run the command line, and end the process with its exit code."""
    code = EXIT_INTERRUPTED
    try:
        handle_signals()
        sys.unraisablehook = _deliver_again
        # Registered first, it is called last.
        atexit.register(_leave)
        # A character that the terminal cannot show becomes a question mark.
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")
        code = run_command()
        Interruption.too_late = True
    except KeyboardInterrupt:
        Interruption.too_late = True
    sys.exit(EXIT_INTERRUPTED if Interruption.arrived else code)


def _leave() -> None:
    """The last thing that a process does: Python is about to give signals back to the system, which would kill it."""
    for ends in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ends, signal.SIG_IGN)
    if Interruption.arrived:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(EXIT_INTERRUPTED)


def _deliver_again(ignored: sys.UnraisableHookArgs) -> None:
    """Repeat an interruption that arrived where Python ignores exceptions, such as a destructor or a callback."""
    if ignored.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(ignored)
        return
    again = threading.Timer(_SOON, os.kill, (os.getpid(), signal.SIGINT))
    again.daemon = True
    again.start()


def run_command(arguments: list[str] | None = None) -> int:
    """Run one command line, by default the process's own, and return its exit code."""
    Debug.enabled = Interruption.arrived = Interruption.too_late = False
    typed = sys.argv[1:] if arguments is None else arguments
    try:
        with escaped_streams(), errors_as_paragraphs():
            # Importing one command takes a fraction of the time of all; help and completion need all of them.
            add_commands([name for name in command_names() if name in typed])
            return app(arguments, prog_name="tokengeom", standalone_mode=False) or 0
    except typer.Exit as ended:
        return ended.exit_code


def command_names() -> list[str]:
    """Names of all commands: one module each, whose name has underscores in place of dashes."""
    modules = [module.name for module in iter_modules([str(Path(__file__).parent)])]
    return [name.replace("_", "-") for name in modules if name not in _SHARED_MODULES]


def add_commands(names: Sequence[str] = ()) -> None:
    """Import the modules of these commands, or of all; a module adds its command to the application."""
    for name in names or command_names():
        import_module(f"tokengeom.cli.{name.replace('-', '_')}")


def _command(name: str) -> Any:
    """A command as the application holds it."""
    add_commands([name])
    return typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
