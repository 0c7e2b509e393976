"""One strict converter between dataclasses and JSON, for everything that results save.

`to_plain` writes a dataclass as an object with the names of its fields, in their order, and `from_plain` reads it back:
every entry must be there, have the type of its field and lie in its range, and no other entry may be there. What is not
as it must be is refused with the folder and the place in it. Types are those that JSON has (``str``, ``bool``, ``int``,
``float``, None, lists, objects), and tuples, mappings, unions, literals and dataclasses made of them; `Annotated` adds
what a type does not say:

`Number`    a float that may be NaN, saved as null; a plain ``float`` must be finite
`Extended`  a float that may be infinite, saved as it is; so are properties in ``derived`` of the same dataclass
`Digest`    a SHA-256 as 64 hexadecimal digits
`Within`    ends of the range of a number, as in ``Annotated[int, Within(1)]``
`Vector`    a vector of floats, saved as a list
`Skipped`   a field that is not saved and gets its default when it is read
`Added`     a field that files of earlier versions do not have, and its value there

An object that users see as it is, and of which only some entries have known types, is a ``TypedDict``: these entries
are checked, any others may be there, and the object is left as it is.

A dataclass whose object has another order than its fields names them in ``saved_order``, and one with a field that had
another name in earlier versions says so in ``renamed`` (old name -> new name), or in ``dropped`` where it is not read
any more.
A dataclass whose object has more entries than fields, each computed from them, names these properties in ``derived``;
they are written last and compared when they are read. One whose ``__post_init__`` refuses its fields raises ValueError
with what is wrong, or an error of ours, which names its own reason.
"""

from __future__ import annotations

import dataclasses
import math
import re
import types
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

import numpy as np

from tokengeom.core.errors import InputError
from tokengeom.core.numerics import Float
from tokengeom.results.manifests import OF_EVERY_MANIFEST, as_json, read_json

T = TypeVar("T")
LARGEST, LARGEST_FLOAT = 2**63 - 1, 1.7976931348623157e308
"""Largest whole number, and largest float, that are read."""


@dataclasses.dataclass(frozen=True)
class Within:
    """The range of a number."""

    least: float = 0
    most: float = math.inf


@dataclasses.dataclass(frozen=True)
class Matches:
    """A regular expression for the whole of a text, and what such a text is."""

    pattern: str
    what: str


@dataclasses.dataclass(frozen=True)
class Added:
    """Value of a field in files of earlier versions, which do not have it."""

    before: Any


class _Mark(Enum):
    """What a type does not say of a field."""

    NAN_AS_NULL = auto()
    INFINITE = auto()
    AS_LIST = auto()
    SKIPPED = auto()


Number = Annotated[float, _Mark.NAN_AS_NULL]
Extended = Annotated[float, _Mark.INFINITE]
Vector = Annotated[Float, _Mark.AS_LIST]
Digest = Annotated[str, Matches("[0-9a-f]{64}", "a hash of 64 hexadecimal digits")]
Skipped = _Mark.SKIPPED
"""Marks a field that is not saved: ``Annotated[SomeType, Skipped]``."""


