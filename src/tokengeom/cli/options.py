"""Options of commands, made from settings dataclasses, and read from TOML files.

A command's function has a parameter whose type is a settings dataclass (`tokengeom.core.settings`); each field becomes
an option with the field's default and help, and the function receives the dataclass. So a default and its documentation
are those of the Python function that the command calls.

A settings file has one table per command; keys are the long names of its options, and the command line overrides it::

    [count]
    context = 4
    top-contexts = 400        # top_contexts is accepted too

    [train]
    model = "ufm"
    dim = 128
"""

from __future__ import annotations

import dataclasses
import inspect
import tomllib
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field
from operator import getitem
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from tokengeom.core.errors import InputError
from tokengeom.core.settings import default_of, did_you_mean
from tokengeom.core.system import open_plain
from tokengeom.results.convert import shown

Groups = Mapping[str, type[Any]]


def optional(help_text: str, *names: str, panel: str | None = None, **how: Any) -> Any:
    """An option that may be left out, which is all that its help says about its default."""
    return typer.Option(*names, help=help_text, rich_help_panel=panel, show_default=False, **how)


MODEL, OUTPUT = "Model and text", "Output"
ModelText = Annotated[
    list[str] | None,
    optional(
        "Text to count with the model's own tokenizer: what `tokengeom count` takes; may be repeated.", panel=MODEL
    ),
]
"""The option --text of commands that read a trained model."""
Statistics = Annotated[Path, typer.Argument(metavar="STATS", help="Folder that `tokengeom count --out` wrote.")]
Out = Annotated[Path | None, optional("Folder to save the result in.", "--out", "-o", panel=OUTPUT)]
Runs = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="RUN",
        help="Folder that `tokengeom train --out` wrote. Further ones, of the same training with other seeds, say how "
        "much of the geometry is reproducible, and what share of that is explained.",
        show_default=False,
    ),
]
"""The argument RUN of commands that compare runs."""

NOT_IN_A_FILE = {"help", "settings", "debug"}
_LARGEST_FILE = 1 << 20
_LARGEST_NUMBER = 2**63 - 1
_DESCRIPTIONS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string in quotes",
    Path: "a path in quotes",
}


def expanded(parameters: Iterable[inspect.Parameter]) -> tuple[list[inspect.Parameter], Groups]:
    """Replace each parameter that is a settings dataclass by its options; also return which parameters those were."""
    flat: list[inspect.Parameter] = []
    groups: dict[str, type[Any]] = {}
    for parameter in parameters:
        kind = parameter.annotation
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            groups[parameter.name] = kind
            flat += [_parameter(field, hint) for field, hint in _fields(kind)]
        else:
            flat.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
    names = [parameter.name for parameter in flat]
    repeated = sorted({name for name in names if names.count(name) > 1})
    assert not repeated, f"two settings of one command have the name {repeated[0]}"
    return flat, groups


def gathered(values: Mapping[str, Any], groups: Groups) -> dict[str, Any]:
    """Turn the values of options back into settings, for the command's function."""
    rest = dict(values)
    for name, value in rest.items():
        if isinstance(value, int) and abs(value) > _LARGEST_NUMBER:
            raise InputError(
                f"--{name.replace('_', '-')} must be a whole number of at most {_LARGEST_NUMBER:,}; got one of "
                f"{len(str(abs(value)))} digits."
            )
    for name, kind in groups.items():
        rest[name] = kind(**{field.name: _parsed(field, rest.pop(field.name)) for field, _ in _fields(kind)})
    return rest


def keywords(*settings: object) -> dict[str, Any]:
    """Settings as the keywords of the Python function that takes them."""
    given: dict[str, Any] = {}
    for group in settings:
        given |= {field.name: getattr(group, field.name) for field in dataclasses.fields(group)}  # type: ignore[arg-type]
    return given


def corpus_of(names: Sequence[str]) -> list[str | Path]:
    """Paths, and addresses of a cluster as they are, as `tokengeom.count` takes them."""
    return [name if "://" in name and not name.startswith("http") else Path(name) for name in names]


def require_one_source(model: object, text: object, saved: Mapping[str, object]) -> None:
    """Refuse what does not belong together: a model comes with a text, instead of saved results (name -> value)."""
    if not model:
        if text:
            raise InputError("--text needs --model PATH: name the model's folder, or leave it out.")
    elif any(saved.values()):
        *first, last = saved
        named = f"{', '.join(first)} and {last}"
        raise InputError(f"--model makes its own statistics from --text: leave out {named}.")
    elif not text:
        raise InputError("--model needs --text FILE, which the contexts come from.")


