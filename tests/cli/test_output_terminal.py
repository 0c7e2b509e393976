"""Control characters of any input are shown as escapes on a terminal, in a pipe and in JSON."""

from __future__ import annotations

import json
import logging
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.text import Text

from command_line import all_commands, say, say_on_terminal
from tokengeom import NextTokenStatistics, count, predict, train
from tokengeom.cli.output import (
    TerminalConsole,
    chosen_output,
    escaped_streams,
    print_result,
    printable,
    progress_shown,
)

# Sets the title of a terminal, rings, begins a sequence (C1), deletes, reverses the writing direction, ends a line.
EVIL = "\x1b]0;owned\x07\x9b\x7f\u202e\u2066\u2028[bold]:cat:"
SHOWN = r"\x1b]0;owned\x07\x9b\x7f\u202e\u2066\u2028[bold]:cat:"
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
# What of EVIL may not reach a terminal, where Rich writes escapes of its own.
PIECES = ("\x1b]", "\x07", "\x9b", "\x7f", "\u202e", "\u2066", "\u2028")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    labels = [f"{name}{EVIL}" for name in "abcd"]
    counts = np.array([[3, 1, 0], [2, 0, 4], [0, 5, 1], [1, 0, 0]])
    stats = NextTokenStatistics.from_counts(counts, labels[:3], labels)
    stats.save(folder / "stats")
    NextTokenStatistics.from_counts(counts, contexts=np.array([[0], [1], [2]], np.int32)).save(folder / "read")
    predict(stats).save(folder / "prediction")
    predict(stats).save(folder / "changed")
    (folder / "changed" / f"added{EVIL}").write_text("")
    train(stats, model="ufm", dim=3, steps=5).save(folder / "run")
    (folder / f"text{EVIL}.txt").write_text(f"a b{EVIL} a b{EVIL} c a b d")
    counted = count(folder / f"text{EVIL}.txt", context=1, tokenizer="whitespace")
    counted.save(folder / "counted")
    predict(counted, loss_gap=0.3, ties="positions+self").save(folder / "tied")
    return folder


# How each command is made to print EVIL; a new command needs a line here.
LINES = {
    "cite": ["--format", f"no-format{EVIL}"],
    "compare": ["prediction", "run", "--permutations", "0", "--out", f"out{EVIL}"],
    "compare-texts": ["stats", "stats", "--permutations", "0", "--out", f"out{EVIL}"],
    "count": [f"text{EVIL}.txt", "--context", "1", "--tokenizer", "whitespace", "--out", f"out{EVIL}"],
    "explain": ["prediction", f"a{EVIL}", "--run", "run"],
    "export": ["run", "--stats", "stats", "--out", f"out{EVIL}"],
    "neighbours": ["prediction", f"a{EVIL}"],
    "place": ["tied", f"b{EVIL}"],
    "predict": ["stats", "--out", f"out{EVIL}"],
    "report": ["stats", "--no-transformer", "--steps", "10", "--dim", "3", "--out", f"out{EVIL}.html"],
    "rivals": ["stats", "run", "--permutations", "0", "--out", f"out{EVIL}"],
    "simulate": ["read", "--loss-gap", "0.5", "--replicates", "1", "--steps", "5", "--out", f"out{EVIL}"],
    "stories": [f"out{EVIL}.txt", "--words", "50"],
    "study": [f"no-study{EVIL}"],
    "train": ["stats", "--dim", "3", "--steps", "5", "--out", f"out{EVIL}"],
    "verify": ["changed"],
}


