"""`tokengeom count` as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import numpy as np
import pytest

from command_line import run, run_here
from tokengeom import NextTokenStatistics


def test_the_built_in_corpus_to_json_and_a_folder(tmp_path: Path) -> None:
    done = run_here("count", "--top-contexts", 400, "--vocabulary", 104, "--out", tmp_path / "s", "--json")
    assert done.code == 0, done.err
    data = json.loads(done.out)
    loaded = NextTokenStatistics.load(tmp_path / "s")
    assert data["windows"] == loaded.n
    assert data["contexts"] == loaded.m
    assert data["vocabulary"] == loaded.V == 104
    assert data["entropy_nats"] == pytest.approx(loaded.entropy)
    assert data["distinct_supports"] == loaded.groups.count
    assert data["one_hot_share"] == pytest.approx(loaded.one_hot_share)
    assert [cut["after"]["m"] for cut in data["cuts"]] == [400, loaded.m]


def test_the_summary_is_readable(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the cat sat on the mat . the cat sat on the hat .\n\nshort\n\n")
    done = run("count", tmp_path / "a.txt", "--context", 2, env=os.environ | {"COLUMNS": "110"})
    assert done.returncode == 0, done.stderr
    for text in (
        "separated by blank lines",
        "windows n",
        "entropy floor H",
        "the cat",
        "Support sizes",
        "1 of 2 documents is shorter than a window",
    ):
        assert text in done.stdout
    assert "\x1b[" not in done.stdout, "colours only on a terminal"


def test_texts_that_are_split_into_tokens_already_keep_them_and_are_compared_by_them(tmp_path: Path) -> None:
    random, words = Random(0), ["the", "cat", "saw", "a", "dog", "<unk>", "@-@"]
    for name in ("one", "two"):
        said = "".join(f"{' '.join(random.choices(words, k=6))} , it ran . " for _ in range(60))
        (tmp_path / f"{name}.txt").write_text(said)
    first = run_here("count", tmp_path / "one.txt", "--context", 1, "--out", tmp_path / "one")
    assert (first.code, "Tokens are what stands between white space" in " ".join(first.out.split())) == (0, True)
    assert "--tokenizer word" in first.out
    done = run("count", "-", "--context", 1, "--quiet", "--out", tmp_path / "two", stdin=said)
    assert done.returncode == 0, done.stderr
    compared = run_here("compare-texts", tmp_path / "one", tmp_path / "two", "--json")
    assert compared.code == 0, compared.err
    assert json.loads(compared.out)["first"]["tokens"] == len({*words, ",", "it", "ran", "."})


def test_standard_input_and_quiet(tmp_path: Path) -> None:
    done = run("count", "-", "--context", 1, "--quiet", "--out", tmp_path / "s", stdin="a b a b")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert NextTokenStatistics.load(tmp_path / "s").n == 3


def test_shards_are_merged_by_naming_their_pairs(tmp_path: Path) -> None:
    np.array([0, 1, 0], "uint16").tofile(tmp_path / "a.bin")
    np.array([0, 1, 1], "uint16").tofile(tmp_path / "b.bin")
    for name in "ab":
        options = ["--context", 1, "--vocabulary-size", 2, "--pairs", tmp_path / name, "--quiet"]
        assert run_here("count", tmp_path / f"{name}.bin", *options).code == 0
    done = run_here("count", tmp_path / "a", tmp_path / "b", "--json")
    assert json.loads(done.out)["windows"] == 4


def test_stories_are_written(tmp_path: Path) -> None:
    done = run_here("stories", tmp_path / "s.txt", "--words", 500)
    assert done.code == 0
    assert "words written" in done.out
    assert run_here("stories", tmp_path / "s.txt/below-a-file.txt").code == 2
    before = (tmp_path / "s.txt").read_bytes()
    assert run_here("stories", tmp_path / "s.txt", "--words", 900).code == 0
    assert (tmp_path / "s.txt").read_bytes().startswith(before), "stories of the same seed are replaced"
    (tmp_path / "mine.txt").write_text("dear diary")
    refused = run_here("stories", tmp_path / "mine.txt")
    assert (refused.code, (tmp_path / "mine.txt").read_text()) == (2, "dear diary")
    assert "was not changed" in refused.err


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (b"", [], "empty"),
        (b"\x00\x01", [], "is not text"),
        (b"caf\xe9 au lait", [], "--errors replace"),
        (b"one two", [], "shorter --context"),
        (b"a b c d e f", ["--memory", "lots"], "memory limit must be like 2GB"),
        (b"a b c d e f", ["--support", "best"], "support policy"),
        (b"a b c d e f", ["--min-count", "9"], "leaves nothing"),
        (b"a b c d e f", ["--tokenizer", "nonsense"], "neither a kind"),
        (b"a b c d e f", ["--context", "0"], "between 1 and 64"),
        (b"a b c d e f", ["--threads", "0"], "threads must be 1 or more"),
        (b"a b c d e f", ["--temp", "/no/such/folder"], "Cannot write to"),
    ],
)
def test_bad_input_is_one_paragraph_and_exit_code_2(
    tmp_path: Path, content: bytes, options: list[str], message: str
) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    done = run_here("count", tmp_path / "a.txt", "--out", tmp_path / "s", *options)
    assert done.code == 2
    assert done.err.startswith("Error: ")
    assert message in done.err
    assert "Traceback" not in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt"]


def test_debug_shows_a_traceback() -> None:
    assert "Traceback" in run_here("--debug", "count", "missing.txt").err


def test_wrong_options_are_exit_code_2() -> None:
    assert run_here("count", "--windows", "sideways").code == 2
    assert run_here("nonsense").code == 2


def test_help_has_examples() -> None:
    done = run_here("count", "--help")
    assert done.code == 0
    assert "tokengeom count stories.txt --context 4" in done.out


def test_a_disk_too_small_to_spill_is_one_clear_message(tmp_path: Path) -> None:
    """A limit on the size of files stands in for a full disk."""
    rng = np.random.default_rng(0)
    rng.integers(0, 60_000, 3_000_000).astype("uint16").tofile(tmp_path / "a.bin")
    (tmp_path / "tmp").mkdir()
    limited = (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000_000, 20_000_000));"
        "from tokengeom.cli import main; main()"
    )
    arguments = ["count", tmp_path / "a.bin", "--memory", "60MB", "--temp", tmp_path / "tmp", "--out", tmp_path / "s"]
    command = [sys.executable, "-c", limited, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "--temp" in done.stderr or "--memory" in done.stderr
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "tmp").iterdir()) == []
    assert not (tmp_path / "s").exists()


INTERRUPTED = """
import signal, sys
from tokengeom.cli import main

def stop(event, arguments):
    if event == "os.mkdir" and str(arguments[0]).endswith("pairs"):
        print("counting", flush=True)
        signal.raise_signal(signal.{sent})

sys.addaudithook(stop)
main()
"""


@pytest.mark.parametrize("sent", ["SIGINT", "SIGTERM"])
def test_an_interruption_leaves_nothing_behind(tmp_path: Path, sent: str) -> None:
    np.random.default_rng(0).integers(0, 60_000, 800_000).astype("uint16").tofile(tmp_path / "a.bin")
    (tmp_path / "tmp").mkdir()
    arguments = ["count", tmp_path / "a.bin", "--temp", tmp_path / "tmp", "--out", tmp_path / "s", "--memory", "200MB"]
    done = run(*arguments, code=INTERRUPTED.format(sent=sent))
    assert (done.returncode, done.stdout) == (130, "counting\n"), done.stderr
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "tmp").iterdir()) == []
    assert not (tmp_path / "s").exists()