def starting_with(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """A completion from names, which are looked up only when the Tab key asks for them."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete


def _fields(kind: type[Any]) -> list[tuple[Field[Any], Any]]:
    """Fields that the command line has, with their types."""
    hints = get_type_hints(kind)
    fields = [field for field in dataclasses.fields(kind) if not field.metadata.get("python_only", False)]
    return [(field, hints[field.name]) for field in fields]


def _parsed(field: Field[Any], value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value) or None
    parse = field.metadata["parse"]
    return parse(value) if parse is not None and isinstance(value, str) else value


def _parameter(field: Field[Any], hint: Any) -> inspect.Parameter:
    described, default = field.metadata, default_of(field)
    suggestions = described["suggestions"] or (described["choices"] if _is_list(hint) else None)
    kind, names = _typed(field, hint), _names(field, hint, default)
    option = typer.Option(
        *names,
        help=_help(field, hint),
        rich_help_panel=described["panel"] or None,
        show_default=default is not None and not isinstance(default, bool),
        autocompletion=None if suggestions is None else starting_with(suggestions),
    )
    # Through getitem, because a static checker takes no type that is known only at run time.
    annotation = getitem(Annotated, (kind, option))
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _help(field: Field[Any], hint: Any) -> str:
    listed = field.metadata["choices"] is not None and _is_list(hint)
    names = f" Names: {', '.join(field.metadata['choices']())}." if listed else ""
    return f"{field.metadata['help']}{names}"


def _names(field: Field[Any], hint: Any, default: Any) -> list[str]:
    """Names of an option: a flag that is off has one, a flag that is on or undecided can be said both ways."""
    name = field.name.replace("_", "-")
    short = [f"-{field.metadata['short']}"] if field.metadata["short"] else []
    if hint is bool and default is False:
        return [f"--{name}", *short]
    return [f"--{name}/--no-{name}" if bool in _members(hint) else f"--{name}", *short]


def _typed(field: Field[Any], hint: Any) -> Any:
    """The type as Typer takes it: plain types and literals, where Python accepts objects too."""
    members, choices = _members(hint), field.metadata["choices"]
    if _is_list(hint):
        # Typer takes no lists of choices: the help lists them, and the settings refuse other names.
        kind: Any = list[str]
    elif choices is not None or field.metadata["parse"] is not None:
        kind = str if choices is None else Literal[tuple(choices())]
    else:
        kind = next(member for member in (bool, int, float, str, Path, *members) if member in members)
        kind = float if kind is int and float in members else kind
    return kind | None if types.NoneType in members else kind


def _is_list(hint: Any) -> bool:
    return any(get_origin(member) is tuple for member in _members(hint))


def _members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def read_settings(path: Path, commands: Sequence[str], command: Callable[[str], Any]) -> dict[str, dict[str, Any]]:
    """Read and check a settings file: command -> parameter of its function -> value, as Typer's ``default_map``.

    ``commands`` are the names of all commands; ``command`` gives one as the application holds it.
    """
    tables: dict[str, dict[str, Any]] = {}
    for table, content in _load(path).items():
        if not isinstance(content, dict):
            raise InputError(
                f"{path} must have one table per command, such as [count]; '{table}' is outside of any table. "
                "Put it under the command that it belongs to."
            )
        if table not in commands:
            raise InputError(f"{path}: there is no command [{table}]. {did_you_mean(table, commands)}")
        tables[table] = _checked(path, table, content, command(table))
    return tables


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
        with open_plain(path, links=True) as file:
            content = file.read(_LARGEST_FILE + 1)
        if len(content) > _LARGEST_FILE:
            raise InputError(f"{path} is longer than {_LARGEST_FILE:,} bytes. Check the path.")
        return tomllib.loads(content.decode("utf-8"))
    except InputError as error:
        raise InputError(f"The settings file {error}") from error
    except OSError as error:
        raise InputError(f"The settings file {path} cannot be read: {error.strerror}. Check the path.") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"The settings file {path} must be TOML in UTF-8: {error}.") from error


def _checked(path: Path, table: str, content: dict[str, Any], command: Any) -> dict[str, Any]:
    names = option_names(command)
    # The function that Typer sees, whose settings are expanded, and not the one behind it.
    types_of = get_type_hints(inspect.unwrap(command.callback, stop=lambda wrapper: hasattr(wrapper, "__signature__")))
    values = {}
    for key, value in content.items():
        name = key.replace("_", "-")
        if name not in names:
            raise InputError(f"{path}: `tokengeom {table}` has no option --{name}. {did_you_mean(name, names)}")
        wanted = types_of[names[name]]
        if not _fits(value, wanted):
            raise InputError(f"{path}: '{key}' in [{table}] must be {_description(wanted)}; got {shown(value)}.")
        values[names[name]] = value
    return values


def _fits(value: Any, wanted: Any) -> bool:
    """Whether a TOML value has the type of an option; a number is not accepted for another kind."""
    if isinstance(value, str) and "\0" in value:
        return False
    origin = get_origin(wanted)
    if origin in (Union, types.UnionType):
        return any(_fits(value, member) for member in get_args(wanted))
    if origin is Literal:
        return value in get_args(wanted)
    if origin is list:
        return isinstance(value, list) and all(_fits(item, get_args(wanted)[0]) for item in value)
    if isinstance(value, bool) or wanted is bool:
        return isinstance(value, bool) and wanted is bool
    if wanted is float:
        return isinstance(value, int | float)
    return isinstance(value, str if wanted is Path else wanted)


def _description(wanted: Any) -> str:
    origin = get_origin(wanted)
    if origin in (Union, types.UnionType):
        return " or ".join(_description(member) for member in get_args(wanted) if member is not types.NoneType)
    if origin is Literal:
        return " or ".join(f'"{choice}"' for choice in get_args(wanted))
    if origin is list:
        return f"a list, each item {_description(get_args(wanted)[0])}"
    return _DESCRIPTIONS.get(wanted, getattr(wanted, "__name__", str(wanted)))
