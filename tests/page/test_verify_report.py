"""What `verify` says of the results behind a report, whole and tampered with."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline_cases import plain_page, quick, write_text
from tokengeom import Run, verify
from tokengeom.errors import InputError
from tokengeom.folders import as_json, file_hash
from tokengeom.page.cache import key_of, sealed


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        plain_page(patch)
        return quick(write_text(folder / "stories.txt"), folder / "page.html").page.parent


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy"


def files(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "page-results").rglob("*") if path.is_file())


def test_a_whole_report_passes_wherever_it_lies(copy: Path) -> None:
    found = verify(copy / "page-results")
    assert found.ok, found.failed
    said = " ".join(found.checked)
    for tokens in ("the logits are feasible", "its loss comes out again", "its numbers come out again", "page: it is"):
        assert tokens in said


def test_one_changed_byte_in_any_file_is_found(copy: Path) -> None:
    for path in [*files(copy), copy / "page.html"]:
        content = path.read_bytes()
        if path == copy / "page-results/manifest.json":
            continue
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
        assert not verify(copy / "page-results"), path
        path.write_bytes(content)
    assert verify(copy / "page-results")


def test_a_missing_and_an_added_file_are_found(copy: Path) -> None:
    for path in [*files(copy)[:-1], copy / "page.html"]:
        if path == copy / "page-results/manifest.json":
            continue
        kept = path.read_bytes()
        path.unlink()
        assert not verify(copy / "page-results"), path
        path.write_bytes(kept)
    for name in ("notes.txt", "statistics/notes.txt"):
        added = copy / "page-results" / name
        added.write_text("x")
        assert not verify(copy / "page-results"), name
        added.unlink()
    assert verify(copy / "page-results")


def rewritten(folder: Path, change: object) -> None:
    """Let someone change the record and seal it again."""
    manifest = folder / "page-results/manifest.json"
    record = json.loads(manifest.read_text())
    change(record)  # type: ignore[operator]
    manifest.write_bytes(as_json(sealed(record)))


@pytest.mark.parametrize("field", ["seconds", "machine", "command", "space"])
def test_a_record_that_was_touched_anywhere_is_found(copy: Path, field: str) -> None:
    manifest = copy / "page-results/manifest.json"
    record = json.loads(manifest.read_text())
    match field:
        case "seconds":
            record["stages"]["run-ufm"]["seconds"] += 1.0
        case "machine":
            record["machine"]["cores"] = 999
        case "command":
            record["command"] = {"name": "another"}
    manifest.write_bytes(as_json(record) + (b" " if field == "space" else b""))
    assert verify(copy / "page-results").failed == ("the report's manifest is the one that was written",)


def test_inputs_that_are_not_the_keys_are_found(copy: Path) -> None:
    rewritten(copy, lambda record: record["stages"]["run-ufm"]["inputs"]["training"].update(seed=5))
    assert verify(copy / "page-results").failed == ("run-ufm: its key is that of its inputs",)


def test_a_stage_from_another_report_is_found(copy: Path) -> None:
    def forge(record: dict[str, dict[str, dict[str, object]]]) -> None:
        entry = record["stages"]["statistics"]
        entry["inputs"]["text"] = "another"  # type: ignore[index]
        entry["key"] = key_of("statistics", entry["inputs"])  # type: ignore[arg-type]

    rewritten(copy, forge)
    failed = verify(copy / "page-results").failed
    assert "prediction: it was made from the results beside it" in failed
    assert "page: it was made from the results beside it" in failed


def test_numbers_that_do_not_come_out_again_are_found_behind_fitting_hashes(copy: Path) -> None:
    folder = copy / "page-results/run-ufm"
    run = Run.load(folder)
    replace(run, W=2 * run.W).save(folder)
    rewritten(copy, lambda record: record["stages"]["run-ufm"].update(manifest=file_hash(folder / "manifest.json")))
    failed = verify(copy / "page-results").failed
    assert "run-ufm: its loss comes out again" in failed
    assert "comparison-ufm: its numbers come out again" in failed


def test_a_page_elsewhere_is_not_looked_at(copy: Path) -> None:
    rewritten(copy, lambda record: record["page"].update(name="../copy/page.html"))
    assert "page: it is the one that was written" in verify(copy / "page-results").failed


def test_a_folder_of_results_is_checked_result_by_result(copy: Path, tmp_path: Path) -> None:
    for name in ("statistics", "prediction"):
        shutil.copytree(copy / "page-results" / name, tmp_path / "plain" / name)
    assert verify(tmp_path / "plain").ok
    (tmp_path / "plain/statistics/vocabulary.parquet").write_bytes(b"")
    assert verify(tmp_path / "plain").failed == ("statistics: every file is the one that was written",)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="nor in a folder inside it"):
        verify(tmp_path / "empty")
