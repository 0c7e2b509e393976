"""The root command, and the one way in which commands fail.

Exit codes: 0 done, 1 the answer is no, 2 the input or the command line is wrong, 130 interrupted.
"""

from __future__ import annotations

import functools
import io
import signal
import sys
from collections.abc import Callable
from typing import Annotated, ParamSpec, TypeVar

import typer
from rich.console import Console

from tokengeom.errors import TokengeomError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

EXIT_NO, EXIT_WRONG_INPUT, EXIT_INTERRUPTED = 1, 2, 130

app = typer.Typer(
    name="tokengeom",
    help="Predict, from the sparsity of a text, the geometry that next-token training gives to words and contexts.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

errors_to = Console(stderr=True, soft_wrap=True, highlight=False)

Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.", rich_help_panel="Output")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no summary.", rich_help_panel="Output")]


class _Debug:
    """Whether a failure shows where in the code it happened."""

    wanted = False


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"tokengeom {version('tokengeom')}")
        raise typer.Exit


@app.callback()
def _root(
    debug: Annotated[bool, typer.Option("--debug", help="On an error, show the traceback.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    _Debug.wanted = debug


def guarded(command: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Turn an error into one paragraph and an exit code."""

    @functools.wraps(command)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return command(*args, **kwargs)
        except KeyboardInterrupt:
            errors_to.print("Interrupted. Nothing half-written was left behind.", style="yellow")
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except TokengeomError as error:
            if _Debug.wanted:
                raise
            errors_to.print("[bold red]Error:[/] ", end="")
            errors_to.print(str(error), markup=False)
            raise typer.Exit(EXIT_WRONG_INPUT) from None

    return run


def main() -> None:
    """Run the command line."""
    # A terminal that cannot show a character shows a question mark.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    # A polite termination cleans up as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        from tokengeom.cli import compare, count, predict, report, stories, study, train, verify  # noqa: F401 - adds

        app()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
