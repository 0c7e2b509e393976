"""The directive ``commands``: every command of the application, as the application itself describes it.

Sentences, examples, arguments and options come from the commands; nothing is written twice. Options that all commands
share are listed once, before the commands.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from tokengeom.cli.app import EXIT_CODES, add_commands
from tokengeom.cli.app import app as application

NO_PANEL = "Options"
WORDS = {int: "whole number", float: "number", str: "text", Path: "path"}


class Commands(SphinxDirective):
    """Sections for the whole application: its own options, then one section per command."""

    def run(self) -> list[nodes.Node]:
        """Describe the commands in Markdown, and parse that as a part of the page."""
        return self.parse_text_to_nodes("\n".join(_pages()), allow_section_headings=True)


def _pages() -> Iterator[str]:
    add_commands()
    group: Any = typer.main.get_command(application)
    commands = {name: command for name, command in sorted(group.commands.items()) if not command.hidden}
    shared = _shared(commands.values())
    yield from ("## Usage", "", _text(group.help), "", EXIT_CODES, "")
    yield from _options({p.name: p for p in group.params}.values(), _types(group), "Options of `tokengeom` itself")
    yield from ("## Options of every command", "")
    first = next(iter(commands.values()))
    yield from _options([p for p in first.params if _key(p) in shared], _types(first))
    for name, command in commands.items():
        yield from (f"## `tokengeom {name}`", "", _text(command.help), "")
        yield from _parameters(command, shared)


def _text(help_text: str) -> str:
    """The description of a command, without the exit codes that stand above all of them."""
    return inspect.cleandoc(help_text).replace(EXIT_CODES, "").replace("\f", "").strip()


def _parameters(command: Any, shared: set[tuple[str, str]]) -> Iterator[str]:
    typed = _types(command)
    own = [parameter for parameter in command.params if _key(parameter) not in shared and not parameter.hidden]
    arguments = [parameter for parameter in own if parameter.param_type_name == "argument"]
    yield from _options(arguments, typed, "Arguments")
    options = [parameter for parameter in own if parameter.param_type_name == "option"]
    for panel in dict.fromkeys(option.rich_help_panel or NO_PANEL for option in options):
        yield from _options([one for one in options if (one.rich_help_panel or NO_PANEL) == panel], typed, panel)


def _options(parameters: Iterable[Any], typed: Mapping[str, Any], title: str = "") -> Iterator[str]:
    """A definition list of arguments or options under a title."""
    listed = list(parameters)
    if listed and title:
        yield from (f"**{title}**", "")
    for parameter in listed:
        kind = _type(parameter, typed.get(str(parameter.name)))
        yield f"{_names(parameter)}{f' *{kind}*' if kind else ''}"
        yield f": {_escaped(parameter.help or '')}{_default(parameter)}"
        yield ""


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar or str(parameter.name).upper()}`"
    return ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))


def _type(parameter: Any, annotation: Any) -> str:
    """The type of the value: a name for it, or the choices; nothing for a flag."""
    if parameter.param_type_name == "argument" or annotation is None:
        return ""
    if parameter.metavar:
        return str(parameter.metavar)
    members = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    for member in members:
        if get_origin(member) is Literal:
            return "one of " + ", ".join(str(choice) for choice in get_args(member))
        if get_origin(member) is list:
            return f"{WORDS.get(get_args(member)[0], 'text')}, may be repeated"
        if member in WORDS:
            return WORDS[member]
    return ""


def _default(parameter: Any) -> str:
    shown = parameter.show_default and parameter.default is not None and not isinstance(parameter.default, bool)
    if parameter.required and parameter.param_type_name == "option":
        return " Required."
    return f" Default: `{parameter.default}`." if shown and not callable(parameter.default) else ""


def _types(command: Any) -> dict[str, Any]:
    """Types of a command's parameters, without the options that annotate them."""
    callback = inspect.unwrap(command.callback, stop=lambda one: hasattr(one, "__signature__"))
    return {
        name: get_args(hint)[0] if get_origin(hint) is Annotated else hint
        for name, hint in get_type_hints(callback, include_extras=True).items()
    }


def _shared(commands: Iterable[Any]) -> set[tuple[str, str]]:
    """Options that all commands have, with the same help."""
    return set.intersection(*({_key(one) for one in command.params} for command in commands))


def _key(parameter: Any) -> tuple[str, str]:
    return str(parameter.name), str(parameter.help)


def _escaped(text: str) -> str:
    """Plain text in which asterisks and angle brackets are themselves."""
    return text.replace("*", r"\*").replace("<", r"\<")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
