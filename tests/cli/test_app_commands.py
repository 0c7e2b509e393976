"""Every command behaves in the same way: help, JSON, quiet, errors, debugging and settings files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from command_line import all_commands, assert_one_paragraph, say
from tokengeom import NextTokenStatistics, count, predict, train

COMMANDS = all_commands()
# How each command is called in the folder of `work`; a new command needs a line here, and one in BAD.
WORKING = {
    "cite": ["--format", "text"],
    "compare": ["prediction", "run", "--permutations", "0"],
    "compare-texts": ["stats", "stats", "--permutations", "0"],
    "count": ["text.txt", "--context", "1"],
    "explain": ["prediction", "token 1", "--run", "run"],
    "export": ["run", "--stats", "stats", "--out", "vectors"],
    "neighbours": ["prediction", "context 2"],
    "place": ["tied", "b d"],
    "predict": ["stats"],
    "report": ["stats", "--no-transformer", "--steps", "10", "--dim", "3"],
    "rivals": ["stats", "run", "--permutations", "0"],
    "simulate": ["read", "--loss-gap", "0.5", "--replicates", "2", "--steps", "5"],
    "stories": ["stories.txt", "--words", "50"],
    "study": ["linear-2d", "--set", "steps=50", "--no-save"],
    "train": ["stats", "--dim", "3", "--steps", "5"],
    "verify": ["prediction"],
}
BAD = {
    "cite": ["--format", "nothing"],
    "compare": ["missing", "run"],
    "compare-texts": ["stats", "missing"],
    "count": ["missing.txt"],
    "explain": ["prediction", "nothing"],
    "export": ["missing", "--out", "vectors"],
    "neighbours": ["missing", "token 1"],
    "place": ["prediction", "b d"],
    "predict": ["missing"],
    "report": ["missing.txt"],
    "rivals": ["missing", "run"],
    "simulate": ["missing"],
    "stories": ["text.txt"],
    "study": ["missing"],
    "train": ["missing"],
    "verify": ["missing"],
}
MAY_FAIL_A_CHECK = {"study", "verify"}


@pytest.fixture
def work(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with links to a text and to saved results."""
    for path in saved.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    (folder / "text.txt").write_text("a b a b c a b d")
    counts = np.array([[3, 1, 0], [2, 0, 4], [0, 5, 1], [1, 0, 0]])
    stats = NextTokenStatistics.from_counts(counts)
    stats.save(folder / "stats")
    NextTokenStatistics.from_counts(counts, contexts=np.array([[0], [1], [2]], np.int32)).save(folder / "read")
    predict(stats).save(folder / "prediction")
    counted = count(folder / "text.txt", context=1)
    counted.save(folder / "counted")
    predict(counted, loss_gap=0.3, ties="positions+self").save(folder / "tied")
    train(stats, model="ufm", dim=3, steps=5).save(folder / "run")
    return folder


def test_every_command_is_tested() -> None:
    assert set(COMMANDS) <= set(WORKING) & set(BAD)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_and_exit_codes(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = say(capsys, command, "--help")
    text = re.sub(r"[\s│]+", " ", done.out)
    assert done.code == 0
    assert "For example" in text
    assert f"tokengeom {command} " in text.split("For example")[1]
    assert "Exit codes: 0 done, 1 a check failed, 2 the input" in text
    for option in ("--json", "--quiet", "--settings", "--debug"):
        assert option in text


@pytest.mark.parametrize("command", COMMANDS)
def test_json_is_one_object_with_the_settings(command: str, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = say(capsys, command, *WORKING[command], "--json")
    assert done.code == 0 or (done.code == 1 and command in MAY_FAIL_A_CHECK), done.err
    assert len(done.out.splitlines()) == 1
    assert isinstance(json.loads(done.out)["settings"], dict)


@pytest.mark.parametrize("command", COMMANDS)
def test_quiet_prints_nothing(command: str, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = say(capsys, command, *WORKING[command], "--quiet")
    assert (done.out, done.err) == ("", "")
    assert say(capsys, command, *WORKING[command]).out != "", "and something without it"


@pytest.mark.parametrize("command", COMMANDS)
def test_bad_input_is_one_paragraph(command: str, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert_one_paragraph(say(capsys, command, *BAD[command]))
    wrong = say(capsys, command, *WORKING[command], "--no-such-option")
    assert_one_paragraph(wrong)
    assert f"tokengeom {command} --help" in wrong.err


@pytest.mark.parametrize("command", COMMANDS)
def test_debug_shows_a_traceback_before_and_after_the_name(
    command: str, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (["--debug", command, *BAD[command]], [command, *BAD[command], "--debug"]):
        done = say(capsys, *arguments)
        assert done.code == 2
        assert "Traceback" in done.err
    assert "Traceback" not in say(capsys, command, *BAD[command]).err, "and is forgotten afterwards"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_settings_file_is_read_before_and_after_the_name(
    command: str, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (work / "a.toml").write_text(f"[{command}]\njson = true\n")
    for arguments in (["--settings", "a.toml", command], [command, "--settings", "a.toml"]):
        done = say(capsys, *arguments, *WORKING[command])
        assert isinstance(json.loads(done.out), dict)
    (work / "a.toml").write_text(f"[{command}]\njsn = true\n")
    done = say(capsys, command, "--settings", "a.toml", *WORKING[command])
    assert_one_paragraph(done)
    assert "Did you mean 'json'?" in done.err


def test_the_root_lists_commands_exit_codes_and_completion(capsys: pytest.CaptureFixture[str]) -> None:
    done = say(capsys)
    assert done.code == 0
    for text in (*COMMANDS, "Exit codes", "--install-completion", "--show-completion", "--settings", "--debug"):
        assert text in done.out
    assert_one_paragraph(say(capsys, "nonsense"))
    assert "Did you mean 'count'" in say(capsys, "cuont").err