def to_plain(value: Any) -> Any:
    """A value as plain data for JSON: dataclasses as objects, tuples as lists, NaN and infinities as null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields, derived = _saved_fields(type(value)), getattr(value, "derived", ())
        extended = any(_Mark.INFINITE in getattr(kind, "__metadata__", ()) for kind in fields.values())
        values = {name: getattr(value, name) for name in (*fields, *derived)}
        return {
            name: item if extended and isinstance(item, float) and math.isinf(item) else to_plain(item)
            for name, item in values.items()
        }
    if isinstance(value, Mapping):
        return {name: to_plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.ndarray):
        return to_plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def from_plain(kind: Callable[..., T], content: object, folder: Path, place: str = "") -> T:
    """The dataclass that `to_plain` wrote.

    ``folder``, ``place``  Where the content was read from, and what it is a part of, for the message of an error.
    """
    if not isinstance(content, dict):
        raise damaged(folder, f"{place or 'its content'} must be an object with names; got {shown(content)}")
    fields, derived = _saved_fields(kind), getattr(kind, "derived", ())
    named = f"{place}, " if place else ""
    renamed, dropped = getattr(kind, "renamed", {}), getattr(kind, "dropped", ())
    # An entry under both names is left under its old one, which is then refused.
    now = {name: new for name, new in renamed.items() if new not in content}
    content = _added(fields) | {now.get(name, name): item for name, item in content.items() if name not in dropped}
    for name in content:
        if name not in fields and name not in derived:
            raise damaged(folder, f"{named}{shown(name)} is not an entry of it")
    for name in (*fields, *derived):
        if name not in content:
            raise damaged(folder, f"{named}{name} is missing")
    values = {name: _read(fields[name], content[name], folder, f"{named}{name}") for name in fields}
    try:
        result = kind(**values)
    except ValueError as error:
        raise damaged(folder, f"{named}{error}") from error
    for name in derived:
        if not _agrees(to_plain(getattr(result, name)), to_plain(content[name])):
            raise damaged(folder, f"{named}{name} is {shown(content[name])}, and its parts give another value")
    return result


def _added(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Value of each field that earlier versions did not have, in their files."""
    marks = {name: getattr(kind, "__metadata__", ()) for name, kind in fields.items()}
    return {name: to_plain(mark.before) for name, of in marks.items() for mark in of if isinstance(mark, Added)}


def _agrees(computed: object, saved: object) -> bool:
    """Whether values are equal; numbers that are computed from others may differ in their last digits."""
    if isinstance(computed, float) and isinstance(saved, float):
        return math.isclose(computed, saved, rel_tol=1e-9, abs_tol=1e-12)
    return computed == saved


def from_manifest(kind: Callable[..., T], manifest: Mapping[str, Any], folder: Path) -> T:
    """The dataclass whose entries a manifest has beside those of every manifest."""
    return from_plain(kind, {name: item for name, item in manifest.items() if name not in OF_EVERY_MANIFEST}, folder)


def from_entries(kind: Callable[..., T], content: Mapping[str, Any], folder: Path) -> T:
    """The dataclass whose fields are some of the entries of an object, such as of a manifest that states more."""
    names = (*_saved_fields(kind), *getattr(kind, "derived", ()))
    return from_plain(kind, {name: content[name] for name in names if name in content}, folder)


def write_json(path: Path, value: Any) -> None:
    """Write a dataclass, or plain data, as a JSON file."""
    path.write_bytes(as_json(to_plain(value)))


def read_json_as(kind: Callable[..., T], path: Path) -> T:
    """The dataclass in a JSON file that `write_json` wrote."""
    return from_plain(kind, read_json(path), path.parent)


def damaged(folder: Path, what: str) -> InputError:
    """The error that names a saved folder and what is wrong in it."""
    return InputError(f"{folder} is damaged: {what}. Make the result again.")


