"""A signal at any line of saving leaves nothing behind, and one that comes too late does not kill the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from command_line import run

INTERRUPTED = """
import contextlib, os, signal, sys
from pathlib import Path
import typer
from tokengeom.cli import app
from tokengeom.results import folders
from tokengeom.results.manifests import changed_files, write_manifest

home, how = Path(sys.argv[1]), sys.argv[2]
CODE = (folders.__file__, contextlib.__file__)
folders._sync = lambda path: None  # waiting for the disk a thousand times takes a minute
if how == "two renames":
    folders.exchange = lambda *names: False

def save(text):
    with folders.atomic_folder(home / "r", "tokengeom-test") as work:
        (work / "a").write_text(text)
        write_manifest(work, "tokengeom-test", 1, {"text": text})

def command(number):
    seen = 0
    def count(frame, event, argument):
        nonlocal seen
        if frame.f_code.co_filename not in CODE:
            return None
        seen += event != "call"
        if seen == number:
            seen += 1
            signal.raise_signal(signal.SIGTERM)
        return count
    try:
        with app.errors_as_paragraphs():
            sys.settrace(count)
            save("new")
            sys.settrace(None)
    except typer.Exit as ended:
        return ended.exit_code
    return 0

def run_and_end(number):
    app.run_command = lambda: command(number)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        app.main()
    except SystemExit as ended:
        import atexit
        atexit._run_exitfuncs()
        os._exit(ended.code)

number, code = 0, 130
while code:
    number += 1
    save("old")
    child = os.fork()
    if child == 0:
        run_and_end(number)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    left = sorted(path.name for path in home.iterdir())
    print(code, (home / "r/a").read_text(), left == ["r"], changed_files(home / "r") == [])
"""


@pytest.mark.parametrize("how", ["exchange", "two renames"])
def test_a_signal_at_any_line_of_saving_leaves_the_old_result_or_the_new_one_and_nothing_else(
    tmp_path: Path, how: str
) -> None:
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path), how]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert len(lines) > 100, "as many signals as there are lines"
    assert set(lines[:-1]) == {"130 old True True", "130 new True True"}
    assert lines[-1] == "0 new True True"


LATE = """
import atexit, os, signal, sys
from tokengeom.cli import app

def kill():
    os.kill(os.getpid(), signal.SIGTERM)

class Kills:
    def __del__(self, kill=kill):
        kill()

where, command = sys.argv.pop(1), app.run_command
if where == "teardown":
    sys.modules["late"] = Kills()

def then():
    code = command()
    if where == "exit":
        atexit.register(kill)
    return code

app.run_command = then
app.main()
"""


@pytest.mark.parametrize(("where", "code"), [("exit", 130), ("teardown", 0), ("never", 0)])
def test_a_signal_after_the_result_was_saved_does_not_kill_the_process(tmp_path: Path, where: str, code: int) -> None:
    done = run(where, "stories", tmp_path / "stories.txt", "--words", 100, code=LATE)
    assert (done.returncode, done.stderr) == (code, "")
    assert (tmp_path / "stories.txt").is_file()