@pytest.fixture
def work(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for path in saved.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", all_commands())
def test_every_command_escapes_on_a_terminal(command: str, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, shown = say_on_terminal(monkeypatch, command, *LINES[command])
    assert code == {"cite": 2, "study": 2, "verify": 1}.get(command, 0), shown
    assert not [piece for piece in PIECES if piece in shown]
    assert SHOWN in shown


def test_tokens_are_escaped_in_tables(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = say(capsys, "count", f"text{EVIL}.txt", "--context", "1", "--tokenizer", "whitespace")
    assert r"'b\x1b]0;owned\x07\x9b\x7f" in done.out
    assert RAW.search(done.out) is None


def test_json_has_the_characters_as_escapes(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = say(capsys, "count", f"text{EVIL}.txt", "--context", "1", "--out", f"out{EVIL}", "--json")
    assert json.loads(done.out)["out"] == f"out{EVIL}"
    assert RAW.search(done.out) is None
    with chosen_output(as_json=True):
        print_result({"name": "\udcff"}, lambda console: None)
    assert capsys.readouterr().out == '{"name": "\\udcff"}\n'


def bad_inputs(folder: Path) -> dict[str, list[object]]:
    """A command line per way in which text of an input gets into an error."""
    pq.write_table(pa.table({f"column{EVIL}": ["a"]}), folder / "a.parquet")
    (folder / "a.toml").write_text(json.dumps(f"key{EVIL}") + " = 1\n")
    (folder / "b.toml").write_text(f"[count]\n{json.dumps(f'key{EVIL}')} = 1\n")
    (folder / "manifest").mkdir()
    (folder / "manifest" / "manifest.json").write_text(json.dumps({"format": f"kind{EVIL}", "format_version": 1}))
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps({"model_type": f"kind{EVIL}"}))
    np.savez(folder / "a.npz", **{f"array{EVIL}": np.ones(2)})  # type: ignore[arg-type]
    return {
        "file": ["count", f"missing{EVIL}.txt"],
        "folder": ["predict", f"missing{EVIL}"],
        "option": ["count", f"--nothing{EVIL}"],
        "value": ["train", "stats", "--model", f"model{EVIL}"],
        "command": [f"command{EVIL}"],
        "column": ["count", "a.parquet", "--column", "text"],
        "top-level key": ["--settings", "a.toml", "count"],
        "key": ["--settings", "b.toml", "count"],
        "manifest": ["predict", "manifest"],
        "checkpoint": ["compare", "--model", "model", "--text", f"text{EVIL}.txt"],
        "array": ["compare", "prediction", "--arrays", "a.npz"],
        "traceback": ["--debug", "count", f"missing{EVIL}.txt"],
    }


def test_errors_escape_what_they_quote(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for road, arguments in bad_inputs(work).items():
        done = say(capsys, *arguments)
        assert done.code == 2, road
        assert RAW.search(done.err) is None, road
        assert r"\x1b]0;owned\x07" in done.err, road


def test_warnings_loggers_and_prints_are_escaped(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def chatty(*given: object, **settings: object) -> None:
        print(f"print{EVIL}")  # noqa: T201 - what the test is about
        sys.stderr.writelines([f"lines{EVIL}\n"])
        logging.getLogger("of a library").warning("logger%s", EVIL)
        warnings.warn(f"warning{EVIL}\nError: not one", UserWarning, stacklevel=1)
        raise ValueError(f"error{EVIL}")

    monkeypatch.setattr("tokengeom.theory.predict.predict", chatty)
    # The handler that writes to the standard error where none is installed; pytest installs its own.
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        done = say(capsys, "predict", "stats")
        code, shown = say_on_terminal(monkeypatch, "predict", "stats")
    assert (done.code, code) == (2, 2)
    assert RAW.search(done.out + done.err) is None
    assert not [piece for piece in PIECES if piece in shown]
    assert "\nError: not one" not in done.err
    for kind in ("print", "lines", "logger", "warning", "error"):
        assert f"{kind}{SHOWN}" in done.out + done.err
        assert f"{kind}{SHOWN}" in shown, "above the bars of a terminal"


def test_progress_shows_titles_and_notes_as_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def work_with_bars(*given: object, **settings: object) -> None:
        with progress_shown() as progress, progress.stage(f"title[/]{EVIL}", 2) as stage:
            stage.advance(1, f"note[/]{EVIL}")
            progress.say(f"sentence[/]{EVIL}")

    monkeypatch.setattr("tokengeom.theory.predict.predict", work_with_bars)
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setattr("tokengeom.statistics.next_token.statistics_of", lambda *_: None)
    _, shown = say_on_terminal(monkeypatch, "predict", "stats")
    assert not [piece for piece in PIECES if piece in shown]
    for text in ("title", "note", "sentence"):
        assert f"{text}[/]{SHOWN}" in shown


def test_the_console_escapes_texts_that_it_did_not_make(capsys: pytest.CaptureFixture[str]) -> None:
    console = TerminalConsole()
    console.print(Text("a\x1b[31mb"), "c\nd\te")
    console.print_lines("f\ng\x00")
    assert capsys.readouterr().out == "a\\x1b[31mb c\\nd\\te\nf\ng\\x00\n"


def test_escaped_streams_keep_lines_and_give_the_streams_back(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout
    with escaped_streams():
        assert sys.stdout.write("a\n\x1bb\n") == 5
        assert sys.stdout.encoding == before.encoding
    assert sys.stdout is before
    assert capsys.readouterr().out == "a\n\\x1bb\n"
    assert printable("\udcff\r") == r"\udcff\r"