def shown(value: object) -> str:
    """A value as part of a sentence; control characters are escaped, and long ones cut."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


@cache
def _saved_fields(kind: type[Any]) -> dict[str, Any]:
    """Types of the fields of a dataclass that are saved, by name."""
    types_of = get_type_hints(kind, include_extras=True)
    fields = getattr(kind, "saved_order", None) or [field.name for field in dataclasses.fields(kind)]
    return {name: types_of[name] for name in fields if Skipped not in getattr(types_of[name], "__metadata__", ())}


def _read(expected: Any, content: Any, folder: Path, place: str) -> Any:
    """A value of the expected type."""
    marks: Sequence[Any] = ()
    if get_origin(expected) is Annotated:
        expected, *marks = get_args(expected)
    if _Mark.AS_LIST in marks:
        items = _list(content, folder, place)
        return np.array([_read_scalar(float, marks, item, folder, f"{place} {k}") for k, item in enumerate(items)])
    origin, inside = get_origin(expected), get_args(expected)
    if dataclasses.is_dataclass(expected) and isinstance(expected, type):
        return from_plain(expected, content, folder, place)
    if is_typeddict(expected):
        return _read_known_entries(expected, content, folder, place)
    if origin in (Union, types.UnionType):
        return _read_union(inside, content, folder, place)
    if (origin is tuple and len(inside) == 2 and inside[1] is Ellipsis) or origin in (list, Sequence):
        items = [_read(inside[0], item, folder, f"{place} {k}") for k, item in enumerate(_list(content, folder, place))]
        return items if origin is list else tuple(items)
    if origin is tuple:
        if len(_list(content, folder, place)) != len(inside):
            raise damaged(folder, f"{place} must have {len(inside)} entries; got {shown(content)}")
        return tuple(_read(kind, item, folder, place) for kind, item in zip(inside, content, strict=True))
    if origin in (dict, Mapping) or expected is dict:
        if not isinstance(content, dict):
            raise damaged(folder, f"{place} must be an object with names; got {shown(content)}")
        value_type = inside[1] if inside else Any
        return {name: _read(value_type, item, folder, f"{place}, {name}") for name, item in content.items()}
    if origin is Literal:
        if content not in inside or type(content) not in {type(choice) for choice in inside}:
            raise damaged(folder, f"{place} must be one of {', '.join(map(str, inside))}; got {shown(content)}")
        return content
    return content if expected in (Any, object) else _read_scalar(expected, marks, content, folder, place)


def _read_union(kinds: Sequence[Any], content: Any, folder: Path, place: str) -> Any:
    """None where null is allowed; otherwise the first type that fits."""
    if content is None and type(None) in kinds:
        return None
    others = [kind for kind in kinds if kind is not type(None)]
    for kind in others[:-1]:
        try:
            return _read(kind, content, folder, place)
        except InputError:
            continue
    return _read(others[-1], content, folder, place)


def _read_known_entries(kind: Any, content: Any, folder: Path, place: str) -> dict[str, Any]:
    """An object as it is, once its entries of known types are checked."""
    types_of = get_type_hints(kind, include_extras=True)
    for name, item in _read(dict[str, Any], content, folder, place).items():
        _read(types_of.get(name, Any), item, folder, f"{place}, {name}")
    for name in sorted(kind.__required_keys__ - content.keys()):
        raise damaged(folder, f"{place}, {name} is missing")
    return dict(content)


def _list(content: Any, folder: Path, place: str) -> list[Any]:
    if not isinstance(content, list):
        raise damaged(folder, f"{place} must be a list; got {shown(content)}")
    return content


def _read_scalar(expected: Any, marks: Sequence[Any], content: Any, folder: Path, place: str) -> Any:
    value, must = content, ""
    if expected is float:
        if _Mark.NAN_AS_NULL in marks and content is None:
            return math.nan
        is_number = isinstance(content, int | float) and not isinstance(content, bool) and abs(content) <= LARGEST_FLOAT
        is_number = is_number or (_Mark.INFINITE in marks and content in (math.inf, -math.inf))
        value, must = (float(content), "") if is_number else (content, "a finite number")
    elif expected is int:
        must = "" if type(content) is int and abs(content) <= LARGEST else "a whole number"
    elif expected in (str, bool):
        must = "" if isinstance(content, expected) else {str: "a text", bool: "true or false"}[expected]
    elif expected is type(None):
        must = "" if content is None else "null"
    else:
        raise TypeError(f"{place}: fields of type {expected} cannot be saved")
    for mark in () if must else marks:
        if isinstance(mark, Within) and not mark.least <= value <= mark.most:
            must = f"in {mark.least:g}..{mark.most:g}" if math.isfinite(mark.most) else f"at least {mark.least:g}"
        if isinstance(mark, Matches) and re.fullmatch(mark.pattern, value) is None:
            must = mark.what
    if must:
        raise damaged(folder, f"{place} must be {must}; got {shown(content)}")
    return value
