"""What a dataclass is saved as is read back, and anything else is refused with its place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypedDict

import pytest

from tokengeom.core.errors import InputError
from tokengeom.results.convert import (
    Added,
    Digest,
    Extended,
    Number,
    Skipped,
    Within,
    from_entries,
    from_manifest,
    from_plain,
    read_json_as,
    to_plain,
    write_json,
)


@dataclass(frozen=True)
class Part:
    low: Number
    kind: Literal["a", "b"] = "a"

    derived: ClassVar[tuple[str, ...]] = ("doubled",)

    @property
    def doubled(self) -> float:
        return 2 * self.low


@dataclass(frozen=True)
class Whole:
    name: str
    count: Annotated[int, Within(1, 9)]
    share: float
    flag: bool
    parts: tuple[Part, ...]
    by_name: Mapping[str, Part]
    either: int | str | None
    pair: tuple[int, float]
    hash: Digest | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    kept: Annotated[object, Skipped] = None

    def __post_init__(self) -> None:
        if self.share > 1:
            raise ValueError("share must be at most 1")


PARTS = Part(math.nan), Part(1.0, "b")
WHOLE = Whole("x", 3, 0.5, True, PARTS, {"p": Part(2.0)}, "text", (1, 2.5), 64 * "a")
PLAIN = to_plain(WHOLE)


def test_plain_data_are_json_and_come_back(tmp_path: Path) -> None:
    assert PLAIN["parts"] == [
        {"low": None, "kind": "a", "doubled": None},
        {"low": 1.0, "kind": "b", "doubled": 2.0},
    ]
    assert "kept" not in PLAIN
    write_json(tmp_path / "w.json", WHOLE)
    back = read_json_as(Whole, tmp_path / "w.json")
    assert to_plain(back) == PLAIN
    assert math.isnan(back.parts[0].low)
    assert back.by_name == WHOLE.by_name


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"more": 1}, "'more' is not an entry"),
        ({"name": 3}, "name must be a text; got 3"),
        ({"count": 0}, "count must be in 1..9"),
        ({"count": True}, "count must be a whole number; got True"),
        ({"count": 3.0}, "count must be a whole number"),
        ({"share": None}, "share must be a finite number"),
        ({"share": float("inf")}, "share must be a finite number"),
        ({"share": 10**400}, "share must be a finite number"),
        ({"share": 2.0}, "share must be at most 1"),
        ({"flag": 1}, "flag must be true or false"),
        ({"parts": {}}, "parts must be a list"),
        ({"parts": [{"low": 1.0, "kind": "c", "doubled": 2.0}]}, "parts 0, kind must be one of a, b"),
        ({"parts": [{"low": 1.0, "kind": "a", "doubled": 3.0}]}, "parts 0, doubled is 3.0, and its parts give"),
        ({"parts": [{"low": 1.0, "kind": "a"}]}, "parts 0, doubled is missing"),
        ({"by_name": {"p": 3}}, "by_name, p must be an object"),
        ({"either": 2.5}, "either must be a text"),
        ({"pair": [1]}, "pair must have 2 entries"),
        ({"hash": "abc"}, "hash must be a hash of 64"),
        ({"settings": []}, "settings must be an object"),
    ],
)
def test_anything_else_is_refused_with_its_place(change: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=r"^f is damaged: ") as refused:
        from_plain(Whole, {**PLAIN, **change}, Path("f"))
    assert says in str(refused.value)
    assert str(refused.value).endswith("Make the result again.")


def test_every_entry_must_be_there() -> None:
    for name in PLAIN:
        with pytest.raises(InputError, match=f"{name} is missing"):
            from_plain(Whole, {other: value for other, value in PLAIN.items() if other != name}, Path("f"))
    with pytest.raises(InputError, match="its content must be an object"):
        from_plain(Whole, [], Path("f"))


def test_a_whole_number_is_read_as_a_float_where_one_is_needed() -> None:
    assert from_plain(Part, {"low": 2, "kind": "a", "doubled": 4}, Path("f")).low == 2.0


@dataclass(frozen=True)
class Proof:
    bound: Annotated[Extended, Within(-math.inf)]
    residual: Annotated[Extended, Within(0.0)]


def test_a_float_may_be_infinite_where_its_type_says_so() -> None:
    proof = Proof(-math.inf, math.inf)
    assert to_plain(proof) == {"bound": -math.inf, "residual": math.inf}
    assert from_plain(Proof, to_plain(proof), Path("f")) == proof
    for change in ({"bound": math.nan}, {"bound": None}, {"residual": -math.inf}):
        with pytest.raises(InputError, match=r"f is damaged: (bound|residual) must be"):
            from_plain(Proof, to_plain(proof) | change, Path("f"))


def test_entries_of_a_manifest_are_read_without_those_of_every_manifest() -> None:
    manifest = {"format": "some-kind", "files": {}, "seal": "", "bound": 1.0, "residual": 0.0}
    assert from_manifest(Proof, manifest, Path("f")) == Proof(1.0, 0.0)
    with pytest.raises(InputError, match="'more' is not an entry"):
        from_manifest(Proof, manifest | {"more": 1}, Path("f"))


class Known(TypedDict, total=False):
    count: Annotated[int, Within(0)]
    part: Part


class Required(TypedDict):
    name: str


@dataclass(frozen=True)
class Open:
    known: Known
    required: Required


def test_an_object_with_known_entries_is_checked_and_left_as_it_is() -> None:
    content = {"known": {"count": 3, "other": [1.5]}, "required": {"name": "x", "more": None}}
    assert vars(from_plain(Open, content, Path("folder"))) == content
    refused: list[dict[str, Any]] = [
        {"known": {"count": -1}, "required": {"name": "x"}},
        {"known": {"part": {"low": 1.0}}, "required": {"name": "x"}},
        {"known": [], "required": {"name": "x"}},
        {"known": {}, "required": {}},
    ]
    for wrong in refused:
        with pytest.raises(InputError, match=r"folder is damaged: (known|required)"):
            from_plain(Open, wrong, Path("folder"))


def test_some_entries_of_an_object_are_read() -> None:
    assert from_entries(Part, {"low": 1.0, "kind": "b", "doubled": 2.0, "more": 3}, Path("folder")) == Part(1.0, "b")
    with pytest.raises(InputError, match="kind is missing"):
        from_entries(Part, {"low": 1.0}, Path("folder"))


@dataclass(frozen=True)
class Grown:
    """A number that was once called ``old``, and entries that files did not always have."""

    new: float
    share: Annotated[Number, Added(None)] = 0.5
    size: Annotated[int, Within(1), Added(3)] = 9
    names: Annotated[tuple[str, ...], Added(())] = ("x",)

    renamed: ClassVar[dict[str, str]] = {"old": "new"}


def test_a_file_of_an_earlier_version_has_other_names_and_fewer_entries() -> None:
    read = from_plain(Grown, {"old": 2.0}, Path("f"))
    assert (read.new, read.size, read.names) == (2.0, 3, ()), "not the defaults of today"
    assert math.isnan(read.share)
    now = Grown(2.0, 0.1, 4, ("a", "b"))
    assert to_plain(now) == {"new": 2.0, "share": 0.1, "size": 4, "names": ["a", "b"]}
    assert from_plain(Grown, to_plain(now), Path("f")) == now
    assert from_plain(Grown, {"old": 2.0, "size": 7}, Path("f")).size == 7
    for content, says in (
        ({}, "new is missing"),
        ({"old": 2.0, "older": 1}, "'older' is not an entry"),
        ({"old": "2"}, "new must be a finite number"),
        ({"old": 2.0, "size": 0}, "size must be at least 1"),
        ({"old": 2.0, "new": 3.0}, "'old' is not an entry"),
    ):
        with pytest.raises(InputError, match="f is damaged") as refused:
            from_plain(Grown, content, Path("f"))
        assert says in str(refused.value)
