"""Settings files: the command line overrides them, mistakes are named, and settings are kept with the result."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from command_line import assert_one_paragraph, say


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("a b a b c a b d a c")
    return tmp_path


def counted(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    done = say(capsys, *arguments, "--json")
    assert done.code == 0, done.err
    data: dict[str, Any] = json.loads(done.out)
    return data


@pytest.mark.parametrize("key", ["top-contexts", "top_contexts"])
def test_keys_are_long_names_of_options(key: str, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (work / "a.toml").write_text(f"[count]\ncontext = 1\n{key} = 2\n[train]\nsteps = 3\n")
    data = counted(capsys, "count", "text.txt", "--settings", "a.toml")
    assert data["contexts"] == 2
    assert data["settings"]["top-contexts"] == 2


def test_the_command_line_overrides_the_file_and_the_second_file_the_first(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (work / "a.toml").write_text("[count]\ncontext = 1\ntop-contexts = 3\n")
    (work / "b.toml").write_text("[count]\ntop-contexts = 1\n")
    assert counted(capsys, "--settings", "a.toml", "count", "text.txt")["contexts"] == 3
    assert counted(capsys, "--settings", "a.toml", "count", "text.txt", "--top-contexts", 2)["contexts"] == 2
    assert counted(capsys, "--settings", "a.toml", "count", "text.txt", "--settings", "b.toml")["contexts"] == 1


def test_what_was_used_is_in_the_manifest_as_it_was_typed(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (work / "a.toml").write_text('[count]\ncontext = 1\npad = true\nout = "stats"\n')
    data = counted(capsys, "count", "text.txt", "--settings", "a.toml", "--min-count", 1)
    command = json.loads((work / "stats/manifest.json").read_text())["command"]
    assert command["name"] == "count"
    assert command["arguments"] == {"corpus": ["text.txt"]}
    assert command["settings"] == data["settings"]
    used = {name: command["settings"][name] for name in ("context", "pad", "min-count", "out", "windows")}
    assert used == {"context": 1, "pad": True, "min-count": 1, "out": "stats", "windows": "sliding"}
    assert str(work) not in json.dumps(command)


def test_the_settings_of_a_result_make_the_same_result(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = counted(capsys, "count", "text.txt", "--context", 2, "--tokenizer", "character", "--pad")
    lines = [f"{name} = {json.dumps(value)}" for name, value in first["settings"].items()]
    (work / "again.toml").write_text("\n".join(["[count]", *lines]))
    again = counted(capsys, "count", "text.txt", "--settings", "again.toml")
    assert {**again, "seconds": 0} == {**first, "seconds": 0}


def test_python_code_leaves_no_command_in_a_manifest(work: Path) -> None:
    from tokengeom import NextTokenStatistics

    NextTokenStatistics.from_counts([[1, 2], [3, 0]]).save(work / "s")
    assert "command" not in json.loads((work / "s/manifest.json").read_text())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[cuont]\ncontext = 1", "no command [cuont]. Did you mean 'count'?"),
        ("[count]\ncontxt = 1", "has no option --contxt. Did you mean 'context'?"),
        ("[count]\nsettings = 'b.toml'", "has no option --settings"),
        ("context = 1", "'context' is outside of any table"),
        ("[count]\ncontext = 1.5", "'context' in [count] must be a whole number; got 1.5."),
        ("[count]\ncontext = true", "must be a whole number; got True"),
        ("[count]\ncontext = '1'", "must be a whole number; got '1'"),
        ("[count]\npad = 1", "'pad' in [count] must be true or false; got 1."),
        ("[count]\nengine = 'duck'", 'must be "duckdb" or "spark"; got \'duck\'.'),
        ("[count]\nout = 3", "must be a path in quotes; got 3."),
        ("[train]\nlearning-rate = 'fast'", "must be a number; got 'fast'."),
        ("[study]\nset = 'steps=3'", "must be a list, each item a string in quotes"),
        ("[count]\ncontext = ", "must be TOML"),
        ("\ufeff[count", "must be TOML"),
        ("a = " + "[" * 100_000, "The settings file a.toml must be TOML in UTF-8"),
        ("[count]\ncontext = " + "9" * 5000, "must be TOML"),
        ('[count]\nout = "a\\u0000b"', r"must be a path in quotes; got 'a\x00b'."),
        ("[count]\ncontext = [" + "1, " * 99 + "1]", "must be a whole number; got [1, 1, 1, "),
        ("#" * (1 << 20) + "\n", "The settings file a.toml is longer than 1,048,576 bytes"),
    ],
)
def test_a_mistake_is_named(content: str, message: str, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (work / "a.toml").write_text(content)
    for arguments in (["--settings", "a.toml", "count"], ["count", "--settings", "a.toml"]):
        done = say(capsys, *arguments, "text.txt")
        assert_one_paragraph(done)
        assert message in done.err


def test_a_file_that_cannot_be_read_is_named(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (work / "latin.toml").write_bytes(b"[count]\ntokenizer = '\xe9'")
    os.mkfifo(work / "pipe.toml")
    for name in ("missing.toml", "latin.toml", ".", "pipe.toml", "/dev/zero"):
        done = say(capsys, "count", "--settings", name)
        assert_one_paragraph(done)
        assert "settings file" in done.err
    with pytest.raises(UnicodeDecodeError):
        tomllib.loads((work / "latin.toml").read_text(encoding="utf-8"))
