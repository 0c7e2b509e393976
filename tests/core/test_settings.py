"""Settings dataclasses: defaults and documentation in one place, and members that are found as files."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from json import JSONEncoder
from pathlib import Path

import pytest

from tokengeom.core.errors import InputError
from tokengeom.core.settings import (
    default_of,
    did_you_mean,
    make,
    member,
    member_names,
    option,
    options_of,
    share,
    takes,
)


@dataclass(frozen=True)
class Oven:
    degrees: int = option(180, "Temperature of the oven.", panel="Baking")
    fan: bool = option(False, "Use the fan.")


@dataclass(frozen=True)
class Dough:
    flour: str = option("rye", "Which flour.", choices=lambda: ["rye", "wheat"])


@takes(Oven, Dough)
def bake(loaf: str, *, minutes: int = 40, **settings: object) -> tuple[str, int, Oven, Dough]:
    """Bake a loaf."""
    oven, dough = share(settings, Oven, Dough, verb="bake")
    return loaf, minutes, oven, dough


def test_a_verb_shows_the_fields_of_its_settings() -> None:
    parameters = inspect.signature(bake).parameters
    assert list(parameters) == ["loaf", "minutes", "degrees", "fan", "flour"]
    assert parameters["degrees"].default == 180
    assert "Temperature of the oven." in (bake.__doc__ or "")
    assert (bake.__doc__ or "").startswith("Bake a loaf.")


def test_keywords_become_settings_and_a_mistake_is_named() -> None:
    assert bake("x", flour="wheat", fan=True) == ("x", 40, Oven(180, True), Dough("wheat"))
    with pytest.raises(InputError, match=r"bake has no setting 'flor'\. Did you mean 'flour'"):
        bake("x", flor="wheat")
    assert make(Oven, {"degrees": 200}) == Oven(200)
    with pytest.raises(InputError, match="Oven has no setting 'kelvin'"):
        make(Oven, {"kelvin": 1})


def test_a_field_keeps_its_default_and_its_description() -> None:
    fields = options_of(Oven)
    assert default_of(fields["degrees"]) == 180
    assert fields["degrees"].metadata["panel"] == "Baking"
    assert did_you_mean("zzz", ["b", "a"]) == "There are: a, b."


@pytest.fixture
def garden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package whose members are the files of a folder."""
    package = tmp_path / "garden_of_tests"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "base.py").write_text("")
    (package / "rose.py").write_text("from json import JSONEncoder\n\n\nclass Rose(JSONEncoder):\n    pass\n")
    (package / "weeds.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    return "garden_of_tests"


def test_members_are_files(garden: str) -> None:
    assert member_names(garden) == ["rose", "weeds"]
    assert member(garden, "rose", JSONEncoder, "a plant").__name__ == "Rose"
    with pytest.raises(InputError, match="a plant must be one of rose, weeds; got 'ros'"):
        member(garden, "ros", JSONEncoder, "a plant")
    with pytest.raises(InputError, match="must define one subclass of JSONEncoder; it defines 0"):
        member(garden, "weeds", JSONEncoder, "a plant")
