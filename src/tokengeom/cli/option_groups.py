"""Options that belong together, as a dataclass: written once, and had by every command with a parameter of its type."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable, Mapping
from typing import Any, get_type_hints

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
