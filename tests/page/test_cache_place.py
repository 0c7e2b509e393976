"""A report replaces only reports, and only one at a time is written to a folder."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tokengeom as tg
from pipeline_cases import QUICK, plain_page, write_text
from tokengeom.core.errors import InputError, ResourceError
from tokengeom.page.cache import ResultsFolder, require_place
from tokengeom.results.folders import only_writer


@pytest.fixture(autouse=True)
def _plain_page(monkeypatch: pytest.MonkeyPatch) -> None:
    plain_page(monkeypatch)


def test_the_text_itself_is_never_replaced_by_its_page(tmp_path: Path) -> None:
    text = write_text(tmp_path / "stories.txt")
    before = text.read_bytes()
    with pytest.raises(InputError, match=r"must end in \.html or \.htm; got .*stories\.txt"):
        tg.report(text, text, **QUICK)
    link = tmp_path / "link.html"
    link.symlink_to(text)
    with pytest.raises(InputError, match="was not changed"):
        tg.report(text, link, **QUICK)
    assert text.read_bytes() == before


def test_a_text_that_is_itself_a_page_is_not_replaced_either(tmp_path: Path) -> None:
    text = tmp_path / "page.html"
    text.write_text('<meta name="generator" content="tokengeom 1">' + write_text(tmp_path / "a.txt").read_text())
    before = text.read_bytes()
    with pytest.raises(InputError, match="is the text itself"):
        tg.report(text, text, **QUICK)
    assert text.read_bytes() == before


def test_another_file_is_not_changed_and_an_older_page_is_replaced(tmp_path: Path) -> None:
    notes = tmp_path / "notes.html"
    notes.write_text("a year of work")
    with pytest.raises(InputError, match="not a page of tokengeom"):
        require_place(notes)
    assert notes.read_text() == "a year of work"
    page = tmp_path / "page.html"
    page.write_text('<!doctype html><head><meta name="generator" content="tokengeom 0.1.0">')
    require_place(page)
    page.write_text("")
    require_place(page)


def test_a_second_report_is_refused_while_the_first_is_written(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    with only_writer(tmp_path / "page-results"):
        with pytest.raises(InputError, match="Another command is writing"):
            tg.report(write_text(tmp_path / "stories.txt"), page, **QUICK)
        with only_writer(tmp_path / "other-results"):
            pass
    assert not page.exists()
    with only_writer(tmp_path / "page-results"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stories.txt"]


def test_a_killed_report_does_not_lock_out_the_next_one(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tokengeom.results.folders import only_writer\n"
        "with only_writer(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    folder = tmp_path / "page-results"
    command = [sys.executable, "-c", code, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(InputError, match="Another command"), only_writer(folder):
            pass
        other.send_signal(signal.SIGKILL)
    with only_writer(folder):
        pass


def test_a_folder_that_cannot_be_written_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ResourceError, match="Cannot write to"):
        require_place(tmp_path / "file" / "page.html")
    with pytest.raises(ResourceError, match="Cannot make the folder"), only_writer(tmp_path / "file" / "page-results"):
        pass


def test_a_report_inside_the_folder_of_its_text_is_not_read_as_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain_page(monkeypatch)
    write_text(tmp_path / "stories.txt")
    first = tg.report(tmp_path, tmp_path / "page.html", **QUICK)
    again = tg.report(tmp_path, tmp_path / "page.html", **QUICK)
    assert "statistics" in first.made
    assert again.made == ()


def test_a_report_killed_while_it_wrote_its_first_record_can_be_made_again(tmp_path: Path) -> None:
    left = tmp_path / "page-results" / ".tokengeom-abcdefgh"
    left.mkdir(parents=True)
    (left / "owner.json").write_text('{"format": "tokengeom-work", "target": null, "process": 1}')
    (left / "new").write_text("half")
    assert ResultsFolder(tmp_path / "page-results", "0").stages == {}
    assert not left.exists()
    (tmp_path / "page-results" / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="does not hold the results of a report"):
        ResultsFolder(tmp_path / "page-results", "0")
