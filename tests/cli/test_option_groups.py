"""A group of options is had as options, and handed over as a group."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Annotated

from tokengeom.cli.options import expanded, gathered


@dataclass(frozen=True)
class Pair:
    left: Annotated[int, "first"] = 1
    right: str = "b"


def command(name: str, *, pair: Pair, last: bool = False) -> None:
    """Stand-in of a command."""


def test_fields_take_the_place_of_their_group_with_types_and_defaults() -> None:
    flat, groups = expanded(inspect.signature(command, eval_str=True).parameters.values())
    assert [p.name for p in flat] == ["name", "left", "right", "last"]
    assert groups == {"pair": Pair}
    left = flat[1]
    assert (left.default, left.annotation) == (1, Annotated[int, "first"])


def test_values_come_back_as_the_group() -> None:
    values = {"name": "n", "left": 5, "right": "c", "last": True}
    assert gathered(values, {"pair": Pair}) == {"name": "n", "pair": Pair(5, "c"), "last": True}
