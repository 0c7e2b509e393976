"""Inputs that a report cannot use give a message and exit code 2, and change nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

from pipeline_cases import plain_page, write_text
from tokengeom.cli import app as app_module
from tokengeom.cli import report as _report_command  # noqa: F401 - adds the command
from tokengeom.cli import verify as _verify_command  # noqa: F401 - adds the command

QUICK = ["--context", "2", "--top-contexts", "30", "--vocabulary", "20", "--steps", "30", "--dim", "8"]


@pytest.fixture(autouse=True)
def _plain_page(monkeypatch: pytest.MonkeyPatch) -> None:
    plain_page(monkeypatch)


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app_module.app, [str(one) for one in arguments])


def test_the_command_names_the_page_and_gives_the_documented_numbers(tmp_path: Path) -> None:
    text, page = write_text(tmp_path / "stories.txt"), tmp_path / "out" / "page.html"
    first = run("report", text, "--out", page, "--no-transformer", *QUICK)
    assert first.exit_code == 0, first.output
    assert f"The page is {page} (0.0 MB)" in first.stdout.replace("\n", "")
    done = run("report", text, "--out", page, "--no-transformer", *QUICK, "--json")
    data = json.loads(done.stdout)
    assert data["made"] == []
    assert {"page", "seconds", "windows", "contexts", "vocabulary", "entropy_nats", "distinct_supports"} <= set(data)
    assert {"one_hot_share", "nuclear_norm", "lower_bound", "relative_gap", "rank", "proxy_is_exact"} <= set(data)
    assert {"value", "low", "high", "null"} <= set(data["context_similarity"])
    assert Path(data["page"]).is_file()
    checked = run("verify", data["results"], "--json")
    assert checked.exit_code == 0
    assert json.loads(checked.stdout)["failed"] == []
    page.write_text("<title>forged</title>")
    assert run("verify", data["results"]).exit_code == 1
    assert run("report", text, "--out", page, "--no-transformer", *QUICK, "--quiet").stdout == ""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "The corpus is empty"),
        (b" \n\n \n", "The corpus is empty"),
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "not text"),
        (b"fine tokens and then \xff\xfe broken ones", "not valid UTF-8"),
        (b"token " * 500, "at least 2 tokens"),
        (b"ab", "at least 2 tokens"),
    ],
    ids=["empty", "blank", "binary", "not UTF-8", "one token", "one window"],
)
def test_a_text_that_cannot_be_used_is_refused_with_the_reason(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "bad.txt").write_bytes(content)
    done = run("report", tmp_path / "bad.txt", "--out", tmp_path / "page.html", "--no-transformer")
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())
    assert not (tmp_path / "page.html").exists()


def test_a_bad_text_leaves_an_earlier_report_as_it_was(tmp_path: Path) -> None:
    text, page = write_text(tmp_path / "stories.txt"), tmp_path / "page.html"
    assert run("report", text, "--out", page, "--no-transformer", *QUICK).exit_code == 0
    text.write_bytes(b"\xff\xfe")
    assert run("report", text, "--out", page, "--no-transformer", *QUICK).exit_code == 2
    assert run("verify", tmp_path / "page-results").exit_code == 0
    manifest = tmp_path / "page-results/manifest.json"
    record = manifest.read_text()
    manifest.write_text(json.dumps({**json.loads(record), "format_version": 99}))
    newer = run("report", write_text(text), "--out", page, "--no-transformer", *QUICK)
    assert newer.exit_code == 2
    assert "Update tokengeom" in newer.stderr
    manifest.write_text(record)
    assert run("verify", tmp_path / "page-results").exit_code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--vocabulary", "1", "--rest", "drop"], "a larger --vocabulary"),
        (["--steps", "2"], "steps must be 6 or more"),
        (["--tokenizer", "nonsense"], "nonsense"),
        (["--context", "60"], "No document is long enough"),
        (["--separator-id", "-1", "--format", "bin", "--dtype", "uint99"], "uint99"),
    ],
)
def test_options_that_cannot_be_used_are_refused_with_the_reason(
    tmp_path: Path, options: list[str], message: str
) -> None:
    text = tmp_path / "stories.txt"
    text.write_text("the cat saw a dog\n\nthe dog saw the cat")
    done = run("report", text, "--out", tmp_path / "page.html", "--no-transformer", *options)
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())


def test_a_page_that_does_not_end_in_html_is_refused_on_the_command_line(tmp_path: Path) -> None:
    text = write_text(tmp_path / "stories.txt")
    done = run("report", text, "--out", tmp_path / "page.pdf", "--no-transformer", *QUICK)
    assert done.exit_code == 2
    said = "".join(done.stderr.split())
    assert "mustendin.htmlor.htm" in said
    assert "page.pdf" in said
    assert list(tmp_path.iterdir()) == [text]


def test_ctrl_c_says_that_the_same_command_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tokengeom.page.stages.predict", stop)
    done = run("report", write_text(tmp_path / "a.txt"), "--out", tmp_path / "page.html", "--no-transformer", *QUICK)
    assert done.exit_code == 130
    assert "the same command continues" in " ".join(done.stderr.split())


@pytest.mark.slow
@pytest.mark.parametrize("gap", ["", " "], ids=["no gap", "tokens"])
def test_a_line_of_100_megabytes_is_read_within_minutes_and_memory(tmp_path: Path, gap: str) -> None:
    line = "".join(f"w{i % 97}{gap}" for i in range(50_000))
    with (tmp_path / "line.txt").open("w") as file:
        for _ in range(int(1e8 / len(line)) + 1):
            file.write(line)
    done = run("report", tmp_path / "line.txt", "--out", tmp_path / "page.html", "--no-transformer", "--steps", "30")
    assert done.exit_code == 0, done.output
    assert psutil.Process().memory_info().rss < 4e9
