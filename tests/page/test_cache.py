"""Results are found again by their inputs and never mixed; a changed package makes them again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tokengeom.core.errors import InputError
from tokengeom.page import cache as module
from tokengeom.page.cache import ResultsFolder, results_folder
from tokengeom.page.chosen_settings import Choice
from tokengeom.results.manifests import as_json, sealed
from tokengeom.training.run import Run
from tokengeom.training.train import train
from training_problems import random_statistics


def result(text: str) -> Choice:
    return Choice({"text": text})


def run_at_step(steps: int) -> Run:
    return train(random_statistics(0), "ufm", dim=2, steps=steps)


def keep(results: ResultsFolder, name: str, inputs: Mapping[str, object], text: str = "x") -> str:
    found = results.keep(name, inputs, lambda: result(text))
    assert isinstance(found, Choice)
    return str(found.settings["text"])


def test_the_same_inputs_find_the_result_and_others_make_it_again(tmp_path: Path) -> None:
    assert keep(ResultsFolder(tmp_path / "r", "1"), "a", {"n": 1}, "first") == "first"
    assert keep(ResultsFolder(tmp_path / "r", "1"), "a", {"n": 1}, "second") == "first"
    assert keep(ResultsFolder(tmp_path / "r", "1"), "a", {"n": 2}, "third") == "third"
    assert keep(ResultsFolder(tmp_path / "r", "2"), "a", {"n": 2}, "fourth") == "fourth"


def test_where_there_is_nothing_to_make_nothing_is_saved(tmp_path: Path) -> None:
    results = ResultsFolder(tmp_path / "r", "1")
    assert results.keep("a", {"n": 1}, lambda: None) is None
    assert (results.stages, results.made) == ({}, [])
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("damage", ["change", "remove", "manifest", "folder"])
def test_a_damaged_result_is_made_again(tmp_path: Path, damage: str) -> None:
    keep(ResultsFolder(tmp_path / "r", "1"), "a", {"n": 1}, "first")
    folder = tmp_path / "r/a"
    match damage:
        case "change":
            (folder / "choice.json").write_text("other")
        case "remove":
            (folder / "choice.json").unlink()
        case "manifest":
            (folder / "manifest.json").write_text((folder / "manifest.json").read_text() + " ")
        case "folder":
            folder.rename(tmp_path / "elsewhere")
    results = ResultsFolder(tmp_path / "r", "1")
    assert keep(results, "a", {"n": 1}, "second") == "second"
    assert results.made == ["a"]


def test_what_was_made_from_an_older_result_is_removed_with_it(tmp_path: Path) -> None:
    results = ResultsFolder(tmp_path / "r", "1")
    keep(results, "a", {"n": 1})
    keep(results, "b", {"stages": {"a": results.stages["a"]["key"]}})
    keep(results, "c", {"stages": {name: results.stages[name]["key"] for name in "ab"}})
    keep(results, "d", {"n": 1})
    keep(results, "a", {"n": 2})
    assert set(results.stages) == {"a", "d"}
    assert sorted(path.name for path in (tmp_path / "r").iterdir()) == ["a", "d", "manifest.json"]


def test_snapshots_belong_to_their_key(tmp_path: Path) -> None:
    results = ResultsFolder(tmp_path / "r", "1")
    one, two = ({"n": n} for n in (1, 2))
    first = results.snapshots("run", results.key("run", one))
    run_at_step(1).save(first / "step-000000000001")
    assert results.snapshots("run", results.key("run", one)) == first
    assert first.exists()
    second = results.snapshots("run", results.key("run", two))
    assert second != first
    assert not first.exists()
    second.mkdir(parents=True)
    keep(results, "run", two)
    assert not (tmp_path / "r/unfinished").exists()


def test_other_files_among_snapshots_are_kept(tmp_path: Path) -> None:
    results = ResultsFolder(tmp_path / "r", "1")
    folder = results.snapshots("run", results.key("run", {"n": 1}))
    run_at_step(1).save(folder / "step-000000000001")
    (folder / "notes.txt").write_text("mine")
    keep(results, "run", {"n": 1})
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_snapshots_that_a_kill_left_behind_go_when_the_finished_stage_is_found(tmp_path: Path) -> None:
    results = ResultsFolder(tmp_path / "r", "1")
    keep(results, "run", {"n": 1})
    results.snapshots("run", results.key("run", {"n": 1})).mkdir(parents=True)
    keep(results, "run", {"n": 1})
    assert not (tmp_path / "r/unfinished").exists()


def test_what_a_killed_process_left_behind_is_removed(tmp_path: Path) -> None:
    keep(ResultsFolder(tmp_path / "r", "1"), "a", {"n": 1})
    for name in (".mine", ".tokengeom-dead"):
        (tmp_path / "r" / name / "new").mkdir(parents=True)
        (tmp_path / "r" / name / "new/text").write_text("half")
    (tmp_path / "r/.tokengeom-dead/owner.json").write_text('{"format": "tokengeom-work", "target": "a"}')
    ResultsFolder(tmp_path / "r", "1")
    assert sorted(path.name for path in (tmp_path / "r").iterdir()) == [".mine", "a", "manifest.json"]


def test_a_kill_never_leaves_a_record_that_claims_what_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "p.html"
    results = ResultsFolder(results_folder(page), "1")
    keep(results, "a", {"n": 1})
    results.keep_page(page, {"n": 1}, lambda: "first")

    def killed(*arguments: object) -> None:
        raise SystemExit

    monkeypatch.setattr(Choice, "save", killed)
    with pytest.raises(SystemExit):
        keep(results, "a", {"n": 2})
    again = ResultsFolder(results_folder(page), "1")
    assert (again.stages, again.page) == ({}, {})
    again.keep_page(page, {"n": 2}, lambda: "second")
    monkeypatch.setattr(module, "replace_file", lambda path, content: killed() if path == page else None)
    with pytest.raises(SystemExit):
        again.keep_page(page, {"n": 3}, lambda: "third")
    assert (again.page, page.read_text()) == ({}, "second")


def test_a_stage_with_other_files_or_behind_a_link_is_refused_before_the_work(tmp_path: Path) -> None:
    keep(ResultsFolder(tmp_path / "r", "1"), "a", {"n": 1})
    (tmp_path / "r/a/notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"notes\.txt"):
        ResultsFolder(tmp_path / "r", "1").keep("a", {"n": 2}, lambda: pytest.fail("no work is done"))
    (tmp_path / "r/a/notes.txt").unlink()
    (tmp_path / "r/a").rename(tmp_path / "elsewhere")
    (tmp_path / "r/a").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="is a link"):
        ResultsFolder(tmp_path / "r", "1").keep("a", {"n": 2}, lambda: pytest.fail("no work is done"))


def test_a_page_is_written_again_only_when_its_inputs_or_the_page_changed(tmp_path: Path) -> None:
    page = tmp_path / "p.html"
    results = ResultsFolder(results_folder(page), "1")
    for inputs, expected in (({"n": 1}, 1), ({"n": 1}, 1), ({"n": 2}, 2)):
        results.keep_page(page, inputs, lambda: "page")
        assert results.made.count("page") == expected
    page.write_text("overwritten")
    results.keep_page(page, {"n": 2}, lambda: "page")
    assert page.read_text() == "page"
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["p.html"]


def test_a_folder_with_other_files_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r/thesis.tex").write_text("precious")
    with pytest.raises(InputError, match="was not changed"):
        ResultsFolder(tmp_path / "r", "1")
    assert (tmp_path / "r/thesis.tex").read_text() == "precious"


def test_results_of_a_newer_version_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    keep(ResultsFolder(tmp_path / "r", "1"), "a", {"n": 1})
    manifest = tmp_path / "r/manifest.json"
    record = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**record, "format_version": 99, "tokengeom": "9.9"}))
    with pytest.raises(InputError, match=r"by tokengeom 9\.9.*Update tokengeom"):
        ResultsFolder(tmp_path / "r", "1")
    manifest.write_bytes(as_json(sealed({**record, "stages": {"a": 1}})))
    with pytest.raises(InputError, match="damaged"):
        ResultsFolder(tmp_path / "r", "1")
    manifest.write_bytes(as_json({**record, "page": {"name": "other.html"}}))
    with pytest.raises(InputError, match="was changed after it was saved"):
        ResultsFolder(tmp_path / "r", "1")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (
        "theory/predict.py",
        "page/chosen_settings.py",
        "page/chosen_settings_of.py",
        "figures/path.py",
        "theory/__pycache__/x.pyc",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(module, "PACKAGE", tmp_path)
    return tmp_path


def hashes() -> tuple[str, str]:
    module.code_hash.cache_clear()
    found = module.code_hash(("theory", "page.chosen_settings")), module.code_hash()
    module.code_hash.cache_clear()
    return found


@pytest.mark.parametrize(
    ("name", "declared", "page"),
    [
        ("theory/predict.py", True, True),
        ("page/chosen_settings.py", True, True),
        ("page/chosen_settings_of.py", False, True),
        ("figures/path.py", False, True),
        ("theory/__pycache__/x.pyc", False, False),
    ],
)
def test_the_hash_follows_the_code_that_is_named(package: Path, name: str, declared: bool, page: bool) -> None:
    before = hashes()
    (package / name).write_text("changed")
    after = hashes()
    assert (before[0] != after[0], before[1] != after[1]) == (declared, page)
