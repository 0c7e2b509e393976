"""Options that belong together, as a dataclass: written once, and had by every command with a parameter of its type.

Settings from a TOML file: one table a command, keys are the long names of its options; the command line wins.

::

    [count]
    context = 4
    top-contexts = 400        # top_contexts is understood too

    [train]
    model = "ufm"
    dim = 128

Names that the Tab key completes, for options whose names are not fixed in their types.
"""

from __future__ import annotations

import dataclasses
import inspect
import tomllib
import types
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from tokengeom.errors import InputError

Groups = Mapping[str, type[Any]]


def expanded(parameters: Iterable[inspect.Parameter]) -> tuple[list[inspect.Parameter], Groups]:
    """Put the fields of each group in the group's place; also return which parameters were groups."""
    flat: list[inspect.Parameter] = []
    groups: dict[str, type[Any]] = {}
    for parameter in parameters:
        kind = parameter.annotation
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            groups[parameter.name] = kind
            flat += _options(kind)
        else:
            flat.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
    return flat, groups


def gathered(values: Mapping[str, Any], groups: Groups) -> dict[str, Any]:
    """Turn values of options back into groups, for the command."""
    rest = dict(values)
    for name, group in groups.items():
        rest[name] = group(**{field.name: rest.pop(field.name) for field in dataclasses.fields(group)})
    return rest


def _options(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=hints[f.name])
        for f in dataclasses.fields(group)
    ]


NOT_IN_A_FILE = {"help", "settings", "debug"}
_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text in quotes",
    Path: "a path in quotes",
}


def read_settings(path: Path, commands: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Read and check a file: command -> parameter of its function -> value, as Typer's ``default_map`` wants it.

    ``commands`` are the commands by name, as the root command holds them.
    """
    found: dict[str, dict[str, Any]] = {}
    for table, content in _load(path).items():
        if not isinstance(content, dict):
            raise InputError(
                f"{path} must have one table a command, such as [count]; '{table}' stands outside of any table. "
                "Put it under the command that it belongs to."
            )
        if table not in commands:
            raise InputError(f"{path}: there is no command [{table}]. {_nearest(table, commands)}")
        found[table] = _checked(path, table, content, commands[table])
    return found


def option_names(command: Any) -> dict[str, str]:
    """The options of a command: long name without dashes -> parameter of its function."""
    named = {
        name.removeprefix("--"): parameter.name
        for parameter in command.params
        if parameter.param_type_name == "option"
        for name in parameter.opts
        if name.startswith("--")
    }
    return {name: parameter for name, parameter in named.items() if name not in NOT_IN_A_FILE}


def _load(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"The settings file {path} cannot be read: {error.strerror}. Check the path.") from error
    except ValueError as error:
        raise InputError(f"The settings file {path} must be TOML in UTF-8: {error}.") from error


def _checked(path: Path, table: str, content: dict[str, Any], command: Any) -> dict[str, Any]:
    names = option_names(command)
    # The function that Typer sees, whose groups of options are spread out, and not the one behind it.
    types_of = get_type_hints(inspect.unwrap(command.callback, stop=lambda wrapper: hasattr(wrapper, "__signature__")))
    values = {}
    for key, value in content.items():
        name = key.replace("_", "-")
        if name not in names:
            raise InputError(f"{path}: `tokengeom {table}` has no option --{name}. {_nearest(name, names)}")
        wanted = types_of[names[name]]
        if not _fits(value, wanted):
            raise InputError(f"{path}: '{key}' in [{table}] must be {_in_words(wanted)}; got {value!r}.")
        values[names[name]] = value
    return values


def _nearest(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    near = get_close_matches(name, names, 1, cutoff=0.5)
    return f"Did you mean '{near[0]}'?" if near else f"There are: {', '.join(names)}."


def _fits(value: Any, wanted: Any) -> bool:
    """Whether a value of TOML is of a type as the function of a command names it; no number passes for another kind."""
    origin = get_origin(wanted)
    if origin in (Union, types.UnionType):
        return any(_fits(value, one) for one in get_args(wanted))
    if origin is Literal:
        return value in get_args(wanted)
    if origin is list:
        return isinstance(value, list) and all(_fits(item, get_args(wanted)[0]) for item in value)
    if isinstance(value, bool) or wanted is bool:
        return isinstance(value, bool) and wanted is bool
    if wanted is float:
        return isinstance(value, int | float)
    return isinstance(value, str if wanted is Path else wanted)


def _in_words(wanted: Any) -> str:
    origin = get_origin(wanted)
    if origin in (Union, types.UnionType):
        return " or ".join(_in_words(one) for one in get_args(wanted) if one is not types.NoneType)
    if origin is Literal:
        return " or ".join(f'"{choice}"' for choice in get_args(wanted))
    if origin is list:
        return f"a list, each item {_in_words(get_args(wanted)[0])}"
    return _WORDS.get(wanted, getattr(wanted, "__name__", str(wanted)))


def starting_with(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """A completion from names, which are looked up only when they are asked for."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete
