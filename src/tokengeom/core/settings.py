"""Settings as dataclasses: each default and each sentence of documentation is written once, in a field.

A verb's settings are a frozen dataclass whose fields are made with `option`. From it come

* the keywords of the verb in Python (`takes` shows them in its signature and documentation, `make` checks them),
* the options of its command with their help (``tokengeom.cli.options``), and so the keys of a settings file,
* what a manifest keeps.

Members that are added as files (networks, optimizers, rivals, studies) are found by `member_names` and `member`. Values
that many settings have, such as seeds, are checked here.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field
from difflib import get_close_matches
from importlib import import_module
from os import PathLike
from pkgutil import iter_modules
from typing import Any, TypeGuard, TypeVar, cast

from tokengeom.core.errors import InputError, ProblemError, ResourceError, out_of_memory

S = TypeVar("S")
F = TypeVar("F", bound=Callable[..., object])
M = TypeVar("M")

Choices = Callable[[], Iterable[str]]


def option(
    default: Any,
    help: str,  # noqa: A002 - the word that every command line uses
    *,
    panel: str = "",
    short: str = "",
    choices: Choices | None = None,
    suggestions: Choices | None = None,
    parse: Callable[[str], Any] | None = None,
    python_only: bool = False,
) -> Any:
    """A field of a settings dataclass.

    ``default``                   Its default, in Python and on the command line.
    ``help``                      Its documentation: a sentence or two.
    ``panel``                     Heading under which the command's help lists it.
    ``short``                     One-letter name on the command line.
    ``choices``, ``suggestions``  Names that it must be one of, or names among others, looked up when they are needed;
                                  the command line lists the former in its help and completes both.
    ``parse``                     From the text of a command line to the value, for a value that is not a plain string,
                                  number or path.
    ``python_only``               Whether the command line leaves it out.
    """
    described = {"help": help, "panel": panel, "short": short, "parse": parse, "python_only": python_only}
    return dataclasses.field(default=default, metadata={**described, "choices": choices, "suggestions": suggestions})


def option_of(settings: type[Any], name: str, **changes: Any) -> Any:
    """A field with the default and documentation of a field of other settings, apart from what ``changes`` names."""
    field = options_of(settings)[name]
    return dataclasses.field(default=field.default, metadata={**field.metadata, **changes})


def options_of(settings: type[Any]) -> dict[str, Field[Any]]:
    """The fields of a settings dataclass by name."""
    return {field.name: field for field in dataclasses.fields(settings)}


def make(settings: type[S], given: Mapping[str, object], verb: str = "") -> S:
    """Settings from keywords; an unknown one is refused with the name that was likely meant."""
    made: S = share(given, settings, verb=verb or settings.__name__)[0]
    return made


def share(given: Mapping[str, object], *kinds: type[Any], verb: str = "") -> list[Any]:
    """One instance per kind of settings, from keywords that belong to any of them."""
    fields = {name: field for kind in kinds for name, field in options_of(kind).items()}
    for name in sorted(set(given) - set(fields)):
        raise InputError(f"{verb} has no setting '{name}'. {did_you_mean(name, fields)}")
    for name, value in given.items():
        if getattr(value, "ndim", 0):
            raise InputError(f"{name} must be one value; got an array of {getattr(value, 'size', 'several')} numbers.")
    try:
        made = [kind(**{name: value for name, value in given.items() if name in options_of(kind)}) for kind in kinds]
    except (TypeError, AttributeError):
        # Settings that check their values say more than their types do, unless a check fails on a value's type.
        _check_types(fields, given)
        raise
    _check_types(fields, given)
    return made


def _check_types(fields: Mapping[str, Field[Any]], given: Mapping[str, object]) -> None:
    for name, value in given.items():
        _check_type(name, fields[name].type, value, f" Its default is {default_of(fields[name])!r}.")


def _of_class(name: str) -> Callable[[object], bool]:
    """Whether a value is of a class of this name, which is not imported here."""
    return lambda value: any(kind.__name__ == name for kind in type(value).__mro__)


_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "int": ("a whole number", lambda value: _is_one(value) and hasattr(value, "__index__")),
    "float": ("a number", lambda value: _is_one(value) and hasattr(value, "__float__")),
    "bool": ("True or False", lambda value: is_boolean(value)),
    "str": ("text", lambda value: isinstance(value, str)),
    "tuple[str, ...]": ("names", lambda value: isinstance(value, Iterable) and not isinstance(value, bytes)),
    "Path": ("a path", lambda value: isinstance(value, str | PathLike)),
    "Items": ("tokens or contexts", lambda value: isinstance(value, str) and value in ("tokens", "contexts")),
    "Literal['trajectory']": ("trajectory", lambda value: isinstance(value, str) and value == "trajectory"),
    "NextTokenStatistics": ("statistics", _of_class("NextTokenStatistics")),
    "ContextFeatures": ("features of contexts", _of_class("ContextFeatures")),
    "None": ("None", lambda value: value is None),
}
"""Types of settings that are checked here, by their names in annotations: in words, and whether a value fits."""


def _is_one(value: object) -> bool:
    """Whether a value can be one number: no truth value, and no array, whose attributes look like those of a number."""
    return not is_boolean(value) and not getattr(value, "ndim", 0) and not hasattr(value, "mask")


def _check_type(name: str, annotation: object, value: object, hint: str = "") -> None:
    """Refuse a value of another type than the annotation's; other types than these are checked where they are used."""
    kinds = str(annotation).split(" | ")
    allowed = [_TYPES.get(kind) for kind in kinds]
    if {"NextTokenStatistics", "Path"} <= {*kinds}:
        # What reads statistics says how they are made.
        return
    if None in allowed or any(fits(value) for _, fits in filter(None, allowed)):
        return
    words = " or ".join(words for words, _ in filter(None, allowed))
    raise InputError(f"{name} must be {words}; got {' '.join(repr(value).split())}.{hint}")


