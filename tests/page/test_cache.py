"""Results are found again by what went in, and never mixed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tokengeom.errors import InputError
from tokengeom.folders import write_manifest, written_beside
from tokengeom.page.cache import Results, results_folder


def save(folder: Path, text: str) -> str:
    with written_beside(folder, "test") as work:
        (work / "text").write_text(text)
        write_manifest(work, "test", 1, {})
    return text


def load(folder: Path) -> str:
    return (folder / "text").read_text()


def keep(results: Results, name: str, inputs: dict[str, object], text: str = "x") -> str:
    return results.keep(name, inputs, lambda folder: save(folder, text), load)


def test_the_same_inputs_find_the_result_and_others_make_it_anew(tmp_path: Path) -> None:
    assert keep(Results(tmp_path / "r", "1"), "a", {"n": 1}, "first") == "first"
    assert keep(Results(tmp_path / "r", "1"), "a", {"n": 1}, "second") == "first"
    assert keep(Results(tmp_path / "r", "1"), "a", {"n": 2}, "third") == "third"
    assert keep(Results(tmp_path / "r", "2"), "a", {"n": 2}, "fourth") == "fourth"


@pytest.mark.parametrize("harm", ["change", "remove", "manifest", "folder"])
def test_a_harmed_result_is_made_again(tmp_path: Path, harm: str) -> None:
    keep(Results(tmp_path / "r", "1"), "a", {"n": 1}, "first")
    folder = tmp_path / "r/a"
    match harm:
        case "change":
            (folder / "text").write_text("other")
        case "remove":
            (folder / "text").unlink()
        case "manifest":
            (folder / "manifest.json").write_text((folder / "manifest.json").read_text() + " ")
        case "folder":
            folder.rename(tmp_path / "elsewhere")
    results = Results(tmp_path / "r", "1")
    assert keep(results, "a", {"n": 1}, "second") == "second"
    assert results.made == ["a"]


def test_what_came_from_an_older_result_goes_with_it(tmp_path: Path) -> None:
    results = Results(tmp_path / "r", "1")
    keep(results, "a", {"n": 1})
    keep(results, "b", {"stages": {"a": results.stages["a"]["key"]}})
    keep(results, "c", {"stages": {name: results.stages[name]["key"] for name in "ab"}})
    keep(results, "d", {"n": 1})
    keep(results, "a", {"n": 2})
    assert set(results.stages) == {"a", "d"}
    assert sorted(path.name for path in (tmp_path / "r").iterdir()) == ["a", "d", "manifest.json"]


def test_snapshots_belong_to_their_inputs(tmp_path: Path) -> None:
    results = Results(tmp_path / "r", "1")
    first = results.snapshots("run", {"n": 1})
    (first / "step-1").mkdir(parents=True)
    assert results.snapshots("run", {"n": 1}) == first
    assert first.exists()
    second = results.snapshots("run", {"n": 2})
    assert second != first
    assert not first.exists()
    second.mkdir()
    results.forget_snapshots("run", {"n": 2})
    assert not (tmp_path / "r/unfinished").exists()


def test_what_a_killed_process_left_behind_is_swept_up(tmp_path: Path) -> None:
    keep(Results(tmp_path / "r", "1"), "a", {"n": 1})
    (tmp_path / "r/.a-k3x9").mkdir()
    (tmp_path / "r/.a-k3x9/text").write_text("half")
    Results(tmp_path / "r", "1")
    assert sorted(path.name for path in (tmp_path / "r").iterdir()) == ["a", "manifest.json"]


def test_a_page_is_written_again_only_when_its_inputs_or_itself_changed(tmp_path: Path) -> None:
    page = tmp_path / "p.html"
    results = Results(results_folder(page), "1")
    for inputs, expected in (({"n": 1}, 1), ({"n": 1}, 1), ({"n": 2}, 2)):
        results.keep_page(page, inputs, lambda: "page")
        assert results.made.count("page") == expected
    page.write_text("scribbled over")
    results.keep_page(page, {"n": 2}, lambda: "page")
    assert page.read_text() == "page"
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["p.html"]


def test_a_foreign_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r/thesis.tex").write_text("precious")
    with pytest.raises(InputError, match="left alone"):
        Results(tmp_path / "r", "1")
    assert (tmp_path / "r/thesis.tex").read_text() == "precious"


def test_results_from_a_newer_version_and_damaged_ones_are_refused_in_words(tmp_path: Path) -> None:
    Results(tmp_path / "r", "1")
    manifest = tmp_path / "r/manifest.json"
    record = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**record, "format_version": 99, "tokengeom": "9.9"}))
    with pytest.raises(InputError, match=r"by tokengeom 9\.9.*Update tokengeom"):
        Results(tmp_path / "r", "1")
    manifest.write_text(json.dumps({**record, "stages": {"a": 1}}))
    with pytest.raises(InputError, match="damaged"):
        Results(tmp_path / "r", "1")
