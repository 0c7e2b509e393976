"""A failure is one paragraph and an exit code; results go to the standard output and nothing else does."""

from __future__ import annotations

import errno
import json
import os
import pty
import subprocess
import sys
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from pyarrow import ArrowInvalid

from command_line import COMMAND, Done, assert_one_paragraph, say
from tokengeom import NextTokenStatistics, predict
from tokengeom.cli import app
from tokengeom.cli.app import run_command
from tokengeom.theory.features import FeaturePrediction
from waiting import PATIENCE


@pytest.fixture
def stats(tmp_path: Path) -> Path:
    NextTokenStatistics.from_counts(np.array([[3, 1], [0, 2]])).save(tmp_path / "stats")
    return tmp_path / "stats"


def failing(
    error: BaseException, stats: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Done:
    def fail(*given: object, **settings: object) -> None:
        raise error

    monkeypatch.setattr("tokengeom.theory.predict.predict", fail)
    return say(capsys, "predict", stats)


class PanicException(BaseException):
    """What a panic in Rust raises; as there, it is not an `Exception`."""


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            ZeroDivisionError("by zero\nand more"),
            "defect of tokengeom, not of your input: ZeroDivisionError: by zero and",
        ),
        (RecursionError("too deep"), "A library failed on the input or on a setting: RecursionError: too deep"),
        (OverflowError("int too large"), "A library failed on the input or on a setting: OverflowError"),
        (PanicException("index out of bounds"), "failed on the input or on a setting: PanicException: index out of"),
        (ArrowInvalid("a page is damaged"), "The library pyarrow failed on the input or on a setting: ArrowInvalid: a"),
        (
            UnicodeEncodeError("utf-8", "a\udcff", 1, 2, "surrogates not allowed"),
            r"valid Unicode; got 'a\udcff'. Rename",
        ),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 4 TB"), "Memory ran out (DefaultCPUAllocator:"),
        (RuntimeError("can't start new thread"), "Memory ran out (can't start new thread)"),
        (ImportError("libx.so: failed to map segment from shared object"), "Memory ran out (libx.so: failed to map"),
        (MemoryError("Unable to allocate 9 TiB"), "Memory ran out (Unable to allocate 9 TiB)"),
        (OSError(errno.ENOSPC, "No space left on device", "big/file"), "big/file could not be written: No space left"),
        (PermissionError(errno.EACCES, "Permission denied", "closed"), "closed cannot be used: Permission denied"),
    ],
)
def test_an_unexpected_failure_is_one_paragraph(
    error: BaseException,
    message: str,
    stats: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    done = failing(error, stats, monkeypatch, capsys)
    assert_one_paragraph(done)
    assert message in done.err
    assert "intact" in done.err


def test_an_interruption_is_exit_code_130(
    stats: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = failing(KeyboardInterrupt(), stats, monkeypatch, capsys)
    assert done.code == 130
    assert done.err.startswith("Interrupted.")


def test_an_interruption_before_any_command_is_exit_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "handle_signals", interrupted)
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert ended.value.code == 130


def test_markup_in_an_error_stays_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert "'[bold]no[/] [0m.txt'" in say(capsys, "count", "[bold]no[/] [0m.txt").err


def test_prints_and_warnings_never_mix_with_json(
    stats: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def chatty(stats: Path, **settings: object) -> FeaturePrediction:
        print("a library chats")  # noqa: T201 - what the test is about
        warnings.warn("take care", UserWarning, stacklevel=1)
        return predict(stats)

    monkeypatch.setattr("tokengeom.theory.predict.predict", chatty)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        done = say(capsys, "predict", stats, "--json")
        assert json.loads(done.out)["rank"] == 1
        assert done.err == "a library chats\nNote: take care\n"
        assert "take care" not in say(capsys, "predict", stats, "--quiet").err


def on_a_terminal(**environment: str) -> str:
    """What the command writes to the standard error when that is a terminal."""
    ours, theirs = pty.openpty()
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    env = kept | {"TERM": "xterm-256color"} | environment
    process = subprocess.Popen([*COMMAND, "nonsense"], stderr=theirs, stdout=theirs, env=env)
    os.close(theirs)
    written = b""
    # Reading a terminal that no one holds any more is an error on Linux.
    with suppress(OSError):
        while chunk := os.read(ours, 4096):
            written += chunk
    assert process.wait(PATIENCE) == 2
    os.close(ours)
    return written.decode()


def test_colours_are_for_terminals_that_want_them() -> None:
    assert "\x1b[1;31mError:" in on_a_terminal()
    assert "31m" not in on_a_terminal(NO_COLOR="1")


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "json"])
def test_a_full_disk_under_the_output_is_reported(options: list[str], stats: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        command = [*COMMAND, "verify", str(stats), *options]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=env)
    assert done.returncode == 2
    assert "The output could not be written: No space left on device" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_closed_pipe_prints_no_traceback(stats: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([*COMMAND, "verify", stats], stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(
    ("typed", "place", "wanted"),
    [
        ("tokengeom study linear-2", 2, {"linear-2d"}),
        ("tokengeom train --model u", 3, {"ufm"}),
        ("tokengeom count --tokenizer b", 3, {"byte", "bpe", "bpe:4096"}),
    ],
)
def test_the_tab_key_completes_names(
    typed: str, place: int, wanted: set[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {"_TOKENGEOM_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(place)}
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        run_command([])
    assert set(capsys.readouterr().out.split()) == wanted


def test_completion_is_shown_for_a_shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    with pytest.raises(SystemExit) as ended:
        run_command(["--show-completion", "bash"])
    assert ended.value.code == 0
    assert "complete -o default -F _tokengeom_completion tokengeom" in capsys.readouterr().out


IGNORED = """
import signal, sys
from tokengeom.cli import app

class Careless:
    def __del__(self):
        signal.raise_signal(signal.SIGTERM)

def work(arguments=None):
    with app.errors_as_paragraphs():
        Careless()
        while True:
            signal.pause()

app.run_command = work
try:
    app.main()
except app.typer.Exit as ended:
    sys.exit(ended.exit_code)
"""


def test_an_interruption_inside_a_destructor_is_not_lost() -> None:
    done = subprocess.run([sys.executable, "-c", IGNORED], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, "Traceback" in done.stderr) == (130, False), done.stderr
    assert "Interrupted" in done.stderr


SWALLOWED = """
import signal, sys
from tokengeom.cli import app

def work(arguments=None):
    with app.errors_as_paragraphs():
        try:
            signal.raise_signal(signal.{sent})
        except KeyboardInterrupt:
            raise RuntimeError("Query interrupted")

app.run_command = work
try:
    app.main()
except app.typer.Exit as ended:
    sys.exit(ended.exit_code)
"""


@pytest.mark.parametrize("sent", ["SIGINT", "SIGTERM"])
def test_an_error_that_a_library_raises_in_place_of_an_interruption_is_one(sent: str) -> None:
    code = SWALLOWED.format(sent=sent)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, "defect" in done.stderr) == (130, False), done.stderr
    assert "Interrupted" in done.stderr