def takes(*kinds: type[Any]) -> Callable[[F], F]:
    """Show the fields of settings in the signature and documentation of a verb that takes them as ``**settings``.

    The verb's own arguments are refused where a plain type is wanted and they are of another one, as settings are.
    Where its memory runs out, the error is one sentence.
    """

    def documented(verb: F) -> F:
        own = inspect.signature(verb)

        @functools.wraps(verb)
        def checked(*arguments: Any, **given: Any) -> object:
            for name, value in (*zip(own.parameters, arguments, strict=False), *given.items()):
                if name in own.parameters:
                    _check_type(name, own.parameters[name].annotation, value)
            try:
                return verb(*arguments, **given)
            except (MemoryError, RuntimeError) as error:
                if said := out_of_memory(error):
                    raise ResourceError(said) from error
                raise

        named = [given for given in own.parameters.values() if given.kind is not inspect.Parameter.VAR_KEYWORD]
        fields = [field for kind in kinds for field in dataclasses.fields(kind)]
        taken = {given.name for given in named}
        shown = [
            inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=default_of(f), annotation=f.type)
            for f in fields
            if f.name not in taken
        ]
        checked.__signature__ = own.replace(parameters=[*named, *shown])  # type: ignore[attr-defined]
        listed = "\n".join(f"{f.name}\n    {f.metadata['help']}" for f in fields)
        more = f"\n\nSettings\n--------\n{listed}\n" if fields else ""
        checked.__doc__ = f"{inspect.cleandoc(verb.__doc__ or '')}{more}"
        return cast("F", checked)

    return documented


def default_of(field: Field[Any]) -> Any:
    """A field's default value."""
    return field.default_factory() if field.default_factory is not MISSING else field.default


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The nearest of the known names, or all of them."""
    names = sorted(known)
    return nearest_hint(name, names).strip() or f"There are: {', '.join(names)}."


def nearest_hint(name: str, known: Iterable[str]) -> str:
    """A question that names the nearest of the known names, after a space; empty where none is near."""
    names = sorted(known)
    initials = [full for full in names if "_" in full and "".join(word[:1] for word in full.split("_")) == name]
    near = initials or get_close_matches(name, names, 1, cutoff=0.5)
    return f" Did you mean '{near[0]}'?" if near else ""


def member_names(package: str) -> list[str]:
    """Names of the members of a package, one file each.

    ``base`` and packages inside hold what members have in common and are left out. No member is imported.
    """
    modules = iter_modules(import_module(package).__path__)
    return sorted(module.name for module in modules if module.name != "base" and not module.ispkg)


def member(package: str, name: str, base: type[M], what: str) -> type[M]:
    """The class of one member: the final subclass of ``base`` in the file of that name."""
    names = member_names(package)
    if name not in names:
        raise InputError(f"{what} must be one of {', '.join(names)}; got {name!r}.{nearest_hint(str(name), names)}")
    module = import_module(f"{package}.{name}")
    classes = [
        value
        for value in vars(module).values()
        if inspect.isclass(value)
        and issubclass(value, base)
        and value.__module__ == module.__name__
        and not inspect.isabstract(value)
        and not value.__name__.startswith("Abstract")
    ]
    if len(classes) != 1:
        raise InputError(f"{module.__name__} must define one subclass of {base.__name__}; it defines {len(classes)}.")
    return classes[0]


def whole_number(name: str, value: object) -> int:
    """A whole number of any library as Python's, which never wraps around; a boolean is not one."""
    try:
        return operator.index(None if is_boolean(value) else value)  # type: ignore[arg-type]
    except TypeError:
        raise InputError(f"{name} must be a whole number; got {' '.join(repr(value).split())}.") from None


def is_several(value: object) -> TypeGuard[Iterable[Any]]:
    """Whether a value holds others, one after the other; a text, bytes and an array of no axes do not."""
    return isinstance(value, Iterable) and not isinstance(value, str | bytes) and getattr(value, "ndim", 1) != 0


def is_boolean(value: object) -> bool:
    """Whether a value is True or False, of Python or of NumPy."""
    return type(value).__name__ in ("bool", "bool_")


def check_seed(seed: int) -> None:
    """Refuse a seed below 0, which no generator takes."""
    if whole_number("The seed", seed) < 0:
        raise InputError(f"The seed must be a whole number of at least 0; got {seed}.")


def check_tolerance(tolerance: float | None) -> None:
    """Refuse a relative gap to reach that is not between 0 and 1; None stands for the default."""
    if tolerance is not None and not 0.0 < tolerance < 1.0:
        raise ProblemError(f"The tolerance is a relative gap between 0 and 1, such as 1e-6; got {tolerance!r}.")
